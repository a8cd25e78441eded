//! The text form of Prometheus, version 0.0.4.
//!
//! An estimate may fall when more is known, and a counter must not: a counter shows the most that
//! its estimate has been. The interval beside it is the present one. Series of processes that ended
//! are dropped after a while, as a machine that runs for months has too many of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::time::{Duration, Instant};

use pmmon::account::Usage;
use pmmon::ledger::{Life, Process};
use pmmon::{Access, Ledger};

/// A series' name and labels, without those of a family's own.
type Labels = String;

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const FAMILIES: [Family; 7] = [
    Family {
        name: "pmmon_written_bytes_total",
        kind: "counter",
        help: "Bytes written to persistent memory: by stores to mappings, estimated, or by calls, exactly.",
    },
    Family {
        name: "pmmon_read_bytes_total",
        kind: "counter",
        help: "Bytes read from persistent memory: by loads from mappings, estimated, or by calls, exactly.",
    },
    Family {
        name: "pmmon_accesses_total",
        kind: "counter",
        help: "Accesses to mapped persistent memory by size in bytes, estimated.",
    },
    Family {
        name: "pmmon_interval_half_width_bytes",
        kind: "gauge",
        help: "Half of the 95 % interval of bytes.",
    },
    Family {
        name: "pmmon_lost_samples_total",
        kind: "counter",
        help: "Samples that the kernel could not deliver; estimates make up for them.",
    },
    Family {
        name: "pmmon_backend_up",
        kind: "gauge",
        help: "The backend that measures.",
    },
    Family {
        name: "pmmon_media_written_bytes_total",
        kind: "counter",
        help: "Bytes that the media write, by a model of the device, never measured.",
    },
];

/// The families of bytes.
const DIRECTIONS: [(&str, Access); 2] = [
    (FAMILIES[0].name, Access::Write),
    (FAMILIES[1].name, Access::Read),
];

/// The way of bytes that calls move.
const CALL: &str = "call";

/// The labels of all that have no series of their own.
const OTHERS: &str = "pid=\"other\",command=\"\"";

