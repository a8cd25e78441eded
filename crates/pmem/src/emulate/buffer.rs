//! The buffer of an emulated module: lines with a mask of four parts, kept by this process.
//!
//! The rules are those of `pmep::buffer`: a line whose parts are all written costs one write, one
//! that is pushed out before costs a read and a write. Threads change the entries without a lock. A
//! lost entry is a line that is counted twice or not at all, and harms nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 8;
pub(super) const WHOLE: u64 = 0b1111;

/// Lines that an access moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Lines read from the media.
    pub read: u64,
    /// Lines written to it.
    pub written: u64,
    /// The buffer had the line.
    pub hit: bool,
}

/// A module's buffer. An entry has a line's number plus one, and the mask in its low four bits.
pub(super) struct Buffer {
    entries: Box<[AtomicU64]>,
    /// Counts lines that were let in, and so chooses the ways that they take.
    chosen: AtomicU64,
}

impl Buffer {
    /// A buffer of about so many lines: whole sets, a power of two of them.
    pub(super) fn new(lines: u64) -> Buffer {
        let sets = (lines as usize).div_ceil(WAYS).next_power_of_two();
        Buffer {
            entries: (0..sets * WAYS).map(|_| AtomicU64::new(0)).collect(),
            chosen: AtomicU64::new(1),
        }
    }

    /// The set of a line, and the place of its entry. All digits of a line's number choose the set:
    /// threads whose regions lie at round distances would meet in one by the last digits alone.
    fn find(&self, line: u64) -> (&[AtomicU64], Option<&AtomicU64>) {
        let sets = self.entries.len() / WAYS;
        let folded = [24, 12, 6, 3]
            .iter()
            .fold(line, |folded, by| folded ^ folded >> by);
        let first = (folded as usize & (sets - 1)) * WAYS;
        let set = &self.entries[first..first + WAYS];
        let has = |entry: &&AtomicU64| entry.load(Relaxed) >> 4 == line + 1;
        (set, set.iter().find(has))
    }

    /// Puts a line into a free way, or one by chance. Returns the cost of the line that was there.
    fn let_in(&self, set: &[AtomicU64], line: u64, mask: u64) -> Moved {
        let free = set.iter().find(|entry| entry.load(Relaxed) == 0);
        let entry = free.unwrap_or_else(|| {
            let mut random = self.chosen.load(Relaxed);
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            self.chosen.store(random, Relaxed);
            &set[(random >> 32) as usize % WAYS]
        });
        let dirty = u64::from(entry.load(Relaxed) & WHOLE != 0);
        entry.store((line + 1) << 4 | mask, Relaxed);
        Moved {
            read: dirty,
            written: dirty,
            hit: false,
        }
    }

    /// Reads of a line.
    pub(super) fn read(&self, line: u64) -> Moved {
        let (set, found) = self.find(line);
        if found.is_some() {
            return Moved {
                hit: true,
                ..Moved::default()
            };
        }
        let moved = self.let_in(set, line, 0);
        Moved {
            read: moved.read + 1,
            ..moved
        }
    }

    /// Writes parts of a line.
    pub(super) fn write(&self, line: u64, parts: u64) -> Moved {
        let (set, found) = self.find(line);
        let Some(entry) = found else {
            return self.let_in(set, line, parts);
        };
        let had = entry.load(Relaxed);
        let mask = had & WHOLE | parts;
        let is_whole = mask == WHOLE;
        entry.store(had & !WHOLE | if is_whole { 0 } else { mask }, Relaxed);
        Moved {
            read: 0,
            written: u64::from(is_whole),
            hit: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: the rules are the model's. Method: lines that fit the buffer, so that nothing
        /// depends on chance, beside `pmep`'s.
        #[test]
        fn rules_are_the_models(steps in prop::collection::vec((0_u64..64, 1_u64..15, any::<bool>()), 1..500)) {
            let (ours, mut theirs) = (Buffer::new(64), pmep::buffer::Buffer::new(64, 1));
            for (line, parts, is_write) in steps {
                let (ours, theirs) = match is_write {
                    true => (ours.write(line, parts), theirs.write(line, parts as u8)),
                    false => (ours.read(line), theirs.read(line)),
                };
                let theirs = Moved {
                    read: u64::from(theirs.read),
                    written: u64::from(theirs.written),
                    hit: theirs.hit,
                };
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    /// Goal: parts of many lines leave the buffer one by one, each with a read. Method: one part of
    /// each of many lines, without a second.
    #[test]
    fn lines_written_in_part_are_pushed_out() {
        let buffer = Buffer::new(64);
        let moved: Vec<Moved> = (0..1000).map(|line| buffer.write(line, 1)).collect();
        let sum = |of: fn(&Moved) -> u64| moved.iter().map(of).sum::<u64>();
        assert_eq!(sum(|moved| moved.read), 1000 - 64);
        assert_eq!(sum(|moved| moved.written), 1000 - 64);
    }
}
