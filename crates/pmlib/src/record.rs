//! Entries of records: put together, and read again.

use std::ops::Range;

use pmlib_format::record::{
    ENTRY_CLEAR, ENTRY_FRESH, ENTRY_SET, ENTRY_WORDS_MAX, ENTRY_WRITE, HEAD_WORDS,
};

/// The effect of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act<'a> {
    Write(&'a [u64]),
    Set(u64),
    Clear(u64),
    /// Words that stand there, and their hash.
    Fresh(u64, u64),
}

/// One entry of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step<'a> {
    pub offset: u64,
    pub act: Act<'a>,
}

impl Step<'_> {
    /// Bytes that it is about.
    pub fn bytes(&self) -> u64 {
        match self.act {
            Act::Write(words) => 8 * words.len() as u64,
            Act::Set(_) | Act::Clear(_) => 8,
            Act::Fresh(words, _) => words.saturating_mul(8),
        }
    }

    /// Whether all that it is about is in a heap of `len` bytes.
    pub fn is_within(&self, len: u64) -> bool {
        self.bytes() <= len && self.offset <= len - self.bytes()
    }

    /// Whether it stores in place.
    pub fn stores(&self) -> bool {
        !matches!(self.act, Act::Fresh(..))
    }
}

/// Words of memory that are kept for the next record, and entries.
const KEPT: usize = 8192;

/// The kind and the place of an entry that this process has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Where it is about.
    pub offset: u64,
    /// Bytes that it is about.
    pub bytes: u64,
    kind: u64,
    /// Where its words begin among all.
    at: usize,
}

impl Head {
    /// Whether it stores in place.
    #[inline]
    pub fn stores(&self) -> bool {
        self.kind != ENTRY_FRESH
    }

    #[inline(always)]
    fn act<'a>(&self, words: &'a [u64]) -> Act<'a> {
        match self.kind {
            ENTRY_WRITE => Act::Write(&words[self.at..self.at + (self.bytes / 8) as usize]),
            ENTRY_SET => Act::Set(words[self.at]),
            ENTRY_CLEAR => Act::Clear(words[self.at]),
            _ => Act::Fresh(words[self.at], words[self.at + 1]),
        }
    }
}

/// Entries as they stand in a record, behind room for its head.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    words: Vec<u64>,
    heads: Vec<Head>,
    /// Some are about single bits.
    has_bits: bool,
    /// The words of those, with the bits changed; none if two entries are about one word.
    changed: Vec<u64>,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries {
            words: vec![0; HEAD_WORDS],
            heads: Vec::new(),
            has_bits: false,
            changed: Vec::new(),
        }
    }
}

impl Entries {
    /// Forgets everything but its memory, of which a little is kept.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.words.truncate(HEAD_WORDS);
        if !self.heads.is_empty() {
            self.heads.clear();
        }
        if self.has_bits {
            self.has_bits = false;
            self.changed.clear();
        }
        if self.words.capacity().max(self.heads.capacity()) > KEPT {
            self.words.shrink_to(KEPT);
            self.heads.shrink_to(KEPT);
            self.changed.shrink_to(KEPT);
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words[HEAD_WORDS..]
    }

