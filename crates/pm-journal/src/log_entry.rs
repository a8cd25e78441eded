//! One entry of the log: old or new words of some ranges, or the place where a range's old data was
//! saved.

use crate::error::{Error, Result};
use crate::medium::store::Store;
use pm_store::{Pm, Restore};
use pmfs_format::journal::{
    ADDRESS_MASK, ENTRY_LAST, KIND_DATA, KIND_REDO, KIND_SHIFT, KIND_UNDO, KIND_UNDOS, PLACE_SHIFT,
    WORDS_SHIFT,
};

/// Words of an entry before its id. A range takes one for its header, and its own.
pub(crate) const WORDS: usize = 7;

/// The first word of an entry, or of a further range in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(u64);

impl Header {
    /// Creates the header of an entry of this kind, of `words` words from byte `off` on.
    #[inline]
    pub fn new(kind: u64, off: u64, words: u64, place: u64) -> Header {
        Header(
            off & ADDRESS_MASK | words << WORDS_SHIFT | kind << KIND_SHIFT | place << PLACE_SHIFT,
        )
    }

    /// Reads the header of the entry at this offset.
    #[inline]
    pub fn read(pm: &Pm, entry: u64) -> Header {
        Header(pm.load(entry))
    }

    /// The header's word in the entry.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The kind: a constant of `pmfs_format::journal`.
    #[inline]
    pub fn kind(self) -> u64 {
        self.0 >> KIND_SHIFT & 0xf
    }

    /// The entry's place in its transaction.
    #[inline]
    pub fn place(self) -> u64 {
        self.0 >> PLACE_SHIFT
    }

    /// Returns whether the entry has new words and is the last one of its transaction.
    #[inline]
    pub fn is_last_of_new(self) -> bool {
        self.kind() == KIND_REDO && self.0 & ENTRY_LAST != 0
    }

    /// Address and count of words of the range.
    #[inline]
    pub fn range(self) -> (u64, u64) {
        (self.0 & ADDRESS_MASK, self.0 >> WORDS_SHIFT & 7)
    }

    /// The offsets of the range's words; none for KIND_DATA.
    #[inline]
    pub fn words(self) -> impl Iterator<Item = u64> {
        let (off, words) = self.range();
        (0..words).map(move |word| off + word * 8)
    }
}

/// A valid entry, whose ranges lie in the pool outside of the runtime area and the journal.
pub struct LogEntry {
    line: [u64; 8],
}

impl LogEntry {
    /// Reads the entry at `entry`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is invalid.
    #[inline]
    pub fn read(store: &Store, entry: u64) -> Result<LogEntry> {
        let read = LogEntry::parse(store.pm.read::<8>(entry));
        let inside = |off: u64, bytes: u64| {
            let end = off.checked_add(bytes);
            off >= store.data.start && end.is_some_and(|end| end <= store.data.end)
        };
        let is_right = |read: &LogEntry| match read.saved() {
            Some((off, bytes, from)) => inside(off, bytes) && inside(from, bytes),
            None => read
                .ranges()
                .all(|(off, words)| off.is_multiple_of(8) && inside(off, words.len() as u64 * 8)),
        };
        let read = read.filter(is_right);
        read.ok_or_else(|| Error::corrupt("journal entry", entry))
    }

    /// Parses a line; `None`: its ranges don't fit, or it has none. Their places are not checked.
    pub fn parse(line: [u64; 8]) -> Option<LogEntry> {
        let mut at = 0;
        let several = match Header(line[0]).kind() {
            KIND_DATA => return Some(LogEntry { line }),
            KIND_UNDO | KIND_REDO => false,
            KIND_UNDOS => true,
            _ => return None,
        };
        while at == 0 || several && at < WORDS && line[at] != 0 {
            let (_, words) = Header(line[at]).range();
            at += 1 + words as usize;
            if words == 0 || at > WORDS {
                return None;
            }
        }
        Some(LogEntry { line })
    }

    /// The ranges, each with its words; none for saved data.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, &[u64])> {
        let kind = Header(self.line[0]).kind();
        let several = kind == KIND_UNDOS && !planted!("bug-second-range-forgotten");
        let mut at = match kind {
            KIND_DATA => WORDS,
            _ => 0,
        };
        std::iter::from_fn(move || {
            if at >= WORDS || self.line[at] == 0 {
                return None;
            }
            let (off, words) = Header(self.line[at]).range();
            let of_range = &self.line[at + 1..][..words as usize];
            at = match several {
                true => at + 1 + words as usize,
                false => WORDS,
            };
            Some((off, of_range))
        })
    }

    /// Offset and bytes of a range whose old data was saved, and the place of the copy.
    pub fn saved(&self) -> Option<(u64, u64, u64)> {
        let header = Header(self.line[0]);
        let (off, _) = header.range();
        (header.kind() == KIND_DATA).then_some((off, self.line[2], self.line[1]))
    }

    /// Stores the entry's words, old or new, at their places.
    ///
    /// # Errors
    /// [`Error::Medium`]
    pub fn put(&self, restore: &Restore<'_>) -> Result<()> {
        for (off, words) in self.ranges() {
            let forgotten = usize::from(planted!("bug-undo-one-word-short"));
            restore.words(off, &words[..words.len() - forgotten]);
        }
        match self.saved() {
            None => {}
            Some((off, bytes, from)) if planted!("bug-saved-undone-backwards") => {
                restore.data(from, off, bytes)?;
            }
            Some((off, bytes, from)) => restore.data(off, from, bytes)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u64, off: u64, words: u64) -> u64 {
        Header::new(kind, off, words, 0).word()
    }

    fn ranges(line: [u64; 8]) -> Option<Vec<(u64, Vec<u64>)>> {
        let entry = LogEntry::parse(line)?;
        let owned = entry.ranges().map(|(off, words)| (off, words.to_vec()));
        Some(owned.collect())
    }

    #[test]
    fn an_entry_has_up_to_three_ranges() {
        let first = header(KIND_UNDOS, 4096, 1);
        let [second, third] = [8192, 64].map(|off| header(KIND_UNDO, off, 2));
        let two = [first, 1, second, 2, 3, 0, 0, 9];
        assert_eq!(ranges(two), Some(vec![(4096, vec![1]), (8192, vec![2, 3])]));
        let last = header(KIND_UNDO, 64, 1);
        let three = [first, 1, second, 2, 3, last, 4, 9];
        let (_, rest) = ranges(three).map(|mut all| (all.remove(0), all)).unwrap();
        assert_eq!(rest, [(8192, vec![2, 3]), (64, vec![4])]);
        // The id is not a word of a range.
        assert_eq!(ranges([first, 1, second, 2, 3, third, 4, 9]), None);
    }

    /// Goal: a range ends where its header says. Words of 0 are words too.
    #[test]
    fn one_range_ends_where_it_says() {
        let one = |words| [header(KIND_UNDO, 4096, words), 0, 0, 5, 5, 5, 5, 9];
        assert_eq!(ranges(one(2)), Some(vec![(4096, vec![0, 0])]));
        assert_eq!(ranges(one(6)), Some(vec![(4096, vec![0, 0, 5, 5, 5, 5])]));
        assert_eq!(ranges(one(7)), None);
        assert_eq!(ranges(one(0)), None);
    }
}
