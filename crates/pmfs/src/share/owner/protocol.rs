//! How an owner word changes hands: taken from 0 by a CAS, given back by a swap to 0, with a bit
//! that says that somebody sleeps. Apart from the pool it lives in, so that `yat` can try every
//! order in which threads may go through it.
//!
//! Who sleeps has set the bit, or has seen it set, in the very word that it sleeps on; so whoever
//! gives that word back wakes one. The one that is woken takes the word with the bit set, for
//! others may sleep still.

use pmfs_format::runtime::OWNER_WAITERS;

/// An owner word.
pub trait Word {
    /// What stands there.
    fn load(&self) -> u64;

    /// Compare and swap; a full barrier.
    ///
    /// # Errors
    /// What stood there instead.
    fn cas(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// Swaps a value in; a full barrier.
    fn swap(&self, value: u64) -> u64;

    /// Wakes one sleeper.
    fn wake(&self);
}

/// What a waiter does beside waiting.
pub trait Wait {
    /// Looks once more after this many pauses; 0 for none.
    const SPINS: u32;

    /// A pause between two looks.
    fn pause(&mut self);

    /// Whether the word could be taken from one who is dead and being cleaned up after, by this
    /// very thread.
    fn take_over(&mut self) -> bool;

    /// Sleeps while the word is `marked`, or its time is up.
    fn sleep(&mut self, marked: u64);

    /// The word has had the same owner since before the sleep.
    fn unchanged(&mut self, owner: u64);
}

/// Takes a word; `false` if somebody has it.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub fn try_acquire(word: &impl Word, me: u64) -> bool {
    word.cas(0, me).is_ok()
}

/// Waits for a word, and takes it.
#[cfg_attr(feature = "record", track_caller)]
pub fn acquire_slowly<W: Wait>(word: &impl Word, me: u64, wait: &mut W) {
    loop {
        for _ in 0..=W::SPINS {
            if word.load() == 0 && word.cas(0, me).is_ok() {
                return;
            }
            wait.pause();
        }
        if wait.take_over() {
            return;
        }
        let seen = word.load();
        if seen == 0 {
            continue;
        }
        let marked = seen | OWNER_WAITERS;
        if seen != marked && word.cas(seen, marked).is_err() {
            continue;
        }
        wait.sleep(marked);
        if word.load() == 0 && word.cas(0, me | OWNER_WAITERS).is_ok() {
            return;
        }
        if word.load() & !OWNER_WAITERS == seen & !OWNER_WAITERS {
            wait.unchanged(seen);
        }
    }
}

/// Gives a word back.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub fn release(word: &impl Word) {
    if word.swap(0) & OWNER_WAITERS != 0 {
        word.wake();
    }
}
