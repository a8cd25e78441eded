//! Mappings of the pool's own blocks (docs/adr/0010-pins.md): which addresses show which bytes of
//! which file.
//!
//! A mapping is one of the pool's file, piece by piece as the file's blocks lie. Their file
//! is pinned in the pool as long as any address shows it. What lies behind its end, or was
//! not there yet, shows an empty file, so that a touch is SIGBUS, as it has to be; before a
//! program sees that signal it is looked whether the file has become longer since.
//!
//! What can't be had so is mapped through the mount: a file of which a mount's kernel
//! has pages, one whose blocks lie too scattered, and on a medium with large pages
//! (hugetlbfs, most DAX devices) all but shared memory of whole ones.

mod apart;
mod calls;
mod lazy;
mod locked;
pub(crate) mod mapped_size;
mod place;
mod rarer;
mod table;

pub(crate) use apart::{may_wait, refuse_write};
pub(crate) use calls::{
    advise, change_protection, copied, load, may_be_loading, mmap, mmap_of_others, move_mapping,
    sync, unmap,
};
pub(crate) use lazy::{LAZY, before};
pub(crate) use locked::lock_all;
pub(crate) use rarer::{advise_by_vectors, attach_segment, give_to_pipe, remap, seal};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmfs::Ino;

use crate::call::Verdict;
use crate::descriptors::pool;
use crate::own::kernel;
use crate::thread::Inner;
use table::Table;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// How many stretches of addresses there are; nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TABLE: Mutex<Table> = Mutex::new(Table::new());

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether anything is mapped.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// A number that no kernel has a call for; it is made by [`fault`], with a word that
/// nobody else uses.
pub(crate) const FAULT: i64 = libc::SYS_vserver;
const WORD: u64 = 0x706d_6673_2066_696c;
/// Touches in a row of an address that shows its file, by one thread, which fail all
/// the same: then the program is told.
const FAULTS_MAX: u32 = 16;

/// A touch of `address` was SIGBUS, or a store SIGSEGV. Whether the mapping takes it
/// now. On a thread that is in the program's code, on whatever stack: so the work is
/// done behind a call like any other.
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

/// The other end of [`fault`].
pub(crate) fn serve_fault(args: [u64; 6], room: &mut Inner) -> Verdict {
    if args[1] != WORD {
        return Verdict::Pass;
    }
    let address = args[0];
    let (last, times) = room.fault;
    let times = if last == address { times + 1 } else { 1 };
    room.fault = (address, times);
    let mut table = table();
    // Another thread may have been here first. Where it stays in vain, the medium is gone.
    let again = times < FAULTS_MAX && table.is_shown(address);
    let shown = again || table.serves(address);
    Verdict::done(if shown { Ok(0) } else { Err(libc::EFAULT) })
}

/// The program's memory was not there for a call: whether some of it is now.
#[cold]
pub(crate) fn follow_all() -> bool {
    // A store that met an msync has waited for it here.
    table().follow_all() || may_wait()
}

/// The file may have another size. Whether its own blocks are what is mapped.
pub(crate) fn follow(ino: Ino) -> bool {
    any() && table().follow(ino)
}

/// At the end of the process. `false`: other threads may still store to what is mapped,
/// so the pool is left as by a process that was killed, whose pins end with its memory.
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

/// Around a fork that was prepared: the child gets what is mapped.
pub(crate) fn for_children(gets: bool) {
    if any() {
        table().for_children(gets);
    }
}

/// In a child that has nothing of the pool.
pub(crate) fn forget() {
    let mut table = table();
    *table = Table::new();
    table.note_lazy();
    COUNT.store(0, Ordering::Relaxed);
}

/// Of this process; 0 if it can't be told.
fn threads() -> u64 {
    // SAFETY: a structure of numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let to = (&raw mut stat).expose_provenance() as u64;
    let args = [libc::AT_FDCWD as u64, kernel::PATH, to, 0, 0, 0];
    kernel::with_path(libc::SYS_newfstatat, args, b"/proc/self/task\0");
    std::hint::black_box(stat).st_nlink.saturating_sub(2)
}

/// The end of a file's pin and hold, once nothing shows it.
fn let_go(ino: Ino) {
    if let Some(fs) = pool::attached() {
        let _ = fs.unpin(ino);
        let _ = fs.release(ino);
    }
}
