//! The attachment to the pool, made at the first call that needs it, and again after a fork.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use pmfs::Fs;

use crate::call::errno;
use crate::descriptors::spare;
use crate::descriptors::table;
use crate::own::config;
use crate::own::mountless;
use crate::thread::guest;

static FS: AtomicPtr<Fs> = AtomicPtr::new(null_mut());
/// The errno with which attaching failed, or 0. After a failure all calls go to the mount.
static REFUSED: AtomicI32 = AtomicI32::new(0);
static ATTACHING: Mutex<()> = Mutex::new(());

/// The pool; `None` if this process can't attach.
#[inline]
pub(crate) fn get() -> Option<&'static Fs> {
    let there = FS.load(Ordering::Acquire);
    // SAFETY: a leaked box, or nothing.
    unsafe { there.as_ref() }.or_else(attach)
}

/// Lookups of names that the mount serves before this process attaches. Attaching takes two to five
/// times as long as such a lookup, and many programs look once and end (`stat`, `test -e`).
const PEEKS_PASSED: u32 = 1;
static PEEKS: AtomicU32 = AtomicU32::new(0);

/// Returns whether the mount serves this lookup. If the mount answers ESTALE, the next try is
/// served here.
#[inline]
pub(crate) fn is_spared() -> bool {
    let may_be = attached().is_none() && PEEKS.load(Ordering::Relaxed) < PEEKS_PASSED;
    may_be && PEEKS.fetch_add(1, Ordering::Relaxed) < PEEKS_PASSED
}

/// The errno with which attaching failed.
pub(crate) fn refusal() -> i32 {
    match REFUSED.load(Ordering::Relaxed) {
        0 => libc::EIO,
        errno => errno,
    }
}

/// The pool, if this process is attached.
pub(crate) fn attached() -> Option<&'static Fs> {
    // SAFETY: as in `get`.
    unsafe { FS.load(Ordering::Acquire).as_ref() }
}

#[cold]
fn attach() -> Option<&'static Fs> {
    if REFUSED.load(Ordering::Relaxed) != 0 && !mountless::is() {
        return None;
    }
    if guest::has_own_table() {
        // The guest's descriptors are not the parent's (`vfork.rs`).
        return None;
    }
    let _guard = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(fs) = attached() {
        return Some(fs);
    }
    pmem::slots::keep_descriptors_from(table::choose_floor());
    let path = Path::new(std::ffi::OsStr::from_bytes(&config::get().pool));
    match Fs::open(path, &config::get().open_options()) {
        Ok(fs) => Some(put(fs)),
        Err(error) => {
            let instead = if mountless::is() {
                "nothing serves this process"
            } else {
                "the mount serves this process"
            };
            crate::own::log::line(format_args!("{}: {error}; {instead}", path.display()));
            REFUSED.store(errno(error), Ordering::Relaxed);
            None
        }
    }
}

/// Keeps the attachment of this process.
pub(crate) fn put(fs: Fs) -> &'static Fs {
    let fs: &'static Fs = Box::leak(Box::new(fs));
    FS.store(std::ptr::from_ref(fs).cast_mut(), Ordering::Release);
    if let Some(source) = fs.asks_by() {
        spare::begin(source, fs.mapping().identity());
    }
    fs
}

/// Forgets the parent's attachment, in a forked child that was not prepared.
pub(crate) fn forget() {
    FS.store(null_mut(), Ordering::Release);
}

/// Leaves the pool, at the end of the process.
pub(crate) fn leave() {
    if let Some(fs) = attached() {
        FS.store(null_mut(), Ordering::Release);
        let _ = spare::retry(|| fs.detach().map_err(errno));
    }
}

/// The pool. A process with a descriptor of the pool is attached.
pub(crate) fn fs() -> Result<&'static Fs, i32> {
    get().ok_or(libc::EIO)
}
