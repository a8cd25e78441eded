//! Exact counts of calls by thread, from lines that a process publishes
//! (docs/adr/0086-counts-by-thread.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Access;
use crate::account::{Figure, Usage};
use crate::planted::{self, Bug};

/// Bytes and calls of a thread, or of several. Sums wrap around, and so do differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Bytes that they have read.
    pub read_bytes: u64,
    /// Bytes that they have written.
    pub written_bytes: u64,
    /// Calls that have read content.
    pub reads: u64,
    /// Calls that have changed something.
    pub changes: u64,
    /// Lines flushed by them.
    pub flushed_lines: u64,
    /// Barriers of them.
    pub barriers: u64,
}

impl Calls {
    fn each(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            read_bytes: join(self.read_bytes, other.read_bytes),
            written_bytes: join(self.written_bytes, other.written_bytes),
            reads: join(self.reads, other.reads),
            changes: join(self.changes, other.changes),
            flushed_lines: join(self.flushed_lines, other.flushed_lines),
            barriers: join(self.barriers, other.barriers),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::wrapping_add)
    }

    /// The difference from `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.each(earlier, u64::wrapping_sub)
    }

    /// The usage in one direction, whose intervals are zero wide.
    #[must_use]
    pub fn usage(self, access: Access) -> Usage {
        let (bytes, calls) = match access {
            Access::Read => (self.read_bytes, self.reads),
            Access::Write => (self.written_bytes, self.changes),
        };
        let exact = |count: u64| Figure {
            value: count as f64,
            low: count as f64,
            high: count as f64,
            hits: calls,
        };
        Usage {
            bytes: exact(bytes),
            accesses: exact(calls),
            sizes: BTreeMap::new(),
        }
    }
}

/// The owner of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Tells it from others of the same process.
    pub name: u64,
    /// The thread's number as the process sees it; 0: threads without a line.
    pub number: u32,
    /// A caller of a mount, and no thread of the process that publishes.
    pub is_caller: bool,
    /// When the thread was started, in ticks of the kernel; 0: unknown.
    pub start: u64,
    /// A caller's process as the mount sees it; 0: unknown.
    pub process: u32,
}

/// A line as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its owner.
    pub owner: Owner,
    /// Counts since it is published.
    pub counts: Calls,
}

/// The lines of a process as they were read last.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    last: BTreeMap<u64, (Owner, Calls)>,
}

impl Lines {
    /// Tells what was counted since the lines were read last; all of it at the first time.
    ///
    /// A line that is not there any more was added to that of number 0, with counts that were told
    /// already and perhaps more.
    pub fn take(&mut self, lines: &[Line]) -> Vec<(Owner, Calls)> {
        let now = joined(lines);
        let gone = self.last.values().filter(|(owner, _)| {
            let same = now.get(&owner.name).map(|(other, _)| other.start);
            !same.is_some_and(|start| start == owner.start || owner.start == 0)
        });
        let told_already = gone.fold(Calls::default(), |sum, (_, counts)| sum.plus(*counts));
        let first = now.values().map(|(owner, _)| *owner).next_back();
        let mut more = Vec::new();
        for (owner, counts) in now.values() {
            let before = match self.last.get(&owner.name) {
                Some((other, before)) if other.start == owner.start || other.start == 0 => *before,
                _ => Calls::default(),
            };
            let mut since = counts.since(before);
            if owner.number == 0 {
                since = since.since(told_already);
            }
            if since == Calls::default() {
                continue;
            }
            let owner = match planted::is(Bug::WrongThread) {
                true => first.unwrap_or(*owner),
                false => *owner,
            };
            more.push((owner, since));
        }
        if planted::is(Bug::LastLost) {
            more.pop();
        }
        self.last = now;
        more
    }
}

/// A mount's caller may have two lines.
fn joined(lines: &[Line]) -> BTreeMap<u64, (Owner, Calls)> {
    let mut joined: BTreeMap<u64, (Owner, Calls)> = BTreeMap::new();
    for Line { owner, counts } in lines {
        let known = joined
            .entry(owner.name)
            .or_insert((*owner, Calls::default()));
        if known.0.start == 0 {
            known.0 = *owner;
        }
        known.1 = known.1.plus(*counts);
    }
    joined
}
