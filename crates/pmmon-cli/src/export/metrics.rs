//! The text form of Prometheus, version 0.0.4.
//!
//! An estimate may fall when more is known, and a counter must not: a counter shows the most that
//! its estimate has been. The interval beside it is the present one.

use std::collections::BTreeMap;
use std::fmt::Write;

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

const FAMILIES: [Family; 6] = [
    Family {
        name: "pmmon_written_bytes_total",
        kind: "counter",
        help: "Bytes stored to mapped persistent memory, estimated.",
    },
    Family {
        name: "pmmon_read_bytes_total",
        kind: "counter",
        help: "Bytes loaded from mapped persistent memory, estimated.",
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
];

/// The series, and the most that each counter has been.
pub(super) struct Metrics {
    per_thread: bool,
    series_max: usize,
    counters: BTreeMap<(&'static str, Labels), f64>,
}

impl Metrics {
    pub fn new(per_thread: bool, series_max: usize) -> Self {
        Self {
            per_thread,
            series_max,
            counters: BTreeMap::new(),
        }
    }

    /// The page.
    pub fn text(&mut self, ledger: &Ledger) -> String {
        let mut gauges = BTreeMap::new();
        for (labels, threads) in self.rows(ledger) {
            for (access, name) in [
                (Access::Write, FAMILIES[0].name),
                (Access::Read, FAMILIES[1].name),
            ] {
                // Not measured is no series; 0 is measured.
                if let Some(usage) = ledger.usage(&threads, access) {
                    self.usage(&labels, access, name, &usage, &mut gauges);
                }
            }
        }
        self.raise(FAMILIES[4].name, String::new(), ledger.lost as f64);
        let up = format!("backend=\"{}\"", escaped(&ledger.backend));
        gauges.insert((FAMILIES[5].name, up), 1.0);
        let mut page = String::new();
        for Family { name, kind, help } in &FAMILIES {
            let all = self.counters.iter().chain(&gauges);
            let mut series = all.filter(|((of, _), _)| of == name).peekable();
            if series.peek().is_none() {
                continue;
            }
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for ((_, labels), value) in series {
                let labels = match labels.is_empty() {
                    true => String::new(),
                    false => format!("{{{labels}}}"),
                };
                let _ = writeln!(page, "{name}{labels} {value}");
            }
        }
        page
    }

    /// Labels, and the threads whose sum they have. Those beyond the limit are one row.
    fn rows(&self, ledger: &Ledger) -> Vec<(Labels, Vec<Life>)> {
        let of = |process: &Process, thread: Option<&Life>| {
            let mut labels = format!(
                "pid=\"{}\",command=\"{}\"",
                process.pid,
                escaped(&process.command)
            );
            if let Some(life) = thread {
                let _ = write!(labels, ",tid=\"{}\"", life.tid);
            }
            labels
        };
        let mut rows: BTreeMap<Labels, Vec<Life>> = BTreeMap::new();
        let mut others = Vec::new();
        let mut add = |labels: Labels, threads: &[Life]| {
            if rows.len() < self.series_max || rows.contains_key(&labels) {
                rows.entry(labels).or_default().extend(threads);
            } else {
                others.extend(threads);
            }
        };
        for process in ledger.processes() {
            if self.per_thread {
                let threads = process.threads.iter();
                threads.for_each(|life| add(of(process, Some(life)), std::slice::from_ref(life)));
            } else {
                add(of(process, None), &process.threads);
            }
        }
        if !others.is_empty() {
            rows.insert("pid=\"other\",command=\"\"".to_owned(), others);
        }
        rows.into_iter().collect()
    }

    fn usage(
        &mut self,
        labels: &str,
        access: Access,
        name: &'static str,
        usage: &Usage,
        gauges: &mut BTreeMap<(&'static str, Labels), f64>,
    ) {
        let bytes = usage.bytes;
        self.raise(name, format!("{labels},way=\"mapped\""), bytes.value);
        for (size, figure) in &usage.sizes {
            let labels = format!("{labels},access=\"{access}\",size=\"{size}\"");
            self.raise(FAMILIES[2].name, labels, figure.value);
        }
        let labels = format!("{labels},access=\"{access}\"");
        let half = (bytes.high - bytes.low) / 2.0;
        gauges.insert((FAMILIES[3].name, labels), half);
    }

    fn raise(&mut self, name: &'static str, labels: Labels, value: f64) {
        let known = self.counters.entry((name, labels)).or_default();
        *known = known.max(value);
    }
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

    /// Goal: counters never fall, and labels hold any name.
    #[test]
    fn counters_do_not_fall() {
        let mut metrics = Metrics::new(false, 10);
        metrics.raise("pmmon_written_bytes_total", "pid=\"1\"".to_owned(), 10.0);
        metrics.raise("pmmon_written_bytes_total", "pid=\"1\"".to_owned(), 9.0);
        let page = metrics.text(&Ledger::default());
        assert!(
            page.contains("pmmon_written_bytes_total{pid=\"1\"} 10\n"),
            "{page}"
        );
        assert!(page.contains("# TYPE pmmon_written_bytes_total counter\n"));
        assert!(page.contains("pmmon_lost_samples_total 0\n"), "{page}");
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
