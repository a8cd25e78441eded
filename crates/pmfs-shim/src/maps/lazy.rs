//! Large holes of files, which get memory when they are touched and not before
//! (docs/adr/0048-program-memory.md).
//!
//! The mapping shows an empty file there, so that a touch is SIGBUS. Before the program sees that
//! signal, a piece of the hole gets memory and is mapped. The kernel can't use such addresses
//! either. So while a process has any, each call with pointers to memory is checked, and the holes
//! that they name get memory before the call: after a failure it would be too late, because half of
//! the call may be done, and a datagram would be gone.

use std::sync::atomic::Ordering;

use libc::MAP_POPULATE;
use pmfs::Fs;

use crate::call::class::numbers;
use crate::descriptors::pool;
use crate::maps::holes::{HIGHEST, LAZY, LOWEST};
use crate::maps::place::{self, PAGE};
use crate::maps::shown::{FAULT, table};
use crate::maps::stretch::Stretch;
use crate::maps::table::Table;
use crate::program::{self, IO_MAX};

/// The most buffers of one call that are examined, as many as the kernel takes.
const BUFFERS_MAX: u64 = 1024;

impl Table {
    /// Lets the touched page show its part of the file; a hole gets memory.
    pub fn fill(&mut self, page: u64) -> bool {
        let found = self.within(page, page + 1).find(|found| found.waits());
        let (Some(stretch), Some(fs)) = (found.cloned(), pool::attached()) else {
            return false;
        };
        let Ok(attr) = fs.getattr(stretch.ino) else {
            return false;
        };
        let Some(piece) = stretch.piece(page, attr.size) else {
            return false;
        };
        // The pool has no space for more than one page.
        let touched = page - stretch.start;
        let filled = [piece, (touched, touched + PAGE)]
            .into_iter()
            .find_map(|piece| show_piece(fs, &stretch, piece));
        let Some((from, to)) = filled else {
            return false;
        };
        self.shows_now(stretch.start + from, stretch.start + to);
        (from..to).contains(&touched)
    }

    /// Fills ([`fill`](Self::fill)) all that lies between two addresses.
    pub fn fill_between(&mut self, start: u64, end: u64) {
        let mut at = start / PAGE * PAGE;
        while at < end {
            let next = self.within(at, end).find(|found| found.waits());
            let Some((shown, behind)) = next.map(|next| (next.start + next.shown, next.end)) else {
                return;
            };
            let page = at.max(shown);
            // There is no memory to give behind the end of the file.
            at = if page < end.min(behind) && self.fill(page) {
                page + PAGE
            } else {
                behind
            };
        }
    }
}

/// Gives a piece of a hole memory and shows it. Returns the bytes shown, which may be fewer if
/// others have truncated the file.
fn show_piece(fs: &Fs, stretch: &Stretch, (from, to): (u64, u64)) -> Option<(u64, u64)> {
    let (at, len) = (stretch.at + from, to - from);
    let runs = fs.blocks(stretch.ino, at, len, len).ok()?;
    let there = runs.last()?.at + runs.last()?.len - at;
    let how = place::How {
        more: MAP_POPULATE as u64,
        ..stretch.how()
    };
    place::blocks(stretch.start + from, (at, len), &runs, &how).ok()?;
    Some((from, from + there.min(len)))
}

/// Provides the memory that a call of the program names.
#[inline]
pub(crate) fn before(number: i64, args: &[u64; 6]) {
    if LAZY.load(Ordering::Relaxed) != 0 && !is_about_addresses(number) {
        provide_for(number, args);
    }
}

/// Returns whether a call names addresses without touching their memory.
fn is_about_addresses(number: i64) -> bool {
    let calls = [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_pkey_mprotect,
        libc::SYS_mremap,
        libc::SYS_msync,
        libc::SYS_madvise,
        libc::SYS_mincore,
        libc::SYS_mbind,
        libc::SYS_remap_file_pages,
        libc::SYS_process_madvise,
        libc::SYS_mseal,
        libc::SYS_shmat,
        libc::SYS_munlock,
        FAULT,
    ];
    calls.contains(&number)
}

/// Gives memory to holes that the arguments point to, for as many bytes as the next argument says,
/// if it can be a length. The buffers in structures of some calls get memory too.
#[cold]
fn provide_for(number: i64, args: &[u64; 6]) {
    for (at, &address) in args.iter().enumerate() {
        let bytes = args.get(at + 1).filter(|&&bytes| bytes <= IO_MAX);
        provide(address, bytes.copied().unwrap_or(0).max(PAGE));
    }
    match number {
        libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_vmsplice
        | libc::SYS_process_vm_readv
        | libc::SYS_process_vm_writev => buffers(args[1], args[2]),
        libc::SYS_sendmsg | libc::SYS_recvmsg => message(args[1]),
        libc::SYS_sendmmsg | libc::SYS_recvmmsg => {
            /// Bytes of struct mmsghdr.
            const EACH: u64 = 64;
            (0..args[2].min(BUFFERS_MAX)).for_each(|index| message(args[1] + index * EACH));
        }
        numbers::SYS_io_submit => requests(args[2], args[1]),
        _ => {}
    }
}

/// Provides the buffers of an array of struct iovec.
fn buffers(vectors: u64, count: u64) {
    for index in 0..count.min(BUFFERS_MAX) {
        let Ok([address, bytes]) = program::read::<[u64; 2]>(vectors.wrapping_add(index * 16))
        else {
            return;
        };
        provide(address, bytes.min(IO_MAX));
    }
}

/// Provides the buffers of a struct msghdr.
fn message(header: u64) {
    if let Ok([name, name_bytes, vectors, count, control, control_bytes]) =
        program::read::<[u64; 6]>(header)
    {
        provide(name, name_bytes & u64::from(u32::MAX));
        buffers(vectors, count);
        provide(control, control_bytes.min(IO_MAX));
    }
}

/// Provides the buffers of an array of pointers to libaio's control blocks.
fn requests(blocks: u64, count: u64) {
    /// The offsets in a struct iocb of the operation, of the buffer and its bytes, or of the
    /// vectors and their count.
    const OPERATION: u64 = 16;
    const BUFFER: u64 = 24;
    const VECTORED: [u16; 2] = [7, 8];
    for index in 0..count.min(BUFFERS_MAX) {
        let Ok(block) = program::read::<u64>(blocks.wrapping_add(index * 8)) else {
            return;
        };
        let operation = program::read::<u16>(block.wrapping_add(OPERATION));
        let buffer = program::read::<[u64; 2]>(block.wrapping_add(BUFFER));
        match (operation, buffer) {
            (Ok(operation), Ok([vectors, count])) if VECTORED.contains(&operation) => {
                buffers(vectors, count);
            }
            (Ok(_), Ok([address, bytes])) => provide(address, bytes.min(IO_MAX)),
            _ => {}
        }
    }
}

fn provide(address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    let meets = address < HIGHEST.load(Ordering::Relaxed) && end > LOWEST.load(Ordering::Relaxed);
    if meets {
        table().fill_between(address, end);
    }
}
