//! The protocol of an owner word: taken from 0 by a CAS, released by a swap or a store of 0, with a
//! bit for sleeping waiters. It does not know the pool, so that `yat` can try every order of its
//! threads' steps.
//!
//! A waiter that sleeps has set the bit, or has seen it set, in the very word that it sleeps on; so
//! the thread that gives that word back wakes one. The woken waiter takes the word with the bit
//! set, for others may still sleep.

use pmfs_format::runtime::OWNER_WAITERS;

/// An owner word.
pub trait Word {
    /// The word's value.
    fn load(&self) -> u64;

    /// Compare and swap; a full barrier.
    ///
    /// # Errors
    /// The value that was found instead.
    fn cas(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// Stores a value, with Release order.
    fn store(&self, value: u64);

    /// Swaps a value in; a full barrier.
    fn swap(&self, value: u64) -> u64;

    /// Wakes one sleeper.
    fn wake(&self);
}

/// The actions of a waiter.
pub trait Wait {
    /// The count of pauses before the next look; 0 for none.
    const SPINS: u32;

    /// A pause between two looks.
    fn pause(&mut self);

    /// Takes the word over from a dead holder that this thread is cleaning up after. Returns
    /// whether it could.
    fn take_over(&mut self) -> bool;

    /// Sleeps while the word is `marked`, at most for the present timeout.
    fn sleep(&mut self, marked: u64);

    /// Notes that the word has had the same owner since before the sleep.
    fn unchanged(&mut self, owner: u64);
}

/// Takes a word; `false` if it has a holder.
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

/// Releases a word.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub fn release(word: &impl Word) {
    if word.swap(0) & OWNER_WAITERS != 0 {
        word.wake();
    }
}

/// Releases a word without a locked instruction while nobody sleeps on it. Returns whether it did;
/// otherwise [`release`] does.
///
/// A waiter that sets its bit between the look and the store is not woken: it sleeps to the end of
/// its timeout, if nobody else's release wakes it, and finds the word free then. Only waiters whose
/// sleep has an end may wait for such a word. No other order is lost: while a word has a holder,
/// others change nothing of it but that bit.
#[inline(always)]
#[must_use = "with waiters the word is still held"]
#[cfg_attr(feature = "record", track_caller)]
pub fn release_by_store(word: &impl Word) -> bool {
    let has_no_waiters = word.load() & OWNER_WAITERS == 0;
    if has_no_waiters {
        word.store(0);
    }
    has_no_waiters
}
