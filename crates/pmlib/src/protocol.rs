//! The words by which the threads of all processes tell each other, without a lock, what is whole
//! and what is durable: the chunks' sequences, the lanes' words and the logs' marks. The steps know
//! memory as a trait, so that `yat` tries these very steps in every order that a memory model
//! allows (`crates/yat/tests/heap_protocols`).
//!
//! - A chunk's sequence is odd while the holder of the chunk's lock changes the chunk in place.
//!   Reads of chunks are of one moment if all of their sequences are even and the same before and
//!   after.
//! - A lane's words say which of its records are closed (`closed`), durably so (`settled`), and
//!   which one is the last (`last`, at `last_record`). A thread that follows a record makes durable
//!   what that one has stored, unless the lane has had a fence since.

use pmem::Pmem;
use pmlib_format::container::SegmentRaw;
use pmlib_format::lane::{LAST_OFFSET, LAST_RECORD_OFFSET, SETTLED_OFFSET};

use crate::packed::{closed_of, closed_word};

/// Memory that threads share, in words of eight bytes, each named by its offset.
pub trait Words {
    /// A word, with Acquire order.
    fn load(&self, offset: u64) -> u64;

    /// Words in a row, each as [`Words::load`] loads it.
    fn load_all<const N: usize>(&self, offset: u64) -> [u64; N];

    /// Stores a word, with Release order.
    fn store(&self, offset: u64, value: u64);

    /// Stores words in a row, from the first on, each as [`Words::store`] does.
    fn store_all(&self, offset: u64, values: &[u64]);

    /// Compare and swap; a full barrier.
    ///
    /// # Errors
    /// The value that was found instead.
    fn cas(&self, offset: u64, old: u64, new: u64) -> Result<u64, u64>;

    /// Keeps loads that follow from being done before those that precede.
    fn acquire(&self);
}

impl Words for Pmem {
    #[inline(always)]
    fn load(&self, offset: u64) -> u64 {
        self.load_cached(offset)
    }

    #[inline(always)]
    fn load_all<const N: usize>(&self, offset: u64) -> [u64; N] {
        self.read(offset)
    }

    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn store(&self, offset: u64, value: u64) {
        Pmem::store(self, offset, value);
    }

    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn store_all(&self, offset: u64, values: &[u64]) {
        self.write(offset, values);
    }

    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn cas(&self, offset: u64, old: u64, new: u64) -> Result<u64, u64> {
        Pmem::cas(self, offset, old, new)
    }

    #[inline(always)]
    fn acquire(&self) {
        Pmem::acquire(self);
    }
}

/// Before (`odd`) and after a locked chunk is changed in place; its sequence is at `at`.
#[inline(always)]
#[cfg_attr(feature = "record", track_caller)]
pub fn mark_changing(words: &impl Words, at: u64, odd: bool) {
    let sequence = words.load(at);
    words.store(at, (sequence | 1) + u64::from(!odd));
}

/// The sequence at `at` when nobody is changing the chunk; `wait`: between two looks.
///
/// # Errors
/// Those of `wait`.
#[inline(always)]
pub fn sequence<E>(
    words: &impl Words,
    at: u64,
    mut wait: impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    loop {
        let sequence = words.load(at);
        if sequence & 1 == 0 {
            return Ok(sequence);
        }
        wait()?;
    }
}

/// Whether all that was read since these sequences were noted is of one moment: offsets and values.
#[inline(always)]
pub fn is_unchanged(words: &impl Words, noted: impl IntoIterator<Item = (u64, u64)>) -> bool {
    words.acquire();
    let mut noted = noted.into_iter();
    noted.all(|(at, sequence)| sequence & 1 == 0 && words.load(at) == sequence)
}

/// The words of a lane, as a thread that has it knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneState {
    /// The stamp of its last record.
    pub last: u64,
    /// Where that is; 0: there is none in this run.
    pub last_record: u64,
    /// The last stamp whose closing is durable on the medium.
    pub settled: u64,
    /// Where the next record goes.
    pub head: u64,
    /// Records up to this one are in place for good.
    pub done: u64,
}

/// Offsets of a lane's words that others look at.
#[derive(Clone, Copy, Debug)]
pub struct LanePlace {
    /// Its `closed`, in the lane itself.
    pub closed: u64,
    /// Its line in the volatile area.
    pub line: u64,
}

impl LanePlace {
    /// The words as the last thread left them, by the thread that has the lane.
    #[inline(always)]
    pub fn state(self, words: &impl Words) -> LaneState {
        let [last, last_record, settled, head, done] = words.load_all(self.line + LAST_OFFSET);
        LaneState {
            last,
            last_record,
            settled,
            head,
            done,
        }
    }

