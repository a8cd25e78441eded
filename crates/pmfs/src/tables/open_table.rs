//! The table of processes with the inodes and open files that they have: words {thing, slot, count}
//! in lines chosen by the thing's hash.
//!
//! Each word has one writer, its slot's process; whether a thing is open is a look at its line.
//! Seven words a line; the eighth tells for good that something that belonged here had to go to the
//! next line, and that some process has had something more often than one word can count, and so by
//! several. After the lines of the runtime area come those of annexes ([`crate::tables::annex`]),
//! in levels of four times as many each: a thing has some neighbouring lines in each level.

use crate::pool::Pool;
use crate::tables::annex::{Line, Table};
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_space::Class;
use pmfs_format::OpenLineRaw;
use pmfs_format::runtime::{ANNEX_LINES, OPEN_LINE_REFERENCES};

/// Note: something went to the next line.
const GOES_ON: u64 = 1;
/// Note, of the first line of a thing: a process has had it by several words.
const SEVERAL: u64 = 2;
/// Lines of the runtime area that a thing's word may stand in.
const PROBES: u64 = 16;
/// Lines of each level of annexes.
const PROBES_IN_ANNEX: u64 = 8;
/// Annexes of the first level.
const FIRST_ANNEXES: u64 = 8;
const LEVELS: u32 = 6;
const SLOT_SHIFT: u32 = 32;
const COUNT_SHIFT: u32 = 44;
const COUNT_ONE: u64 = 1 << COUNT_SHIFT;
const COUNT_MAX: u64 = (1 << 19) - 1;
/// Set where the number is an open file's.
const IS_FILE: u64 = 1 << 63;

/// A thing that can be had open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    Inode(Ino),
    /// An open file, by its index.
    File(u64),
}

impl Thing {
    /// A word's part that names it.
    fn key(self) -> u64 {
        match self {
            Thing::Inode(ino) => ino,
            Thing::File(index) => index | IS_FILE,
        }
    }

    fn of(word: u64) -> Thing {
        let number = word & 0xffff_ffff;
        if word & IS_FILE == 0 {
            Thing::Inode(number)
        } else {
            Thing::File(number)
        }
    }

    fn is_in(self, word: u64) -> bool {
        word != 0 && word & (0xffff_ffff | IS_FILE) == self.key()
    }
}

fn slot_of(word: u64) -> u64 {
    (word >> SLOT_SHIFT & 0xfff).wrapping_sub(1)
}

fn count_of(word: u64) -> u64 {
    word >> COUNT_SHIFT & COUNT_MAX
}

/// A word of the table.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The place where it stands.
    pub off: u64,
    annex: Option<u64>,
    pub thing: Thing,
    pub slot: u64,
    /// The number of times that the slot's process has it.
    pub count: u64,
}

impl Pool {
    fn open_line(&self, thing: Thing, probe: u64) -> u64 {
        let key = thing.key() ^ self.geometry.hash_key[1];
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.geometry.open + ((hash + probe) & (self.geometry.open_lines - 1)) * 64
    }

    /// The annex of a level in which a thing may stand, and its first line there.
    fn annex_for(&self, thing: Thing, level: u32) -> (u64, u64) {
        let before: u64 = (0..level).map(|level| FIRST_ANNEXES << (2 * level)).sum();
        let key = thing.key() ^ self.geometry.hash_key[1];
        let hash = key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let count = FIRST_ANNEXES << (2 * level);
        let annex = Table::References.annexes().start + before + (hash & (count - 1));
        (annex, (hash >> 16) % ANNEX_LINES)
    }

    /// Looks at the words of all lines in which a thing may stand, by their places, until one
    /// answers. A single loop serves all lines, so that `look` is inlined: as an iterator, or in
    /// two loops, an open and its close take 4 to 10 % longer.
    #[inline(always)]
    fn find<T>(&self, thing: Thing, mut look: impl FnMut(Line) -> Option<T>) -> Option<T> {
        let (mut off, mut annex) = (self.open_line(thing, 0), None);
        let mut probe = 0;
        loop {
            for word in 0..OPEN_LINE_REFERENCES {
                let off = off + word * 8;
                let found = look(Line { off, annex });
                if found.is_some() {
                    return found;
                }
            }
            if self.pm.load(OpenLineRaw::notes.of(off)) & GOES_ON == 0 {
                return None;
            }
            probe += 1;
            Line { off, annex } = self.line_for(thing, probe)?;
        }
    }

    /// Returns where a thing may stand when the lines before are full: the next ones of the runtime
    /// area, then some of each level of annexes.
    #[cold]
    #[inline(never)]
    fn line_for(&self, thing: Thing, probe: u64) -> Option<Line> {
        let own = PROBES.min(self.geometry.open_lines);
        let Some(beyond) = probe.checked_sub(own) else {
            return Some(Line {
                off: self.open_line(thing, probe),
                annex: None,
            });
        };
        let level = (beyond / PROBES_IN_ANNEX) as u32;
        if level >= LEVELS {
            return None;
        }
        let (annex, first) = self.annex_for(thing, level);
        self.annex_line(annex, (first + beyond % PROBES_IN_ANNEX) % ANNEX_LINES)
    }