    /// The words behind room for a record's head.
    #[inline]
    pub fn as_record(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    #[inline]
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// Whether some entries set or clear single bits.
    #[inline]
    pub fn has_bits(&self) -> bool {
        self.has_bits
    }

    /// Tests that the bits which entries set are not set, and that those which they clear are, and
    /// notes what the words become. Nobody changes the words before they are stored.
    ///
    /// # Errors
    /// The place of a word with another bit.
    #[inline]
    pub fn test_bits(&mut self, load: impl Fn(u64) -> u64) -> Result<(), u64> {
        self.changed.clear();
        let (mut last, mut are_rising) = (0, true);
        for head in &self.heads {
            let are_set = match head.kind {
                ENTRY_SET => false,
                ENTRY_CLEAR => true,
                _ => continue,
            };
            let (bits, word) = (self.words[head.at], load(head.offset));
            if word & bits != if are_set { bits } else { 0 } {
                return Err(head.offset);
            }
            // The first chunk has no objects.
            are_rising &= last < head.offset;
            last = head.offset;
            self.changed.push(word ^ bits);
        }
        if !are_rising {
            self.changed.clear();
        }
        Ok(())
    }

    /// The words of which entries set or clear bits, in the order of these entries, as they are to
    /// be; none where they have to be looked at again.
    #[inline]
    pub fn changed(&self) -> &[u64] {
        &self.changed
    }

    /// Hands its heads over for the memory of others; there are no steps then.
    pub fn give_heads(&mut self, to: &mut Vec<Head>) {
        std::mem::swap(&mut self.heads, to);
        self.heads.clear();
    }

    #[inline(always)]
    pub fn write(&mut self, offset: u64, words: &[u64]) {
        if words.len() <= ENTRY_WORDS_MAX {
            return self.write_one(offset, words);
        }
        self.write_long(offset, words);
    }

    #[cold]
    fn write_long(&mut self, offset: u64, words: &[u64]) {
        for (at, part) in words.chunks(ENTRY_WORDS_MAX).enumerate() {
            self.write_one(offset + (at * ENTRY_WORDS_MAX * 8) as u64, part);
        }
    }

    #[inline(always)]
    fn write_one(&mut self, offset: u64, words: &[u64]) {
        self.head(ENTRY_WRITE, offset, words.len(), 8 * words.len() as u64);
        self.words.extend_from_slice(words);
    }

    #[inline(always)]
    pub fn set(&mut self, offset: u64, bits: u64) {
        self.bits_of(ENTRY_SET, offset, bits);
    }

    #[inline(always)]
    pub fn unset(&mut self, offset: u64, bits: u64) {
        self.bits_of(ENTRY_CLEAR, offset, bits);
    }

    /// Adds bits of a word, to the last entry if it is about the same word.
    #[inline(always)]
    fn bits_of(&mut self, kind: u64, offset: u64, bits: u64) {
        if let Some(last) = self.heads.last()
            && (last.kind, last.offset) == (kind, offset)
        {
            self.words[last.at] |= bits;
            return;
        }
        self.has_bits = true;
        self.head(kind, offset, 1, 8);
        self.words.push(bits);
    }

    pub fn fresh(&mut self, offset: u64, words: u64, hash: u64) {
        self.head(ENTRY_FRESH, offset, 2, words * 8);
        self.words.extend_from_slice(&[words, hash]);
    }

    /// Has these words be all entries: room for a record's head, and for each range, which is less
    /// than [`ENTRY_WORDS_MAX`], room for its entry's head before its words. `ranges`: where each
    /// is about, and which of the words are its.
    pub fn take_written(
        &mut self,
        words: &mut Vec<u64>,
        ranges: impl Iterator<Item = (u64, Range<usize>)>,
    ) {
        std::mem::swap(&mut self.words, words);
        for (offset, Range { start: at, end }) in ranges {
            let count = (end - at) as u64;
            self.words[at - 1] = head_word(ENTRY_WRITE, offset, count);
            self.heads.push(Head {
                offset,
                bytes: 8 * count,
                kind: ENTRY_WRITE,
                at,
            });
        }
    }

    #[inline(always)]
    fn head(&mut self, kind: u64, offset: u64, words: usize, bytes: u64) {
        self.words.push(head_word(kind, offset, words as u64));
        self.heads.push(Head {
            offset,
            bytes,
            kind,
            at: self.words.len(),
        });
    }

    #[inline]
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.heads.iter().map(|head| Step {
            offset: head.offset,
            act: head.act(&self.words),
        })
    }
}

/// The word before an entry's own.
#[inline]
fn head_word(kind: u64, offset: u64, words: u64) -> u64 {
    kind | words << 2 | (offset / 8) << 22
}

