//! A transaction's private copies: what it edits and what it makes.
//!
//! A range is copied when it is first edited, twice: one copy is changed, the other one tells which
//! words were. So two transactions may change different words of one object, and a record has the
//! changed words alone. A range that is written over is not read, and a record has all of it.

use pmlib_format::WORD_BYTES;
use pmlib_format::record::{ENTRY_WORDS_MAX, HEAD_WORDS};
use zerocopy::IntoBytes;

use crate::engine::Core;
use crate::error::Error;
use crate::record::Entries;

/// A copied range, of whole words.
#[derive(Clone, Copy, Debug)]
struct Copy {
    start: u64,
    end: u64,
    /// Where the copy is among the words; of an edited range the original follows it.
    at: usize,
    kind: Kind,
}

/// Words of memory that are kept for the next transaction.
const KEPT_WORDS: usize = 8192;

/// How a range comes to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The original is there too.
    Edited,
    /// All of it is written over.
    Written,
    /// The object is not there yet: all of it is new.
    Fresh,
}

impl Copy {
    fn words(&self) -> usize {
        ((self.end - self.start) / WORD_BYTES) as usize
    }
}

/// All copies of a transaction. They do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    /// By their start.
    copies: Vec<Copy>,
    /// Behind room for a record's head; before each range that is written over there is room for an
    /// entry's head.
    words: Vec<u64>,
    /// There is nothing else among the words than ranges that are written over.
    are_entries: bool,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            copies: Vec::new(),
            words: vec![0; HEAD_WORDS],
            are_entries: true,
        }
    }
}

