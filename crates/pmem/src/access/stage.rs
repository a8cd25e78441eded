//! A buffer in which a record is put together in whole lines before it is stored. Whole lines go
//! past the caches and need no flush; the unaligned ends of a plain `write_nt` are cached stores.

use std::cell::Cell;
use std::mem::take;

use crate::cpu::LINE;

/// A line of a buffer, aligned as those of a pool are.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE as usize]);

/// Lines of the buffer that a thread keeps for its next record: 64 KiB.
const KEPT_LINES: usize = 1024;

thread_local! {
    /// The thread's buffer while no record uses it.
    static BUFFER: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// A record that is being put together in this thread's buffer. A second record at the same time
/// gets a buffer of its own. The bytes from its end to the end of the line are zeros.
pub struct Stage {
    lines: Vec<Line>,
    /// Bytes of the record.
    len: usize,
}

impl Stage {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Stage {
        let mut lines = BUFFER.take();
        lines.clear();
        Stage { lines, len: 0 }
    }

    /// Creates a record of `len` bytes, whose content is chance until the caller has stored all of
    /// it ([`Stage::staged_mut`]): one of a known length is put together without steps.
    #[inline]
    #[must_use]
    pub fn of_len(len: usize) -> Stage {
        let mut lines = BUFFER.take();
        let count = len.div_ceil(LINE as usize);
        if lines.len() < count {
            lines.resize(count, Line([0; LINE as usize]));
        }
        // The end of the last line.
        if let Some(last) = count.checked_sub(1) {
            lines[last] = Line([0; LINE as usize]);
        }
        Stage { lines, len }
    }

    /// Bytes of the record.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the record is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The record.
    #[must_use]
    pub fn staged(&self) -> &[u8] {
        &self.whole_lines()[..self.len]
    }

    /// The record, writable: a checksum at its start is computed last.
    #[inline]
    pub fn staged_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.all_mut()[..len]
    }

    /// Appends bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let at = self.len;
        self.push_zeros(bytes.len());
        self.all_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Appends a word, little-endian.
    #[inline]
    pub fn push_word(&mut self, word: u64) {
        self.push(&word.to_le_bytes());
    }

    /// Appends `bytes` zeros.
    #[inline]
    pub fn push_zeros(&mut self, bytes: usize) {
        self.len = self.len.checked_add(bytes).expect("records fit in memory");
        let count = self.len.div_ceil(LINE as usize);
        // Lines behind the record are another one's.
        self.lines
            .truncate((self.len - bytes).div_ceil(LINE as usize));
        self.lines.resize(count, Line([0; LINE as usize]));
    }

    /// The whole lines of the record, for [`Pmem::write_nt`](crate::Pmem::write_nt) to a 64-aligned
    /// offset.
    #[inline]
    #[must_use]
    pub fn whole_lines(&self) -> &[u8] {
        let lines = &self.lines[..self.len.div_ceil(LINE as usize)];
        // SAFETY: initialised lines, which are arrays of bytes without padding; the slice borrows
        // what owns them.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
    }

    /// The record and zeros up to a multiple of so many bytes, a power of two up to a line, for a
    /// place in lines that others share.
    #[inline]
    #[must_use]
    pub fn padded(&self, multiple: usize) -> &[u8] {
        debug_assert!(multiple.is_power_of_two() && multiple <= LINE as usize);
        &self.whole_lines()[..self.len.next_multiple_of(multiple)]
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `whole_lines`; any bytes are a line, and the borrow is exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.lines.as_mut_ptr().cast(),
                self.lines.len() * LINE as usize,
            )
        }
    }
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::new()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let lines = take(&mut self.lines);
        if lines.capacity() <= KEPT_LINES {
            // The buffer of an ending thread is gone already.
            let _ = BUFFER.try_with(|buffer| buffer.set(lines));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pmem;
    use crate::processes::counters;

    /// Goal: a record of any length is stored by whole lines alone. Method: all lengths; the
    /// counters and the content of the pool are compared.
    #[test]
    fn records_are_stored_in_whole_lines() {
        let mem = Pmem::private(8192);
        for len in 0..=260usize {
            mem.zero_nt(0, 8192);
            mem.write_bytes(128, &[0xff; 384]);
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 + 1).collect();
            let mut stage = Stage::new();
            assert!(stage.is_empty());
            let (first, second) = bytes.split_at(len / 3);
            stage.push(first);
            stage.push(second);
            assert_eq!((stage.staged(), stage.len()), (bytes.as_slice(), len));
            assert!(stage.whole_lines().as_ptr().addr().is_multiple_of(64));
            let before = counters::snapshot();
            mem.write_nt(128, stage.whole_lines()).unwrap();
            let cost = counters::snapshot() - before;
            let lines = len.next_multiple_of(64);
            assert_eq!(cost.nt_bytes, lines as u64, "{len}");
            assert_eq!(cost.lines_flushed, 0, "{len}");
            let mut found = vec![0; 384];
            mem.copy_out(128, &mut found).unwrap();
            assert_eq!(found[..len], bytes, "{len}");
            assert!(found[len..lines].iter().all(|&byte| byte == 0), "{len}");
            assert!(found[lines..].iter().all(|&byte| byte == 0xff), "{len}");
        }
    }

    /// Goal: the end of its last line is zeros, and so is what is appended.
    #[test]
    fn a_record_of_a_known_length_has_nothing_of_the_one_before() {
        let mut before = Stage::new();
        before.push(&[7; 200]);
        drop(before);
        let mut stage = Stage::of_len(70);
        stage.staged_mut().fill(1);
        assert_eq!(stage.whole_lines().len(), 128);
        assert_eq!(stage.whole_lines()[70..], [0; 58]);
        stage.push_zeros(100);
        assert_eq!(stage.whole_lines().len(), 192);
        assert_eq!(stage.whole_lines()[70..], [0; 122]);
        drop(stage);
        assert!(Stage::of_len(0).whole_lines().is_empty());
    }

    /// Goal: no byte of a record appears in the next one, and two records at once are apart.
    #[test]
    fn a_buffer_is_used_again_and_not_shared() {
        let mut first = Stage::new();
        first.push(&[7; 200]);
        let place = first.staged().as_ptr().addr();
        let mut beside = Stage::new();
        beside.push_word(9);
        assert_ne!(beside.staged().as_ptr().addr(), place);
        assert_eq!(first.staged(), [7; 200]);
        drop(beside);
        drop(first);
        let mut again = Stage::new();
        assert_eq!(again.len(), 0);
        again.push_zeros(100);
        assert_eq!(again.staged(), [0; 100], "nothing of the one before");
        again.staged_mut()[..8].fill(1);
        assert_eq!(again.staged().as_ptr().addr(), place, "the same memory");
        again.push_zeros(1 << 20);
        assert_eq!(again.whole_lines()[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0]);
        drop(again);
        assert_eq!(Stage::new().lines.capacity(), 0, "too large to be kept");
    }
}
