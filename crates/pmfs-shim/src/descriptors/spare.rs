//! Numbers of descriptors kept for calls that need none on Linux, and need one here.
//!
//! A program may take every number that its limit allows, and then fork, exec or map a file. So two
//! duplicates of a descriptor of the pool are kept at the top of the limit from the attachment on.
//! A call that finds no number free gives them up ([`retry`]); they are taken again when its
//! descriptors are closed ([`lend`]).

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use libc::EMFILE;
use pmem::Identity;

use crate::descriptors::table::{self, OWN, choose_floor};
use crate::own::kernel;
use crate::thread::guest;

/// The most numbers that one call needs: for a copy of a program, and for the locks of its place.
const COUNT: usize = 2;
/// The smallest limit with spares.
const LIMIT_MIN: i32 = 32;
const NONE: i32 = -1;

/// The spares' numbers.
static NUMBERS: [AtomicI32; COUNT] = [const { AtomicI32::new(NONE) }; COUNT];
/// The descriptor whose duplicates they are.
static SOURCE: AtomicI32 = AtomicI32::new(NONE);
/// Set while some spares are given up.
static MISSING: AtomicBool = AtomicBool::new(false);
/// Device and inode of the pool's file, by which a number is recognized as a spare.
static POOL: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The time in which spares may be given up; they are taken again on drop.
#[must_use]
pub(crate) struct Lent;

impl Drop for Lent {
    fn drop(&mut self) {
        take_again();
    }
}

/// Begins the time in which [`retry`] may open descriptors. All of them are closed before the
/// result is dropped.
pub(crate) fn lend() -> Lent {
    Lent
}

/// Calls again without the spares if no number was free. The caller holds the result of [`lend`].
///
/// # Errors
/// Those of the call.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, i32>) -> Result<T, i32> {
    match call() {
        Err(EMFILE) if give_up() => call(),
        answer => answer,
    }
}

/// Calls as [`retry`] does, for a call that closes its descriptors.
///
/// # Errors
/// Those of the call.
pub(crate) fn within<T>(call: impl FnMut() -> Result<T, i32>) -> Result<T, i32> {
    let _lent = lend();
    retry(call)
}

/// Reads a small file of the kernel; empty if it can't be read.
pub(crate) fn text_of(path: &str) -> String {
    let read = || std::fs::read_to_string(path).map_err(|why| why.raw_os_error().unwrap_or(0));
    within(read).unwrap_or_default()
}

/// Returns whether a number is a spare.
pub(crate) fn has(number: u32) -> bool {
    NUMBERS
        .iter()
        .any(|spare| spare.load(Ordering::Relaxed) == number as i32)
}

/// Takes the spares right after attaching. `source` is a descriptor of the pool's file.
pub(crate) fn begin(source: i32, pool: Identity) {
    POOL[0].store(pool.dev, Ordering::Relaxed);
    POOL[1].store(pool.ino, Ordering::Relaxed);
    SOURCE.store(source, Ordering::Relaxed);
    take(source, table::floor());
}

/// Takes the missing spares again, as far as numbers are free.
fn take_again() {
    // A guest has a table of its own, and these words are the parent's.
    if !MISSING.load(Ordering::Relaxed) || guest::has_own_table() {
        return;
    }
    let source = SOURCE.load(Ordering::Relaxed);
    if is_the_pools(source) {
        take(source, choose_floor());
    }
}

/// Moves the spares below the new limit that the program has set.
pub(crate) fn renew() {
    if guest::has_own_table() || !is_the_pools(SOURCE.load(Ordering::Relaxed)) {
        return;
    }
    let end = choose_floor() + OWN as i32;
    for spare in &NUMBERS {
        if spare.load(Ordering::Relaxed) >= end {
            close(spare);
        }
    }
    take_again();
}

/// Finds out which spares exist, in a child of a guest, to whose table these words did not belong.
pub(crate) fn find_again() {
    for spare in &NUMBERS {
        if !is_the_pools(spare.load(Ordering::Relaxed)) {
            spare.store(NONE, Ordering::Relaxed);
            MISSING.store(true, Ordering::Relaxed);
        }
    }
    take_again();
}

/// Gives the spares up for good, in a process that never attaches again and may not be allowed the
/// calls.
pub(crate) fn end() {
    for spare in &NUMBERS {
        close(spare);
    }
    MISSING.store(false, Ordering::Relaxed);
}

/// Takes the missing spares. `floor` is the least of this library's own numbers, among which they
/// are.
fn take(source: i32, floor: i32) {
    let end = floor.saturating_add(OWN as i32);
    let mut all = true;
    for spare in &NUMBERS {
        if end < LIMIT_MIN || spare.load(Ordering::Relaxed) != NONE {
            continue;
        }
        let args = [source as u64, libc::F_DUPFD_CLOEXEC as u64, floor as u64];
        let made = kernel::plain(libc::SYS_fcntl, &args);
        if made < 0 {
            all = false;
            continue;
        }
        let number = made as i32;
        let order = Ordering::Relaxed;
        let is_kept = number < end && spare.compare_exchange(NONE, number, order, order).is_ok();
        if !is_kept {
            kernel::plain(libc::SYS_close, &[number as u64]);
        }
    }
    MISSING.store(!all, Ordering::Relaxed);
}

/// Gives up one spare. Returns whether there was one.
#[cold]
fn give_up() -> bool {
    let mut any = false;
    for spare in &NUMBERS {
        any |= if guest::has_own_table() {
            // The parent still has its own. In the guest's table these numbers stay free.
            close_number(spare.load(Ordering::Relaxed))
        } else {
            close(spare)
        };
    }
    any
}

fn close(spare: &AtomicI32) -> bool {
    MISSING.store(true, Ordering::Relaxed);
    close_number(spare.swap(NONE, Ordering::Relaxed))
}

fn close_number(number: i32) -> bool {
    is_the_pools(number) && kernel::plain(libc::SYS_close, &[number as u64]) == 0
}

/// Returns whether a spare exists. A program that closes numbers without this library may have
/// another file there.
fn is_the_pools(number: i32) -> bool {
    let pool = [0, 1].map(|at| POOL[at].load(Ordering::Relaxed));
    number >= 0
        && table::get(number as u64).is_none()
        && kernel::pool_at(number as u32) == Some((pool[0], pool[1]))
}
