//! Large holes of files get memory when they are touched, not before
//! (docs/adr/0048-program-memory.md).
//!
//! What a mapping shows there is an empty file, so that a touch is SIGBUS; before a
//! program sees that signal, a piece of the hole gets memory and is mapped. To the kernel
//! such addresses are bad, too. So while a process has any, every call that is given
//! memory is looked at, and what its pointers lead to gets memory first: not after it has
//! failed, because a call may have done half by then, and a datagram would be gone.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::MAP_POPULATE;
use pmfs::{BlockRun, Fs};

use super::table::{Stretch, Table};
use super::{PAGE, place, table};
use crate::call::class::numbers;
use crate::descriptors::pool;
use crate::maps;
use crate::program::{self, IO_MAX};

/// Not 0: there are such holes, and the entry (`entry`) passes nothing on without a look at it.
pub(crate) static LAZY: AtomicU32 = AtomicU32::new(0);
/// They lie between these addresses.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// Bytes of holes that get memory when they are mapped: less is not worth a fault.
pub(super) const AT_ONCE: u64 = 2 << 20;
/// Bytes that get it then where nothing can get it later.
pub(super) const NEVER_LATER_MAX: u64 = 256 << 20;
/// Bytes of a hole that get memory at a touch: for one here and there, and for who goes
/// on where he was. That is what large pages take.
const LEAST: u64 = 64 << 10;
const MOST: u64 = 2 << 20;
/// Pieces of a file, at most: a process may have 65,530 mappings, and a piece between
/// holes takes two.
const PIECES: u64 = 16384;
/// Buffers of one call that are looked at, as many as the kernel takes.
const BUFFERS_MAX: u64 = 1024;

impl Stretch {
    /// Whether some of it waits for a touch.
    fn waits(&self) -> bool {
        self.lazy && self.shown < self.len()
    }

    /// The piece that gets memory when a page is touched: bytes from the start. `size`:
    /// of the file.
    fn piece(&self, page: u64, size: u64) -> Option<(u64, u64)> {
        let there = size.next_multiple_of(PAGE).saturating_sub(self.at);
        let (there, touched) = (there.min(self.len()), page - self.start);
        if touched >= there || touched < self.shown {
            return None;
        }
        let at = self.at + touched;
        let grain = (size / PIECES).next_power_of_two().clamp(LEAST, MOST);
        let from = (at / grain * grain).saturating_sub(self.at);
        let from = from.max(self.shown);
        let goes_on = from > 0 && from == self.shown;
        let grain = if goes_on { MOST } else { grain };
        let to = (at / grain + 1) * grain - self.at;
        Some((from, to.min(there)))
    }

    /// Itself in parts, each of which begins with blocks, shows those that lie in a row
    /// in the file, and ends with a hole.
    pub fn in_parts(&self, runs: &[BlockRun]) -> Vec<Stretch> {
        let mut parts: Vec<Stretch> = vec![Stretch {
            shown: 0,
            ..self.clone()
        }];
        for run in runs {
            let (from, to) = (
                run.at - self.at,
                (run.at + run.len - self.at).min(self.len()),
            );
            let last = parts.len() - 1;
            let last = &mut parts[last];
            let start = self.start + from;
            if start == last.start + last.shown {
                last.shown = self.start + to - last.start;
                continue;
            }
            let mut next = last.part(start, last.end);
            next.shown = to - from;
            last.end = start;
            parts.push(next);
        }
        parts
    }
}

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

    /// As [`fill`](Self::fill), for all that lies between two addresses.
    pub fn fill_between(&mut self, start: u64, end: u64) {
        let mut at = start / PAGE * PAGE;
        while at < end {
            let next = self.within(at, end).find(|found| found.waits());
            let Some((shown, behind)) = next.map(|next| (next.start + next.shown, next.end)) else {
                return;
            };
            let page = at.max(shown);
            // Behind the end of the file, too, there is nothing to be had.
            at = if page < end.min(behind) && self.fill(page) {
                page + PAGE
            } else {
                behind
            };
        }
    }

    /// Keeps in mind where such holes are.
    pub(super) fn note_lazy(&self) {
        let waiting = || self.within(0, u64::MAX).filter(|stretch| stretch.waits());
        let lowest = waiting().map(|stretch| stretch.start).min();
        let highest = waiting().map(|stretch| stretch.end).max();
        LOWEST.store(lowest.unwrap_or(u64::MAX), Ordering::Relaxed);
        HIGHEST.store(highest.unwrap_or(0), Ordering::Relaxed);
        LAZY.store(u32::from(lowest.is_some()), Ordering::Relaxed);
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
        ..place::How::of(stretch)
    };
    place::blocks(stretch.start + from, (at, len), &runs, &how).ok()?;
    Some((from, from + there.min(len)))
}

