//! Entries of records: put together, and read again.

use pmlib_format::record::{ENTRY_CLEAR, ENTRY_FRESH, ENTRY_SET, ENTRY_WORDS_MAX, ENTRY_WRITE};

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

/// Words of memory that are kept for the next record.
const KEPT_WORDS: usize = 8192;

/// Entries as they stand in a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    words: Vec<u64>,
}

impl Entries {
    /// Forgets everything but its memory, of which a little is kept.
    pub fn clear(&mut self) {
        self.words.clear();
        self.words.shrink_to(KEPT_WORDS);
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn write(&mut self, offset: u64, words: &[u64]) {
        for (at, part) in words.chunks(ENTRY_WORDS_MAX).enumerate() {
            let offset = offset + (at * ENTRY_WORDS_MAX * 8) as u64;
            self.head(ENTRY_WRITE, offset, part.len());
            self.words.extend_from_slice(part);
        }
    }

    pub fn set(&mut self, offset: u64, bits: u64) {
        self.head(ENTRY_SET, offset, 1);
        self.words.push(bits);
    }

    pub fn unset(&mut self, offset: u64, bits: u64) {
        self.head(ENTRY_CLEAR, offset, 1);
        self.words.push(bits);
    }

    pub fn fresh(&mut self, offset: u64, words: u64, hash: u64) {
        self.head(ENTRY_FRESH, offset, 2);
        self.words.extend([words, hash]);
    }

    fn head(&mut self, kind: u64, offset: u64, words: usize) {
        self.words
            .push(kind | (words as u64) << 2 | (offset / 8) << 22);
    }

    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        steps(&self.words).map_while(Result::ok)
    }
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
        let found: Vec<Step<'_>> = entries.steps().collect();
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
