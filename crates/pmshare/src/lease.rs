//! The single-opener lease: a mount has it while no other process has the pool
//! (docs/adr/0015-leases.md).
//!
//! The kernel asks a mount again at each lookup, unless an answer says how long it is valid.
//! Meanwhile the kernel would not see changes by other processes. While a mount is the only process
//! in the pool, there are none, and answers may be valid for a moment.
//!
//! - The header counts arrivals: slots that were marked. A process is the single opener once it has
//!   seen no slot marked but its own, for as long as that count does not change. Departures are not
//!   counted: a process that was not the single opener checks again now and then.
//! - The header's lease is the slot of the mount whose kernel may remember something. It is set
//!   before the first such answer, and each answer reads the count after that.
//! - A process that arrives marks its slot, counts itself, and then reads the lease: so one of the
//!   two sees the other. It asks the mount, as for pages, and waits until the lease has ended, but
//!   no longer than [`PATIENCE`]: the kernel forgets by itself long before.

use crate::layout::Shared;
use crate::member::Share;
use pm_store::clock::now_ns;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest wait of an arriving process for a mount that does not end its lease.
const PATIENCE: Duration = Duration::from_millis(400);
/// The interval at which that mount's life is probed.
const NAP: Duration = Duration::from_millis(20);
/// The time after which a process that was not the single opener checks again. Successive short
/// programs then end at most one lease in this time.
const FIND_NS: u64 = 1_000_000_000;

/// A time in which a process was alone in the pool, as the arrivals before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleOpener(u64);

impl<S: Shared> Share<S> {
    fn arrivals(&self) -> u64 {
        self.runtime().load(self.layout().arrivals)
    }

    /// Waits, after this process's arrival, until no mount's kernel caches anything.
    pub fn wait_for_lease(&self) {
        let word = self.layout().lease;
        let runtime = self.runtime();
        let began = Instant::now();
        while let Some(slot) = runtime.load(word).checked_sub(1) {
            let is_there = slot != self.holder().slot && self.is_mount(slot);
            let lives = is_there && self.is_marked(slot) && !self.slot_dead(slot);
            if !lives || began.elapsed() > PATIENCE {
                self.drop_lease_of(slot);
            } else {
                self.wake_revoker(slot);
                runtime.wait(word, slot as u32 + 1, NAP);
            }
        }
    }

    /// Returns whether another process waits for the end of this process's lease.
    pub fn is_lease_wanted(&self) -> bool {
        self.has_lease() && self.others.alone.load(Ordering::Acquire) != self.arrivals()
    }

    /// Ends the lease of a slot, if it has one.
    pub fn drop_lease_of(&self, slot: u64) {
        let word = self.layout().lease;
        let runtime = self.runtime();
        if runtime.load(word) == slot + 1 && runtime.cas(word, slot + 1, 0).is_ok() {
            runtime.wake_all(word);
        }
    }

    /// Returns whether this process has the lease.
    pub fn has_lease(&self) -> bool {
        let lease = self.runtime().load(self.layout().lease);
        lease == self.holder().slot + 1
    }

    /// The time since which this process has been alone, if it is.
    pub fn single_opener(&self) -> Option<SingleOpener> {
        let arrivals = self.arrivals();
        let known = self.others.alone.load(Ordering::Acquire) == arrivals;
        (known || self.find_others(arrivals)).then_some(SingleOpener(arrivals))
    }

    /// Returns whether there are no other processes, if a check is due. `arrivals` was read before.
    #[cold]
    fn find_others(&self, arrivals: u64) -> bool {
        let (now, others) = (now_ns(), &self.others);
        let last = others.searched_ns.load(Ordering::Relaxed);
        let due = now.abs_diff(last) >= FIND_NS;
        let order = Ordering::Relaxed;
        if !due || (others.searched_ns.compare_exchange(last, now, order, order)).is_err() {
            return false;
        }
        let me = self.holder().slot;
        let alone = self.slots().all(|slot| slot == me || !self.is_marked(slot));
        if alone {
            others.alone.store(arrivals, Ordering::Release);
        }
        alone
    }

