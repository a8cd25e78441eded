//! Mapping at given addresses: blocks of the pool, or an empty file.

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE,
    MAP_SYNC, PROT_NONE,
};
use pmem::MediumKind;
use pmfs::BlockRun;

use crate::call::{Answer, kernel_answer};
use crate::descriptors::kept;
use crate::descriptors::pool;
use crate::own::config;
use crate::own::kernel;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// The alignment with which the kernel can map large pages, unless all pages of the medium are
/// larger.
const LARGE: u64 = 2 << 20;

/// The page size of the pool's medium: 4 KiB; on hugetlbfs and most DAX devices 2 MiB or 1 GiB, and
/// no less.
pub(super) fn page() -> u64 {
    pool::attached().map_or(PAGE, |fs| fs.mapping().medium().page_size)
}

/// Returns whether stores are durable once they are flushed from the caches: MAP_SYNC is available,
/// or its promise holds anyway.
pub(super) fn is_synchronous() -> bool {
    let kind = pool::attached().map(|fs| fs.mapping().medium().kind);
    matches!(kind, Some(MediumKind::FsDax | MediumKind::DevDax))
}

/// Returns whether all of these are multiples of the medium's page size.
pub(super) fn are_whole(all: &[u64]) -> bool {
    let page = page();
    all.iter().all(|bytes| bytes.is_multiple_of(page))
}

/// Returns whether `bytes` of a file can be mapped as its blocks lie.
pub(super) fn fits(bytes: u64, runs: &[BlockRun]) -> bool {
    let whole = |run: &BlockRun| are_whole(&[run.at, run.off, run.len]);
    page() == PAGE || runs.iter().all(whole) && runs.iter().map(|run| run.len).sum::<u64>() == bytes
}

/// The arguments of a mapping.
pub(super) struct How {
    pub protection: u64,
    pub shared: bool,
    /// MAP_POPULATE and MAP_LOCKED.
    pub more: u64,
}

/// mmap(2).
fn map(at: u64, bytes: u64, protection: u64, flags: u64, file: i32, from: u64) -> Answer {
    let args = [at, bytes, protection, flags, file as i64 as u64, from];
    // SAFETY: addresses that were just reserved, or that the program says are to be replaced.
    kernel_answer(unsafe { kernel::call(libc::SYS_mmap, args) })
}

/// Sets whether a child forked later gets the memory at these addresses.
pub(super) fn for_children(at: u64, bytes: u64, gets: bool) {
    let advice = if gets {
        libc::MADV_DOFORK
    } else {
        libc::MADV_DONTFORK
    };
    // SAFETY: addresses of ours; no byte of them changes.
    unsafe { kernel::call(libc::SYS_madvise, [at, bytes, advice as u64, 0, 0, 0]) };
}

/// Unmaps these addresses.
pub(super) fn remove(at: u64, bytes: u64) {
    // SAFETY: addresses of ours, or that the program gives up.
    unsafe { kernel::call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]) };
}

/// Reserves addresses: where the program says, else where `first`, a place in the pool, can be
/// mapped with large pages.
pub(super) fn reserve(at: u64, bytes: u64, flags: u64, first: Option<u64>) -> Answer {
    const WHERE: u64 = (MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT) as u64;
    let kind = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE) as u64 | flags & WHERE;
    let free = at == 0 && flags & WHERE == 0;
    let large = LARGE.max(page());
    let Some(first) = first.filter(|_| free && bytes >= large) else {
        return map(at, bytes, PROT_NONE as u64, kind, -1, 0);
    };
    let room = map(0, bytes + large, PROT_NONE as u64, kind, -1, 0)?;
    let before = first.wrapping_sub(room) % large;
    let start = room + before;
    if before > 0 {
        remove(room, before);
    }
    if before < large {
        remove(start + bytes, large - before);
    }
    Ok(start)
}

/// Maps the bytes `at..at + len` of a file with these blocks at addresses from `to` on. A child
/// forked without the library has no pin, so it does not get this memory.
pub(super) fn blocks(to: u64, (at, len): (u64, u64), runs: &[BlockRun], how: &How) -> Answer {
    kept::POOL.with(pool_file, |file| blocks_of(file, to, (at, len), runs, how))
}

fn blocks_of(file: i32, to: u64, (at, len): (u64, u64), runs: &[BlockRun], how: &How) -> Answer {
    let kind = match pool::attached().map(|fs| fs.mapping().medium().kind) {
        _ if !how.shared => MAP_PRIVATE,
        // The pool itself is mapped in the same way.
        Some(MediumKind::FsDax) => MAP_SHARED_VALIDATE | MAP_SYNC,
        _ => MAP_SHARED,
    };
    let flags = (kind | MAP_FIXED) as u64 | how.more;
    let mut end = to;
    let mapped = runs.iter().try_for_each(|run| {
        let bytes = run.len.min(at + len - run.at);
        let there = to + (run.at - at);
        map(there, bytes, how.protection, flags, file, run.off)?;
        end = there + bytes;
        Ok(())
    });
    // The pieces before a failed one are included.
    for_children(to, end - to, false);
    mapped.map(|()| to)
}

/// Maps an empty file at these addresses.
pub(super) fn nothing(at: u64, bytes: u64, protection: u64) -> Answer {
    let flags = (MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED) as u64;
    kept::EMPTY.with(empty_file, |file| {
        map(at, bytes, protection, flags, file, 0)
    })?;
    for_children(at, bytes, false);
    Ok(at)
}

/// The pool's file.
fn pool_file() -> Result<i32, i32> {
    let fs = pool::attached().ok_or(libc::EIO)?;
    let mapping = fs.mapping();
    let path = [config::get().pool.as_slice(), b"\0"].concat();
    let flags = (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY) as u64;
    let here = libc::AT_FDCWD as u64;
    let args = [here, kernel::PATH, flags, 0, 0, 0];
    let file = kernel_answer(kernel::with_path(libc::SYS_openat, args, &path))?;
    let identity = mapping.identity();
    if kernel::pool_at(file as u32) == Some((identity.dev, identity.ino)) {
        return Ok(file as i32);
    }
    kernel::plain(libc::SYS_close, &[file]);
    Err(libc::ENODEV)
}

/// The empty file.
fn empty_file() -> Result<i32, i32> {
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let args = [kernel::PATH, flags, 0, 0, 0, 0];
    let file = kernel_answer(kernel::with_path(libc::SYS_memfd_create, args, b"pmfs\0"))?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    let command = libc::F_ADD_SEALS as u64;
    kernel::plain(libc::SYS_fcntl, &[file, command, seals as u64]);
    Ok(file as i32)
}
