//! The holes of mapped files that wait for memory, and the pieces in which they get it (`lazy.rs`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pmfs::BlockRun;

use crate::maps::place::{self, PAGE};
use crate::maps::stretch::Stretch;

/// Not 0 if there are such holes: the entry then checks each call before passing it on.
pub(crate) static LAZY: AtomicU32 = AtomicU32::new(0);
/// The addresses between which they lie.
pub(super) static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
pub(super) static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// The bytes of holes that get memory at once: fewer are not worth a fault.
const AT_ONCE: u64 = 2 << 20;
/// The bytes of holes that get memory at once where they can't get it later.
const NEVER_LATER_MAX: u64 = 256 << 20;
/// The bytes of a hole that get memory at a touch: LEAST for a scattered touch, MOST for one that
/// continues the last and so deserves large pages.
const LEAST: u64 = 64 << 10;
const MOST: u64 = 2 << 20;
/// The most pieces of a file. A process may have 65,530 mappings, and a piece between holes takes
/// two.
const PIECES: u64 = 16384;

impl Stretch {
    /// Returns whether a part of it waits for a touch.
    pub fn waits(&self) -> bool {
        self.lazy && self.shown < self.len()
    }

    /// The piece that gets memory when a page is touched, in bytes from the start. `size` is the
    /// file's.
    pub fn piece(&self, page: u64, size: u64) -> Option<(u64, u64)> {
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

    /// Splits the stretch into parts that begin with blocks, show those that are adjacent in the
    /// file, and end with a hole.
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

    /// The bytes of holes that get memory when they are mapped, or have become part of the file.
    pub fn at_once(&self) -> u64 {
        match self.may_be_lazy() {
            true => AT_ONCE,
            // A medium with large pages gives whole ones.
            false if place::page() > PAGE => u64::MAX,
            false => NEVER_LATER_MAX,
        }
    }
}

/// Notes another stretch with holes.
pub(super) fn note(stretch: &Stretch) {
    if stretch.waits() {
        LOWEST.fetch_min(stretch.start, Ordering::Relaxed);
        HIGHEST.fetch_max(stretch.end, Ordering::Relaxed);
        LAZY.store(1, Ordering::Relaxed);
    }
}

/// Notes where the holes of these stretches are.
pub(super) fn note_all<'a>(all: impl Iterator<Item = &'a Stretch> + Clone) {
    let waiting = all.filter(|stretch| stretch.waits());
    let lowest = waiting.clone().map(|stretch| stretch.start).min();
    let highest = waiting.map(|stretch| stretch.end).max();
    LOWEST.store(lowest.unwrap_or(u64::MAX), Ordering::Relaxed);
    HIGHEST.store(highest.unwrap_or(0), Ordering::Relaxed);
    LAZY.store(u32::from(lowest.is_some()), Ordering::Relaxed);
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
        // The page is shown already.
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
