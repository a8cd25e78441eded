//! What a plain file's next fence has to msync.

use std::ops::Range;
use std::sync::Mutex;

use crate::Pmem;

const PAGE: u64 = 4096;

/// Pages flushed since the last fence of any thread. The lock is held through
/// the msync: a thread whose pages another one's fence took away must not
/// return from its own before they are on the disk.
#[derive(Debug, Default)]
pub(crate) struct DirtyRanges {
    ranges: Mutex<Vec<Range<u64>>>,
}

impl DirtyRanges {
    /// Adds the pages of `off..off + len`.
    #[cold]
    pub(crate) fn add(&self, off: u64, len: u64) {
        if len == 0 {
            return;
        }
        let pages = off / PAGE * PAGE..(off + len).next_multiple_of(PAGE);
        let mut ranges = self.ranges.lock().unwrap_or_else(|e| e.into_inner());
        match ranges.last_mut() {
            Some(last) if pages.start <= last.end && pages.end >= last.start => {
                last.start = last.start.min(pages.start);
                last.end = last.end.max(pages.end);
            }
            _ => ranges.push(pages),
        }
    }

    /// Writes all of it to the disk. An error there marks the mapping failed.
    #[cold]
    pub(crate) fn sync(&self, mem: &Pmem) {
        let mut ranges = self.ranges.lock().unwrap_or_else(|e| e.into_inner());
        ranges.sort_unstable_by_key(|r| r.start);
        let mut rest = std::mem::take(&mut *ranges).into_iter().peekable();
        while let Some(mut range) = rest.next() {
            while let Some(next) = rest.next_if(|next| next.start <= range.end) {
                range.end = range.end.max(next.end);
            }
            let at = mem.base.wrapping_add(range.start as usize);
            let len = (range.end - range.start) as usize;
            // SAFETY: whole pages of the mapping, whose length is whole pages.
            let failed = unsafe { libc::msync(at.cast(), len, libc::MS_SYNC) } != 0;
            if failed && let Some(node) = mem.node {
                node.fail(range.start);
            }
        }
    }
}
