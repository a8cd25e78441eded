//! The index: the directory, groups, and the search for a key in them.
//!
//! The lock of an index chunk covers its groups. Beside it stand two words of this run
//! (`pmlib::ground`):
//! - The *note*: a bit for each group that was settled in this run (`crates/pmkv/src/settle.rs`),
//!   and the group that the lock's holder is changing. A holder that finds such a mark knows that
//!   another one died there, and settles the group again.
//! - The *sequence*: odd while slots become visible or cease to be. A reader that has found nothing
//!   believes it only if the sequence was the same before and after.
//!
//! A key has one visible slot at most at any moment, so that a reader may stop at the first.

use pmlib::ground::Locked;
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{DEPTH_MAX, STATE_LIVE, STATE_PUT};

use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::key::{KeyHash, line_at};
use crate::record::{self, Head, Seen};
use crate::slot::{HASH_BITS, Slot};

/// Bits of an offset / 16 in the head's word of the directory.
const DIRECTORY_BITS: u32 = 42;
/// Bits of a chunk in a word of the directory.
const CHUNK_BITS: u32 = 40;
/// Where the check of either begins.
const CHECK_SHIFT: u32 = 48;
/// Looks without a lock before a reader takes it.
const LOOKS: u32 = 16;

/// The group that is being changed: its number above this, and this bit.
const BUSY: u64 = 1 << 16;
const BUSY_SHIFT: u32 = 17;

fn check_of(word: u64, salt: u64) -> u64 {
    let word = (word & ((1 << CHECK_SHIFT) - 1)) ^ salt.rotate_left(17);
    (word ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> CHECK_SHIFT
}

fn checked(word: u64, salt: u64) -> u64 {
    word | check_of(word, salt) << CHECK_SHIFT
}

fn is_checked(word: u64, salt: u64) -> bool {
    word == checked(word & ((1 << CHECK_SHIFT) - 1), salt)
}

/// The directory: where it is and its depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub offset: u64,
    pub depth: u32,
}

impl Directory {
    pub fn word(self, head: u64) -> u64 {
        checked(
            (self.offset / 16) | u64::from(self.depth) << DIRECTORY_BITS,
            head,
        )
    }

    fn of(word: u64, head: u64) -> Option<Directory> {
        let offset = (word & ((1 << DIRECTORY_BITS) - 1)) * 16;
        let depth = (word >> DIRECTORY_BITS & 0x3f) as u32;
        let is_one = is_checked(word, head) && offset != 0 && depth <= DEPTH_MAX;
        is_one.then_some(Directory { offset, depth })
    }
}

/// A word of a directory: a chunk, and how many bits its keys have in common.
pub(crate) fn chunk_word(chunk: u64, depth: u32, head: u64) -> u64 {
    checked(chunk | u64::from(depth) << CHUNK_BITS, head)
}

/// The index chunk of a key, as the directory says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub directory: Directory,
    pub chunk: u64,
    /// How many bits its keys have in common, and these.
    pub depth: u32,
    pub prefix: u64,
    /// Where the directory's word is, and the word.
    at: u64,
    pub word: u64,
}

impl Located {
    /// Whether a slot of the chunk is one of the keys that belong there.
    pub fn has(&self, slot: Slot) -> bool {
        slot.hash() >> (HASH_BITS - self.depth) == self.prefix
    }
}

/// A key's slot, with the chunk locked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub line: u64,
    pub at: u64,
    pub slot: Slot,
    pub head: Head,
}

/// A group, with its chunk locked.
pub(crate) struct Group<'h> {
    pub located: Located,
    pub group: u64,
    _locked: Locked<'h>,
}

impl<'h> Hash<'h> {
    /// The directory as the head says.
    pub(crate) fn directory(&self) -> Result<(Directory, u64)> {
        let word = self.ground.mem().load_cached(self.head);
        let found = Directory::of(word, self.head);
        let found = found.ok_or_else(|| self.damaged("its head", self.head))?;
        Ok((found, word))
    }

    #[cold]
    pub(crate) fn damaged(&self, what: &'static str, offset: u64) -> Error {
        match self.ground.mem().failed() {
            Some(offset) => Error::Heap(pmlib::Error::Lost { offset }),
            None => Error::Damaged { what, offset },
        }
    }

