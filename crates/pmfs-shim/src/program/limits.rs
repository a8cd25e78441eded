//! RLIMIT_FSIZE, the greatest size of a file that this program may create. The kernel checks it on
//! writes, so the library must.
//!
//! A limit that another process sets for this one (prlimit(2)) is not seen until the next program.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::EFBIG;

use crate::call::{Answer, Call, Verdict};
use crate::own::kernel;
use crate::thread::guest;

/// The limit was not read yet; no limit is so large.
const UNKNOWN: u64 = u64::MAX - 1;
/// A guest has another limit: until it is over the limit is read for each use, and not kept.
const ASK: u64 = u64::MAX - 2;

static FILE_BYTES: AtomicU64 = AtomicU64::new(UNKNOWN);

/// Serves setrlimit(2) and prlimit(2), after which the limit may differ.
pub(crate) fn change(call: &Call) -> Verdict {
    // SAFETY: the program's own call, as it made it.
    let answer = unsafe { kernel::call(call.rax as i64, call.args) };
    let known = if guest::own().is_some() { ASK } else { UNKNOWN };
    FILE_BYTES.store(known, Ordering::Relaxed);
    crate::call::kernel_answer(answer).into()
}

/// Returns whether a call sets this limit of the program.
pub(crate) fn sets(call: &Call, limit: u32) -> bool {
    let [first, second, third, ..] = call.args;
    let (resource, new) = match call.rax as i64 {
        libc::SYS_setrlimit => (first, second),
        _ => (second, third),
    };
    new != 0 && resource as u32 == limit
}

/// Forgets a guest's own limit, which is not its parent's.
pub(crate) fn guest_is_over() {
    let _ = FILE_BYTES.compare_exchange(ASK, UNKNOWN, Ordering::Relaxed, Ordering::Relaxed);
}

#[inline]
fn file_bytes() -> u64 {
    let known = FILE_BYTES.load(Ordering::Relaxed);
    match known {
        ASK | UNKNOWN => ask(known),
        known => known,
    }
}

#[cold]
fn ask(known: u64) -> u64 {
    let mut limit = [0u64; 2];
    let at = (&raw mut limit).expose_provenance() as u64;
    let resource = u64::from(libc::RLIMIT_FSIZE);
    // SAFETY: the kernel fills a struct rlimit: two words.
    unsafe { kernel::call(libc::SYS_getrlimit, [resource, at, 0, 0, 0, 0]) };
    let limit = std::hint::black_box(limit)[0];
    if known != ASK {
        FILE_BYTES.store(limit, Ordering::Relaxed);
    }
    limit
}

/// The part of `bytes` that may be written at `place`, which is evaluated only if there is a limit.
///
/// # Errors
/// EFBIG, and SIGXFSZ, if no byte may be written; the error of `place`.
#[inline]
pub(crate) fn cut(bytes: u64, place: impl FnOnce() -> Answer) -> Answer {
    let limit = file_bytes();
    if limit == libc::RLIM_INFINITY || bytes == 0 {
        return Ok(bytes);
    }
    let at = place()?;
    if at >= limit {
        return Err(exceeded());
    }
    Ok(bytes.min(limit - at))
}

/// Checks that a file may grow to that size.
///
/// # Errors
/// EFBIG, and SIGXFSZ.
pub(crate) fn allow_size(size: u64, before: impl FnOnce() -> Answer) -> Result<(), i32> {
    if size <= file_bytes() || size <= before()? {
        return Ok(());
    }
    Err(exceeded())
}

#[cold]
fn exceeded() -> i32 {
    let me = [kernel::process().into(), kernel::thread().into()];
    kernel::plain(libc::SYS_tgkill, &[me[0], me[1], libc::SIGXFSZ as u64]);
    EFBIG
}
