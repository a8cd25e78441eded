//! A group of slots: lines that are searched together, and the search for a key in them.
//!
//! The lock of an index chunk covers its groups. Beside it stand two words of this run
//! (`pmlib::ground`):
//! - The *note*: a bit for each group that was settled in this run (`crates/pmkv/src/settle.rs`),
//!   and the group that the lock's holder is changing. A holder that finds such a mark knows that
//!   another one died there, and settles the group again. The upper bits are the index's own.
//! - The *sequence*: odd while slots become visible or cease to be. A reader that has found nothing
//!   believes it only if the sequence was the same before and after.
//!
//! A key has one visible slot at most at any moment, so that a reader may stop at the first.

use pmlib::ground::Locked;
use pmlib_format::kv::{STATE_LIVE, STATE_PUT};

use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::key::{Key, KeyHash};
use crate::kv::Kv;
use crate::record::{Head, Seek, Seen};
use crate::slot::{Slot, free_ones, with_hash};

/// Looks without a lock before a reader takes it.
pub(crate) const LOOKS: u32 = 16;

/// The group that is being changed: its number above this, and this bit.
const BUSY: u64 = 1 << 16;
const BUSY_SHIFT: u32 = 17;
/// The chunk is one of a batch that is under way, or whose process is dead
/// (`crates/pmkv/src/journal.rs`).
pub(crate) const BATCH: u64 = 1 << 62;
/// The bits of a note that tell of that.
const BUSY_BITS: u64 = BUSY | 0xf << BUSY_SHIFT;

/// All groups of a chunk are settled.
pub(crate) fn all_settled(groups: u64) -> u64 {
    (1 << groups) - 1
}

/// Where a key's lines are.
#[derive(Clone, Copy, Debug)]
pub struct Located<W> {
    pub(crate) chunk: u64,
    /// Where the chunk's note is; its sequence is the next word.
    pub(crate) notes: u64,
    /// The bit of the chunk's note.
    pub(crate) group: u64,
    /// Where line 0 is; the slots are from line 1 on.
    pub(crate) start: u64,
    pub(crate) way: W,
}

impl<W> Located<W> {
    #[inline]
    pub(crate) fn line(&self, line: u64) -> u64 {
        self.start + line * 64
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

/// A key's lines, with their chunk locked.
pub struct Group<'h, I: Index> {
    pub(crate) located: Located<I::Way>,
    _locked: Locked<'h>,
}

impl<'h, I: Index> Group<'h, I> {
    /// Lines of a chunk that was locked.
    pub(crate) fn of(located: Located<I::Way>, locked: Locked<'h>) -> Group<'h, I> {
        Group {
            located,
            _locked: locked,
        }
    }
}

impl<'h, I: Index> Kv<'h, I> {
    /// A key's own lines, then the others in which it may be.
    #[inline]
    pub(crate) fn all_lines(&self, hash: KeyHash) -> impl Iterator<Item = u64> + use<I> {
        let own = self.cut.own_lines(hash).into_iter();
        own.chain(self.cut.other_lines(hash))
    }

    #[cold]
    pub(crate) fn damaged(&self, what: &'static str, offset: u64) -> Error {
        match self.ground.mem().failed() {
            Some(offset) => Error::Heap(pmlib::Error::Lost { offset }),
            None => Error::Damaged { what, offset },
        }
    }

    /// Locks a key's lines, in a write window, and has them be settled.
    #[inline]
    pub(crate) fn lock(&self, key: Key<'_>) -> Result<Group<'h, I>> {
        I::lock_from(self, key, None)
    }

    /// Locks an index chunk. A batch whose process is dead is brought to its end before.
    #[inline]
    pub(crate) fn lock_chunk(&self, chunk: u64) -> Result<Locked<'h>> {
        loop {
            let locked = self.ground.lock(chunk);
            if self.ground.mem().load_cached(self.note(chunk)) & BATCH == 0
                || planted!("bug-batch-mark-ignored")
            {
                return Ok(locked);
            }
            drop(locked);
            self.mend_batch(chunk)?;
        }
    }

    #[inline]
    pub(crate) fn note(&self, chunk: u64) -> u64 {
        self.ground.note(chunk, 0)
    }

    #[inline]
    pub(crate) fn sequence(&self, chunk: u64) -> u64 {
        self.ground.note(chunk, 1)
    }

