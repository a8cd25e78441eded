//! `pmep advise`: the same trace with one change at a time.

use std::process::ExitCode;

use pmep::geometry::LINE;
use pmep::sim::{Access, FarStreams, Sim};
use pmep::trace::Step;
use pmep::{Machine, Op, Result};
use pmep_cli::Replay;
use serde::Serialize;

use crate::{Outcome, fitting, predict, replay};

/// A change to a trace.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Nothing,
    /// Cached stores go past the cache.
    PastCache,
    /// Flushed stores go past the cache.
    NoFlush,
    /// Small accesses of a stream are put together to whole lines.
    WholeLines,
    /// Two streams' accesses come from one.
    HalfStreams,
}

const CHANGES: [(Change, &str); 5] = [
    (Change::Nothing, "as it is"),
    (Change::PastCache, "ntstore instead of cached stores"),
    (Change::NoFlush, "ntstore instead of store and flush"),
    (Change::WholeLines, "whole lines of 256 B instead of parts"),
    (Change::HalfStreams, "half of the streams"),
];

/// A changed trace under way.
struct Variant {
    change: Change,
    name: &'static str,
    sim: Sim,
    end_ns: f64,
    /// Bytes of each stream that wait until they are a line.
    waiting: Vec<u64>,
}

impl Variant {
    /// The access as it is after the change; `None` if it waits.
    fn changed(&mut self, mut access: Access) -> Option<Access> {
        access.time_ns = 0.0;
        match (self.change, access.op) {
            (Change::PastCache, Op::Store) => access.op = Op::NtStore,
            (Change::NoFlush, Op::StoreClwb | Op::StoreClflushopt) => access.op = Op::NtStore,
            (Change::HalfStreams, _) => access.stream /= 2,
            (Change::WholeLines, _) if access.bytes < LINE => {
                let at = access.stream as usize;
                if at >= self.waiting.len() {
                    self.waiting.resize(at + 1, 0);
                }
                self.waiting[at] += access.bytes;
                if self.waiting[at] < LINE {
                    return None;
                }
                self.waiting[at] -= LINE;
                access.address = access.address / LINE * LINE;
                access.bytes = LINE;
            }
            _ => {}
        }
        Some(access)
    }

    fn step(&mut self, step: Step) -> Result<()> {
        let done = match step {
            Step::Access(access) => match self.changed(access) {
                Some(access) => self.sim.access(&access)?,
                None => return Ok(()),
            },
            Step::Fence { stream, .. } => {
                let stream = match self.change {
                    Change::HalfStreams => stream / 2,
                    _ => stream,
                };
                self.sim.fence(stream, 0.0)?
            }
        };
        self.end_ns = self.end_ns.max(done.next_ns);
        Ok(())
    }
}

#[derive(Serialize)]
struct Advice {
    change: &'static str,
    time_ns: f64,
    /// Time as it is by the time after the change.
    gain: f64,
    media_written_bytes: f64,
}

fn variants(numbers: &pmep::device::Numbers, machine: &Machine, far: &FarStreams) -> Vec<Variant> {
    let variant = |(change, name)| Variant {
        change,
        name,
        sim: Sim::new(numbers, machine).with_far(match change {
            Change::HalfStreams => far.halved(),
            _ => far.clone(),
        }),
        end_ns: 0.0,
        waiting: Vec::new(),
    };
    CHANGES.into_iter().map(variant).collect()
}

pub fn run(arguments: &Replay) -> Outcome {
    let device = fitting::load(&arguments.machine.device)?;
    replay::has_lines(&device)?;
    let machine = predict::machine(&arguments.machine, &device)?;
    let mut all = variants(&device.numbers, &machine, &replay::far(arguments)?);
    replay::steps(&arguments.trace, |step| {
        all.iter_mut().try_for_each(|variant| variant.step(step))
    })?;
    let as_it_is = all[0].end_ns;
    let mut advice: Vec<Advice> = (all.iter())
        .map(|variant| Advice {
            change: variant.name,
            time_ns: variant.end_ns,
            gain: match variant.end_ns > 0.0 {
                true => as_it_is / variant.end_ns,
                false => 1.0,
            },
            media_written_bytes: variant.sim.total().media_written,
        })
        .collect();
    advice[1..].sort_by(|a, b| b.gain.total_cmp(&a.gain));
    if arguments.json {
        predict::print_json(&advice)?;
        return Ok(ExitCode::SUCCESS);
    }
    for it in &advice {
        out!(
            "{:>8.2} x  {:>12.3} ms  {}",
            it.gain,
            it.time_ns / 1e6,
            it.change
        );
    }
    Ok(ExitCode::SUCCESS)
}
