//! Charts of a file's rows: one for each figure, machine and metric; a series for each operation
//! and the rest of its key.

use std::collections::BTreeMap;

use pmep::device::{self, Numbers};
use pmep::points::{Question, answer};
use pmep::{Result, cache};
use pmep_cli::table::Row;

use super::{Panel, Point, Series};

/// Series of a chart; more are in a further one.
const SERIES_MAX: usize = 6;
/// The figures, in the order of the page, by the beginnings of their names.
const FIGURES: [(&str, &str); 12] = [
    ("fast20-2", "Idle latency (OPTANE 7 and 8, FAST'20 2)"),
    ("fast20-3", "Stores in a hot spot (FAST'20 3)"),
    ("vans-chase", "Pointer chases (VANS)"),
    ("nvleak", "Pointer chases, another machine (NVLeak)"),
    (
        "fast20-4",
        "Bandwidth by threads (OPTANE 9 and 10, FAST'20 4)",
    ),
    (
        "fast20-5",
        "Bandwidth by size of access (OPTANE 2 and 11, FAST'20 5)",
    ),
    (
        "fast20-6-mix",
        "Mixes of reads and writes (OPTANE 12 and 13, FAST'20 6)",
    ),
    ("fast20-6-loaded", "Under load (OPTANE 14, FAST'20 6)"),
    ("fast20-10", "Write amplification by region (FAST'20 10)"),
    ("fast20-14", "Bytes between fences (FAST'20 14)"),
    ("fast20-16", "Threads of each module (FAST'20 16)"),
    ("fast20-18", "The other socket (FAST'20 18)"),
];

/// A chart's key, in the order of the page.
type Key = (usize, String, &'static str, &'static str);

/// The charts of rows that the model answers.
pub(super) fn of(rows: &[Row], numbers: &Numbers) -> Vec<Panel> {
    let mut groups: BTreeMap<Key, BTreeMap<String, Vec<Point>>> = BTreeMap::new();
    for row in rows {
        let figure = &row.record.figure;
        let (Some(place), Ok(question), Some(measured)) =
            (longest(figure), &row.question, row.value)
        else {
            continue;
        };
        let (x, axis, unit) = axis(row, question);
        let name = format!("{figure}, {}", row.record.machine);
        let point = Point {
            x,
            measured,
            model: answer(numbers, question),
            line: row.line,
        };
        let chart = groups.entry((place, name, axis, unit)).or_default();
        chart.entry(series(row, question)).or_default().push(point);
    }
    groups
        .into_iter()
        .flat_map(|(key, all)| charts(&key, all))
        .collect()
}

/// The longest beginning of a figure's name: `fast20-2` is not `fast20-2x`.
fn longest(figure: &str) -> Option<usize> {
    let fits = FIGURES
        .iter()
        .enumerate()
        .filter(|(_, (begin, _))| figure.starts_with(begin));
    fits.max_by_key(|(_, (begin, _))| begin.len())
        .map(|(place, _)| place)
}

fn charts((place, name, axis, unit): &Key, all: BTreeMap<String, Vec<Point>>) -> Vec<Panel> {
    let mut series: Vec<Series> = (all.into_iter())
        .map(|(name, mut points)| {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Series { name, points }
        })
        .collect();
    let mut panels = Vec::new();
    while !series.is_empty() {
        let rest = series.split_off(series.len().min(SERIES_MAX));
        panels.push(Panel {
            title: format!("{} - {name}", FIGURES[*place].1),
            axis,
            unit,
            series: std::mem::replace(&mut series, rest),
        });
    }
    panels
}

/// The place of a row on its axis, and the axis's and the value's names.
fn axis(row: &Row, question: &Question) -> (f64, &'static str, &'static str) {
    let number = |text: &str| text.trim().parse().unwrap_or(1.0);
    match *question {
        Question::Bandwidth(pattern, _) => match row.record.figure.starts_with("fast20-4") {
            true => (f64::from(pattern.threads), "threads", "GiB/s"),
            false => (pattern.access as f64, "bytes of an access", "GiB/s"),
        },
        Question::WriteRatio(pattern, _) => (pattern.access as f64, "bytes of an access", "EWR"),
        Question::Chase { region, .. } => (region, "bytes of the region", "ns"),
        Question::Amplification(region) => (region, "bytes of the region", "media bytes a byte"),
        Question::LoadedBandwidth(_, _, delay) => (delay, "steps of delay", "GiB/s"),
        Question::LoadedLatency(_, _, delay) => (delay, "steps of delay", "ns"),
        Question::ThreadMix(_, readers, _) => (f64::from(readers), "threads that read", "MiB/s"),
        Question::TrafficMix(_, _, share, _) => (share, "share of reads", "GiB/s"),
        Question::Latency(_) => (number(&row.record.access), "bytes of an access", "ns"),
        Question::Flushes(interval) => (interval as f64, "bytes of an access", "GiB/s"),
        Question::Groups(pattern, ..) => (pattern.access as f64, "bytes of an access", "GiB/s"),
        Question::Tail(_, region, _) => (region, "bytes of the region", "us"),
        Question::ChainRate(..) => (number(&row.record.threads), "threads", "a second"),
        Question::ChainLatency(..) => (number(&row.record.threads), "threads", "ns"),
    }
}

