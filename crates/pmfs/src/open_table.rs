//! Which process holds which inode open: words {inode, slot, count} in lines chosen by the inode's hash.
//!
//! Each word has one writer, its slot's process; whether an inode is open is a look at its line. Seven words
//! a line; the eighth is set for good once something that belonged here had to go to the next line.

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::types::Ino;

const WORDS: u64 = 7;
const OVERFLOW: u64 = 56;
/// Lines that an inode's word may stand in.
const PROBES: u64 = 64;
const SLOT_SHIFT: u32 = 32;
const COUNT_SHIFT: u32 = 44;
const COUNT_ONE: u64 = 1 << COUNT_SHIFT;
const COUNT_MAX: u64 = (1 << 20) - 1;

fn ino_of(word: u64) -> Ino {
    word & 0xffff_ffff
}

fn slot_of(word: u64) -> u64 {
    (word >> SLOT_SHIFT & 0xfff).wrapping_sub(1)
}

impl Pool {
    fn open_line(&self, ino: Ino, probe: u64) -> u64 {
        let hash = (ino ^ self.geometry.hash_key[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.geometry.open + ((hash + probe) & (self.geometry.open_lines - 1)) * 64
    }

    /// The words of all lines in which `ino` may stand.
    fn open_words(&self, ino: Ino) -> impl Iterator<Item = u64> + '_ {
        let probes = PROBES.min(self.geometry.open_lines);
        let mut more = true;
        (0..probes)
            .take_while(move |&probe| {
                let go = more;
                more = self.pm.load(self.open_line(ino, probe) + OVERFLOW) != 0;
                go
            })
            .flat_map(move |probe| {
                let line = self.open_line(ino, probe);
                (0..WORDS).map(move |word| line + word * 8)
            })
    }

    /// Whether any process holds the inode open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.open_words(ino).any(|off| {
            let word = self.pm.load(off);
            word != 0 && ino_of(word) == ino
        })
    }

    /// Counts one more open of `ino` by this process.
    ///
    /// # Errors
    /// [`Error::TooManyOpen`].
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn open_add(&self, ino: Ino) -> Result<()> {
        let runtime = self.pm.runtime();
        let mine = ino | (self.holder().slot + 1) << SLOT_SHIFT;
        for off in self.open_words(ino) {
            let word = runtime.load(off);
            let same = word != 0 && ino_of(word) == ino && slot_of(word) == self.holder().slot;
            if same
                && word >> COUNT_SHIFT < COUNT_MAX
                && runtime.cas(off, word, word + COUNT_ONE).is_ok()
            {
                return Ok(());
            }
        }
        for probe in 0..PROBES.min(self.geometry.open_lines) {
            let line = self.open_line(ino, probe);
            for off in (0..WORDS).map(|word| line + word * 8) {
                if runtime.load(off) == 0 && runtime.cas(off, 0, mine + COUNT_ONE).is_ok() {
                    return Ok(());
                }
            }
            if runtime.load(line + OVERFLOW) == 0 {
                runtime.store(line + OVERFLOW, 1);
            }
        }
        Err(Error::TooManyOpen)
    }

    /// Counts one open of `ino` by this process less; answers whether that was its last.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it had none.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn open_remove(&self, ino: Ino) -> Result<bool> {
        let runtime = self.pm.runtime();
        'again: loop {
            for off in self.open_words(ino) {
                let word = runtime.load(off);
                if word == 0 || ino_of(word) != ino || slot_of(word) != self.holder().slot {
                    continue;
                }
                let last = word >> COUNT_SHIFT == 1;
                let less = if last { 0 } else { word - COUNT_ONE };
                if runtime.cas(off, word, less).is_err() {
                    continue 'again;
                }
                return Ok(last && !self.is_open(ino));
            }
            return Err(Error::Invalid("release of an inode that is not held"));
        }
    }

    /// Whether this process holds `ino` exactly once and nobody else does.
    pub(crate) fn open_is_last(&self, ino: Ino) -> bool {
        let mut total = 0;
        for off in self.open_words(ino) {
            let word = self.pm.load(off);
            if word != 0 && ino_of(word) == ino {
                total += word >> COUNT_SHIFT;
            }
        }
        total == 1
    }

    /// The words of a slot: where they stand and which inode they hold.
    pub(crate) fn open_of_slot(&self, slot: u64) -> Vec<(u64, Ino)> {
        let lines = self.geometry.open_lines;
        let words = (0..lines * 8).filter(|word| word % 8 < WORDS);
        words
            .map(|word| self.geometry.open + word * 8)
            .filter_map(|off| {
                let word = self.pm.load(off);
                (word != 0 && slot_of(word) == slot).then(|| (off, ino_of(word)))
            })
            .collect()
    }
}
