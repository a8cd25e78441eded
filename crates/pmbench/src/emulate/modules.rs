//! The check whether emulated modules are as slow as the model says: twelve patterns, each
//! predicted by `pmep` and measured on the emulated pool and on memory as it is.

use std::path::Path;

use anyhow::{Context, bail};
use pmem::{Emulation, Modules, Pmem};
use pmep::analytic::{Idle, idle_latency, on_device};
use pmep::{Device, Machine, Op, Order, Pattern};

use super::LEN;
use super::steady::Strayed;
use super::text;
use super::writers::{Job, Writer, together};
use crate::measure::{Figures, Report};
use crate::random::Random;

/// Bytes that a process works in: many times a buffer, and little enough for the processor's cache.
const REGION: u64 = 8 << 20;
/// A figure that is further from the model's is an error, parts of one.
const ERROR_MAX: f64 = 0.1;
/// With more late accesses than this the machine is too slow for a pattern, parts of one.
const LATE_MAX: f64 = 0.1;
/// Accesses between two looks at the clock.
const STEPS: u64 = 8;

/// The figure that is compared.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Bandwidth of a pattern.
    Bandwidth(Op, Order),
    /// Latency of a word.
    Word,
    /// Latency of a store past the caches with its fence.
    Durable,
}

/// A pattern of the table.
struct Row {
    name: &'static str,
    kind: Kind,
    access: u64,
    stride: u64,
    processes: usize,
}

const fn row(name: &'static str, kind: Kind, access: u64) -> Row {
    Row {
        name,
        kind,
        access,
        stride: access,
        processes: 1,
    }
}

const fn bandwidth(name: &'static str, op: Op, order: Order, access: u64) -> Row {
    row(name, Kind::Bandwidth(op, order), access)
}

/// The patterns, in the order of the table.
const ROWS: [Row; 12] = [
    bandwidth("load, 64 B anywhere", Op::Load, Order::Random, 64),
    bandwidth("load, 256 B anywhere", Op::Load, Order::Random, 256),
    bandwidth("load, 4 KiB anywhere", Op::Load, Order::Random, 4096),
    bandwidth("load, 4 KiB in order", Op::Load, Order::Sequential, 4096),
    Row {
        stride: 16 << 10,
        ..bandwidth("load, 256 B each 16 KiB", Op::Load, Order::Strided, 256)
    },
    row("load, a word anywhere", Kind::Word, 64),
    bandwidth("ntstore, 64 B anywhere", Op::NtStore, Order::Random, 64),
    bandwidth("ntstore, 256 B anywhere", Op::NtStore, Order::Random, 256),
    bandwidth(
        "ntstore, 4 KiB in order",
        Op::NtStore,
        Order::Sequential,
        4096,
    ),
    row("ntstore, 64 B, fence", Kind::Durable, 64),
    bandwidth(
        "store+clwb, 1 KiB anywhere",
        Op::StoreClwb,
        Order::Random,
        1024,
    ),
    Row {
        processes: 2,
        ..bandwidth("ntstore, 256 B, two", Op::NtStore, Order::Random, 256)
    },
];

impl Row {
    /// The time of an access by the model, ns.
    fn predicted(&self, asked: Modules) -> anyhow::Result<f64> {
        let refused = |error: pmep::BadInput| anyhow::anyhow!("{error}");
        let device = Device::named(asked.device().name).map_err(refused)?;
        let dimms = asked.dimms() as u32;
        let mut machine = Machine::plain(dimms, asked.interleave())
            .and_then(|machine| machine.at_budget(asked.power_mw() as f64 / 1000.0))
            .map_err(refused)?;
        machine.generation = device.generation;
        let (op, order) = match self.kind {
            Kind::Bandwidth(op, order) => (op, order),
            Kind::Word => (Op::Load, Order::Random),
            Kind::Durable => (Op::NtStore, Order::Sequential),
        };
        if !matches!(self.kind, Kind::Bandwidth(..)) {
            let idle = Idle { op, order };
            return Ok(match &device.plain {
                Some(plain) => plain.random_ns,
                None => idle_latency(&device.numbers, idle, LEN as f64, dimms),
            });
        }
        let threads = self.processes as u32;
        let pattern = Pattern::new(op, order, self.access, Some(self.stride), threads);
        Ok(on_device(&device, &pattern.map_err(refused)?, &machine).access_ns)
    }
}

