//! A placeholder whose file the program has closed, kept for the file that it opens next.
//!
//! Two system calls, one that makes a placeholder and one that closes it, are most of
//! what it takes to open and close a file here. So the last one is not closed but
//! *parked*: for the program its number is free, and the next file that it opens gets it.
//!
//! POSIX promises the lowest free number. So this is done only while all numbers below are known to
//! be in use: they were when the kernel gave the number as the lowest, and since then there was no
//! call that may have freed one. A call that may free or take numbers past this library, or look at
//! any of them, comes here first ([`before`]; `class.rs` says which calls do), and ends it.
//!
//! Only in a process with one thread: between two of them nobody could say what came
//! first. And not in a child that shares its parent's memory, and these words, but has
//! descriptors of its own: nothing is parked when it begins, and it knows of no number.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::call::class;
use crate::descriptors::table;
use crate::own::kernel;
use crate::thread::guest;

/// Not 0 if numbers are known, so that calls that may change them have to be checked.
pub(crate) static WATCHING: AtomicU32 = AtomicU32::new(0);
/// All numbers below are in use; 0: nobody knows.
static USED_BELOW: AtomicU32 = AtomicU32::new(0);
/// The placeholder that is parked, or [`NONE`]. All numbers below it are in use.
static PARKED: AtomicU32 = AtomicU32::new(NONE);
/// True if it would stay open when the process becomes another program.
static ON_EXEC: AtomicBool = AtomicBool::new(false);
/// There is, or was, a second thread.
static OFF: AtomicBool = AtomicBool::new(false);

const NONE: u32 = u32::MAX;

fn know(used_below: u32) {
    USED_BELOW.store(used_below, Ordering::Relaxed);
    WATCHING.store(u32::from(used_below != 0), Ordering::Relaxed);
}

/// The kernel has given this number, the lowest that was free, to a placeholder.
pub(crate) fn made(number: i32) {
    if !OFF.load(Ordering::Relaxed) && !guest::has_own_table() {
        know(number as u32 + 1);
    }
}

/// The lowest free number, if a placeholder has it already.
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

/// The program has closed this number, which is out of the table: the placeholder is parked, or
/// closed. `on_exec`: whether the number would outlive exec, if that is known.
pub(crate) fn close(number: u64, on_exec: Option<bool>) {
    let number = number as u32;
    // 0 stands for nothing known.
    let known = number > 0 && number < USED_BELOW.load(Ordering::Relaxed);
    if !known {
        if number == 0 {
            flush_parked();
        }
        close_in_kernel(number);
        return;
    }
    // It is below what may be parked, which is not the lowest any more.
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

/// Ends it: what is parked is closed, and nothing is known of the numbers.
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

/// Before a call of the program's is looked at.
#[inline]
pub(crate) fn before(number: i64, args: &[u64; 6]) {
    if WATCHING.load(Ordering::Relaxed) == 0 {
        return;
    }
    // For the program what is parked is not open, and the kernel is to say so.
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

/// Returns whether a call may free numbers, take them, or read any, past this library.
fn may_change_numbers(number: i64, args: &[u64; 6]) -> bool {
    let by_descriptor = class::is_by_descriptor(number) || number == libc::SYS_ioctl;
    let is_ours = by_descriptor && table::is_placeholder(args[0]);
    let frees_none_below =
        number == libc::SYS_close && args[0] as u32 > USED_BELOW.load(Ordering::Relaxed);
    !is_ours && !frees_none_below
}

/// A name of the kernel's for a descriptor.
pub(crate) fn is_named(number: u64) {
    if PARKED.load(Ordering::Relaxed) == number as u32 {
        flush_parked();
    }
}

/// Others will have these descriptors too: a second thread.
pub(crate) fn end_for_good() {
    flush_parked();
    OFF.store(true, Ordering::Relaxed);
}
