//! The closed forms' parts as times of single accesses, for the event model.

use super::{Case, GIB_S, read, write};
use crate::device::{Key, Numbers};
use crate::pattern::{Machine, Op, Pattern};

/// Times of an access of a pattern.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// A thread's own time, ns.
    pub thread_ns: f64,
    /// Reads of one module, GiB/s.
    pub read_gib_s: f64,
    /// Writes of one module, GiB/s.
    pub write_gib_s: f64,
    /// Media accesses for each part of a line beyond its first.
    pub again: f64,
    /// A module's time for a page, ns.
    pub page_ns: f64,
    /// Share of cached stores that the media writes once.
    pub used: f64,
    /// Least time of a module for a byte, ns.
    pub floor_ns: f64,
}

/// The times of an access of a pattern.
#[must_use]
pub fn event(numbers: &Numbers, pattern: &Pattern, machine: &Machine) -> Event {
    let case = Case::new(numbers, pattern, machine);
    let media = case.budget() * case.capacity();
    let write_gib_s = write::whole(&case) / case.met;
    let write_page = write::page_ns(&case);
    let (thread_ns, again, page_ns, used, floor) = match pattern.op {
        Op::Load => {
            let ns = case.bytes / read::thread(&case) / GIB_S;
            let page = numbers[Key::ReadPage] * case.host_pages();
            (ns, read::again(&case), page, 1.0, 0.0)
        }
        Op::NtStore => (
            write::past_ns(&case),
            write::in_parts(&case),
            write_page,
            1.0,
            0.0,
        ),
        Op::Store => {
            let page = write_page * write::IN_AND_OUT;
            (
                write::cached_ns(&case),
                0.0,
                page,
                write::merged(&case),
                0.0,
            )
        }
        _ => {
            let page = write_page * numbers[Key::ClwbPage];
            let most = numbers[Key::ClwbMedia] * write_gib_s * GIB_S;
            (
                write::flushed_ns(&case),
                write::in_parts(&case),
                page,
                1.0,
                1.0 / most,
            )
        }
    };
    Event {
        thread_ns,
        read_gib_s: numbers[Key::ReadMedia] * media,
        write_gib_s,
        again,
        page_ns,
        used,
        floor_ns: floor,
    }
}