    /// Before (`odd`) and after slots of a locked chunk become visible or cease to be.
    #[inline]
    pub(crate) fn mark_sequence(&self, chunk: u64, odd: bool) {
        self.mark_sequence_at(self.sequence(chunk), odd);
    }

    #[inline]
    pub(crate) fn mark_sequence_at(&self, at: u64, odd: bool) {
        let mem = self.ground.mem();
        let sequence = mem.load_cached(at);
        mem.store(at, (sequence | 1) + u64::from(!odd));
    }

    #[inline]
    pub(crate) fn is_settled(&self, located: &Located<I::Way>) -> bool {
        self.ground.mem().load_cached(located.notes) >> located.group & 1 == 1
    }

    /// Has a group of a locked chunk be settled, and the one in which a former holder died.
    #[inline]
    pub(crate) fn settle_if_needed(&self, located: &Located<I::Way>) -> Result<()> {
        let (mem, at) = (self.ground.mem(), located.notes);
        let mut note = mem.load_cached(at);
        if note & BUSY != 0 {
            note &= !(BUSY_BITS | 1 << (note >> BUSY_SHIFT & 0xf));
            mem.store(at, note);
        }
        if note >> located.group & 1 == 0 {
            I::settle(self, located)?;
            mem.store(at, note | 1 << located.group);
        }
        Ok(())
    }

    /// Notes that a group of a locked chunk is being changed, or that it no longer is.
    #[inline]
    pub(crate) fn mark_busy(&self, located: &Located<I::Way>, is_busy: bool) {
        let (mem, at) = (self.ground.mem(), located.notes);
        let settled = mem.load_cached(at) & !BUSY_BITS;
        let busy = if is_busy {
            BUSY | located.group << BUSY_SHIFT
        } else {
            0
        };
        mem.store(at, settled | busy);
    }

    /// A key's slot in a locked group.
    #[inline]
    pub(crate) fn find(
        &self,
        group: &Group<'_, I>,
        key: Key<'_>,
        value: &mut impl Seek,
    ) -> Result<Option<Found>> {
        self.find_at(&group.located, key, value)
    }