    /// The index chunk of a key.
    #[inline]
    pub(crate) fn locate(&self, hash: KeyHash) -> Result<Located> {
        loop {
            let (directory, word) = self.directory()?;
            let at = directory.offset + hash.prefix(directory.depth) * 8;
            let found = self.ground.has(at, 8).then(|| self.chunk_at(at));
            if self.ground.mem().load_cached(self.head) != word {
                // Another one is in place by now.
                continue;
            }
            let Some(Some((chunk, depth, word))) = found else {
                return Err(self.damaged("its directory", at));
            };
            if depth > directory.depth {
                return Err(self.damaged("its directory", at));
            }
            return Ok(Located {
                directory,
                chunk,
                depth,
                prefix: hash.prefix(depth),
                at,
                word,
            });
        }
    }

    /// The chunk, its depth and the word at a place of the directory.
    #[inline]
    fn chunk_at(&self, at: u64) -> Option<(u64, u32, u64)> {
        let word = self.ground.mem().load(at);
        let chunk = word & ((1 << CHUNK_BITS) - 1);
        let depth = (word >> CHUNK_BITS & 0xff) as u32;
        let is_one = is_checked(word, self.head)
            && depth <= DEPTH_MAX
            && chunk != 0
            && self.ground.has(chunk * CHUNK_BYTES, CHUNK_BYTES);
        is_one.then_some((chunk, depth, word))
    }

    /// Whether the directory still says so.
    pub(crate) fn is_still(&self, located: &Located) -> bool {
        let mem = self.ground.mem();
        mem.load_cached(self.head) == located.directory.word(self.head)
            && mem.load_cached(located.at) == located.word
    }

    #[inline]
    pub(crate) fn note(&self, chunk: u64) -> u64 {
        self.ground.note(chunk, 0)
    }

    #[inline]
    fn sequence(&self, chunk: u64) -> u64 {
        self.ground.note(chunk, 1)
    }

    /// Before (`odd`) and after slots of a locked chunk become visible or cease to be.
    #[inline]
    pub(crate) fn mark_sequence(&self, chunk: u64, odd: bool) {
        let mem = self.ground.mem();
        let at = self.sequence(chunk);
        let sequence = mem.load_cached(at);
        mem.store(at, (sequence | 1) + u64::from(!odd));
    }

    #[inline]
    pub(crate) fn is_settled(&self, chunk: u64, group: u64) -> bool {
        self.ground.mem().load_cached(self.note(chunk)) >> group & 1 == 1
    }