/// The entries that stand in `words`; an error where they make no sense.
pub(crate) fn steps(words: &[u64]) -> impl Iterator<Item = Result<Step<'_>, ()>> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let (&head, after) = rest.split_first()?;
        rest = &[];
        let (kind, count) = (head & 3, (head >> 2) as usize & ENTRY_WORDS_MAX);
        let Some((data, after)) = after.split_at_checked(count) else {
            return Some(Err(()));
        };
        let act = match (kind, data) {
            (ENTRY_WRITE, [_, ..]) => Act::Write(data),
            (ENTRY_SET, &[bits]) => Act::Set(bits),
            (ENTRY_CLEAR, &[bits]) => Act::Clear(bits),
            (ENTRY_FRESH, &[words, hash]) => Act::Fresh(words, hash),
            _ => return Some(Err(())),
        };
        rest = after;
        let offset = (head >> 22) * 8;
        Some(Ok(Step { offset, act }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let mut entries = Entries::default();
        entries.write(4096, &[1, 2, 3]);
        entries.set(64, 1 << 63);
        entries.unset((1 << 45) - 8, 6);
        entries.fresh(128, 8, 99);
        let found: Vec<Step<'_>> = steps(entries.words()).flatten().collect();
        assert!(found.iter().copied().eq(entries.steps()));
        let expected = [
            (4096, Act::Write(&[1, 2, 3][..])),
            (64, Act::Set(1 << 63)),
            ((1 << 45) - 8, Act::Clear(6)),
            (128, Act::Fresh(8, 99)),
        ];
        assert_eq!(found.len(), expected.len());
        for (step, (offset, act)) in found.iter().zip(expected) {
            assert_eq!((step.offset, step.act), (offset, act));
        }
        assert_eq!(found[0].bytes(), 24);
        let heads = found.iter().zip(entries.heads());
        assert!(heads.clone().all(|(step, head)| step.bytes() == head.bytes));
        assert!(
            heads
                .clone()
                .all(|(step, head)| step.stores() == head.stores())
        );
        let load = |offset| if offset == 64 { 1 } else { 7 };
        assert_eq!(entries.test_bits(load), Ok(()));
        assert_eq!(entries.changed(), [1 << 63 | 1, 1]);
        assert_eq!(entries.test_bits(|_| 6 | 1 << 63), Err(64));
        assert_eq!(entries.test_bits(|_| 4), Err((1 << 45) - 8));
    }

    /// Bits of a word are one entry if they follow each other, and a word is looked at again where
    /// two entries are about it.
    #[test]
    fn bits_of_a_word_are_merged() {
        let mut entries = Entries::default();
        for bit in [1, 2, 8] {
            entries.unset(64, bit);
        }
        entries.unset(72, 1);
        assert_eq!(entries.steps().count(), 2);
        assert_eq!(entries.test_bits(|_| 15), Ok(()));
        assert_eq!(entries.changed(), [4, 14]);
        entries.set(64, 16);
        assert_eq!(entries.test_bits(|_| 15), Ok(()));
        assert_eq!(entries.changed(), [0; 0]);
        entries.clear();
        entries.unset(72, 1);
        assert_eq!(entries.steps().count(), 1);
    }

    /// Words that don't fit into one entry are several, and none of them is lost.
    #[test]
    fn many_words_are_several_entries() {
        let words: Vec<u64> = (0..ENTRY_WORDS_MAX as u64 + 5).collect();
        let mut entries = Entries::default();
        entries.write(64, &words);
        let found: Vec<Step<'_>> = steps(entries.words()).flatten().collect();
        assert!(found.iter().copied().eq(entries.steps()));
        let [first, second] = found[..] else {
            panic!("{} entries", found.len());
        };
        let (there, rest) = words.split_at(ENTRY_WORDS_MAX);
        assert_eq!((first.offset, first.act), (64, Act::Write(there)));
        assert_eq!(second.offset, 64 + ENTRY_WORDS_MAX as u64 * 8);
        assert_eq!(second.act, Act::Write(rest));
    }

    #[test]
    fn nonsense_ends_with_an_error() {
        let mut entries = Entries::default();
        entries.write(4096, &[1, 2, 3]);
        for bad in [
            &entries.words()[..3],
            &[3 | 1 << 2, 0],
            &[0],
            &[1 | 2 << 2, 0, 0],
        ] {
            assert!(steps(bad).any(|step| step.is_err()), "{bad:?}");
        }
    }
}