/// Accesses that were made.
pub struct Made {
    pub accesses: u64,
    pub bytes: u64,
}

/// The work of a process on the pattern at a place of the table.
pub struct Work<'a> {
    mem: &'a Pmem,
    row: &'static Row,
    base: u64,
    step: u64,
    random: Random,
    buffer: Vec<u8>,
}

impl Work<'_> {
    /// The work of process `number`, counted from 1.
    pub fn new(mem: &Pmem, place: usize, number: u64) -> anyhow::Result<Work<'_>> {
        let row = ROWS.get(place).context("no such pattern")?;
        Ok(Work {
            mem,
            row,
            base: number * (LEN / 4),
            step: 0,
            random: Random(number),
            buffer: vec![7; row.access as usize],
        })
    }

    /// Makes some accesses.
    pub fn some(&mut self) -> anyhow::Result<Made> {
        let access = self.row.access;
        for _ in 0..STEPS {
            let within = match self.row.kind {
                Kind::Bandwidth(_, Order::Random) | Kind::Word => {
                    self.random.below_power(REGION / access) * access
                }
                // Each pass of a stride takes other lines.
                Kind::Bandwidth(_, Order::Strided) => {
                    let passes = self.step * self.row.stride / REGION;
                    self.step * self.row.stride % REGION + passes * access % self.row.stride
                }
                _ => self.step * access % REGION,
            };
            self.step += 1;
            self.access(self.base + within)?;
        }
        Ok(Made {
            accesses: STEPS,
            bytes: STEPS * access,
        })
    }

    fn access(&mut self, off: u64) -> anyhow::Result<()> {
        match self.row.kind {
            Kind::Word => {
                std::hint::black_box(self.mem.load(off));
            }
            Kind::Durable => {
                self.mem.write_nt(off, &self.buffer)?;
                self.mem.fence();
            }
            Kind::Bandwidth(Op::Load, _) => self.mem.copy_out(off, &mut self.buffer)?,
            Kind::Bandwidth(Op::NtStore, _) => self.mem.write_nt(off, &self.buffer)?,
            Kind::Bandwidth(..) => {
                self.mem.write_bytes(off, &self.buffer);
                self.mem.flush(off, self.row.access);
            }
        }
        Ok(())
    }
}

/// The figures of a row.
#[derive(Default)]
struct Measured {
    emulated: Figures,
    /// The same work on memory as it is.
    plain: Figures,
    /// Share of accesses that came too late.
    late: Figures,
}

/// Measures and prints; an error if a pattern is not as slow as predicted.
pub fn run(report: &Report, asked: Emulation, modules: Modules, pool: &Path) -> anyhow::Result<()> {
    let start = |medium, number| Writer::start(pool, medium, number);
    let mut slow = [start(asked, 1)?, start(asked, 2)?];
    let mut plain = [start(Emulation::OFF, 1)?, start(Emulation::OFF, 2)?];
    let mut strayed = Strayed(0);
    let mut all: [Measured; ROWS.len()] = Default::default();
    for _ in 0..report.rounds {
        for (place, (row, measured)) in ROWS.iter().zip(&mut all).enumerate() {
            let mut ns = |writers: &mut [Writer]| -> anyhow::Result<(f64, f64)> {
                let job = Job::Pattern(place);
                let done = together(&mut writers[..row.processes], job, &mut strayed)?;
                let bytes = row.access * row.processes as u64;
                Ok((bytes as f64 * 1e9 / done.rate, done.late))
            };
            let (figure, late) = ns(&mut slow)?;
            measured.emulated.0.push(figure);
            measured.late.0.push(late);
            measured.plain.0.push(ns(&mut plain)?.0);
        }
    }
    show(report, (asked, modules), &all, strayed.0)
}

/// The judgement of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Good,
    TooSlow,
    Off,
}

impl Verdict {
    /// Judges times in ns: those predicted and measured, and that of the same work on memory as it
    /// is.
    /// The machine is too slow if it ends accesses late, and if its own work comes on top of the
    /// device's time.
    fn of(predicted: f64, measured: f64, plain: f64, late: f64) -> Verdict {
        let error = measured / predicted - 1.0;
        let on_top = measured - predicted;
        match error.abs() <= ERROR_MAX {
            true => Verdict::Good,
            false if on_top > 0.0 && (plain >= on_top || late > LATE_MAX) => Verdict::TooSlow,
            false => Verdict::Off,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Verdict::Good => "",
            Verdict::TooSlow => "this machine is too slow",
            Verdict::Off => "off",
        }
    }
}