/// There is one more.
pub(super) fn note(stretch: &Stretch) {
    if stretch.waits() {
        LOWEST.fetch_min(stretch.start, Ordering::Relaxed);
        HIGHEST.fetch_max(stretch.end, Ordering::Relaxed);
        LAZY.store(1, Ordering::Relaxed);
    }
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
        maps::FAULT,
    ];
    calls.contains(&number)
}

/// What the arguments point to: as many bytes as the next one says, if that can be a
/// length. And what the structures do that some calls are given.
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

/// Those of an array of struct iovec.
fn buffers(vectors: u64, count: u64) {
    for index in 0..count.min(BUFFERS_MAX) {
        let Ok([address, bytes]) = program::read::<[u64; 2]>(vectors.wrapping_add(index * 16))
        else {
            return;
        };
        provide(address, bytes.min(IO_MAX));
    }
}

/// Those of a struct msghdr.
fn message(header: u64) {
    if let Ok([name, name_bytes, vectors, count, control, control_bytes]) =
        program::read::<[u64; 6]>(header)
    {
        provide(name, name_bytes & u64::from(u32::MAX));
        buffers(vectors, count);
        provide(control, control_bytes.min(IO_MAX));
    }
}

/// Those of the control blocks of libaio, to which an array points.
fn requests(blocks: u64, count: u64) {
    /// Where a struct iocb has its operation; and its buffer and bytes, or its vectors
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(at: u64, bytes: u64, shown: u64) -> Stretch {
        Stretch {
            start: 1 << 40,
            end: (1 << 40) + bytes,
            ino: 7,
            at,
            shown,
            protection: 3,
            shared: true,
            writes: true,
            apart: false,
            lazy: true,
        }
    }

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;

    fn piece(stretch: &Stretch, touched: u64, size: u64) -> Option<(u64, u64)> {
        stretch.piece(stretch.start + touched, size)
    }

    #[test]
    fn a_piece_is_small_here_and_there_and_large_where_one_goes_on() {
        let hole = stretch(0, G, 0);
        assert_eq!(piece(&hole, 0, G), Some((0, 64 * K)));
        assert_eq!(piece(&hole, 100 * K, G), Some((64 * K, 128 * K)));
        // 32 GiB in pieces of 2 MiB.
        assert_eq!(
            piece(&stretch(0, 32 * G, 0), 100 * K, 32 * G),
            Some((0, 2 * M))
        );
        let begun = stretch(0, G, 64 * K);
        assert_eq!(piece(&begun, 64 * K, G), Some((64 * K, 2 * M)));
        assert_eq!(piece(&begun, 192 * K, G), Some((192 * K, 256 * K)));
        let behind = stretch(3 * M + 4 * K, G, 0);
        assert_eq!(piece(&behind, 0, G), Some((0, 60 * K)));
    }

    #[test]
    fn a_piece_ends_with_the_file_and_with_the_mapping() {
        let hole = stretch(0, M, 0);
        assert_eq!(piece(&hole, 32 * K, 33 * K), Some((0, 36 * K)));
        assert_eq!(piece(&hole, 36 * K, 33 * K), None);
        assert_eq!(
            piece(&stretch(0, 20 * K, 4 * K), 8 * K, G),
            Some((4 * K, 20 * K))
        );
        // Shown already.
        assert_eq!(piece(&stretch(0, M, 64 * K), 0, M), None);
    }

    #[test]
    fn parts_begin_with_blocks_and_end_with_holes() {
        let all = stretch(M, M, 0);
        let run = |at, len| BlockRun {
            at: M + at,
            off: 40 * M + at,
            len,
        };
        let parts = all.in_parts(&[
            run(8 * K, 4 * K),
            run(12 * K, 4 * K),
            run(64 * K, 8 * K),
            run(M - 4 * K, 8 * K),
        ]);
        let shape: Vec<(u64, u64, u64)> = parts
            .iter()
            .map(|part| (part.at - M, part.len(), part.shown))
            .collect();
        let want = [
            (0, 8 * K, 0),
            (8 * K, 56 * K, 8 * K),
            (64 * K, M - 68 * K, 8 * K),
            (M - 4 * K, 4 * K, 4 * K),
        ];
        assert_eq!(shape, want);
        assert_eq!(all.in_parts(&[run(0, M)]), [stretch(M, M, M)]);
        assert_eq!(all.in_parts(&[]), [stretch(M, M, 0)]);
    }
}
