//! Large holes of files get memory when they are touched, not before
//! (docs/adr/0048-program-memory.md).
//!
//! A mapping shows an empty file there, so that a touch is SIGBUS; before a program sees that
//! signal, a piece of the hole gets memory and is mapped. To the kernel such addresses are bad,
//! too. So while a process has any, every call that is given memory is checked, and the holes that
//! its pointers lead to get memory first: not after it has failed, because a call may have done
//! half by then, and a datagram would be gone.

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

/// Buffers of one call that are looked at, as many as the kernel takes.
const BUFFERS_MAX: u64 = 1024;

impl Table {
    /// Has what was touched show what its file has there; a hole gets memory.
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
        // One page, where the pool has no more.
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
            // Past the end of the file there is no memory to give, either.
            at = if page < end.min(behind) && self.fill(page) {
                page + PAGE
            } else {
                behind
            };
        }
    }
}

/// Gives a piece of a hole memory, and has it shown. Answers how much there was: others
/// may have cut the file by now.
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

/// Before a call of the program's: the memory that it names is there.
#[inline]
pub(crate) fn before(number: i64, args: &[u64; 6]) {
    if LAZY.load(Ordering::Relaxed) != 0 && !is_about_addresses(number) {
        provide_for(number, args);
    }
}

/// Calls that name addresses and do not touch what is there.
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

/// Gives memory to holes that the arguments point to: as many bytes as the next argument says, if
/// that can be a length. The buffers in structures that some calls take get it, too.
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

/// The buffers of an array of struct iovec.
fn buffers(vectors: u64, count: u64) {
    for index in 0..count.min(BUFFERS_MAX) {
        let Ok([address, bytes]) = program::read::<[u64; 2]>(vectors.wrapping_add(index * 16))
        else {
            return;
        };
        provide(address, bytes.min(IO_MAX));
    }
}

/// The buffers of a struct msghdr.
fn message(header: u64) {
    if let Ok([name, name_bytes, vectors, count, control, control_bytes]) =
        program::read::<[u64; 6]>(header)
    {
        provide(name, name_bytes & u64::from(u32::MAX));
        buffers(vectors, count);
        provide(control, control_bytes.min(IO_MAX));
    }
}

/// The buffers of the control blocks of libaio, to which an array points.
fn requests(blocks: u64, count: u64) {
    /// The offsets in a struct iocb of its operation, and of its buffer and bytes, or its vectors
    /// and their number.
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