    /// Locks a key's group, in a write window, and has it be settled.
    #[inline]
    pub(crate) fn lock(&self, hash: KeyHash) -> Result<Group<'h>> {
        self.lock_from(hash, None)
    }

    /// Locks a key's group as [`Hash::lock`] does; the directory has said `first` before.
    #[inline]
    pub(crate) fn lock_from(&self, hash: KeyHash, mut first: Option<Located>) -> Result<Group<'h>> {
        loop {
            let located = match first.take() {
                Some(located) => located,
                None => self.locate(hash)?,
            };
            let locked = self.ground.lock(located.chunk);
            if !self.is_still(&located) {
                continue;
            }
            let group = hash.group(&self.shape);
            self.settle_if_needed(&located, group)?;
            return Ok(Group {
                located,
                group,
                _locked: locked,
            });
        }
    }

    /// Has a group of a locked chunk be settled, and the one in which a former holder died.
    #[inline]
    pub(crate) fn settle_if_needed(&self, located: &Located, group: u64) -> Result<()> {
        let (mem, at) = (self.ground.mem(), self.note(located.chunk));
        let mut note = mem.load_cached(at);
        if note & BUSY != 0 {
            note &= 0xffff & !(1 << (note >> BUSY_SHIFT & 0xf));
            mem.store(at, note);
        }
        if note >> group & 1 == 0 {
            self.settle(located, group)?;
            mem.store(at, note | 1 << group);
        }
        Ok(())
    }

    /// Notes that a group of a locked chunk is being changed, or that it no longer is.
    #[inline]
    pub(crate) fn mark_busy(&self, chunk: u64, group: u64, is_busy: bool) {
        let (mem, at) = (self.ground.mem(), self.note(chunk));
        let settled = mem.load_cached(at) & 0xffff;
        let busy = if is_busy {
            BUSY | group << BUSY_SHIFT
        } else {
            0
        };
        mem.store(at, settled | busy);
    }

    /// A key's slot in a locked group.
    #[inline]
    pub(crate) fn find(
        &self,
        group: &Group<'_>,
        hash: KeyHash,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<Found>> {
        let mem = self.ground.mem();
        for line in hash.all_lines(&self.shape) {
            let start = line_at(group.located.chunk, group.group, line);
            let words: [u64; 8] = mem.read(start);
            for (nth, &word) in words.iter().enumerate() {
                let slot = Slot(word);
                if slot.hash() != hash.in_slot() || !slot.is_seen() {
                    continue;
                }
                let place = slot.place();
                match record::read(self.ground, place, slot.instance(), key, value)? {
                    Seen::Same(head) => {
                        let at = start + nth as u64 * 8;
                        return Ok(Some(Found {
                            line,
                            at,
                            slot,
                            head,
                        }));
                    }
                    Seen::Other => {}
                    Seen::None => return Err(Error::Corrupt { offset: place }),
                }
            }
        }
        Ok(None)
    }

    /// A free slot of a locked group for a key: its line, and where it is. The next version of a
    /// key goes into the line of the one before, if there is room.
    #[inline]
    pub(crate) fn free_slot(
        &self,
        group: &Group<'_>,
        hash: KeyHash,
        old: Option<&Found>,
    ) -> Option<(u64, u64)> {
        let mem = self.ground.mem();
        let free = |line: u64| {
            let start = line_at(group.located.chunk, group.group, line);
            let words: [u64; 8] = mem.read(start);
            let count = words.iter().filter(|&&word| word == 0).count();
            let first = words.iter().position(|&word| word == 0);
            (first.map(|nth| start + nth as u64 * 8), count)
        };
        if let Some(old) = old
            && !planted!("bug-next-version-in-other-line")
            && let (Some(at), _) = free(old.line)
        {
            return Some((old.line, at));
        }
        let [one, two] = hash.lines(&self.shape);
        let (first, second) = (free(one), free(two));
        let better = if second.1 > first.1 {
            (two, second.0)
        } else {
            (one, first.0)
        };
        if let (line, Some(at)) = better {
            return Some((line, at));
        }
        let stash = self.shape.lines + 1..self.shape.lines + 1 + self.shape.stash;
        stash
            .into_iter()
            .find_map(|line| free(line).0.map(|at| (line, at)))
    }

    /// Reads a key's value without a lock, if it is there.
    #[inline]
    pub(crate) fn read(&self, hash: KeyHash, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let group = hash.group(&self.shape);
        for _ in 0..LOOKS {
            let located = self.locate(hash)?;
            if !self.is_settled(located.chunk, group) {
                break;
            }
            if let Some(answer) = self.look(&located, group, hash, key, value)? {
                return Ok(answer);
            }
            std::hint::spin_loop();
        }
        let _window = self.ground.mem().window();
        let group = self.lock(hash)?;
        Ok(self.find(&group, hash, key, value)?.is_some())
    }

    /// One look; `None`: something was changed meanwhile.
    #[inline]
    fn look(
        &self,
        located: &Located,
        group: u64,
        hash: KeyHash,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>> {
        let mem = self.ground.mem();
        let before = mem.load_cached(self.sequence(located.chunk));
        for line in hash.all_lines(&self.shape) {
            let start = line_at(located.chunk, group, line);
            let words: [u64; 8] = mem.read(start);
            for (nth, &word) in words.iter().enumerate() {
                let slot = Slot(word);
                let is_seen = slot.is_seen()
                    || planted!("bug-put-seen-before-fence") && slot.state() == STATE_PUT;
                if slot.hash() != hash.in_slot() || !is_seen {
                    continue;
                }
                let at = start + nth as u64 * 8;
                let seen = record::read(self.ground, slot.place(), slot.instance(), key, value)?;
                mem.acquire();
                let now = Slot(mem.load_cached(at));
                // A delete that has begun meanwhile has not happened.
                let is_same = now == slot || now.is_seen() && now.with_state(STATE_LIVE) == slot;
                match seen {
                    Seen::Other => {}
                    _ if !is_same => return Ok(None),
                    Seen::Same(_) => return Ok(Some(true)),
                    Seen::None => {
                        let offset = slot.place();
                        return Err(Error::Corrupt { offset });
                    }
                }
            }
        }
        mem.acquire();
        let after = mem.load_cached(self.sequence(located.chunk));
        let is_believed = before == after && after & 1 == 0 && self.is_still(located);
        Ok(is_believed.then_some(false))
    }
}

impl<'h> Group<'h> {
    /// A group of a chunk that was locked.
    pub fn of(located: Located, group: u64, locked: Locked<'h>) -> Group<'h> {
        Group {
            located,
            group,
            _locked: locked,
        }
    }
}
