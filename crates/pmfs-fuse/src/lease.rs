//! The answers that the kernel may remember while the mount is the pool's single opener
//! (docs/adr/0015-leases.md).
//!
//! Then, and only then, an answer about a name or an inode is valid for [`TERM`]; the kernel asks
//! for a path's directories once in that time instead of at each lookup. The engine knows the
//! single opener, and lets no other process in before the mount's lease has ended ([`Fs::lease`]).
//!
//! - A request learns at its beginning since when the mount has been the single opener, and asks
//!   for the lease once its answer is known: the answer was then still true.
//! - From there until the answer is sent it is *granting*. A lease ends when no request is
//!   granting, and when the last answer that was sent is no longer valid ([`HELD`]). No new one is
//!   granted meanwhile.
//!
//! The time is the kernel's: it begins when the program that asked runs again and takes
//! the answer in. `HELD` leaves it 40 ms for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmfs::{Fs, SingleOpener};

/// The validity of an answer.
pub const TERM: Duration = Duration::from_millis(20);

/// The time after the last answer for which the kernel may use it: the term, rounded up to the
/// kernel's ticks (twice 10 ms at most), and the time that a program may not run between the answer
/// and its use.
const HELD: Duration = Duration::from_millis(80);

/// A lease begins with so many requests in a second: a program that looks at the mount
/// before it attaches is not to wait for what that look was told.
const BUSY: u64 = 64;

/// From one look whether answers are still on their way to the next; each takes some microseconds.
const NAP: Duration = Duration::from_micros(50);

/// A mount's lease.
pub struct Lease {
    fs: Arc<Fs>,
    /// True if a lease is wanted at all.
    is_wished: bool,
    /// Requests that might have begun one, since the last [`Lease::tend`].
    requests: AtomicU64,
    /// The lease is being ended.
    closed: AtomicBool,
    /// Answers that grant something and are not sent yet.
    granting: AtomicUsize,
    /// When the last was sent, ns after `began`.
    sent_ns: AtomicU64,
    began: Instant,
}

