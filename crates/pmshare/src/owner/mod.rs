//! Owner words: the holder of a lock, a lane or a group, in one word that a CAS sets
//! (docs/adr/0024-shared-volatile-state.md, docs/adr/0026-fork-exec-threads.md,
//! docs/adr/0028-lock-table.md).

pub mod mapper;
pub mod protocol;
pub mod stalled;

use crate::holder::{TAG_MASK, slot_of};
use crate::layout::Shared;
use crate::member::{Began, Share};
use crate::waits::Waits;
use crate::{rescue, threads};
pub use pmfs_format::runtime::OWNER_WAITERS;
use std::time::{Duration, Instant};

/// Pauses before a waiter sleeps (docs/adr/0055-waiting.md).
const SPINS: u32 = 100;

/// The durations of a waiter's sleeps.
pub mod wait_times {
    use std::time::Duration;

    /// The first sleep. Each sleep is twice as long as the last, and the holder is probed after
    /// each.
    pub const FIRST: Duration = Duration::from_millis(2);
    /// Longest sleep.
    pub const MAX: Duration = Duration::from_millis(10);
    /// The time after which a waiter reports a holder that lives but does not run.
    pub const STALLED: Duration = Duration::from_secs(1);
}

/// Returns whether an owner word names a thread of this process that is gone.
#[cold]
pub fn is_gone_thread<S: Shared>(share: &Share<S>, owner: u64) -> bool {
    slot_of(owner) == Some(share.holder().slot) && threads::is_gone(owner & TAG_MASK)
}

/// Returns whether no thread will ever release the lock at `off`, which `owner` holds: no process
/// that could is attached, or this very thread holds it, which takes no lock twice. Such a word
/// exists only in a pool that was forged.
#[cold]
pub fn is_nobodys<S: Shared>(share: &Share<S>, off: u64, owner: u64) -> bool {
    let holder = owner & !OWNER_WAITERS;
    let own = holder == share.holder().word();
    let has_process = slot_of(owner)
        .is_some_and(|slot| slot < share.layout().slot_count && share.is_marked(slot));
    // A process that leaves, or is cleaned up after, releases its locks before its slot: this reads
    // them in the other order.
    holder != 0 && (own || !has_process) && share.mem().load(off) & !OWNER_WAITERS == holder
}

/// An owner word in the pool.
struct Place<'a, S> {
    share: &'a Share<S>,
    off: u64,
}

impl<S: Shared> protocol::Word for Place<'_, S> {
    #[inline]
    fn load(&self) -> u64 {
        self.share.mem().load(self.off)
    }

    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn cas(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.share.runtime().cas(self.off, old, new)
    }

    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn store(&self, value: u64) {
        self.share.runtime().store(self.off, value);
    }

    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn swap(&self, value: u64) -> u64 {
        self.share.runtime().swap(self.off, value)
    }

    fn wake(&self) {
        self.share.runtime().wake(self.off);
    }
}

/// A timed wait for an owner word that probes the owner.
struct Waiting<'a, S: Shared> {
    waits: Waits<'a, S>,
    off: u64,
    me: u64,
    sleep: Duration,
    since: Instant,
    told: bool,
}

impl<S: Shared> protocol::Wait for Waiting<'_, S> {
    const SPINS: u32 = SPINS;

    fn pause(&mut self) {
        std::hint::spin_loop();
    }

    fn take_over(&mut self) -> bool {
        rescue::take_over(self.waits, self.off, self.me)
    }

    fn sleep(&mut self, marked: u64) {
        let runtime = self.waits.share.runtime();
        runtime.wait(self.off, marked as u32, self.sleep);
        self.sleep = (self.sleep * 2).min(wait_times::MAX);
    }

    fn unchanged(&mut self, owner: u64) {
        let share = self.waits.share;
        if is_nobodys(share, self.off, owner) {
            // No word of such a pool can be trusted: it is read-only from here on.
            share.stop_at_damage();
            let _ = share.runtime().cas(self.off, owner | OWNER_WAITERS, 0);
            return;
        }
        rescue::recover_if_dead(self.waits, owner);
        if !self.told && self.since.elapsed() > wait_times::STALLED {
            self.told = true;
            stalled::tell(share, owner);
        }
    }
}

/// Takes the lock word at `off` if it is free.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub fn try_acquire<S: Shared>(share: &Share<S>, off: u64) -> bool {
    let place = Place { share, off };
    protocol::try_acquire(&place, share.holder().word())
}