    /// Takes the lease. `false`: this process has not been alone all the time since.
    pub fn take_lease(&self, since: SingleOpener) -> bool {
        let word = self.layout().lease;
        let runtime = self.runtime();
        let mine = self.holder().slot + 1;
        if self.arrivals() != since.0 {
            return false;
        }
        let lease = runtime.load(word);
        if lease != mine && (lease != 0 || runtime.cas(word, 0, mine).is_err()) {
            return false;
        }
        self.arrivals() == since.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{Heap, Place, Scratch};
    use std::thread;

    fn mount(scratch: &Scratch) -> Place {
        let place = scratch.open();
        {
            let _writable = place.mem().writable();
            place.wake_revoker(place.holder().slot);
        }
        place
    }

    /// Returns the single opener without waiting for the next check.
    fn single_opener_now(share: &Share<Heap>) -> Option<SingleOpener> {
        share.others.searched_ns.store(0, Ordering::Relaxed);
        share.single_opener()
    }

    #[test]
    fn one_is_alone_until_somebody_arrives() {
        let scratch = Scratch::new();
        let fs = mount(&scratch);
        let since = single_opener_now(&fs).expect("nobody else is there");
        assert_eq!(fs.single_opener(), Some(since));
        let other = mount(&scratch);
        assert!(!fs.take_lease(since) && !fs.has_lease());
        assert_eq!(
            (single_opener_now(&fs), single_opener_now(&other)),
            (None, None)
        );
        other.leave();
        assert_eq!(fs.single_opener(), None, "it has just looked");
        let again = single_opener_now(&fs).expect("the other has left");
        assert_ne!(again, since);
        assert!(!fs.take_lease(since) && fs.take_lease(again) && fs.has_lease());
        assert!(!fs.is_lease_wanted());
    }

    /// Goal: no process enters before the lease has ended, and a waiting one enters at once then.
    #[test]
    fn who_arrives_waits_for_the_end() {
        let scratch = Scratch::new();
        let fs = mount(&scratch);
        let since = single_opener_now(&fs).unwrap();
        assert!(fs.take_lease(since));
        let began = Instant::now();
        thread::scope(|scope| {
            let coming = scope.spawn(|| mount(&scratch).leave());
            while !fs.is_lease_wanted() {
                assert!(began.elapsed() < Duration::from_secs(10), "nobody asks");
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!fs.take_lease(since));
            thread::sleep(Duration::from_millis(50));
            let patient = began.elapsed() < PATIENCE;
            assert!(!coming.is_finished() || !patient);
            fs.drop_lease_of(fs.holder().slot);
        });
        assert!(!fs.has_lease());
    }

    /// Goal: nobody waits for ever, for a mount that does not run or a word that a dead process has
    /// left.
    #[test]
    fn nobody_waits_for_ever() {
        let scratch = Scratch::new();
        let fs = mount(&scratch);
        let since = single_opener_now(&fs).unwrap();
        assert!(fs.take_lease(since));
        let began = Instant::now();
        let other = mount(&scratch);
        assert!(began.elapsed() >= PATIENCE && !fs.has_lease());
        for left in [fs.layout().slot_count + 7, 3, u64::MAX] {
            let word = other.layout().lease;
            let mut tries = 0..5;
            let at_once = tries.any(|_| {
                other.runtime().store(word, left);
                let began = Instant::now();
                mount(&scratch).leave();
                assert_eq!(other.mem().load(word), 0);
                began.elapsed() < PATIENCE
            });
            assert!(at_once, "{left}");
        }
    }

    /// Goal: a lease ends with its holder.
    #[test]
    fn a_lease_ends_with_its_holder() {
        let scratch = Scratch::new();
        let fs = mount(&scratch);
        let since = single_opener_now(&fs).unwrap();
        assert!(fs.take_lease(since));
        fs.leave();
        let other = mount(&scratch);
        let word = other.layout().lease;
        assert_eq!(other.mem().load(word), 0);
    }
}