impl Lease {
    /// None yet. `is_wished`: there may be one.
    #[must_use]
    pub fn new(fs: Arc<Fs>, is_wished: bool) -> Lease {
        Lease {
            fs,
            is_wished,
            requests: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            granting: AtomicUsize::new(0),
            sent_ns: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// A request begins. `None`: nothing of its answer may be remembered.
    pub fn begin(self: &Arc<Lease>) -> Option<Grant> {
        let since = self.is_wished.then(|| self.fs.alone())??;
        let busy = || self.requests.fetch_add(1, Ordering::Relaxed) >= BUSY;
        (self.fs.has_lease() || busy()).then(|| Grant {
            lease: Arc::clone(self),
            since,
            is_given: false,
        })
    }

    /// Ends the lease if a process waits for that, or if nothing has been granted for a while, so
    /// that a process that attaches then need not ask. To be called at least once a second.
    pub fn tend(&self) {
        self.requests.store(0, Ordering::Relaxed);
        if !self.fs.has_lease() {
            return;
        }
        self.closed.store(true, Ordering::SeqCst);
        if self.fs.is_lease_wanted() {
            while self.is_granting() {
                thread::sleep(NAP);
            }
            thread::sleep(HELD.saturating_sub(self.since_sent()));
            self.fs.end_lease();
        } else if !self.is_granting() && self.since_sent() > HELD {
            self.fs.end_lease();
        }
        self.closed.store(false, Ordering::SeqCst);
    }

    fn is_granting(&self) -> bool {
        self.granting.load(Ordering::SeqCst) > 0
    }

    fn since_sent(&self) -> Duration {
        let sent = Duration::from_nanos(self.sent_ns.load(Ordering::SeqCst));
        self.began.elapsed().saturating_sub(sent)
    }
}

/// The grant of one answer. Dropped when it is sent.
pub struct Grant {
    lease: Arc<Lease>,
    since: SingleOpener,
    is_given: bool,
}

impl Grant {
    /// The time for which facts found since the request began may be remembered.
    pub fn term(&mut self) -> Duration {
        let lease = &self.lease;
        if !self.is_given {
            lease.granting.fetch_add(1, Ordering::SeqCst);
            if lease.closed.load(Ordering::SeqCst) || !lease.fs.lease(self.since) {
                lease.granting.fetch_sub(1, Ordering::SeqCst);
                return Duration::ZERO;
            }
            self.is_given = true;
        }
        TERM
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.is_given {
            let lease = &self.lease;
            let now = lease.began.elapsed().as_nanos() as u64;
            lease.sent_ns.fetch_max(now, Ordering::SeqCst);
            lease.granting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmfs::OpenOptions;

    fn lease(dir: &tempfile::TempDir, is_wished: bool) -> Arc<Lease> {
        let fs = crate::temporary::pool(dir);
        fs.tell_of_pages();
        Arc::new(Lease::new(fs, is_wished))
    }

    /// Begins a request of a busy mount.
    fn begin(lease: &Arc<Lease>) -> Option<Grant> {
        lease.requests.store(BUSY, Ordering::Relaxed);
        lease.begin()
    }

    #[test]
    fn nothing_is_granted_unasked() {
        let dir = crate::temporary::dir();
        assert!(begin(&lease(&dir, false)).is_none());
    }

    #[test]
    fn a_few_requests_begin_none() {
        let dir = crate::temporary::dir();
        let lease = lease(&dir, true);
        for _ in 0..5 {
            assert!((0..BUSY).all(|_| lease.begin().is_none()));
            lease.tend();
        }
        assert!((0..=BUSY).any(|_| lease.begin().is_some()));
    }

    /// Goal: an arriving process gets in when the last answer has been sent and does not hold any
    /// more.
    #[test]
    fn who_comes_waits_for_what_was_granted() {
        let dir = crate::temporary::dir();
        let lease = lease(&dir, true);
        let mut first = begin(&lease).expect("nobody else is there");
        let mut second = begin(&lease).expect("nobody else is there");
        assert_eq!((first.term(), first.term()), (TERM, TERM));
        let pool = dir.path().join("pool");
        let began = Instant::now();
        let coming = thread::spawn(move || {
            let other = Fs::open(&pool, &OpenOptions::default()).unwrap();
            (Instant::now(), other)
        });
        while !lease.fs.is_lease_wanted() {
            assert!(began.elapsed() < Duration::from_secs(10), "nobody asks");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(second.term(), Duration::ZERO, "too late");
        assert!(begin(&lease).is_none());
        let ending = thread::spawn({
            let lease = Arc::clone(&lease);
            move || lease.tend()
        });
        thread::sleep(HELD);
        assert!(!ending.is_finished(), "an answer is on its way");
        let sent = Instant::now();
        drop(first);
        ending.join().unwrap();
        let (came, _other) = coming.join().unwrap();
        // On a machine that is busy beyond measure it gives up before.
        let patient = came.duration_since(began) < Duration::from_millis(400);
        assert!(came.duration_since(sent) >= HELD || !patient);
    }

    /// A lease that is not used any more ends by itself, one that is used does not.
    #[test]
    fn an_idle_lease_ends() {
        let dir = crate::temporary::dir();
        let lease = lease(&dir, true);
        let mut granted = begin(&lease).unwrap();
        assert_eq!(granted.term(), TERM);
        thread::sleep(HELD * 2);
        lease.tend();
        assert!(lease.fs.has_lease(), "an answer is on its way");
        let sent = Instant::now();
        drop(granted);
        lease.tend();
        let holds = sent.elapsed() < HELD;
        assert!(lease.fs.has_lease() || !holds, "an answer still holds");
        thread::sleep(HELD * 2);
        lease.tend();
        assert!(!lease.fs.has_lease());
        assert_eq!(begin(&lease).unwrap().term(), TERM, "and begins again");
    }
}