    /// Returns whether any process holds the inode open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.is_had(Thing::Inode(ino))
    }

    /// Returns whether any process has it.
    pub fn is_had(&self, thing: Thing) -> bool {
        self.is_had_beside(thing, 0)
    }

    /// Returns whether any process has it by another word than the one at `word`.
    pub(crate) fn is_had_beside(&self, thing: Thing, word: u64) -> bool {
        let counts = |found| {
            let mine = slot_of(found) == self.holder().slot;
            mine || !planted!("bug-other-holders-overlooked")
        };
        let other = |line: Line| {
            let found = self.pm.load(line.off);
            (line.off != word && thing.is_in(found) && counts(found)).then_some(())
        };
        self.find(thing, other).is_some()
    }

    /// Returns whether a process has it whose slot is as asked for.
    pub(crate) fn is_had_by(&self, thing: Thing, asked: impl Fn(u64) -> bool) -> bool {
        let has = |line: Line| {
            let found = self.pm.load(line.off);
            (thing.is_in(found) && asked(slot_of(found))).then_some(())
        };
        self.find(thing, has).is_some()
    }

    /// Counts one more open by this process.
    ///
    /// # Errors
    /// [`Error::TooManyOpen`].
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn open_add(&self, thing: Thing) -> Result<()> {
        self.open_add_for(self.holder().slot, thing, 1)
    }

    /// Adds like [`Pool::open_add`], for a slot that is no other process's yet.
    ///
    /// # Errors
    /// [`Error::TooManyOpen`].
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn open_add_for(&self, slot: u64, thing: Thing, count: u64) -> Result<()> {
        self.traces.opens.leave();
        let runtime = self.pm.runtime();
        let counted = self.find(thing, |Line { off, .. }| {
            let mut word = runtime.load(off);
            // Other threads of this process count there too. With a second word for the same inode,
            // a search along the line could miss both; only a full word, which stays during every
            // search, may have one.
            while thing.is_in(word) && slot_of(word) == slot {
                if count_of(word) + count > COUNT_MAX {
                    self.note(self.open_line(thing, 0), SEVERAL);
                    return None;
                }
                match runtime.cas(off, word, word + count * COUNT_ONE) {
                    Ok(_) => return Some(()),
                    Err(found) => word = found,
                }
            }
            None
        });
        if counted.is_some() {
            return Ok(());
        }
        let mine = thing.key() | (slot + 1) << SLOT_SHIFT | count << COUNT_SHIFT;
        for probe in 0..PROBES.min(self.geometry.open_lines) {
            let line = self.open_line(thing, probe);
            for off in (0..OPEN_LINE_REFERENCES).map(|word| line + word * 8) {
                if runtime.load(off) == 0 && runtime.cas(off, 0, mine).is_ok() {
                    return Ok(());
                }
            }
            self.note(line, GOES_ON);
        }
        self.open_add_in_annex(thing, mine)
    }

    /// Puts a word into the first line with room for it in annexes, which are made where they are
    /// missing.
    #[cold]
    #[inline(never)]
    #[cfg_attr(feature = "record", track_caller)]
    fn open_add_in_annex(&self, thing: Thing, word: u64) -> Result<()> {
        let runtime = self.pm.runtime();
        for level in 0..LEVELS {
            let (annex, first) = self.annex_for(thing, level);
            if self.annex_line(annex, 0).is_none() && !self.add_annex(annex, Class::Ordinary) {
                return Err(Error::TooManyOpen);
            }
            self.enter_annex(Some(annex));
            for probe in 0..PROBES_IN_ANNEX {
                let Some(line) = self.annex_line(annex, (first + probe) % ANNEX_LINES) else {
                    return Err(Error::TooManyOpen);
                };
                for off in (0..OPEN_LINE_REFERENCES).map(|word| line.off + word * 8) {
                    if runtime.load(off) == 0 && runtime.cas(off, 0, word).is_ok() {
                        return Ok(());
                    }
                }
                self.note(line.off, GOES_ON);
            }
            self.leave_annex(Some(annex));
        }
        Err(Error::TooManyOpen)
    }

    /// Takes a word away.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn drop_reference(&self, found: &Reference) {
        self.free_in_table(found.off, found.annex);
    }

    /// Notes something of a line, for good.
    #[cfg_attr(feature = "record", track_caller)]
    fn note(&self, line: u64, what: u64) {
        let runtime = self.pm.runtime();
        let mut notes = runtime.load(OpenLineRaw::notes.of(line));
        while notes & what == 0 {
            match runtime.cas(OpenLineRaw::notes.of(line), notes, notes | what) {
                Ok(_) => return,
                Err(found) => notes = found,
            }
        }
    }

    /// Returns whether this process has it by another word than the one at `word`.
    fn has_by_another(&self, thing: Thing, word: u64) -> bool {
        let notes = self
            .pm
            .load(OpenLineRaw::notes.of(self.open_line(thing, 0)));
        let slot = self.holder().slot;
        let other = |line: Line| {
            let found = self.pm.load(line.off);
            (line.off != word && thing.is_in(found) && slot_of(found) == slot).then_some(())
        };
        notes & SEVERAL != 0 && self.find(thing, other).is_some()
    }

    /// Counts one open by this process less; returns whether that was this process's last. Where
    /// the process has several words for it, the answer holds for callers that have locked out the
    /// process's other threads.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it had none.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn open_remove(&self, thing: Thing) -> Result<bool> {
        let runtime = self.pm.runtime();
        let slot = self.holder().slot;
        loop {
            let removed = self.find(thing, |Line { off, annex }| {
                let word = runtime.load(off);
                if !thing.is_in(word) || slot_of(word) != slot {
                    return None;
                }
                let last = count_of(word) == 1;
                let less = if last { 0 } else { word - COUNT_ONE };
                let gone = last && !self.has_by_another(thing, off);
                let taken = runtime.cas(off, word, less).is_ok();
                if taken && last {
                    self.leave_annex(annex);
                }
                Some(taken.then_some(gone))
            });
            match removed {
                None => return Err(Error::Invalid(&"release of what is not held")),
                Some(Some(last)) => return Ok(last),
                // Others of this process counted there meanwhile.
                Some(None) => {}
            }
        }
    }

    /// Returns whether this process holds `ino` exactly once and no other process does.
    pub(crate) fn open_is_last(&self, ino: Ino) -> bool {
        let thing = Thing::Inode(ino);
        let mut count = 0;
        self.find(thing, |line| {
            let word = self.pm.load(line.off);
            count += if thing.is_in(word) { count_of(word) } else { 0 };
            None::<()>
        });
        count == 1
    }

    /// All words in use.
    pub fn references(&self) -> impl Iterator<Item = Reference> + '_ {
        let words =
            (0..self.geometry.open_lines * 8).filter(|word| word % 8 < OPEN_LINE_REFERENCES);
        let own = words.map(|word| Line {
            off: self.geometry.open + word * 8,
            annex: None,
        });
        let more = self
            .lines_in_annexes(Table::References)
            .flat_map(|(_, line)| {
                (0..OPEN_LINE_REFERENCES).map(move |word| Line {
                    off: line.off + word * 8,
                    ..line
                })
            });
        own.chain(more).filter_map(|Line { off, annex }| {
            let word = self.pm.load(off);
            (word != 0).then(|| Reference {
                off,
                annex,
                thing: Thing::of(word),
                slot: slot_of(word),
                count: count_of(word),
            })
        })
    }

    /// The words of a slot.
    pub(crate) fn references_of(&self, slot: u64) -> Vec<Reference> {
        self.references()
            .filter(|found| found.slot == slot)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{NODE, Scratch};
    use crate::{FileId, Fs, ROOT_INO};

    /// An open file without a name, and this process's words for it and its inode.
    fn unlinked(fs: &Fs) -> (FileId, Ino, Vec<Reference>) {
        let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        fs.write(ino, 0, b"here").unwrap();
        let file = fs.open_file(ino, 0).unwrap();
        fs.unlink(ROOT_INO, b"file").unwrap();
        let pool = fs.pool();
        (file, ino, pool.references_of(pool.holder().slot))
    }

    /// Counts as if it were had so much more often.
    fn had_more_often(fs: &Fs, found: &Reference, more: u64) {
        let word = fs.pool().pm.load(found.off);
        let _writable = fs.mapping().writable();
        fs.pool()
            .pm
            .runtime()
            .store(found.off, word + more * COUNT_ONE);
    }

    /// Goal: what one process has more often than a word can count is there until it has let go of
    /// the last. Method: the count begins near its end; descriptors of one open file, and holders
    /// of its inode.
    #[test]
    fn more_often_than_a_word_counts() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let (file, ino, words) = unlinked(&fs);
        let (before, more) = (COUNT_MAX - 3, 10);
        for found in &words {
            had_more_often(&fs, found, before);
        }
        for _ in 0..more {
            fs.dup_file(file).unwrap();
            fs.hold(ino).unwrap();
        }
        let pool = fs.pool();
        let all = pool.references_of(pool.holder().slot);
        let had = |thing: Thing| all.iter().filter(move |word| word.thing == thing);
        let of_inode = || had(Thing::Inode(ino));
        assert_eq!((all.len(), of_inode().count()), (4, 2));
        let sum: u64 = of_inode().map(|word| word.count).sum();
        assert_eq!(sum, 1 + before + more);
        // All but one, whichever word they are taken from.
        for _ in 0..before + more {
            fs.close_file(file).unwrap();
            fs.release(ino).unwrap();
        }
        let mut text = [0; 4];
        fs.read_file(file, &mut text).unwrap();
        assert_eq!(&text, b"here");
        fs.close_file(file).unwrap();
        assert!(fs.getattr(ino).is_err() && fs.close_file(file).is_err());
        assert!(pool.references_of(pool.holder().slot).is_empty());
        assert!(scratch.is_sound());
    }
}