impl Copies {
    /// Forgets everything but its memory, of which a little is kept.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.copies.clear();
        self.words.truncate(HEAD_WORDS);
        self.are_entries = true;
        if self.words.capacity() > KEPT_WORDS {
            self.words.shrink_to(KEPT_WORDS);
        }
    }

    /// Makes room for a new object: zeros.
    pub fn make(&mut self, start: u64, size: u64) {
        self.are_entries = false;
        let at = self.words.len();
        self.words.resize(at + (size / WORD_BYTES) as usize, 0);
        let copy = Copy {
            start,
            end: start + size,
            at,
            kind: Kind::Fresh,
        };
        self.note(self.place(start), copy);
    }

    /// Where a copy of a range from `start` on is to be among all, which nothing overlaps.
    fn place(&self, start: u64) -> usize {
        self.copies.partition_point(|other| other.start < start)
    }

    /// Forgets what is copied of a range, which is an object.
    pub fn forget(&mut self, start: u64, size: u64) {
        let here = self.overlapping(start, start + size);
        if !here.is_empty() {
            // Their words stay.
            self.are_entries = false;
            self.copies.drain(here);
        }
    }

    /// Which copies overlap a range.
    #[inline]
    fn overlapping(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let count = self.copies.len();
        if self.copies.last().is_none_or(|last| last.end <= start) {
            return count..count;
        }
        let first = self.copies.partition_point(|copy| copy.end <= start);
        let more = self.copies[first..].iter();
        first..first + more.take_while(|copy| copy.start < end).count()
    }

    /// The private copy of the bytes `start..end`; `load` gets what is not copied yet.
    #[inline(always)]
    pub fn edit<E>(
        &mut self,
        start: u64,
        end: u64,
        load: impl FnOnce(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<&mut [u8], E> {
        let here = self.overlapping(start, end);
        let whole = match &self.copies[here.clone()] {
            [copy] if copy.start <= start && end <= copy.end => *copy,
            [] => {
                let (start, end) = (start & !7, end.next_multiple_of(WORD_BYTES));
                let copy = self.load(start, end, load)?;
                self.note(here.start, copy);
                copy
            }
            _ => self.join(start & !7, end.next_multiple_of(WORD_BYTES), here, load)?,
        };
        let words = &mut self.words[whole.at..whole.at + whole.words()];
        let bytes = words.as_mut_bytes();
        Ok(&mut bytes[(start - whole.start) as usize..(end - whole.start) as usize])
    }

    /// Writes over a range of bytes from `start` on; `load` gets the rest of the words at its ends.
    pub fn write<E>(
        &mut self,
        start: u64,
        bytes: &[u8],
        load: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = start + bytes.len() as u64;
        let here = self.overlapping(start, end);
        let is_whole = (start | end).is_multiple_of(WORD_BYTES) && start < end;
        if !is_whole || !here.is_empty() {
            return self.write_ragged(start, bytes, here.is_empty(), load);
        }
        self.write_words(here.start, start, bytes);
        Ok(())
    }

    /// Writes over whole words that no copy has yet; it is to be the copy at `place`.
    fn write_words(&mut self, place: usize, start: u64, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        self.are_entries &= words.len() <= ENTRY_WORDS_MAX;
        self.words.push(0);
        let copy = Copy {
            start,
            end: start + bytes.len() as u64,
            at: self.words.len(),
            kind: Kind::Written,
        };
        self.words
            .extend(words.iter().map(|&word| u64::from_ne_bytes(word)));
        self.note(place, copy);
    }

    #[inline(always)]
    fn note(&mut self, place: usize, copy: Copy) {
        // Mostly by rising offsets.
        if place == self.copies.len() {
            self.copies.push(copy);
        } else {
            self.copies.insert(place, copy);
        }
    }

    /// Writes over words in part, or over what is copied already (then it is not `new`).
    #[cold]
    #[inline(never)]
    fn write_ragged<E>(
        &mut self,
        start: u64,
        bytes: &[u8],
        new: bool,
        load: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = start + bytes.len() as u64;
        let (first, last) = (start.next_multiple_of(WORD_BYTES), end & !(WORD_BYTES - 1));
        if first >= last || !new {
            self.edit(start, end, load)?.copy_from_slice(bytes);
            return Ok(());
        }
        let (head, rest) = bytes.split_at((first - start) as usize);
        let (whole, tail) = rest.split_at((last - first) as usize);
        if !head.is_empty() {
            self.edit(start, first, &load)?.copy_from_slice(head);
        }
        if !tail.is_empty() {
            self.edit(last, end, &load)?.copy_from_slice(tail);
        }
        let place = self.place(first);
        self.write_words(place, first, whole);
        Ok(())
    }

    /// A copy of a range, of whole words, and its original, among the words alone.
    #[inline(always)]
    fn load<E>(
        &mut self,
        start: u64,
        end: u64,
        load: impl FnOnce(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Copy, E> {
        self.are_entries = false;
        let at = self.words.len();
        let copy = Copy {
            start,
            end,
            at,
            kind: Kind::Edited,
        };
        self.words.resize(at + copy.words(), 0);
        if let Err(error) = load(start, self.words[at..].as_mut_bytes()) {
            self.words.truncate(at);
            return Err(error);
        }
        self.words.extend_from_within(at..);
        Ok(copy)
    }

    /// One copy of `start..end` and of all copies that overlap it, of which there are some. New
    /// objects are never among them: their copies are whole.
    #[cold]
    fn join<E>(
        &mut self,
        start: u64,
        end: u64,
        here: std::ops::Range<usize>,
        load: impl FnOnce(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Copy, E> {
        let old: Vec<Copy> = self.copies[here.clone()].to_vec();
        let start = old.first().map_or(start, |copy| copy.start.min(start));
        let end = old.last().map_or(end, |copy| copy.end.max(end));
        let copy = self.load(start, end, load)?;
        let (at, count) = (copy.at, copy.words());
        for part in old {
            let into = at + ((part.start - start) / WORD_BYTES) as usize;
            let words = part.words();
            self.words.copy_within(part.at..part.at + words, into);
            if part.kind == Kind::Edited {
                self.words
                    .copy_within(part.at + words..part.at + 2 * words, into + count);
            }
        }
        self.copies.splice(here, [copy]);
        Ok(copy)
    }

    /// Puts what is copied of a range over `to`, which holds it from `start` on.
    pub fn overlay(&self, start: u64, to: &mut [u8]) {
        let end = start + to.len() as u64;
        for copy in &self.copies[self.overlapping(start, end)] {
            let bytes = self.words[copy.at..copy.at + copy.words()].as_bytes();
            let (from, until) = (copy.start.max(start), copy.end.min(end));
            let bytes = &bytes[(from - copy.start) as usize..(until - copy.start) as usize];
            to[(from - start) as usize..(until - start) as usize].copy_from_slice(bytes);
        }
    }

    /// The new objects' content, each with its offset.
    pub fn fresh(&self) -> impl Iterator<Item = (u64, &[u64])> {
        let fresh = self.copies.iter().filter(|copy| copy.kind == Kind::Fresh);
        fresh.map(|copy| {
            let words = &self.words[copy.at..copy.at + copy.words()];
            (copy.start, words)
        })
    }

    /// Stores the new objects' content where nobody looks yet, past the caches.
    pub fn store_fresh(&self, core: &Core) -> Result<(), Error> {
        for (offset, words) in self.fresh() {
            core.mem.write_nt(offset, words.as_bytes())?;
        }
        Ok(())
    }

    /// Adds the words that were changed. To be called once, at the end.
    pub fn diff(&mut self, entries: &mut Entries) {
        if self.are_entries && entries.is_empty() {
            let ranges = self.copies.iter();
            let ranges = ranges.map(|copy| (copy.start, copy.at..copy.at + copy.words()));
            return entries.take_written(&mut self.words, ranges);
        }
        for copy in self.copies.iter().filter(|copy| copy.kind != Kind::Fresh) {
            let count = copy.words();
            let new = &self.words[copy.at..copy.at + count];
            if copy.kind == Kind::Written {
                entries.write(copy.start, new);
                continue;
            }
            let old = &self.words[copy.at + count..copy.at + 2 * count];
            let mut at = 0;
            while at < count {
                if new[at] == old[at] {
                    at += 1;
                    continue;
                }
                let run = new[at..].iter().zip(&old[at..]);
                let run = run.take_while(|(new, old)| new != old).count();
                let offset = copy.start + at as u64 * WORD_BYTES;
                entries.write(offset, &new[at..at + run]);
                at += run;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Act, Step};

    /// A heap of bytes that are their offsets.
    fn load(start: u64, to: &mut [u8]) -> Result<(), ()> {
        for (at, byte) in to.iter_mut().enumerate() {
            *byte = (start + at as u64) as u8;
        }
        Ok(())
    }

    /// Overlapping edits see each other, and the record has the words that changed.
    #[test]
    fn edits_of_overlapping_ranges_are_one() {
        let mut copies = Copies::default();
        copies.edit(16, 24, load).unwrap()[0] = 1;
        copies.edit(40, 45, load).unwrap()[4] = 2;
        let joined = copies.edit(20, 43, load).unwrap();
        assert_eq!(joined.len(), 23);
        assert_eq!(joined[0], 20);
        joined[12] = 3;
        let mut seen = [0; 40];
        load(10, &mut seen).unwrap();
        copies.overlay(10, &mut seen);
        assert_eq!(
            (seen[6], seen[34], seen[22], seen[0], seen[39]),
            (1, 2, 3, 10, 49)
        );
        let mut entries = Entries::default();
        copies.diff(&mut entries);
        let steps: Vec<Step<'_>> = entries.steps().collect();
        let offsets: Vec<u64> = steps.iter().map(|step| step.offset).collect();
        assert_eq!(offsets, [16, 32]);
        assert!(
            matches!(steps[1].act, Act::Write([_, _])),
            "neighbours are merged"
        );
    }

    /// A range written over is not read but for the words at its ends; it is seen, joined and
    /// logged.
    #[test]
    fn a_range_is_written_over_without_a_look() {
        let mut copies = Copies::default();
        let loaded = std::cell::RefCell::new(Vec::new());
        let look = |start, to: &mut [u8]| {
            loaded.borrow_mut().push((start, to.len()));
            load(start, to)
        };
        copies.write(13, &[7; 30], look).unwrap();
        assert_eq!(loaded.take(), [(8, 8), (40, 8)]);
        let mut seen = [0; 48];
        load(0, &mut seen).unwrap();
        copies.overlay(0, &mut seen);
        assert!(seen[13..43].iter().all(|&byte| byte == 7));
        assert_eq!((seen[12], seen[43]), (12, 43));
        let mut entries = Entries::default();
        copies.diff(&mut entries);
        let offsets: Vec<u64> = entries.steps().map(|step| step.offset).collect();
        assert_eq!(offsets, [8, 16, 40]);
        // A second write leaves the bytes of the first, and those around it.
        copies.write(20, &[9; 40], load).unwrap();
        let joined = copies.edit(8, 64, load).unwrap();
        let expected: Vec<u8> = (8..64)
            .map(|at| match at {
                20..60 => 9,
                13..20 => 7,
                _ => at,
            })
            .collect();
        assert_eq!(joined, expected);
    }

    #[test]
    fn what_is_not_changed_is_not_logged() {
        let mut copies = Copies::default();
        copies.edit(0, 64, load).unwrap();
        let bytes = copies.edit(8, 16, load).unwrap();
        bytes[0] ^= 1;
        bytes[0] ^= 1;
        let mut entries = Entries::default();
        copies.diff(&mut entries);
        assert_eq!(entries.steps().count(), 0);
    }

    #[test]
    fn a_new_object_is_whole_and_can_be_forgotten() {
        let mut copies = Copies::default();
        copies.make(64, 32);
        copies.edit(72, 76, load).unwrap().fill(9);
        let fresh: Vec<(u64, &[u64])> = copies.fresh().collect();
        assert_eq!(fresh, [(64, &[0, 0x0909_0909, 0, 0][..])]);
        copies.forget(64, 32);
        assert_eq!(copies.fresh().count(), 0);
    }
}