    /// Makes known the record at `start` that a fence has made durable; its chunks are locked. The
    /// same fence has made durable in place the stores of the record before it.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn fenced(self, words: &impl Words, state: &mut LaneState, start: u64) {
        (state.settled, state.done) = (state.done, state.last);
        // Not flushed, since the next record says it durably: for whoever looks while power lasts.
        // Others store no greater stamp before this one's chunks are unlocked.
        words.store(self.closed, closed_word(state.done));
        state.last_record = start;
        // From here on this record is the lane's last one, and not in place before `last` says so.
        let known = [start, state.settled, state.head, state.done];
        words.store_all(self.line + LAST_RECORD_OFFSET, &known);
    }

    /// The lane's last record is in place.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn in_place(self, words: &impl Words, state: &mut LaneState, stamp: u64) {
        state.last = stamp;
        words.store(self.line + LAST_OFFSET, stamp);
    }

    /// The greatest stamp that is closed; `None`: the word is damaged.
    #[inline(always)]
    pub fn closed(self, words: &impl Words) -> Option<u64> {
        closed_of(words.load(self.closed))
    }

    /// Whether a record is closed durably: nobody will redo it, nor any that it follows.
    #[inline(always)]
    pub fn is_settled(self, words: &impl Words, stamp: u64) -> bool {
        words.load(self.line + SETTLED_OFFSET) >= stamp
    }

    /// Has `closed` be at least `stamp`; `None`: the word is damaged.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn close(self, words: &impl Words, stamp: u64) -> Option<()> {
        loop {
            let closed = self.closed(words)?;
            let new = closed_word(stamp);
            if closed >= stamp || words.cas(self.closed, closed_word(closed), new).is_ok() {
                return Some(());
            }
        }
    }

    /// Has `read` read the record with this stamp, if it is the lane's last one still; answers
    /// whether what was read is that record, whole. Otherwise the lane has had a fence since: the
    /// thread's own next fence makes durable what the record stored. `read` gets the record's place
    /// and answers the stamp that it found.
    ///
    /// # Errors
    /// Those of `read`.
    #[inline(always)]
    pub fn is_last<E>(
        self,
        words: &impl Words,
        stamp: u64,
        read: impl FnOnce(u64) -> Result<Option<u64>, E>,
    ) -> Result<bool, E> {
        if words.load(self.line + LAST_OFFSET) != stamp {
            return Ok(false);
        }
        let read = read(words.load(self.line + LAST_RECORD_OFFSET))?;
        // The lane may go on meanwhile: its next fence is over then, and what was read may be torn.
        words.acquire();
        Ok(words.load(self.line + LAST_OFFSET) == stamp && read == Some(stamp))
    }
}

/// Looks at a mark that others change between two looks, before its reader takes it for busy.
const MARK_TRIES: u32 = 64;
/// From a mark to the word with its era.
const ERA: u64 =
    (std::mem::offset_of!(SegmentRaw, era) - std::mem::offset_of!(SegmentRaw, mark)) as u64;

/// The mark at `place` as one sees it who has not the container's lock: how much is filled, and
/// whether more is being added; `None`: nobody has looked in this run, or an addition broke off.
/// `of`: the meaning of a word in this run. `is_locked`: whether somebody has the lock.
#[inline(always)]
pub fn look_at_mark(
    words: &impl Words,
    place: u64,
    era: u64,
    of: impl Fn(u64) -> Option<(u64, bool)>,
    is_locked: impl Fn() -> bool,
) -> Option<(u64, bool)> {
    // The era first: with this run's, no mark of an earlier one is there any more.
    if words.load(place + ERA) != era {
        return None;
    }
    let mut tries = 0;
    loop {
        let word = words.load(place);
        words.acquire();
        let (filled, is_busy) = of(word)?;
        if !is_busy || is_locked() || tries == MARK_TRIES {
            return Some((filled, is_busy));
        }
        words.acquire();
        // Its holder may have told of the end and opened the lock between the two looks.
        if words.load(place) == word {
            return None;
        }
        tries += 1;
    }
}

/// The word of a mark as the holder of the container's lock sees it; 0: it is of an earlier era.
#[inline(always)]
pub fn mark_of_holder(words: &impl Words, place: u64, era: u64) -> u64 {
    match words.load(place + ERA) == era {
        true => words.load(place),
        false => 0,
    }
}

/// Stores a mark, by the holder of the container's lock.
#[inline(always)]
#[cfg_attr(feature = "record", track_caller)]
pub fn store_mark(words: &impl Words, place: u64, era: u64, word: u64) {
    if words.load(place + ERA) != era {
        words.store(place, 0);
        words.store(place + ERA, era);
    }
    words.store(place, word);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A mark that is busy, and another one at each look.
    struct Changing(Cell<u64>);

    impl Words for Changing {
        fn load(&self, offset: u64) -> u64 {
            if offset == ERA {
                return 0;
            }
            self.0.set(self.0.get() + 2);
            self.0.get() | 1
        }

        fn load_all<const N: usize>(&self, offset: u64) -> [u64; N] {
            [self.load(offset); N]
        }

        fn store(&self, _: u64, _: u64) {}

        fn store_all(&self, _: u64, _: &[u64]) {}

        fn cas(&self, _: u64, _: u64, found: u64) -> Result<u64, u64> {
            Err(found)
        }

        fn acquire(&self) {}
    }

    /// Goal: a reader comes to an end beside one who appends without a pause. Method: a mark that
    /// changes whenever it is looked at, and whose lock is never seen held.
    #[test]
    fn a_mark_that_never_rests_is_busy() {
        let changing = Changing(Cell::new(0));
        let of = |word: u64| Some((word >> 1, word & 1 != 0));
        let seen = look_at_mark(&changing, 0, 0, of, || false);
        assert!(matches!(seen, Some((_, true))), "{seen:?}");
        assert!(changing.0.get() < 1000, "{} looks", changing.0.get());
    }
}
