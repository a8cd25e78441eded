//! `pmfs run --atomic-msync`: a program's stores to a shared mapping stay in the process until
//! msync, and then reach the file all at once: after a crash the file has everything up to some
//! msync, and no later store.
//!
//! Such a mapping is a private one of the file's blocks, so that the kernel copies a page at the
//! first store; its page table tells which were. An msync takes write permission away, hands these
//! pages to the engine, which moves them to fresh blocks, and maps those in place of the copies. A
//! thread that stores meanwhile waits in the handler of the fault for the table's lock.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{O_CLOEXEC, O_RDONLY, PROT_READ, PROT_WRITE};
use pmfs::Fs;

use crate::call::{Answer, errno, kernel_answer};
use crate::descriptors::pool;
use crate::descriptors::spare;
use crate::maps::place::{self, PAGE};
use crate::maps::stretch::Stretch;
use crate::own::config;
use crate::own::kernel;

/// Set once there has been such a mapping; before, no other check is needed.
static ANY: AtomicBool = AtomicBool::new(false);

/// Returns whether a mapping that shares its stores must keep them until msync.
pub(super) fn wanted(writes: bool) -> bool {
    let wanted = writes && config::get().atomic_msync;
    if wanted {
        ANY.store(true, Ordering::Relaxed);
    }
    wanted
}

/// Returns whether a fault may be a store that has to wait.
pub(crate) fn may_wait() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Hands the stores in these stretches of one file to the engine.
pub(super) fn sync(stretches: &[Stretch]) -> Answer {
    let Some(first) = stretches.first() else {
        return Ok(0);
    };
    let fs = pool::attached().ok_or(libc::EIO)?;
    let _closed: Vec<Closed<'_>> = stretches.iter().map(Closed::new).collect();
    let mut pages: Vec<(u64, u64)> = Vec::new();
    for stretch in stretches {
        let at = |address| stretch.at + (address - stretch.start);
        pages.extend(stored_in(stretch).iter().map(|&page| (at(page), page)));
    }
    if pages.is_empty() {
        return Ok(0);
    }
    pages.sort_unstable();
    let bytes: Vec<(u64, &[u8])> = pages
        .iter()
        .map(|&(at, page)| {
            let from = std::ptr::with_exposed_provenance(page as usize);
            // SAFETY: a page of this process that nobody can store to: `Closed` has
            // taken that permission away.
            (at, unsafe {
                std::slice::from_raw_parts(from, PAGE as usize)
            })
        })
        .collect();
    fs.write_pages(first.ino, &bytes).map_err(errno)?;
    for stretch in stretches {
        show_again(fs, stretch);
    }
    Ok(0)
}

/// Maps the blocks in place of their copies. If that fails the copy stays: it has the same bytes,
/// and the next msync hands it over again.
fn show_again(fs: &Fs, stretch: &Stretch) {
    let pages = stored_in(stretch);
    let how = stretch.how();
    let mut rest = pages.as_slice();
    while let Some(&start) = rest.first() {
        let next_to = |(step, page): (usize, &u64)| *page == start + step as u64 * PAGE;
        let count = rest
            .iter()
            .enumerate()
            .take_while(|&pair| next_to(pair))
            .count();
        let (at, len) = (stretch.at + (start - stretch.start), count as u64 * PAGE);
        if let Ok(runs) = fs.blocks(stretch.ino, at, len, 0) {
            let _ = place::blocks(start, (at, len), &runs, &how);
        }
        rest = &rest[count..];
    }
}

/// A stretch that is readable, while no thread can store to it.
struct Closed<'a>(&'a Stretch);

impl<'a> Closed<'a> {
    fn new(stretch: &'a Stretch) -> Closed<'a> {
        protect(stretch, PROT_READ as u64);
        Closed(stretch)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        protect(self.0, self.0.protection);
    }
}

fn protect(stretch: &Stretch, protection: u64) {
    let args = [stretch.start, stretch.len(), protection, 0, 0, 0];
    // SAFETY: addresses of ours; no byte of them changes.
    unsafe { kernel::call(libc::SYS_mprotect, args) };
}

/// Returns whether a store to an address of a stretch must be repeated, because it met an msync.
pub(super) fn was_waiting(stretch: &Stretch, address: u64) -> bool {
    stretch.apart
        && stretch.protection & PROT_WRITE as u64 != 0
        && address < stretch.start + stretch.shown
}

/// The pages of a stretch that are the process's own copies.
pub(super) fn stored_in(stretch: &Stretch) -> Vec<u64> {
    /// Bits of an entry of /proc/self/pagemap: the page is in memory, in swap, a file's.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    let end = stretch.start + stretch.shown.next_multiple_of(PAGE).min(stretch.len());
    let all = (stretch.start..end).step_by(PAGE as usize);
    let Some(entries) = entries(stretch.start, end) else {
        // The page table can't be read: all pages count.
        return all.collect();
    };
    let own = |entry: &u64| entry & SWAPPED != 0 || entry & (PRESENT | OF_FILE) == PRESENT;
    all.zip(&entries)
        .filter(|(_, entry)| own(entry))
        .map(|(page, _)| page)
        .collect()
}

/// The page-table entries between two addresses, from the kernel.
fn entries(start: u64, end: u64) -> Option<Vec<u64>> {
    let count = ((end - start) / PAGE) as usize;
    let mut entries = vec![0u64; count];
    let flags = (O_RDONLY | O_CLOEXEC) as u64;
    let args = [libc::AT_FDCWD as u64, kernel::PATH, flags, 0, 0, 0];
    let _lent = spare::lend();
    let open = || {
        kernel_answer(kernel::with_path(
            libc::SYS_openat,
            args,
            b"/proc/self/pagemap\0",
        ))
    };
    let file = spare::retry(open).ok()?;
    let mut done = 0;
    while done < count {
        let to = entries[done..].as_mut_ptr().expose_provenance() as u64;
        let from = (start / PAGE + done as u64) * 8;
        let bytes = (count - done) as u64 * 8;
        // SAFETY: the kernel fills what is left of the vector.
        let got = unsafe { kernel::call(libc::SYS_pread64, [file, to, bytes, from, 0, 0]) };
        if got < 8 {
            break;
        }
        done += got as usize / 8;
    }
    kernel::plain(libc::SYS_close, &[file]);
    (done == count).then(|| std::hint::black_box(entries))
}