fn show(
    report: &Report,
    (asked, modules): (Emulation, Modules),
    all: &[Measured; ROWS.len()],
    strayed: usize,
) -> anyhow::Result<()> {
    if !report.json {
        println!(
            "emulated: {asked}; {} rounds, {strayed} pieces strayed and were made again",
            report.rounds
        );
        println!(
            "{:<27} {:>9} {:>23} {:>8} {:>9} {:>6}",
            "an access, ns", "predicted", "measured", "error", "memory", "late"
        );
    }
    let mut bad = Vec::new();
    for (row, measured) in ROWS.iter().zip(all) {
        let predicted = row.predicted(modules)?;
        let (figure, plain) = (measured.emulated.median(), measured.plain.median());
        let late = measured.late.median();
        let error = figure / predicted - 1.0;
        let verdict = Verdict::of(predicted, figure, plain, late);
        if verdict != Verdict::Good {
            bad.push(format!(
                "{} ({:+.1} %, {})",
                row.name,
                error * 100.0,
                verdict.text()
            ));
        }
        if report.json {
            println!(
                "{}",
                serde_json::json!({
                    "pattern": row.name, "unit": "ns", "predicted": predicted, "measured": figure,
                    "all": measured.emulated.0, "error": error, "memory": plain, "late": late,
                    "verdict": format!("{verdict:?}"), "strayed": strayed,
                })
            );
            continue;
        }
        println!(
            "{:<27} {predicted:>9.1} {:>23} {:>+6.1} % {plain:>9.1} {:>4.0} %  {}",
            row.name,
            text(&measured.emulated, false),
            error * 100.0,
            late * 100.0,
            verdict.text()
        );
    }
    if !bad.is_empty() {
        bail!(
            "more than {:.0} % from the model: {}",
            ERROR_MAX * 100.0,
            bad.join("; ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each pattern has a time on each device that can be emulated.
    #[test]
    fn all_patterns_are_predicted() {
        for text in [
            "device:optane-100,dimms=6",
            "device:optane-200,power=12.5W",
            "device:dram",
            "device:cxl,dimms=2,interleave=256",
        ] {
            let asked: Emulation = text.parse().expect(text);
            let modules = asked.device.expect("a device");
            for row in &ROWS {
                let ns = row.predicted(modules).expect(row.name);
                assert!((1.0..100_000.0).contains(&ns), "{text}, {}: {ns}", row.name);
            }
        }
    }

    /// Goal: a machine is blamed only for what came too late.
    #[test]
    fn verdicts_name_the_cause() {
        assert_eq!(Verdict::of(100.0, 109.0, 200.0, 1.0), Verdict::Good);
        assert_eq!(Verdict::of(100.0, 120.0, 120.0, 0.0), Verdict::TooSlow);
        assert_eq!(Verdict::of(100.0, 120.0, 5.0, 0.5), Verdict::TooSlow);
        // It comes on top as a whole.
        assert_eq!(Verdict::of(100.0, 120.0, 20.0, 0.0), Verdict::TooSlow);
        assert_eq!(Verdict::of(100.0, 120.0, 15.0, 0.0), Verdict::Off);
        assert_eq!(Verdict::of(100.0, 80.0, 120.0, 1.0), Verdict::Off);
    }

    /// Goal: work stays within its process's part, and makes the accesses that it counts.
    #[test]
    fn work_stays_in_its_part() {
        let ground = tempfile::tempdir().expect("a directory");
        let path = ground.path().join("pool");
        let options = crate::pool::unprotected();
        drop(Pmem::create(&path, LEN, false, true, &options).expect("a pool"));
        let asked = "device:optane-100,dimms=2".parse().expect("a device");
        let mem = super::super::map(&path, asked).expect("a mapping");
        for (place, row) in ROWS.iter().enumerate() {
            let mut work = Work::new(&mem, place, 3).expect("a pattern");
            let before = mem.charged();
            let bytes = work.some().expect("accesses").bytes;
            let after = mem.charged();
            let lines =
                after.lines_read + after.lines_written - before.lines_read - before.lines_written;
            assert_eq!(lines * 64, bytes, "{}", row.name);
        }
        assert!(Work::new(&mem, ROWS.len(), 1).is_err());
        const { assert!(REGION <= LEN / 4, "a process's part") };
    }
}
