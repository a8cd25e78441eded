//! Loads.

use super::{Case, GIB_S, Limit, Prediction};
use crate::device::Key;
use crate::geometry::LINE;
use crate::pattern::Order;

/// Parts of a line.
const PARTS: f64 = 4.0;

/// The power that rounds the corner at the streams that may stay.
const ROUNDED: i32 = 8;

/// Bandwidth of one thread by itself, GiB/s.
pub(super) fn thread(case: &Case) -> f64 {
    let numbers = case.numbers;
    let start = match (case.pattern.order, case.pattern.is_sequential()) {
        (Order::Random, _) => 1.0,
        (_, true) => numbers[Key::SequentialStart],
        (_, false) => numbers[Key::SequentialStart].sqrt(),
    };
    let waits = match case.pattern.waits() {
        true => numbers[Key::AitLatency],
        false => 0.0,
    };
    let bytes_ns = case.bytes / (numbers[Key::ReadStream] * GIB_S);
    let ns = numbers[Key::ReadStart] * start + bytes_ns + waits;
    case.bytes / ns / GIB_S * case.host()
}

/// Parts of a line that are read again, for each part beyond its first: streams beyond those whose
/// lines stay in the buffer do so.
pub(super) fn again(case: &Case) -> f64 {
    let numbers = case.numbers;
    let mut stay = numbers[Key::ReadStreams] * case.dimms.sqrt();
    if case.pattern.access <= LINE {
        stay *= numbers[Key::ShortStreams];
    }
    if case.pattern.is_sequential() {
        stay *= numbers[Key::SequentialStreams];
    }
    numbers[Key::ReadAgain] * pushed_out(case.threads / stay)
}

/// Share of the bytes read from the media that are asked for.
pub(super) fn used(case: &Case) -> f64 {
    let wasted = case.machine.prefetcher
        && !case.is_second()
        && case.pattern.order == Order::Random
        && case.pattern.access >= 4 * LINE;
    let prefetched = match wasted {
        true => case.numbers[Key::PrefetchUse],
        false => 1.0,
    };
    case.used / (1.0 + (PARTS * case.used - 1.0).max(0.0) * again(case)) * prefetched
}

/// Share of streams whose lines do not stay, by streams over those that may: `1 - 1 / crowd` beyond
/// 1, and rounded off below, where nothing else bounds the slope.
fn pushed_out(crowd: f64) -> f64 {
    1.0 - (1.0 + crowd.powi(ROUNDED)).powf(-1.0 / f64::from(ROUNDED))
}

/// The media's limit for this pattern, GiB/s.
pub(super) fn media(case: &Case) -> f64 {
    let one = case.numbers[Key::ReadMedia] * case.budget() * case.capacity();
    one * case.met * used(case) * case.busy()
}

pub(super) fn load(case: &Case) -> Prediction {
    let pages = case.by_pages(case.numbers[Key::ReadPage] * case.host_pages());
    let limit = Limit::MediaRead;
    let all = case.threads * thread(case);
    case.finish(all, media(case), pages, used(case), limit)
}
