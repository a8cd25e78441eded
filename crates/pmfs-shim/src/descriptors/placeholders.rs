//! The creation of placeholders.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::descriptors::parked;
use crate::descriptors::table::{COUNT, choose_floor, number};
use crate::own::kernel;
use crate::thread::guest;

/// The description that placeholders are duplicates of.
static ANCHOR: AtomicI32 = AtomicI32::new(-1);

/// Returns whether a number is the anchor's own.
pub(super) fn is_anchor(number: u32) -> bool {
    ANCHOR.load(Ordering::Acquire) == number as i32
}

/// Creates a placeholder with the lowest free number from `from` on.
///
/// # Errors
/// EMFILE, from `fcntl(2)`.
pub(crate) fn placeholder(from: u64, on_exec: bool) -> Result<i32, i32> {
    if from == 0
        && let Some(parked) = parked::take(on_exec)
    {
        return Ok(parked);
    }
    parked::flush_parked();
    let command = if on_exec {
        libc::F_DUPFD
    } else {
        libc::F_DUPFD_CLOEXEC
    };
    let mut anchor = anchor()?;
    let copy = |anchor| kernel::plain(libc::SYS_fcntl, &[anchor as u64, command as u64, from]);
    let mut answer = copy(anchor);
    if answer == -i64::from(libc::EBADF) && guest::has_own_table() {
        // The parent's other threads have created theirs since.
        anchor = make_anchor()?;
        answer = copy(anchor);
    }
    if ANCHOR.load(Ordering::Relaxed) != anchor {
        kernel::plain(libc::SYS_close, &[anchor as u64]);
    }
    if answer >= COUNT as i64 {
        kernel::plain(libc::SYS_close, &[answer as u64]);
        return Err(libc::EMFILE);
    }
    let made = number(answer)?;
    if from == 0 {
        parked::made(made);
    }
    Ok(made)
}

/// Returns the anchor. A guest that needs it first creates it for this time alone: its number means
/// nothing in the parent.
fn anchor() -> Result<i32, i32> {
    let known = ANCHOR.load(Ordering::Acquire);
    if known >= 0 {
        return Ok(known);
    }
    let made = make_anchor()?;
    if guest::has_own_table() {
        return Ok(made);
    }
    match ANCHOR.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        Err(other) => {
            kernel::plain(libc::SYS_close, &[made as u64]);
            Ok(other)
        }
    }
}

#[cold]
fn make_anchor() -> Result<i32, i32> {
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let file = kernel::with_path(
        libc::SYS_memfd_create,
        [kernel::PATH, flags, 0, 0, 0, 0],
        b"pmfs\0",
    );
    let file = number(file)? as u64;
    let own = format!("/proc/self/fd/{file}\0");
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    let here = libc::AT_FDCWD as u64;
    let writer = kernel::with_path(
        libc::SYS_openat,
        [here, kernel::PATH, flags, 0, 0, 0],
        own.as_bytes(),
    );
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    kernel::plain(
        libc::SYS_fcntl,
        &[file, libc::F_ADD_SEALS as u64, seals as u64],
    );
    kernel::plain(libc::SYS_fchmod, &[file, 0]);
    kernel::plain(libc::SYS_close, &[file]);
    let writer = number(writer)? as u64;
    let high = kernel::plain(
        libc::SYS_fcntl,
        &[writer, libc::F_DUPFD_CLOEXEC as u64, choose_floor() as u64],
    );
    kernel::plain(libc::SYS_close, &[writer]);
    number(high)
}