/// Takes the lock word at `off`, and cleans up after a dead holder.
#[inline(always)]
#[cfg_attr(feature = "record", track_caller)]
pub fn acquire<'a, S: Shared>(waits: impl Into<Waits<'a, S>>, off: u64) {
    let waits = waits.into();
    let share = waits.share;
    let me = share.holder().word();
    let place = Place { share, off };
    if !protocol::try_acquire(&place, me) {
        wait(waits, off, me);
    }
}

/// Takes a lock of the table as [`acquire`] does, unless this thread has all of them; answers
/// whether it has.
#[inline(always)]
#[cfg_attr(feature = "record", track_caller)]
pub fn acquire_unless_had<'a, S: Shared>(waits: impl Into<Waits<'a, S>>, off: u64) -> bool {
    let waits = waits.into();
    let share = waits.share;
    let me = share.holder().word();
    if protocol::try_acquire(&Place { share, off }, me) {
        return false;
    }
    wait_unless_had(waits, off, me)
}

#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn wait_unless_had<S: Shared>(waits: Waits<'_, S>, off: u64, me: u64) -> bool {
    let had = waits.share.has_all_locks();
    if !had {
        wait(waits, off, me);
    }
    had
}

#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn wait<S: Shared>(waits: Waits<'_, S>, off: u64, me: u64) {
    let share = waits.share;
    let place = Place { share, off };
    let mut waiting = Waiting {
        waits,
        off,
        me,
        sleep: wait_times::FIRST,
        since: Instant::now(),
        told: false,
    };
    protocol::acquire_slowly(&place, me, &mut waiting);
    share.count_wait(waiting.since.elapsed());
}

/// Releases a lock word.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub fn release<S: Shared>(share: &Share<S>, off: u64) {
    protocol::release(&Place { share, off });
}

/// Releases a lock word that is held for a moment, and mostly without waiters
/// ([`protocol::release_by_store`]).
#[inline(always)]
#[cfg_attr(feature = "record", track_caller)]
pub fn release_by_store<S: Shared>(share: &Share<S>, off: u64) {
    // A call that failed has not waited: the next holder's stores would come before these.
    share.mem().order_streamed();
    if !protocol::release_by_store(&Place { share, off }) {
        release_beside_waiters(share, off);
    }
}

#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn release_beside_waiters<S: Shared>(share: &Share<S>, off: u64) {
    release(share, off);
}

/// A held lock word, released on drop.
pub struct Held<'a, S: Shared> {
    share: &'a Share<S>,
    off: u64,
    began: Began,
}

impl<'a, S: Shared> Held<'a, S> {
    /// Waits for the word at `off`.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn new(waits: impl Into<Waits<'a, S>>, off: u64) -> Held<'a, S> {
        let waits = waits.into();
        acquire(waits, off);
        let (share, began) = (waits.share, Began::now());
        Held { share, off, began }
    }
}

