//! Traps that a hypervisor loses, or delivers without a cause, and the signals of these.

use std::arch::x86_64::__cpuid;
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Breakpoints of this machine may kill the program that they watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray;

impl fmt::Display for Stray {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(
            "debug traps are lost, or come without a cause: SIGTRAP may kill the watched program",
        )
    }
}

impl std::error::Error for Stray {}

/// The signal's handler is the whole process's, so that one counts at a time.
static ONE: Mutex<()> = Mutex::new(());
static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn see(_: libc::c_int) {
    SEEN.fetch_add(1, Relaxed);
}

/// While it lives, SIGTRAP is counted and does nothing else.
pub(crate) struct Counted {
    before: libc::sigaction,
    _one: MutexGuard<'static, ()>,
}

impl Counted {
    pub fn begin() -> io::Result<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        SEEN.store(0, Relaxed);
        let mut before = MaybeUninit::uninit();
        // SAFETY: a structure of integers and an empty set, all of which may be zero.
        let mut now: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        now.sa_sigaction = see as extern "C" fn(libc::c_int) as libc::sighandler_t;
        now.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler only adds to an atomic, which signals allow; both structures live.
        if unsafe { libc::sigaction(libc::SIGTRAP, &raw const now, before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the call has filled it.
            before: unsafe { before.assume_init() },
            _one: one,
        })
    }

    /// Signals so far.
    pub fn stray(&self) -> u64 {
        SEEN.load(Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: the structure is the one that the kernel gave.
        unsafe { libc::sigaction(libc::SIGTRAP, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// The file that keeps a finding until the machine boots anew. That of root is for all users.
const KEPT: &str = "pmmon-stray-traps";

fn kept() -> [Option<PathBuf>; 2] {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join(KEPT));
    [Some(Path::new("/run").join(KEPT)), own]
}

/// Stray traps have been met here before.
pub(crate) fn is_known() -> bool {
    kept().iter().flatten().any(|file| file.exists())
}

/// Keeps the finding. Where no file can be made it is looked for anew each time.
pub(crate) fn remember() {
    for file in kept().iter().flatten() {
        if File::create(file).is_ok() {
            return;
        }
    }
}

/// Returns whether this is a virtual machine: a hypervisor tells of itself by a bit of CPUID.
#[must_use]
pub fn is_virtual() -> bool {
    const PRESENT: u32 = 1 << 31;
    __cpuid(1).ecx & PRESENT != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a signal is counted and kills nobody, and the handler is as before afterwards.
    #[test]
    fn signals_are_counted() {
        let counted = Counted::begin().unwrap();
        assert_eq!(counted.stray(), 0);
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGTRAP) };
        assert_eq!(counted.stray(), 1);
        let handler = counted.before.sa_sigaction;
        drop(counted);
        let mut now = MaybeUninit::uninit();
        // SAFETY: the structure is written to, and nothing else changes.
        let asked = unsafe { libc::sigaction(libc::SIGTRAP, std::ptr::null(), now.as_mut_ptr()) };
        assert_eq!(asked, 0);
        // SAFETY: the call has filled it.
        assert_eq!(unsafe { now.assume_init() }.sa_sigaction, handler);
    }
}
