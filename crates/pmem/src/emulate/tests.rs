//! Goal: the emulation's numbers and times are those of `pmep`. Method: the table is made anew, and
//! patterns run on a clock that only counts.

use std::fmt::Write as _;

use pmep::analytic::{Event, event, on_device};
use pmep::device::Key;
use pmep::{Device, Machine, Op as Kind, Order, Pattern};

use super::device::Device as Ours;
use super::model::{Model, Op, WORDS};
use crate::Emulation;

/// Ticks in a ns.
const TICKS: f64 = 4.0;
/// Bytes of the emulated pool.
const LEN: u64 = 8 << 30;

/// The times of accesses of `bytes` bytes by one thread to one module.
fn times(device: &Device, kind: Kind, order: Order, bytes: u64) -> Event {
    let mut machine = Machine::plain(1, 4096).expect("a machine");
    machine.generation = device.generation;
    let pattern = Pattern::new(kind, order, bytes, None, 1).expect("a pattern");
    event(&device.numbers, &pattern, &machine)
}

/// A device of lines, of the numbers that the model has of it.
fn lined(device: &Device) -> Ours {
    const SOME: u64 = 256;
    const MANY: u64 = 1 << 20;
    let number = |key: Key| device.numbers[key];
    let of = |kind, order, bytes| times(device, kind, order, bytes).thread_ns;
    let per_byte =
        |kind, order| (of(kind, order, MANY) - of(kind, order, SOME)) / (MANY - SOME) as f64;
    let read_byte = per_byte(Kind::Load, Order::Random);
    let start = |order| of(Kind::Load, order, SOME) - SOME as f64 * read_byte;
    let ns_a_line = |gib_s: f64| 256.0 / (gib_s * pmep::analytic::GIB_S);
    let flushed = times(device, Kind::StoreClwb, Order::Random, SOME);
    Ours {
        name: "",
        line_bytes: 256,
        buffer_lines: number(Key::BufferLines) as u64,
        read_start: start(Order::Random),
        sequential_share: start(Order::Sequential) / start(Order::Random),
        read_byte,
        nt_byte: per_byte(Kind::NtStore, Order::Random),
        flush_byte: per_byte(Kind::StoreClwb, Order::Random),
        flush_floor: flushed.floor_ns,
        line_read: ns_a_line(flushed.read_gib_s),
        line_written: ns_a_line(flushed.write_gib_s),
        word_next: number(Key::SequentialLatency),
        word_buffered: number(Key::BufferLatency),
        word_mapped: number(Key::AitLatency),
        word_far: number(Key::MediaLatency),
        mapped_bytes: number(Key::AitBytes),
        persist: number(Key::StoreLatency),
        read_streams: number(Key::ReadStreams),
        short_streams: number(Key::ShortStreams),
        sequential_streams: number(Key::SequentialStreams),
        read_again: number(Key::ReadAgain),
        full_streams: number(Key::FullStreams),
        part_streams: number(Key::PartStreams),
        read_page: number(Key::ReadPage),
        write_page: number(Key::WritePage),
        write_page_growth: number(Key::WritePageGrowth),
        flush_page: number(Key::ClwbPage),
        in_flight: number(Key::InFlight),
        sharpness: number(Key::Sharpness),
        page_sharpness: number(Key::PageSharpness),
        budgets: [number(Key::Budget125), number(Key::Budget18)],
    }
}

/// A device without lines: a line is a request. Its store is durable when its random latency is
/// over, as nothing is published of barriers.
fn plain(device: &Device) -> Option<Ours> {
    let plain = device.plain.as_ref()?;
    let ns = |bytes: f64, gib_s: f64| bytes / (gib_s * pmep::analytic::GIB_S);
    Some(Ours {
        line_bytes: 64,
        buffer_lines: 0,
        read_start: plain.random_ns / 10.0,
        sequential_share: 0.0,
        read_byte: ns(1.0, plain.thread_gib_s),
        nt_byte: ns(1.0, plain.thread_gib_s),
        flush_byte: ns(1.0, plain.thread_gib_s),
        flush_floor: 0.0,
        line_read: ns(64.0, plain.read_gib_s),
        line_written: ns(64.0, plain.write_gib_s),
        word_next: plain.sequential_ns,
        word_buffered: plain.random_ns,
        word_mapped: plain.random_ns,
        word_far: plain.random_ns,
        persist: plain.random_ns,
        read_again: 0.0,
        read_page: 0.0,
        write_page: 0.0,
        budgets: [1.0, 1.0],
        ..lined(device)
    })
}

fn table() -> String {
    let mut text = String::from(
        "//! The devices' numbers, as `crates/pmep` has them. `PMFS_WRITE_TABLES=1 cargo test -p pmem`\n//! writes this file.\n\nuse crate::emulate::device::Device;\n\n/// The devices that can be emulated.\npub static DEVICES: [Device; 4] = [\n",
    );
    for name in Device::names() {
        let device = Device::named(name).expect("it is shipped");
        let ours = plain(&device).unwrap_or_else(|| lined(&device));
        let numbers = rounded(&format!("{:#?}", Ours { name, ..ours }));
        for line in numbers.lines() {
            writeln!(text, "    {line}").expect("it is a text");
        }
        text.truncate(text.trim_end().len());
        text.push_str(",\n");
    }
    text + "];\n"
}