/// The series of a row: the part of its key that is not on the axis.
fn series(row: &Row, question: &Question) -> String {
    let record = &row.record;
    let threads = || many(&record.threads, "thread");
    let modules = match record.dimms.as_str() {
        "" => String::new(),
        count => format!(", {}", many(count, "module")),
    };
    match question {
        Question::Bandwidth(..) if record.figure.starts_with("fast20-4") => {
            format!("{} {}", record.op, record.pattern)
        }
        Question::ThreadMix(..) => format!("{}{modules}", record.media),
        Question::TrafficMix(..) => format!("{}, {}", record.media, threads()),
        Question::Chase { .. } => format!("block of {} B{modules}", or_usual(&record.stride)),
        Question::Tail(..) => record.metric.clone(),
        Question::Amplification(_) => "store".to_owned(),
        Question::LoadedBandwidth(..) | Question::LoadedLatency(..) => {
            let order = record.pattern.split(';').next().unwrap_or("");
            format!("{} {order}, {}", record.op, threads())
        }
        _ => format!("{} {}, {}{modules}", record.op, record.pattern, threads()),
    }
}

fn many(count: &str, name: &str) -> String {
    match count {
        "1" => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    }
}

fn or_usual(stride: &str) -> &str {
    match stride {
        "" => "64",
        stride => stride,
    }
}

/// Bandwidth of stores past the cache by their write ratio (FAST'20 9). The runs' configurations
/// are not published, so that the line is what the media allow at a measured ratio. Cached and
/// flushed stores are below it for other reasons, and have no dots here.
pub(super) fn write_ratio(rows: &[Row], numbers: &Numbers) -> Option<Panel> {
    let bandwidth = |row: &Row| -> Option<f64> {
        let note = row.note.strip_prefix("bandwidth ")?;
        note.strip_suffix(" GiB/s")?.trim().parse().ok()
    };
    let of = |row: &&Row| row.record.figure == "fast20-9" && row.record.op == "ntstore";
    let mut points: Vec<Point> = (rows.iter().filter(of))
        .filter_map(|row| {
            let (ratio, measured) = (row.value?, bandwidth(row)?);
            Some(Point {
                x: ratio,
                measured,
                model: numbers[device::Key::WriteMedia] * ratio,
                line: row.line,
            })
        })
        .filter(|point| point.measured.is_finite() && point.measured > 0.0)
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    (!points.is_empty()).then(|| Panel {
        title: "Bandwidth by write ratio (FAST'20 9): the line is the media's limit".to_owned(),
        axis: "bytes asked for by bytes written",
        unit: "GiB/s",
        series: vec![Series {
            name: "ntstore".to_owned(),
            points,
        }],
    })
}

/// The shape of Memory Mode (OPTANE 21 and 22): no point of it was measured.
pub(super) fn memory_mode() -> Result<Panel> {
    const CACHE: u64 = 1 << 22;
    const ACCESSES: u64 = 1 << 20;
    let mut points = Vec::new();
    for eighths in [2, 4, 6, 7, 8, 9, 10, 12, 16, 24, 32, 64] {
        let working = CACHE / 8 * eighths;
        let mut cache = cache::Cache::new(CACHE)?;
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut hits = 0_u64;
        for access in 0..2 * ACCESSES {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let hit = cache.access(random % (working / 64) * 64, false) == cache::Outcome::Hit;
            hits += u64::from(hit && access >= ACCESSES);
        }
        points.push(Point {
            x: eighths as f64 / 8.0,
            // By tags, as dots; the line is the closed form.
            measured: hits as f64 / ACCESSES as f64,
            model: cache::hits(working as f64, CACHE as f64),
            line: 0,
        });
    }
    Ok(Panel {
        title: "Memory Mode, shape alone (OPTANE 21 and 22): dots by tags, nothing measured"
            .to_owned(),
        axis: "working set by DRAM",
        unit: "accesses that DRAM serves",
        series: vec![Series {
            name: "read anywhere".to_owned(),
            points,
        }],
    })
}
