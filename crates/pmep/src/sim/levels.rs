//! The levels that answer a read: the buffer, the media whose page the cache of the address
//! indirection table has, and the media whose page it has not.

use crate::device::{Key, Numbers};
use crate::geometry::{LINE, PAGE};
use crate::pattern::Order;

/// A level, from the nearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Buffer,
    Page,
    Media,
}

impl Level {
    /// Latency of an idle read that this level answers, ns.
    pub fn latency(self, numbers: &Numbers, order: Order) -> f64 {
        let latency = match self {
            Level::Buffer => numbers[Key::BufferLatency],
            Level::Page => numbers[Key::AitLatency],
            Level::Media => numbers[Key::MediaLatency],
        };
        match order {
            Order::Sequential => latency.min(numbers[Key::SequentialLatency]),
            _ => latency,
        }
    }
}

/// A module's cache of the address indirection table: pages by their number, direct mapped.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    tags: Vec<u32>,
}

const NO_PAGE: u32 = u32::MAX;
/// Entries: the published 16 MiB are 4096 pages.
const ENTRIES_MAX: f64 = 1_048_576.0;

impl Pages {
    /// A cache that covers about `bytes` bytes: a power of two of pages.
    pub fn new(bytes: f64) -> Pages {
        let entries = (bytes / PAGE as f64).clamp(1.0, ENTRIES_MAX) as usize;
        Pages {
            tags: vec![NO_PAGE; entries.next_power_of_two()],
        }
    }

    /// A read of a line that the buffer lacked.
    #[inline]
    pub fn read(&mut self, line: u64) -> Level {
        let page = line / (PAGE / LINE);
        let at = page as usize & (self.tags.len() - 1);
        let tag = &mut self.tags[at];
        if *tag == page as u32 {
            return Level::Page;
        }
        *tag = page as u32;
        Level::Media
    }
}
