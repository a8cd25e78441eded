//! The mappings of this process, shared by all its threads.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmfs::Ino;

use crate::call::Verdict;
use crate::maps::apart::{self, may_wait};
use crate::maps::stretch::Stretch;
use crate::maps::table::{COUNT, Table};
use crate::own::kernel;
use crate::thread::Inner;

static TABLE: Mutex<Table> = Mutex::new(Table::new());

pub(super) fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether anything is mapped.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// A number without a call in any kernel. [`fault`] uses it, with a word that no other caller
/// knows.
pub(crate) const FAULT: i64 = libc::SYS_vserver;
const WORD: u64 = 0x706d_6673_2066_696c;
/// The most failed touches in a row by one thread of an address that shows its file; after them the
/// program gets the signal.
const FAULTS_MAX: u32 = 16;

/// Handles a touch of `address` that was SIGBUS, or a store that was SIGSEGV. Returns whether the
/// mapping allows it now. The thread runs the program's code on any stack, so the work is done
/// behind a call like any other.
pub(crate) fn fault(address: u64) -> bool {
    if !any() {
        return false;
    }
    // SAFETY: errno of this thread, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    // SAFETY: a call that the library serves; to a kernel it means nothing.
    let shown = unsafe { libc::syscall(FAULT, address, WORD) } == 0;
    // SAFETY: as above.
    unsafe { *errno = kept };
    shown
}

/// Serves the call that [`fault`] makes.
pub(crate) fn serve_fault(args: [u64; 6], room: &mut Inner) -> Verdict {
    if args[1] != WORD {
        return Verdict::Pass;
    }
    let address = args[0];
    let (last, times) = room.fault;
    let times = if last == address { times + 1 } else { 1 };
    room.fault = (address, times);
    let mut table = table();
    // Another thread may have mapped it already. If the touch keeps failing, the medium is gone.
    let again = times < FAULTS_MAX && table.is_shown(address);
    let shown = again || table.serves(address);
    Verdict::done(if shown { Ok(0) } else { Err(libc::EFAULT) })
}

/// Returns whether some memory that a call of the program did not find is there now.
#[cold]
pub(crate) fn follow_all() -> bool {
    // A store that met an msync has waited for it here.
    table().follow_all() || may_wait()
}

/// Follows a change of the file's size. Returns whether its own blocks are mapped.
pub(crate) fn follow(ino: Ino) -> bool {
    any() && table().follow(ino)
}

/// Ends all mappings at the end of the process. `false`: other threads may still store to them, so
/// the pool is left as by a killed process, whose pins end with its memory.
pub(crate) fn leave() -> bool {
    if !any() {
        return true;
    }
    let mut table = table();
    table.touch_all();
    if threads() != 1 {
        return false;
    }
    table.unmap_all();
    true
}

/// Sets whether the child gets the mappings, around a prepared fork.
pub(crate) fn for_children(gets: bool) {
    if any() {
        table().for_children(gets);
    }
}

/// Forgets all mappings, in a child that has nothing of the pool.
pub(crate) fn forget() {
    let mut table = table();
    *table = Table::new();
    table.note_holes();
    COUNT.store(0, Ordering::Relaxed);
}

/// The count of this process's threads; 0 if it can't be read.
fn threads() -> u64 {
    // SAFETY: a structure of numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let to = (&raw mut stat).expose_provenance() as u64;
    let args = [libc::AT_FDCWD as u64, kernel::PATH, to, 0, 0, 0];
    kernel::with_path(libc::SYS_newfstatat, args, b"/proc/self/task\0");
    std::hint::black_box(stat).st_nlink.saturating_sub(2)
}

/// Refuses a write while the program's stores to the file wait for msync: no write may come between
/// them.
///
/// # Errors
/// EBUSY.
#[inline]
pub(crate) fn refuse_write(ino: Ino) -> Result<(), i32> {
    if !may_wait() || !any() {
        return Ok(());
    }
    refuse_over_stores(ino)
}

#[cold]
fn refuse_over_stores(ino: Ino) -> Result<(), i32> {
    let table = table();
    let stored = |stretch: &Stretch| {
        stretch.apart && stretch.ino == ino && !apart::stored_in(stretch).is_empty()
    };
    match table.within(0, u64::MAX).any(stored) {
        true => Err(libc::EBUSY),
        false => Ok(()),
    }
}