/// The text with five significant digits of each number, in one line for each field.
fn rounded(text: &str) -> String {
    let mut lines = Vec::new();
    let mut list: Option<String> = None;
    for line in text.lines() {
        let word = line.trim().trim_end_matches(',');
        let number = word
            .rsplit(' ')
            .next()
            .and_then(|word| word.parse::<f64>().ok());
        let line = match number.filter(|_| word.contains('.')) {
            Some(number) => {
                let name = word.split_once(' ').map_or("", |(name, _)| name);
                let space = if name.is_empty() { "" } else { " " };
                format!("    {name}{space}{:?},", significant(number))
            }
            None => line.to_owned(),
        };
        match (&mut list, line.trim_end().ends_with('[')) {
            (_, true) => list = Some(line),
            (Some(open), _) if line.trim() == "]," => {
                let open = open.trim_end_matches([',', ' ']).to_owned();
                lines.push(open + "],");
                list = None;
            }
            (Some(open), _) => {
                open.push_str(line.trim());
                open.push(' ');
            }
            (None, _) => lines.push(line),
        }
    }
    lines.join("\n")
}

fn significant(number: f64) -> f64 {
    format!("{number:.4e}").parse().expect("it is a number")
}

/// The table in the sources is the one that `pmep` gives.
#[test]
fn the_table_is_the_models() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/emulate/devices.rs");
    let text = table();
    if std::env::var_os("PMFS_WRITE_TABLES").is_some() {
        std::fs::write(path, &text).expect("the source can be written");
    }
    let kept = std::fs::read_to_string(path).expect("the source");
    assert!(
        kept == text,
        "PMFS_WRITE_TABLES=1 cargo test -p pmem writes it anew"
    );
}

/// Bandwidth (GiB/s) of a pattern whose threads go on as soon as they can.
fn measured(model: &Model, pattern: &Pattern, accesses: u64) -> f64 {
    let words: [std::sync::atomic::AtomicU64; WORDS] = Default::default();
    let op = match pattern.op {
        Kind::Load => Op::Read,
        Kind::NtStore => Op::Stream,
        _ => Op::Flush,
    };
    let threads = u64::from(pattern.threads);
    let own = LEN / threads / (1 << 20) * (1 << 20);
    // A time as after a day, and in the middle of an epoch.
    let start = 1 << 50;
    let mut clocks = vec![start; threads as usize];
    let mut steps = vec![0_u64; threads as usize];
    let mut random: u64 = 0x2545_f491_4f6c_dd1d;
    let mut warm = (start, 0_u64);
    for done in 0..accesses {
        let at = (0..clocks.len())
            .min_by_key(|at| clocks[*at])
            .expect("a thread");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let step = steps[at] * pattern.stride % (own / 2) / pattern.access * pattern.access;
        let off = match pattern.order {
            Order::Random => (random >> 20) % (LEN / pattern.access) * pattern.access,
            // The threads' strides meet the same modules.
            Order::Strided => at as u64 * own + step,
            Order::Sequential => at as u64 * (own + 4096) + step,
        };
        steps[at] += 1;
        if done == accesses / 4 {
            warm = (clocks[at], done);
        }
        let stream = model.stream(at as u64 + 1);
        clocks[at] = model.access(
            |number| &words[number],
            stream,
            clocks[at],
            op,
            (off, pattern.access),
        );
    }
    let end = clocks.iter().min().expect("a thread");
    let bytes = (accesses - warm.1) * pattern.access;
    bytes as f64 / ((end - warm.0) as f64 / TICKS) / pmep::analytic::GIB_S
}

fn patterns() -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for kind in [Kind::Load, Kind::NtStore, Kind::StoreClwb] {
        for order in [Order::Random, Order::Strided, Order::Sequential] {
            for access in [64, 128, 256, 512, 1024, 4096, 16_384] {
                for threads in [1, 2, 4, 8, 16] {
                    let stride = (order == Order::Strided).then_some(16_384);
                    let pattern = Pattern::new(kind, order, access, stride, threads);
                    patterns.push(pattern.expect("a pattern"));
                }
            }
        }
    }
    patterns
}

/// Errors of the emulation by the closed forms, least first.
fn errors(text: &str, machine: &Machine, device: &Device) -> Vec<(f64, String)> {
    let asked: Emulation = text.parse().expect(text);
    let modules = asked.device.expect("a device");
    let mut errors: Vec<(f64, String)> = (patterns().iter())
        .map(|pattern| {
            let forms = on_device(device, pattern, machine).bandwidth_gib_s;
            let model = Model::new(modules, LEN, TICKS);
            let accesses = (40_000_000 / pattern.access).clamp(2_000, 30_000);
            let ours = measured(&model, pattern, accesses);
            (
                (ours / forms - 1.0).abs(),
                format!("{pattern:?}: {ours} for {forms}"),
            )
        })
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    errors
}

/// Goal: the emulation takes the time that the closed forms say. Method: a grid of patterns on one
/// and six modules, at two budgets, of two generations; the median is bounded, as in `pmep`.
#[test]
fn times_are_those_of_the_closed_forms() {
    for (text, dimms, watts) in [
        ("device:optane-100,dimms=1", 1, 15.0),
        ("device:optane-100,dimms=6", 6, 15.0),
        ("device:optane-100,dimms=1,power=18W", 1, 18.0),
        ("device:optane-200,dimms=4", 4, 15.0),
    ] {
        let device = Device::named(text[7..].split(',').next().unwrap_or("")).expect(text);
        let mut machine = Machine::plain(dimms, 4096)
            .expect(text)
            .at_budget(watts)
            .expect(text);
        machine.generation = device.generation;
        let errors = errors(text, &machine, &device);
        let (median, most) = (&errors[errors.len() / 2], &errors[errors.len() * 9 / 10]);
        for (error, pattern) in errors.iter().rev().take(12) {
            println!("{text}: {error:.3} {pattern}");
        }
        println!(
            "{text}: median {:.3}, 90th percentile {:.3}",
            median.0, most.0
        );
        assert!(median.0 <= 0.05, "{text}: {median:?}");
        assert!(most.0 <= 0.2, "{text}: {most:?}");
    }
}
