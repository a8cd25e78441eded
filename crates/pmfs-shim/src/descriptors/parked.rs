//! A placeholder whose file the program has closed, kept for the next file that it opens.
//!
//! Two system calls, to create and to close a placeholder, are most of the cost of opening and
//! closing a file here. So the last placeholder is not closed but *parked*: its number is free for
//! the program, and the next file that it opens gets it.
//!
//! POSIX promises the lowest free number. So a placeholder is parked only while all numbers below
//! it are known to be in use: they were when the kernel gave the number as the lowest, and no later
//! call may have freed one. A call that may free, take or examine numbers without this library
//! comes here first ([`before`]; `class.rs` says which calls do), and ends the parking.
//!
//! This happens only in a process with one thread, because the order of two threads' calls is
//! unknown. A guest, which shares these words but has descriptors of its own, parks nothing: the
//! parent parks nothing when it begins, and no number is known in it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::call::class;
use crate::descriptors::table;
use crate::own::kernel;
use crate::thread::guest;

/// Not 0 while numbers are known: calls that may change them must then be checked.
pub(crate) static WATCHING: AtomicU32 = AtomicU32::new(0);
/// All numbers below this one are in use; 0: unknown.
static USED_BELOW: AtomicU32 = AtomicU32::new(0);
/// The parked placeholder, or [`NONE`]. All numbers below it are in use.
static PARKED: AtomicU32 = AtomicU32::new(NONE);
/// Whether the parked placeholder stays open over exec.
static ON_EXEC: AtomicBool = AtomicBool::new(false);
/// Set once there has been a second thread.
static OFF: AtomicBool = AtomicBool::new(false);

const NONE: u32 = u32::MAX;

fn know(used_below: u32) {
    USED_BELOW.store(used_below, Ordering::Relaxed);
    WATCHING.store(u32::from(used_below != 0), Ordering::Relaxed);
}

/// Notes that the kernel has given this number, the lowest free one, to a placeholder.
pub(crate) fn made(number: i32) {
    if !OFF.load(Ordering::Relaxed) && !guest::has_own_table() {
        know(number as u32 + 1);
    }
}

/// Takes the parked placeholder, which has the lowest free number, if there is one.
pub(crate) fn take(on_exec: bool) -> Option<i32> {
    let number = PARKED.swap(NONE, Ordering::Relaxed);
    if number == NONE {
        return None;
    }
    know(number + 1);
    if ON_EXEC.load(Ordering::Relaxed) != on_exec {
        let flags = if on_exec { 0 } else { libc::FD_CLOEXEC };
        let args = [number.into(), libc::F_SETFD as u64, flags as u64];
        kernel::plain(libc::SYS_fcntl, &args);
    }
    Some(number as i32)
}

/// Parks or closes a placeholder that the program has closed and that is out of the table.
/// `on_exec`: whether the number would outlive exec, if known.
pub(crate) fn close(number: u64, on_exec: Option<bool>) {
    let number = number as u32;
    // 0 stands for an unknown number.
    let known = number > 0 && number < USED_BELOW.load(Ordering::Relaxed);
    if !known {
        if number == 0 {
            flush_parked();
        }
        close_in_kernel(number);
        return;
    }
    // The number is below the parked one, which is no longer the lowest.
    flush_parked();
    match on_exec {
        Some(on_exec) => {
            ON_EXEC.store(on_exec, Ordering::Relaxed);
            table::watch(number);
            PARKED.store(number, Ordering::Relaxed);
        }
        None => close_in_kernel(number),
    }
    know(number);
}

fn close_in_kernel(number: u32) {
    kernel::plain(libc::SYS_close, &[number.into()]);
}

/// Ends the parking: closes the parked placeholder and forgets all numbers.
pub(crate) fn flush_parked() {
    if WATCHING.load(Ordering::Relaxed) == 0 {
        return;
    }
    let number = PARKED.swap(NONE, Ordering::Relaxed);
    if number != NONE {
        table::watch_no_more(number);
        close_in_kernel(number);
    }
    know(0);
}

/// Checks a call of the program before it is served.
#[inline]
pub(crate) fn before(number: i64, args: &[u64; 6]) {
    if WATCHING.load(Ordering::Relaxed) == 0 {
        return;
    }
    // The parked number is closed for the program, and the kernel must say so.
    let parked = PARKED.load(Ordering::Relaxed);
    let is_parked = |argument: &u64| *argument as u32 == parked;
    let ends = match class::CLASS[number as usize] {
        class::BY_DESCRIPTOR => is_parked(&args[0]),
        class::PEEK => parked != NONE && args[..5].iter().any(is_parked),
        class::MEMORY => false,
        _ => may_change_numbers(number, args),
    };
    if ends {
        flush_parked();
    }
}

/// Returns whether a call may free, take or read numbers without this library.
fn may_change_numbers(number: i64, args: &[u64; 6]) -> bool {
    let by_descriptor = class::is_by_descriptor(number) || number == libc::SYS_ioctl;
    let is_ours = by_descriptor && table::is_placeholder(args[0]);
    let frees_none_below =
        number == libc::SYS_close && args[0] as u32 > USED_BELOW.load(Ordering::Relaxed);
    !is_ours && !frees_none_below
}

/// Ends the parking of a number that the program names by a path.
pub(crate) fn is_named(number: u64) {
    if PARKED.load(Ordering::Relaxed) == number as u32 {
        flush_parked();
    }
}

/// Ends the parking for good, because a second thread will share the descriptors.
pub(crate) fn end_for_good() {
    flush_parked();
    OFF.store(true, Ordering::Relaxed);
}
