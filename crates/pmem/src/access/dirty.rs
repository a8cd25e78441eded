//! The ranges that a plain file's next fence has to msync.

use std::ops::Range;
use std::sync::Mutex;

use crate::Pmem;

const PAGE: u64 = 4096;

/// Pages flushed since the last fence of any thread. The lock is held through the msync: if the
/// fence of one thread takes the pages of another, the other's fence must not return before they
/// are on the disk.
#[derive(Debug, Default)]
pub(crate) struct DirtyRanges {
    ranges: Mutex<Vec<Range<u64>>>,
}

impl DirtyRanges {
    /// Adds the pages of `off..off + len` after they were stored to. If a range were added before
    /// its store, the fence of another thread could take it and write the old bytes to the disk.
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

    /// Writes all dirty ranges to the disk. An error marks the mapping as failed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    type Store = fn(&Pmem);

    /// Goal: the fence of another thread never takes a range before its store. Method: the test
    /// holds the ranges' lock, as that fence does; the storing thread then has stored, and waits.
    #[test]
    fn ranges_are_noted_once_they_are_stored() {
        const FROM: u64 = 32 << 10;
        let stores: [Store; 4] = [
            |mem| mem.write_nt(0, &[7; 8192]).unwrap(),
            |mem| mem.copy_nt(0, FROM, 8192).unwrap(),
            |mem| mem.zero_nt(0, 8192),
            |mem| {
                mem.write_bytes(0, &[7; 8192]);
                mem.flush(0, 8192);
            },
        ];
        for (number, store) in stores.into_iter().enumerate() {
            let mut mem = Pmem::private(64 << 10);
            mem.write_bytes(FROM, &[7; 8192]);
            let before = if number == 2 { 7 } else { 0 };
            mem.write_bytes(0, &[before; 8192]);
            mem.dirty = Some(Box::default());
            let dirty = mem.dirty.as_deref().unwrap();
            let held = dirty.ranges.lock().unwrap();
            std::thread::scope(|scope| {
                let storing = scope.spawn(|| store(&mem));
                let since = Instant::now();
                while mem.load(8184).to_le_bytes() == [before; 8] {
                    assert!(
                        since.elapsed() < Duration::from_secs(20),
                        "{number}: noted before it is stored"
                    );
                    std::thread::yield_now();
                }
                drop(held);
                storing.join().unwrap();
            });
            let ranges = dirty.ranges.lock().unwrap();
            assert_eq!(
                *ranges,
                [Range {
                    start: 0,
                    end: 8192
                }],
                "{number}"
            );
        }
    }
}
