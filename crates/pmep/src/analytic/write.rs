//! Stores: past the cache, flushed, and left to the cache.

use super::{Case, GIB_S, Limit, Prediction, UNORDERED, meet, read};
use crate::device::Key;
use crate::geometry::LINE;
use crate::pattern::{Generation, Order};

/// Parts of a line.
const PARTS: f64 = 4.0;
/// Bytes of a run beyond which stores leave the cache as in order as they ever do.
const LONG_RUN: f64 = 2_097_152.0;
/// A cached store moves its line twice, in and out, and so enters two pages.
pub(super) const IN_AND_OUT: f64 = 2.0;

/// Streams at which half of the lines leave the buffer in parts: fewer if lines are not written
/// whole.
fn half(case: &Case) -> f64 {
    match case.used < 1.0 {
        true => case.numbers[Key::PartStreams],
        false => case.numbers[Key::FullStreams],
    }
}

/// Share of lines that the streams at a module push out, if `half` of them push out half.
fn pushed(case: &Case, half: f64) -> f64 {
    let crowd = case.threads / case.dimms.sqrt() / half;
    1.0 - 1.0 / (1.0 + crowd * crowd)
}

/// Share of lines that leave the buffer in parts: the more so the more streams want it.
pub(super) fn in_parts(case: &Case) -> f64 {
    let fenced = match case.machine.fenced {
        true => case.numbers[Key::FencedStreams],
        false => 1.0,
    };
    pushed(case, half(case) * fenced)
}

/// Share of lines that leave the buffer between two writes of one thread to them: a fence between
/// these leaves other streams the time.
pub(super) fn pushed_out(case: &Case) -> f64 {
    pushed(case, half(case))
}

/// Share of bytes that the media writes once only.
pub(super) fn used(case: &Case) -> f64 {
    case.used / (1.0 + (PARTS * case.used - 1.0).max(0.0) * in_parts(case))
}

/// Writes of whole lines by the modules met, GiB/s.
pub(super) fn whole(case: &Case) -> f64 {
    let generation = match case.machine.generation {
        Generation::Second => case.numbers[Key::SecondWrite],
        Generation::First => 1.0,
    };
    case.numbers[Key::WriteMedia] * case.budget() * case.capacity() * generation * case.met
}

/// The same with the memory clock: below 2666 MT/s each random write takes further time.
fn clocked(case: &Case, media: f64, said: Prediction) -> Prediction {
    if !case.machine.slow_clock || case.pattern.order != Order::Random {
        return said;
    }
    let more = 1.0 / (case.numbers[Key::SlowClock] * media);
    let bandwidth = 1.0 / (1.0 / said.bandwidth_gib_s + more);
    Prediction {
        bandwidth_gib_s: bandwidth,
        access_ns: case.threads * case.bytes / bandwidth / GIB_S,
        ..said
    }
}

pub(super) fn page_ns(case: &Case) -> f64 {
    let growth = case.threads.powf(case.numbers[Key::WritePageGrowth]);
    case.numbers[Key::WritePage] * growth * case.host_pages()
}

/// A thread's time for a store past the cache, ns.
pub(super) fn past_ns(case: &Case) -> f64 {
    let numbers = case.numbers;
    match case.machine.fenced {
        // The fence waits for the controller, whatever the size, until the bytes take longer.
        true => {
            let bytes = case.bytes / (numbers[Key::ReadStream] * GIB_S);
            (numbers[Key::Persist].powi(4) + bytes.powi(4)).powf(0.25)
        }
        false => case.bytes / (numbers[Key::NtStream] * GIB_S),
    }
}

/// A thread's time for a flushed store, ns.
pub(super) fn flushed_ns(case: &Case) -> f64 {
    let numbers = case.numbers;
    if !case.machine.fenced {
        return case.bytes / (numbers[Key::ClwbStream] * GIB_S);
    }
    let slow = match case.is_second() {
        true => numbers[Key::SecondFlush],
        false => 1.0,
    };
    let bytes = case.bytes / (numbers[Key::ReadStream] * GIB_S);
    (numbers[Key::Persist] + bytes) * slow
}

/// A thread's time for a cached store, ns.
pub(super) fn cached_ns(case: &Case) -> f64 {
    let start = match case.pattern.is_sequential() {
        true => 0.0,
        false => case.numbers[Key::StoreStart],
    };
    let bytes = case.bytes / (case.numbers[Key::StoreStream] * GIB_S);
    (bytes + start) / case.host()
}

pub(super) fn past_cache(case: &Case) -> Prediction {
    let thread = case.threads * case.bytes / past_ns(case) / GIB_S;
    let used = used(case);
    let media = whole(case) * used * case.busy();
    let pages = case.by_pages(page_ns(case));
    let said = case.finish(thread, media, pages, used, Limit::MediaWrite);
    clocked(case, media, said)
}

pub(super) fn flushed(case: &Case) -> Prediction {
    let numbers = case.numbers;
    let used = used(case);
    let written = whole(case) * used * case.busy();
    let media = match case.machine.fenced {
        true => 1.0 / (1.0 / written + 1.0 / read::media(case)),
        false => {
            let most = numbers[Key::ClwbMedia] * whole(case);
            meet(numbers[Key::Sharpness], &[written, most])
        }
    };
    let thread = case.threads * case.bytes / flushed_ns(case) / GIB_S;
    let pages = case.by_pages(page_ns(case) * numbers[Key::ClwbPage]);
    let said = case.finish(thread, media, pages, used, Limit::MediaWrite);
    clocked(case, media, said)
}

/// Share of bytes that the media writes once only when the cache writes back: stores of one long
/// run leave it partly in order, the more so the fewer streams a module has.
pub(super) fn written_back(merge: f64, run: f64, streams: f64) -> f64 {
    let line = LINE as f64;
    let length = (run.max(line) / line).ln() / (LONG_RUN / line).ln();
    let order = merge * length.min(1.0).powi(2) / (1.0 + streams * streams);
    (UNORDERED * (1.0 + order)).min(1.0)
}

/// The same of a pattern.
pub(super) fn merged(case: &Case) -> f64 {
    let run = match case.pattern.order {
        Order::Random => case.bytes,
        _ => LONG_RUN,
    };
    let streams = case.threads / case.dimms;
    written_back(case.numbers[Key::StoreMerge], run, streams)
}

pub(super) fn cached(case: &Case) -> Prediction {
    let used = merged(case);
    let thread = case.threads * case.bytes / cached_ns(case) / GIB_S;
    let written = whole(case) * used * case.busy();
    let one = case.numbers[Key::ReadMedia] * case.budget() * case.capacity();
    let media = 1.0 / (1.0 / written + 1.0 / (one * case.met * case.used));
    let pages = case.by_pages(page_ns(case) * IN_AND_OUT);
    let said = case.finish(thread, media, pages, used, Limit::MediaWrite);
    clocked(case, media, said)
}