impl<S: Shared> Drop for Held<'_, S> {
    fn drop(&mut self) {
        if self.share.gives_up(self.began) {
            return;
        }
        release(self.share, self.off);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{Scratch, lock};
    use crate::holder::{
        AtomicHolder, Holder, NO_SLOT, THREADS, tag_of, this_thread_lives, thread_tag,
    };
    use pmfs_format::runtime::OWNER_THREAD_MASK;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;
    use std::thread;

    /// A tag whose thread the kernel does not know any more.
    fn tag_of_the_gone() -> u64 {
        let tag = thread::spawn(thread_tag).join().expect("the thread");
        let since = Instant::now();
        while !threads::is_gone(tag) && since.elapsed().as_secs() < 10 {
            thread::yield_now();
        }
        tag
    }

    /// Goal: a lock of a living thread is never taken for that of a dead one, however many threads
    /// there have been. Method: the count wraps around at each of its widths while a thread holds a
    /// lock; others come with its count, and go.
    #[test]
    fn no_tag_is_given_while_its_holder_lives() {
        let scratch = Scratch::new();
        let place = &scratch.open();
        let line = lock(1);
        let (held, is_held) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _writable = place.mem().writable();
                let count = THREADS.load(Ordering::Relaxed);
                let tag = thread_tag();
                let locks = Held::new(place, line);
                held.send((count, tag)).unwrap();
                let _ = ends.recv();
                drop(locks);
            });
            let (count, tag) = is_held.recv().unwrap();
            let _writable = place.mem().writable();
            let word = place.holder().word_of(tag);
            for width in [20, 22, 29, 31, 32, 42, 51, 63] {
                THREADS.store(count + (1 << width), Ordering::Relaxed);
                assert_ne!(tag_of_the_gone(), tag, "{width}");
                assert!(!is_gone_thread(place, word), "{width}");
                rescue::recover_if_dead(place.into(), word);
                assert!(!try_acquire(place, line), "{width}");
            }
            THREADS.store(u64::MAX - 1, Ordering::Relaxed);
            let tags: Vec<u64> = (0..4).map(|_| tag_of_the_gone()).collect();
            assert!(!tags.contains(&0) && tags.iter().all(|&other| threads::is_gone(other)));
            drop(end);
        });
        assert!(try_acquire(place, line));
        release(place, line);
    }

    /// Goal: a count that does not fit is cut, and never reaches the slot's bits or the waiters'
    /// bit.
    #[test]
    fn tags_stand_beside_the_rest() {
        for count in [0, 1, 511, 512, 1 << 29, u64::MAX] {
            for number in [0, 1, OWNER_THREAD_MASK] {
                let tag = tag_of(number, count);
                assert_eq!(tag & !TAG_MASK, 0);
                assert_eq!(tag & OWNER_THREAD_MASK, number);
                let holder = Holder {
                    slot: 4093,
                    incarnation: u64::MAX,
                };
                assert_eq!(slot_of(holder.word_of(tag) | OWNER_WAITERS), Some(4093));
            }
        }
    }

    /// Goal: a holder packs into one word up to the end of both numbers.
    #[test]
    fn incarnations_are_counted_far() {
        let kept = AtomicHolder::default();
        assert_eq!(kept.load().slot, NO_SLOT);
        for incarnation in [1, (1 << 20) + 1, (1 << 32) + 1, (1 << 52) - 1] {
            let holder = Holder {
                slot: 4093,
                incarnation,
            };
            kept.store(holder);
            assert_eq!(kept.load(), holder);
        }
    }

    /// Goal: a forked child, which has a copy of its parent's tag, gets its own.
    #[test]
    fn a_child_has_a_tag_of_its_own() {
        let copied = tag_of_the_gone();
        let own = thread::spawn(move || {
            pmem::thread::with(|thread| thread.tag.set(copied));
            this_thread_lives();
            let own = thread_tag();
            this_thread_lives();
            assert!(!threads::is_gone(own) && own == thread_tag());
            own
        });
        assert_ne!(own.join().expect("the thread"), copied);
    }

    /// Goal: when the kernel reuses a number, the thread with it now is not taken for the earlier
    /// one.
    #[test]
    fn a_number_that_another_has_says_that_the_first_is_gone() {
        let alive = thread_tag();
        let before = tag_of(alive & OWNER_THREAD_MASK, u64::MAX);
        assert!(threads::is_gone(before) && !threads::is_gone(alive));
        assert!(!threads::is_gone(tag_of(0, 7)), "nobody can tell");
    }

    /// Goal: a lock whose dead holder is cleaned up after while another thread waits does not count
    /// as nobody's, which would make the place read-only. Method: the waiter has read the word, and
    /// probes the holder when its slot is free and the lock is released, or another's; then the
    /// same word stays for good.
    #[test]
    fn a_holder_cleaned_up_after_meanwhile() {
        let scratch = Scratch::new();
        let place = &scratch.open();
        let gone = scratch.open();
        let seen = gone.holder().word();
        gone.leave();
        let line = lock(1);
        let looks = || {
            let mut waiting = Waiting {
                waits: place.into(),
                off: line,
                me: place.holder().word(),
                sleep: wait_times::FIRST,
                since: Instant::now(),
                told: false,
            };
            protocol::Wait::unchanged(&mut waiting, seen);
            place.is_read_only()
        };
        let _writable = place.mem().writable();
        let runtime = place.runtime();
        for now in [
            0,
            place.holder().word(),
            place.holder().word() | OWNER_WAITERS,
        ] {
            runtime.store(line, now);
            assert!(!looks(), "{now:#x}");
            assert_eq!(place.mem().load(line), now);
        }
        runtime.store(line, seen | OWNER_WAITERS);
        assert!(looks() && place.mem().load(line) == 0);
    }
}
