//! Making a mount stand still, so that its pool can be copied as it is at one instant.
//!
//! A copier takes the pool's freeze lock ([`pmfs::Freeze`]) and then asks the mount by an ioctl on
//! its root directory ([`ask`]). From then on calls that change anything wait at the [`Gate`]; the
//! answer comes when those inside have ended. Readers go on. The freeze is over when the lock
//! falls: waiting calls look at the lock from time to time, so no message ends it, and a copier
//! that was killed holds no call up.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pmfs::{Error, FreezeProbe};

/// `_IO('P', 0xf5)`.
pub(crate) const REQUEST: u32 = (b'P' as u32) << 8 | 0xf5;

/// The time after which waiters check the lock again.
const POLL: Duration = Duration::from_millis(2);

/// The longest wait for the last calls inside; a call lasts microseconds, a large truncation a
/// second.
const PATIENCE: Duration = Duration::from_secs(30);

/// The facts that a frozen mount tells of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    /// A sound pool.
    Sound,
    /// Recovery found damage: bitmaps may not cover all that is in use.
    Damaged,
}

/// Asks the mount whose root is open as `root` to stand still, and waits until it does.
/// The caller has the freeze lock, and keeps `root` open until it gives it up, so that
/// the mount can't go before.
///
/// # Errors
/// `PermissionDenied` for a caller that is neither root nor the daemon's user; the mount is gone,
/// or too old.
pub fn ask(root: &File) -> io::Result<Frozen> {
    Ok(match pmem::request::request(root.as_fd(), REQUEST)? {
        0 => Frozen::Sound,
        _ => Frozen::Damaged,
    })
}

/// The gate that calls which change anything pass; they wait at it while the pool stands still.
#[derive(Debug)]
pub(crate) struct Gate {
    frozen: AtomicBool,
    /// Calls that are changing something.
    inside: AtomicUsize,
    /// Held by the thread that decides whether it is over, so that no old decision ends a new
    /// freeze.
    deciding: Mutex<()>,
    /// `None`: the pool has no file to lock, and can't be frozen.
    probe: Option<FreezeProbe>,
}

/// A call is inside.
pub(crate) struct Pass<'a>(Option<&'a Gate>);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.inside.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Gate {
    pub(crate) fn new(pool: Option<&Path>) -> Gate {
        Gate {
            frozen: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            deciding: Mutex::new(()),
            probe: pool.and_then(|path| FreezeProbe::open(path).ok()),
        }
    }

    /// Lets a call in, unless it changes something and the pool stands still.
    pub(crate) fn try_pass(&self, changes: bool) -> Option<Pass<'_>> {
        if !changes {
            return Some(Pass(None));
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        if !self.frozen.load(Ordering::SeqCst) {
            return Some(Pass(Some(self)));
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        None
    }

    /// Lets a call in; one that changes something waits for the end of a freeze.
    pub(crate) fn pass(&self, changes: bool) -> Pass<'_> {
        loop {
            if let Some(pass) = self.try_pass(changes) {
                return pass;
            }
            if !self.is_over() {
                thread::sleep(POLL);
            }
        }
    }

    fn is_over(&self) -> bool {
        let _deciding = self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.probe.as_ref().is_some_and(FreezeProbe::held) {
            return false;
        }
        self.frozen.store(false, Ordering::SeqCst);
        true
    }

    /// Lets no further call in and waits until none is inside.
    ///
    /// # Errors
    /// [`Error::NotSupported`]; no process holds the lock; a call inside does not end.
    pub(crate) fn freeze(&self) -> pmfs::Result<()> {
        let probe = self.probe.as_ref();
        let probe = probe.ok_or(Error::NotSupported(&"freezing without a pool file"))?;
        let deciding = self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        if !probe.held() {
            return Err(Error::Invalid(&"no process holds the freeze lock"));
        }
        self.frozen.store(true, Ordering::SeqCst);
        drop(deciding);
        let mut waited = Duration::ZERO;
        while self.inside.load(Ordering::SeqCst) > 0 {
            if waited > PATIENCE || !probe.held() {
                return Err(Error::Busy);
            }
            let nap = Duration::from_micros(200);
            thread::sleep(nap);
            waited += nap;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    fn wait_until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Goal: no call makes a change while frozen, at any time of arrival; and all go on when the
    /// lock falls. Method: threads that count inside the gate; the count has to stand still between
    /// freeze and end.
    #[test]
    fn nobody_is_inside_while_frozen() {
        let pool = tempfile::NamedTempFile::new().unwrap();
        let gate = Gate::new(Some(pool.path()));
        assert!(matches!(gate.freeze(), Err(Error::Invalid(_))));
        let count = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _pass = gate.pass(true);
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..50 {
                let lock = pmfs::Freeze::take(pool.path()).unwrap();
                gate.freeze().unwrap();
                let before = count.load(Ordering::SeqCst);
                drop(gate.pass(false));
                thread::sleep(Duration::from_millis(3));
                assert_eq!(count.load(Ordering::SeqCst), before);
                drop(lock);
                wait_until(|| count.load(Ordering::SeqCst) > before);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_call_inside_is_waited_for() {
        let pool = tempfile::NamedTempFile::new().unwrap();
        let gate = Gate::new(Some(pool.path()));
        let _lock = pmfs::Freeze::take(pool.path()).unwrap();
        let inside = gate.pass(true);
        thread::scope(|scope| {
            let freeze = scope.spawn(|| gate.freeze());
            thread::sleep(Duration::from_millis(20));
            assert!(!freeze.is_finished());
            drop(inside);
            freeze.join().unwrap().unwrap();
        });
    }
}
