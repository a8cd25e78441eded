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

use crate::share::member::Share;
use pm_store::clock::now_ns;
use pmfs_format::RuntimeHeaderRaw;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest wait of a process that arrives for a mount that does not end its lease.
const PATIENCE: Duration = Duration::from_millis(400);
/// From one question whether that mount lives to the next.
const NAP: Duration = Duration::from_millis(20);
/// The time after which a process that was not the single opener checks again. So programs that
/// come and go, one after the other, don't end a lease each.
const FIND_NS: u64 = 1_000_000_000;

/// A time in which a process was alone in the pool, by the arrivals before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleOpener(u64);

impl Share {
    fn arrivals(&self) -> u64 {
        self.pm
            .runtime()
            .load(RuntimeHeaderRaw::arrivals.of(self.geometry.header))
    }

    /// A slot was marked: whoever was alone is not any more.
    pub(crate) fn count_arrival(&self) {
        let word = RuntimeHeaderRaw::arrivals.of(self.geometry.header);
        let runtime = self.pm.runtime();
        let mut count = runtime.load(word);
        while let Err(found) = runtime.cas(word, count, count + 1) {
            count = found;
        }
    }

    /// After this process's arrival: waits until no mount's kernel remembers anything.
    pub(crate) fn wait_for_lease(&self) {
        let word = RuntimeHeaderRaw::lease.of(self.geometry.header);
        let runtime = self.pm.runtime();
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
    pub(crate) fn is_lease_wanted(&self) -> bool {
        self.has_lease() && self.others.alone.load(Ordering::Acquire) != self.arrivals()
    }

    /// Ends the lease of a slot, if it has one.
    pub(crate) fn drop_lease_of(&self, slot: u64) {
        let word = RuntimeHeaderRaw::lease.of(self.geometry.header);
        let runtime = self.pm.runtime();
        if runtime.load(word) == slot + 1 && runtime.cas(word, slot + 1, 0).is_ok() {
            runtime.wake_all(word);
        }
    }

    pub(crate) fn has_lease(&self) -> bool {
        let lease = self
            .pm
            .runtime()
            .load(RuntimeHeaderRaw::lease.of(self.geometry.header));
        lease == self.holder().slot + 1
    }

    pub(crate) fn single_opener(&self) -> Option<SingleOpener> {
        let arrivals = self.arrivals();
        let known = self.others.alone.load(Ordering::Acquire) == arrivals;
        (known || self.find_others(arrivals)).then_some(SingleOpener(arrivals))
    }

    /// Returns whether there are no other processes, if it is time to check. `arrivals` was read
    /// before.
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

    pub(crate) fn take_lease(&self, since: SingleOpener) -> bool {
        let word = RuntimeHeaderRaw::lease.of(self.geometry.header);
        let runtime = self.pm.runtime();
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
    use crate::scratch::Scratch;
    use crate::{Fs, OpenOptions};
    use std::path::Path;
    use std::thread;

    fn pool() -> Scratch {
        Scratch::new(16 << 20)
    }

    fn mount(path: &Path) -> Fs {
        let fs = Fs::open(path, &OpenOptions::default()).unwrap();
        fs.tell_of_pages();
        fs
    }

    /// Forgets when it looked last.
    fn single_opener_now(fs: &Fs) -> Option<SingleOpener> {
        fs.pool().others.searched_ns.store(0, Ordering::Relaxed);
        fs.alone()
    }

    #[test]
    fn one_is_alone_until_somebody_arrives() {
        let Scratch { dir: _dir, path } = pool();
        let fs = mount(&path);
        let since = single_opener_now(&fs).expect("nobody else is there");
        assert_eq!(fs.alone(), Some(since));
        let other = mount(&path);
        assert!(!fs.lease(since) && !fs.has_lease());
        assert_eq!(
            (single_opener_now(&fs), single_opener_now(&other)),
            (None, None)
        );
        other.detach().unwrap();
        assert_eq!(fs.alone(), None, "it has just looked");
        let again = single_opener_now(&fs).expect("the other has left");
        assert_ne!(again, since);
        assert!(!fs.lease(since) && fs.lease(again) && fs.has_lease());
        assert!(!fs.is_lease_wanted());
    }

    /// Goal: nobody gets in before the lease has ended, and then at once.
    #[test]
    fn who_arrives_waits_for_the_end() {
        let Scratch { dir: _dir, path } = pool();
        let fs = mount(&path);
        let since = single_opener_now(&fs).unwrap();
        assert!(fs.lease(since));
        let began = Instant::now();
        let coming = thread::spawn(move || drop(mount(&path)));
        while !fs.is_lease_wanted() {
            assert!(began.elapsed() < Duration::from_secs(10), "nobody asks");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!fs.lease(since));
        thread::sleep(Duration::from_millis(50));
        let patient = began.elapsed() < PATIENCE;
        assert!(!coming.is_finished() || !patient);
        fs.end_lease();
        coming.join().unwrap();
        assert!(!fs.has_lease());
    }

    /// A mount that does not run, and a word that a dead one has left.
    #[test]
    fn nobody_waits_for_ever() {
        let Scratch { dir: _dir, path } = pool();
        let fs = mount(&path);
        let since = single_opener_now(&fs).unwrap();
        assert!(fs.lease(since));
        let began = Instant::now();
        let other = mount(&path);
        assert!(began.elapsed() >= PATIENCE && !fs.has_lease());
        for left in [fs.pool().geometry.slot_count + 7, 3, u64::MAX] {
            let pool = other.pool();
            let word = RuntimeHeaderRaw::lease.of(pool.geometry.header);
            let mut tries = 0..5;
            let at_once = tries.any(|_| {
                pool.pm.runtime().store(word, left);
                let began = Instant::now();
                drop(mount(&path));
                assert_eq!(pool.pm.load(word), 0);
                began.elapsed() < PATIENCE
            });
            assert!(at_once, "{left}");
        }
    }

    /// One who leaves with the lease takes it along.
    #[test]
    fn a_lease_ends_with_its_holder() {
        let Scratch { dir: _dir, path } = pool();
        let fs = mount(&path);
        let since = single_opener_now(&fs).unwrap();
        assert!(fs.lease(since));
        fs.detach().unwrap();
        let other = mount(&path);
        let word = RuntimeHeaderRaw::lease.of(other.pool().geometry.header);
        assert_eq!(other.pool().pm.load(word), 0);
    }
}