/// A series: its family, the labels of a process or thread, and the further ones.
type Series = (&'static str, Labels, Labels);

/// A process, by its number and its start.
type Whom = (u32, u64);

/// The series, and the most that each counter has been.
///
/// A process with a series of its own keeps it until it is forgotten, and one without stays among
/// the others: otherwise the same bytes would be in two series.
pub(super) struct Metrics {
    per_thread: bool,
    series_max: usize,
    /// The time for which an ended process is shown.
    keep: Duration,
    counters: BTreeMap<Series, f64>,
    own: BTreeSet<Labels>,
    others: BTreeSet<Labels>,
    /// Bytes and accesses of forgotten ones of the others.
    gone: BTreeMap<(&'static str, Labels), f64>,
    /// When ended processes were first seen so.
    ended: HashMap<Whom, Instant>,
    /// The same of ended threads, by their series.
    ended_threads: HashMap<Labels, Instant>,
}

impl Metrics {
    pub fn new(per_thread: bool, series_max: usize, keep: Duration) -> Self {
        Self {
            per_thread,
            series_max,
            keep,
            counters: BTreeMap::new(),
            own: BTreeSet::new(),
            others: BTreeSet::new(),
            gone: BTreeMap::new(),
            ended: HashMap::new(),
            ended_threads: HashMap::new(),
        }
    }

    /// The page. Processes that ended long ago leave the ledger.
    pub fn text(&mut self, ledger: &mut Ledger, now: Instant) -> String {
        self.forget(ledger, now);
        let mut gauges = BTreeMap::new();
        for (labels, threads) in self.rows(ledger) {
            for (name, more, value) in counters(ledger, &threads) {
                let gone = match labels == OTHERS {
                    true => self.gone.get(&(name, more.clone())),
                    false => None,
                };
                let value = value + gone.copied().unwrap_or(0.0);
                self.raise((name, labels.clone(), more), value);
            }
            for (_, access, usage) in usages(ledger, &threads) {
                let half = (usage.bytes.high - usage.bytes.low) / 2.0;
                let more = format!("access=\"{access}\"");
                gauges.insert((FAMILIES[3].name, labels.clone(), more), half);
            }
        }
        let nobody = (FAMILIES[4].name, String::new(), String::new());
        self.raise(nobody, ledger.lost as f64);
        for backend in &ledger.backends {
            let up = format!("backend=\"{}\"", escaped(backend));
            gauges.insert((FAMILIES[5].name, String::new(), up), 1.0);
        }
        self.page(&gauges)
    }

    fn page(&self, gauges: &BTreeMap<Series, f64>) -> String {
        let mut page = String::new();
        for Family { name, kind, help } in &FAMILIES {
            let all = self.counters.iter().chain(gauges);
            let mut series = all.filter(|((of, ..), _)| of == name).peekable();
            if series.peek().is_none() {
                continue;
            }
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for ((_, whose, more), value) in series {
                let comma = if whose.is_empty() || more.is_empty() {
                    ""
                } else {
                    ","
                };
                let labels = match whose.is_empty() && more.is_empty() {
                    true => String::new(),
                    false => format!("{{{whose}{comma}{more}}}"),
                };
                let _ = writeln!(page, "{name}{labels} {value}");
            }
        }
        page
    }

    /// Forgets processes that ended before the time for which they are shown.
    fn forget(&mut self, ledger: &mut Ledger, now: Instant) {
        let mut gone = Vec::new();
        for process in ledger.processes().iter().filter(|process| process.ended) {
            let since = *self.ended.entry(whom(process)).or_insert(now);
            if now.duration_since(since) < self.keep {
                continue;
            }
            gone.push(whom(process));
            for (labels, threads) in self.labelled(process) {
                self.drop_series(ledger, &labels, &threads);
            }
        }
        gone.iter().for_each(|whom| _ = self.ended.remove(whom));
        ledger.forget(|process| gone.contains(&whom(process)));
        if self.per_thread {
            self.forget_threads(ledger, now);
        }
    }

    /// Forgets threads that ended before the time for which they are shown. A number that comes
    /// again before is one more life in the same series.
    fn forget_threads(&mut self, ledger: &mut Ledger, now: Instant) {
        let mut ended: BTreeMap<Labels, Vec<Life>> = BTreeMap::new();
        let mut live = BTreeSet::new();
        for process in ledger.processes() {
            for (labels, threads) in self.labelled(process) {
                match threads.iter().all(|life| life.ended) {
                    true => ended.entry(labels).or_default().extend(threads),
                    false => _ = live.insert(labels),
                }
            }
        }
        ended.retain(|labels, _| !live.contains(labels));
        self.ended_threads
            .retain(|labels, _| ended.contains_key(labels));
        let mut gone = BTreeSet::new();
        for (labels, threads) in ended {
            let since = *self.ended_threads.entry(labels.clone()).or_insert(now);
            if now.duration_since(since) >= self.keep {
                self.drop_series(ledger, &labels, &threads);
                self.ended_threads.remove(&labels);
                gone.extend(threads.into_iter().map(|life| life.tid));
            }
        }
        if !gone.is_empty() {
            ledger.forget_threads(|_, life| life.ended && gone.contains(&life.tid));
        }
    }

    /// Drops a series. The bytes of one of the others stay in their sum.
    fn drop_series(&mut self, ledger: &Ledger, labels: &Labels, threads: &[Life]) {
        if !self.others.remove(labels) {
            self.own.remove(labels);
            self.counters.retain(|(_, whose, _), _| whose != labels);
            return;
        }
        for (name, more, value) in counters(ledger, threads) {
            *self.gone.entry((name, more)).or_default() += value;
        }
    }

    /// The labels of a process, or of its threads, and whom they stand for.
    fn labelled(&self, process: &Process) -> Vec<(Labels, Vec<Life>)> {
        let command = escaped(&process.command);
        let labels = format!("pid=\"{}\",command=\"{command}\"", process.pid);
        if !self.per_thread {
            return vec![(labels, process.threads.clone())];
        }
        let threads = process.threads.iter();
        threads
            .map(|life| (format!("{labels},tid=\"{}\"", life.tid), vec![*life]))
            .collect()
    }

    /// Labels, and the threads whose sum they have. Those beyond the limit are one row.
    fn rows(&mut self, ledger: &Ledger) -> BTreeMap<Labels, Vec<Life>> {
        let mut rows: BTreeMap<Labels, Vec<Life>> = BTreeMap::new();
        let seen = |process: &&Process| !process.is_refused();
        for process in ledger.processes().iter().filter(seen) {
            for (labels, threads) in self.labelled(process) {
                let is_new = !self.own.contains(&labels) && !self.others.contains(&labels);
                if is_new {
                    match self.own.len() < self.series_max {
                        true => self.own.insert(labels.clone()),
                        false => self.others.insert(labels.clone()),
                    };
                }
                let row = match self.own.contains(&labels) {
                    true => labels,
                    false => OTHERS.to_owned(),
                };
                rows.entry(row).or_default().extend(threads);
            }
        }
        rows
    }

    fn raise(&mut self, series: Series, value: f64) {
        let known = self.counters.entry(series).or_default();
        *known = known.max(value);
    }
}

fn whom(process: &Process) -> Whom {
    (process.pid, process.start_ns)
}

/// The measured usage of threads in both directions, with the name of the family of its bytes. Not
/// measured is no series; 0 is measured.
fn usages(ledger: &Ledger, threads: &[Life]) -> Vec<(&'static str, Access, Usage)> {
    let of = DIRECTIONS.into_iter();
    of.filter_map(|(name, access)| Some((name, access, ledger.usage(threads, access)?)))
        .collect()
}

/// All counters of threads: family, further labels, and value.
fn counters(ledger: &Ledger, threads: &[Life]) -> Vec<(&'static str, Labels, f64)> {
    let way = match ledger.is_exact() {
        true => CALL,
        false => "mapped",
    };
    let usages = usages(ledger, threads).into_iter();
    let mut all: Vec<_> = usages
        .flat_map(|(name, access, usage)| counted(name, (access, way), &usage))
        .collect();
    if let Some(calls) = ledger.calls(threads).filter(|_| !ledger.is_exact()) {
        for (name, access) in DIRECTIONS {
            all.extend(counted(name, (access, CALL), &calls.usage(access)));
        }
    }
    if let Some(media) = ledger.media(threads) {
        let more = format!("kind=\"model\",by=\"{}\"", media.source.name());
        all.push((FAMILIES[6].name, more, media.bytes.value));
    }
    all
}

/// The counters of a usage: family, further labels, and value.
fn counted(
    name: &'static str,
    (access, way): (Access, &str),
    usage: &Usage,
) -> Vec<(&'static str, Labels, f64)> {
    let sizes = usage.sizes.iter().map(|(size, figure)| {
        let labels = format!("access=\"{access}\",size=\"{size}\"");
        (FAMILIES[2].name, labels, figure.value)
    });
    let bytes = (name, format!("way=\"{way}\""), usage.bytes.value);
    std::iter::once(bytes).chain(sizes).collect()
}

/// A label's value may hold anything that a command's name may.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmmon::ledger::By;
    use pmmon::{Drained, Event, Exposure, Origin, Sample};

    const KEEP: Duration = Duration::from_secs(300);

    /// Goal: counters never fall, and labels hold any name.
    #[test]
    fn counters_do_not_fall() {
        let mut metrics = Metrics::new(false, 10, KEEP);
        let series = || {
            let whose = "pid=\"1\"".to_owned();
            ("pmmon_written_bytes_total", whose, String::new())
        };
        metrics.raise(series(), 10.0);
        metrics.raise(series(), 9.0);
        let page = metrics.text(&mut Ledger::default(), Instant::now());
        assert!(
            page.contains("pmmon_written_bytes_total{pid=\"1\"} 10\n"),
            "{page}"
        );
        assert!(page.contains("# TYPE pmmon_written_bytes_total counter\n"));
        assert!(page.contains("pmmon_lost_samples_total 0\n"), "{page}");
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(By::Thread);
        ledger.take(&Event::Begin {
            schema: 1,
            backend: "pebs".to_owned(),
            reads: false,
            counts: true,
            trap_ns: 0.0,
            time_ns: 0,
        });
        ledger
    }

    /// A process of one thread with the same number.
    fn begin(ledger: &mut Ledger, pid: u32) {
        ledger.take(&Event::Process {
            pid,
            start_ns: u64::from(pid),
            command: "c".to_owned(),
            inner_pid: None,
            was_running: false,
        });
        ledger.take(&Event::Thread { pid, tid: pid });
    }

    /// A store of 8 bytes of which each fourth is seen.
    fn store(ledger: &mut Ledger, pid: u32) {
        let sample = Sample {
            tid: pid,
            time_ns: 1,
            ip: 1,
            address: 64,
            access: Access::Write,
            bytes: 8,
            exposure: Exposure::Probability(0.25),
            origin: Origin::Mapped,
        };
        ledger.take(&Event::Batch {
            time_ns: 1,
            samples: vec![sample],
            drained: Drained::default(),
        });
    }

    fn written(page: &str, pid: &str) -> Option<f64> {
        let begin = format!("pmmon_written_bytes_total{{pid=\"{pid}\"");
        let line = page.lines().find(|line| line.starts_with(&begin))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    /// Goal: an ended process is shown for as long as was said, and nothing is kept of it then.
    #[test]
    fn ended_processes_are_forgotten() {
        let (mut metrics, mut ledger) = (Metrics::new(false, 10, KEEP), ledger());
        let start = Instant::now();
        for pid in [1, 2] {
            begin(&mut ledger, pid);
            store(&mut ledger, pid);
        }
        assert_eq!(written(&metrics.text(&mut ledger, start), "1"), Some(32.0));
        ledger.take(&Event::Ended { pid: 1 });
        for late in [KEEP, KEEP * 2 - Duration::from_millis(1)] {
            let page = metrics.text(&mut ledger, start + late);
            assert_eq!(written(&page, "1"), Some(32.0), "{page}");
        }
        let page = metrics.text(&mut ledger, start + KEEP * 2);
        assert!(!page.contains("pid=\"1\""), "{page}");
        assert_eq!(written(&page, "2"), Some(32.0), "{page}");
        assert_eq!(ledger.processes().len(), 1);
        assert!(metrics.ended.is_empty());
        // The one that is left is still known by its number.
        store(&mut ledger, 2);
        let page = metrics.text(&mut ledger, start + KEEP * 2);
        assert_eq!(written(&page, "2"), Some(64.0), "{page}");
        // A number that comes again begins at nothing.
        begin(&mut ledger, 1);
        let page = metrics.text(&mut ledger, start + KEEP * 2);
        assert_eq!(written(&page, "1"), Some(0.0), "{page}");
    }

    /// Goal: so are ended threads, of a process that goes on.
    #[test]
    fn ended_threads_are_forgotten() {
        let (mut metrics, mut ledger) = (Metrics::new(true, 10, KEEP), ledger());
        let start = Instant::now();
        begin(&mut ledger, 1);
        store(&mut ledger, 1);
        ledger.take(&Event::Thread { pid: 1, tid: 9 });
        store(&mut ledger, 9);
        let page = metrics.text(&mut ledger, start);
        assert!(
            page.contains("tid=\"9\"") && page.contains("tid=\"1\""),
            "{page}"
        );
        ledger.take(&Event::Batch {
            time_ns: 2,
            samples: Vec::new(),
            drained: Drained {
                ended: vec![9],
                ..Drained::default()
            },
        });
        let page = metrics.text(&mut ledger, start);
        assert!(page.contains("tid=\"9\""), "{page}");
        let page = metrics.text(&mut ledger, start + KEEP);
        assert!(
            !page.contains("tid=\"9\"") && page.contains("tid=\"1\""),
            "{page}"
        );
        assert_eq!(ledger.processes()[0].threads.len(), 1);
        assert!(metrics.ended_threads.is_empty());
        // The number comes again.
        ledger.take(&Event::Thread { pid: 1, tid: 9 });
        store(&mut ledger, 9);
        let page = metrics.text(&mut ledger, start + KEEP);
        assert!(page.contains("tid=\"9\""), "{page}");
    }

    /// Goal: the sum of those without a series of their own keeps what forgotten ones did, and
    /// nobody is in two series.
    #[test]
    fn others_keep_what_was_done() {
        let (mut metrics, mut ledger) = (Metrics::new(false, 1, KEEP), ledger());
        let start = Instant::now();
        for pid in [1, 2, 3] {
            begin(&mut ledger, pid);
            store(&mut ledger, pid);
        }
        let page = metrics.text(&mut ledger, start);
        assert_eq!(written(&page, "other"), Some(64.0), "{page}");
        ledger.take(&Event::Ended { pid: 1 });
        ledger.take(&Event::Ended { pid: 2 });
        metrics.text(&mut ledger, start);
        store(&mut ledger, 3);
        let page = metrics.text(&mut ledger, start + KEEP);
        assert_eq!(written(&page, "other"), Some(96.0), "{page}");
        assert_eq!(written(&page, "1"), None, "{page}");
        assert_eq!(written(&page, "3"), None, "{page}");
    }
}
