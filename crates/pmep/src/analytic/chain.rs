//! Chains of accesses: a thread's time is that of its steps, the modules' that of the lines moved.
//!
//! A thread reads the next chain while the last one's stores become durable, so that reads and
//! stores are two queues: reads overlap as far as the processor looks ahead, and each store waits
//! for the fence of the one before. The slower queue sets the thread's pace.

use super::{Case, GIB_S, read, write};
use crate::chain::{Chain, Step};
use crate::device::{Key, Numbers};
use crate::geometry::{LINE, REQUEST};
use crate::pattern::{Generation, Machine, Op, Order, Pattern};

/// Chains whose first reads are under way at once in one thread of the first generation's hosts.
const UNDER_WAY: f64 = 2.0;
/// Instructions that the second generation's hosts look ahead, by those of the first: 352 by 224.
const LOOK_AHEAD: f64 = 352.0 / 224.0;
/// Idle latency of random reads of DRAM, ns (Izraelevitz et al. 2019, 3.1.1).
const DRAM_NS: f64 = 101.0;

/// The answer to a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chained {
    /// Chains in a second, of all threads.
    pub per_s: f64,
    /// Average time of a chain from its beginning to its end, ns.
    pub latency_ns: f64,
}

/// A stretch of bytes, from the last read's beginning.
#[derive(Clone, Copy)]
struct Span {
    begin: i64,
    end: i64,
}

impl Span {
    /// Returns whether both have bytes in one block of `size` bytes.
    fn shares(self, other: Span, size: u64) -> bool {
        let size = size as i64;
        self.begin.div_euclid(size) <= (other.end - 1).div_euclid(size)
            && other.begin.div_euclid(size) <= (self.end - 1).div_euclid(size)
    }
}

/// Bytes of a chain since its last read, which the next write may meet again.
struct Near {
    at: i64,
    read: Option<Span>,
    written: Vec<(Span, Op)>,
}

/// Times of a chain.
#[derive(Default)]
struct Times {
    /// Reads one after the other, ns.
    reads: f64,
    /// Stores one after the other, ns.
    stores: f64,
    /// The last step's part of `stores`: a fence that the next chain waits for.
    last: f64,
    /// One module's work, ns, if there were only one.
    modules: f64,
}

fn reads(case: &Case, in_dram: bool, times: &mut Times) {
    let numbers = case.numbers;
    let first = match in_dram {
        true => DRAM_NS,
        false => numbers[Key::MediaLatency],
    };
    times.reads += first + case.bytes / (numbers[Key::ReadStream] * GIB_S);
    times.last = 0.0;
    if !in_dram {
        times.modules += case.bytes / read::media(case) / GIB_S;
    }
}

/// Time of a store that is flushed or goes past the cache, and of its fence, ns: the first request
/// is part of the wait for the controller.
fn durable_ns(case: &Case) -> f64 {
    let more = (case.bytes - REQUEST as f64).max(0.0);
    case.numbers[Key::Persist] + more / (case.numbers[Key::ReadStream] * GIB_S)
}

fn writes(case: &Case, near: &mut Near, times: &mut Times) {
    let span = Span {
        begin: near.at,
        end: near.at + case.bytes as i64,
    };
    let op = case.pattern.op;
    let covers = |read: Span| read.begin <= span.begin && span.end <= read.end;
    let again = (near.written.iter()).filter(|(other, _)| span.shares(*other, REQUEST));
    let is_dropped = (again.clone()).any(|(_, op)| matches!(op, Op::StoreClflushopt | Op::NtStore));
    let is_again = again.count() > 0;
    let is_near = near.read.is_some_and(covers) && !is_dropped;
    let ns = match op {
        Op::Store if is_again => 0.0,
        Op::Store => write::cached_ns(case),
        Op::NtStore => durable_ns(case),
        _ if is_near => durable_ns(case) / case.host(),
        _ => write::flushed_ns(case),
    };
    times.stores += ns;
    times.last = ns;
    let is_line_again = (near.written.iter())
        .any(|(other, before)| *before != Op::Store && span.shares(*other, LINE));
    near.written.push((span, op));
    let (used, share) = match op {
        Op::Store if is_again => return,
        Op::Store => (write::merged(case), 1.0),
        // The buffer takes a line's second write too, unless other streams pushed the line out.
        _ if is_line_again => (write::used(case), write::pushed_out(case)),
        _ => (write::used(case), 1.0),
    };
    let all = write::whole(case) * used * case.busy();
    times.modules += share * case.bytes / all / GIB_S;
    if op != Op::NtStore && !is_near && !is_dropped {
        times.modules += case.bytes / read::media(case) / GIB_S;
    }
}

fn times(numbers: &Numbers, chain: &Chain, machine: &Machine, threads: u32) -> Times {
    let mut times = Times::default();
    let mut near = Near {
        at: 0,
        read: None,
        written: Vec::new(),
    };
    for step in chain.steps() {
        let pattern = pattern(step, threads);
        let case = Case::new(numbers, &pattern, machine);
        near.at += i64::from(step.offset);
        match (step.op, step.in_dram) {
            (Op::Load, in_dram) => {
                reads(&case, in_dram, &mut times);
                near.at = 0;
                near.read = (!in_dram).then_some(Span {
                    begin: 0,
                    end: i64::from(step.bytes),
                });
                near.written.clear();
            }
            (Op::Store, true) => times.last = 0.0,
            (_, true) => {
                times.last = numbers[Key::StoreLatency];
                times.stores += times.last;
            }
            (_, false) => writes(&case, &mut near, &mut times),
        }
    }
    times
}

fn pattern(step: &Step, threads: u32) -> Pattern {
    Pattern {
        op: step.op,
        order: Order::Random,
        access: u64::from(step.bytes),
        stride: u64::from(step.bytes),
        threads,
    }
}

/// A chain, run again and again by each of `threads`, of which `cores` run at once. It has to meet
/// the modules ([`Chain::meets_modules`]).
#[must_use]
pub fn chained(
    numbers: &Numbers,
    chain: &Chain,
    machine: &Machine,
    threads: u32,
    cores: u32,
) -> Chained {
    let running = threads.clamp(1, cores.max(1));
    let times = times(numbers, chain, machine, running);
    let ahead = match machine.generation {
        Generation::First => UNDER_WAY,
        Generation::Second => UNDER_WAY * LOOK_AHEAD,
    };
    let power = numbers[Key::Sharpness];
    let queues = (times.reads / ahead).powf(power) + times.stores.powf(power);
    let thread = queues.powf(1.0 / power) / f64::from(running);
    let period = thread.hypot(times.modules);
    let whole = (times.reads + times.stores - times.last).max(times.stores);
    Chained {
        per_s: 1e9 / period,
        latency_ns: whole * period / thread,
    }
}