    /// A key's slot in lines of a locked chunk.
    #[inline]
    pub(crate) fn find_at(
        &self,
        located: &Located<I::Way>,
        key: Key<'_>,
        value: &mut impl Seek,
    ) -> Result<Option<Found>> {
        for line in self.all_lines(key.hash) {
            let start = located.line(line);
            let mut seen = with_hash(&self.ground.mem().read(start), key.hash.in_slot());
            while seen != 0 {
                let at = start + u64::from(seen.trailing_zeros()) * 8;
                seen &= seen - 1;
                if let Some(found) = self.find_in_slot((line, at), key, value)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// A key's slot, if it is this one of a locked chunk, which has its hash.
    #[inline(never)]
    fn find_in_slot(
        &self,
        (line, at): (u64, u64),
        key: Key<'_>,
        value: &mut impl Seek,
    ) -> Result<Option<Found>> {
        let slot = Slot(self.ground.mem().load_cached(at));
        if !slot.is_seen() {
            return Ok(None);
        }
        let place = slot.place();
        match value.read(self.ground, place, slot.instance(), key.bytes)? {
            Seen::Same(head) => Ok(Some(Found {
                line,
                at,
                slot,
                head,
            })),
            Seen::Other => Ok(None),
            Seen::None => Err(Error::Corrupt { offset: place }),
        }
    }

    /// A free slot of a locked group for a key: its line, and where it is. The next version of a
    /// key goes into the line of the one before, if there is room.
    #[inline]
    pub(crate) fn free_slot(
        &self,
        group: &Group<'_, I>,
        key: Key<'_>,
        old: Option<&Found>,
    ) -> Option<(u64, u64)> {
        let mem = self.ground.mem();
        let free = |line: u64| {
            let start = group.located.line(line);
            let words: [u64; 8] = mem.read(start);
            let bits = free_ones(&words);
            let first = u64::from(bits.trailing_zeros());
            ((bits != 0).then_some(start + first * 8), bits.count_ones())
        };
        if let Some(old) = old
            && !planted!("bug-next-version-in-other-line")
            && let (Some(at), _) = free(old.line)
        {
            return Some((old.line, at));
        }
        let [one, two] = self.cut.own_lines(key.hash);
        let (first, second) = (free(one), free(two));
        let better = if second.1 > first.1 {
            (two, second.0)
        } else {
            (one, first.0)
        };
        if let (line, Some(at)) = better {
            return Some((line, at));
        }
        let mut others = self.cut.other_lines(key.hash);
        others.find_map(|line| free(line).0.map(|at| (line, at)))
    }

    /// Reads a key's value without a lock, if it is there, expired or not.
    #[inline]
    pub(crate) fn read(&self, key: Key<'_>, value: &mut impl Seek) -> Result<Option<Head>> {
        if let Some(located) = I::locate(self, key)?
            && let Some(answer) = self.look(&located, key, value)?
        {
            return Ok(answer);
        }
        self.read_again(key, value)
    }

    /// Looks a few times more, then takes the lock.
    #[cold]
    fn read_again(&self, key: Key<'_>, value: &mut impl Seek) -> Result<Option<Head>> {
        for _ in 0..LOOKS {
            let Some(located) = I::locate(self, key)? else {
                break;
            };
            if !self.is_settled(&located) {
                break;
            }
            if let Some(answer) = self.look_apart(&located, key, value)? {
                return Ok(answer);
            }
            std::hint::spin_loop();
        }
        let _window = self.ground.mem().window();
        let group = self.lock(key)?;
        Ok(self.find(&group, key, value)?.map(|found| found.head))
    }

    #[inline(never)]
    fn look_apart(
        &self,
        located: &Located<I::Way>,
        key: Key<'_>,
        value: &mut impl Seek,
    ) -> Result<Option<Option<Head>>> {
        self.look(located, key, value)
    }

    /// One look; `None`: something was changed meanwhile, or the group is not settled.
    #[inline(always)]
    pub(crate) fn look(
        &self,
        located: &Located<I::Way>,
        key: Key<'_>,
        value: &mut impl Seek,
    ) -> Result<Option<Option<Head>>> {
        let mem = self.ground.mem();
        if !self.is_settled(located) {
            return Ok(None);
        }
        let sequence = located.notes + 8;
        let before = mem.load_cached(sequence);
        for line in self.all_lines(key.hash) {
            let start = located.line(line);
            let mut seen = with_hash(&mem.read(start), key.hash.in_slot());
            while seen != 0 {
                let at = start + u64::from(seen.trailing_zeros()) * 8;
                seen &= seen - 1;
                match self.look_at_slot(at, key, value)? {
                    Look::Other => {}
                    Look::Found(head) => return Ok(Some(Some(head))),
                    Look::Changed => return Ok(None),
                }
            }
        }
        mem.acquire();
        let after = mem.load_cached(sequence);
        let is_believed = before == after && after & 1 == 0 && I::is_still(self, located);
        Ok(is_believed.then_some(None))
    }

    /// A look at a slot that had a key's hash.
    #[inline(never)]
    fn look_at_slot(&self, at: u64, key: Key<'_>, value: &mut impl Seek) -> Result<Look> {
        let mem = self.ground.mem();
        let slot = Slot(mem.load_cached(at));
        let is_seen =
            slot.is_seen() || planted!("bug-put-seen-before-fence") && slot.state() == STATE_PUT;
        if !is_seen || slot.hash() != key.hash.in_slot() {
            // It was changed since its hash was seen: the sequence tells if the key has moved.
            return Ok(Look::Other);
        }
        let seen = value.read(self.ground, slot.place(), slot.instance(), key.bytes)?;
        mem.acquire();
        let now = Slot(mem.load_cached(at));
        // A delete that has begun meanwhile has not happened.
        let is_same = now == slot || now.is_seen() && now.with_state(STATE_LIVE) == slot;
        Ok(match seen {
            Seen::Other => Look::Other,
            _ if !is_same => Look::Changed,
            Seen::Same(head) => Look::Found(head),
            Seen::None => {
                let offset = slot.place();
                return Err(Error::Corrupt { offset });
            }
        })
    }
}

/// The meaning of a slot, to a reader.
enum Look {
    /// It is the key's.
    Found(Head),
    /// It is not.
    Other,
    /// It was changed meanwhile.
    Changed,
}
