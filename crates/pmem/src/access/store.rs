//! Cached and atomic stores.

use std::arch::asm;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::Pmem;
use crate::access::load::load_pair;
use crate::thread;

#[cfg(feature = "record")]
use crate::recorder::record::StoreKind;
#[cfg(not(feature = "record"))]
use crate::recorder::unrecorded::StoreKind;

/// Words of a tally.
pub const TALLY_WORDS: usize = 8;

impl Pmem {
    /// Stores the word at `off` (8-aligned) by one cached mov, with Release order.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn store(&self, off: u64, value: u64) {
        let at = self.word(off);
        if self.may_store(off, &value.to_le_bytes(), StoreKind::Cached) {
            // SAFETY: `word` gave an aligned address in the mapping, which
            // lives as long as `self`; other accesses are atomic or assembly.
            unsafe { AtomicU64::from_ptr(at) }.store(value, Ordering::Release);
        }
    }

    /// Stores the two words at `off` (16-aligned) in one piece, with Release order.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn store_pair(&self, off: u64, value: [u64; 2]) {
        let at = self.pair(off);
        if self.may_store(off, &pair_bytes(value), StoreKind::Atomic) {
            // SAFETY: `pair` gave a 16-aligned address in the mapping.
            unsafe { store_pair(at, value, self.wide_moves) };
        }
    }

    /// Stores `new` at `off` (8-aligned) if the word there is `old`, with SeqCst order.
    ///
    /// # Errors
    /// The word found instead.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn cas(&self, off: u64, old: u64, new: u64) -> Result<u64, u64> {
        let at = self.word(off);
        // SAFETY: as in `store`.
        let word = unsafe { AtomicU64::from_ptr(at) };
        self.note_load(off, 8);
        if crate::RECORDING {
            let found = word.load(Ordering::SeqCst);
            if found != old {
                return Err(found);
            }
            if !self.may_store(off, &new.to_le_bytes(), StoreKind::Atomic) {
                return Ok(old);
            }
        }
        word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Stores `value` at `off` (8-aligned) and returns the old word, with SeqCst order.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn swap(&self, off: u64, value: u64) -> u64 {
        let at = self.word(off);
        // SAFETY: as in `store`.
        let word = unsafe { AtomicU64::from_ptr(at) };
        self.note_load(off, 8);
        if self.may_store(off, &value.to_le_bytes(), StoreKind::Atomic) {
            word.swap(value, Ordering::SeqCst)
        } else {
            word.load(Ordering::SeqCst)
        }
    }

    /// Adds to some of the `WORDS` statistics that begin at `off` (8-aligned). `counts` gives the
    /// index and the amount of each; `alone` says that no other thread or process adds to them. The
    /// order is Relaxed, and the stores are not recorded, so no decision may depend on them.
    ///
    /// Returns the last of the words if `LOOKS`, which costs one load here, since the range is
    /// checked already; else 0.
    #[inline(always)]
    pub fn count<const WORDS: usize, const LOOKS: bool, const N: usize>(
        &self,
        off: u64,
        counts: [(usize, u64); N],
        alone: bool,
    ) -> u64 {
        if crate::RECORDING {
            return 0;
        }
        let first = self.word_range(off, WORDS);
        for (word, more) in counts {
            assert!(word < WORDS);
            // SAFETY: one of the words that were checked; else as in `store`.
            let word = unsafe { AtomicU64::from_ptr(first.add(word)) };
            if alone {
                word.store(
                    word.load(Ordering::Relaxed).wrapping_add(more),
                    Ordering::Relaxed,
                );
            } else if more > 0 {
                word.fetch_add(more, Ordering::Relaxed);
            }
        }
        if !LOOKS {
            return 0;
        }
        // SAFETY: the last of the words that were checked; else as in `load_cached`.
        unsafe { AtomicU64::from_ptr(first.add(WORDS - 1)) }.load(Ordering::Relaxed)
    }

    /// Adds to this thread's tally, as [`Pmem::count`] does: each count is a word's index and the
    /// amount. Returns `false` if the thread has none in this mapping.
    #[inline(always)]
    pub fn tally<const N: usize>(&self, counts: [(usize, u64); N]) -> bool {
        thread::with(|thread| {
            if thread.tally_of.get() != self.tally {
                return false;
            }
            let first: *mut u64 = with_exposed_provenance_mut(thread.tally_at.get());
            for (word, more) in counts {
                assert!(word < TALLY_WORDS);
                // SAFETY: `tally_in` has checked the words in the mapping of this number, and
                // nobody else sets the thread's words. The mapping stays where it is while `self`
                // lives; other accesses are atomic or assembly.
                let word = unsafe { AtomicU64::from_ptr(first.add(word)) };
                let sum = word.load(Ordering::Relaxed).wrapping_add(more);
                word.store(sum, Ordering::Relaxed);
            }
            true
        })
    }

    /// Has the words at `off` (8-aligned) be this thread's tally, until it gets another one, in
    /// this mapping or elsewhere. No other thread may add to them.
    pub fn tally_in(&self, off: u64) {
        let at = self.word_range(off, TALLY_WORDS).expose_provenance();
        thread::with(|thread| {
            thread.tally_of.set(self.tally);
            thread.tally_at.set(at);
        });
    }

    /// Has no thread have a tally in this mapping.
    pub fn end_tallies(&mut self) {
        self.tally = thread::next_tally();
    }

    /// Stores `words` from `off` on (8-aligned) by cached movs in address order.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn write(&self, off: u64, words: &[u64]) {
        let at = self.word_range(off, words.len());
        for (i, word) in words.iter().enumerate() {
            if self.may_store(off + 8 * i as u64, &word.to_le_bytes(), StoreKind::Cached) {
                // SAFETY: `word_range` checked all the words from `at` on.
                unsafe { AtomicU64::from_ptr(at.add(i)) }.store(*word, Ordering::Release);
            }
        }
    }

    /// Stores `bytes` from `off` on, at any alignment: byte by byte up to a word, whole words, byte
    /// by byte again. Neighbouring bytes are not stored to. This suits up to some hundred bytes.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn write_bytes(&self, off: u64, bytes: &[u8]) {
        let at = self.range(off, bytes.len() as u64);
        let (head, rest) = bytes.split_at(bytes.len().min(off.wrapping_neg() as usize & 7));
        let (words, tail) = rest.as_chunks::<8>();
        if !head.is_empty() && self.may_store(off, head, StoreKind::Cached) {
            // SAFETY: the first head.len() bytes of the range that was checked.
            unsafe { store_each(at, head) };
        }
        let mut done = head.len();
        for word in words {
            if self.may_store(off + done as u64, word, StoreKind::Cached) {
                // SAFETY: within the range that was checked; off + done is a
                // multiple of 8 and the base is page-aligned.
                unsafe { AtomicU64::from_ptr(at.add(done).cast()) }
                    .store(u64::from_le_bytes(*word), Ordering::Release);
            }
            done += 8;
        }
        if !tail.is_empty() && self.may_store(off + done as u64, tail, StoreKind::Cached) {
            // SAFETY: the last tail.len() bytes of the range that was checked.
            unsafe { store_each(at.add(done), tail) };
        }
    }
}

#[inline(always)]
fn pair_bytes(value: [u64; 2]) -> [u8; 16] {
    let both = u128::from(value[0]) | u128::from(value[1]) << 64;
    both.to_le_bytes()
}

/// Byte stores.
///
/// # Safety
/// `at..at + bytes.len()` is pool memory.
#[inline]
unsafe fn store_each(at: *mut u8, bytes: &[u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise; other accesses to the pool are atomic
        // or assembly.
        unsafe { AtomicU8::from_ptr(at.add(i)) }.store(*byte, Ordering::Release);
    }
}

/// Stores 16 bytes in one piece.
///
/// # Safety
/// `at` is 16-aligned pool memory.
#[inline(always)]
unsafe fn store_pair(at: *mut u64, value: [u64; 2], wide_moves: bool) {
    if wide_moves {
        // SAFETY: the caller's promise. An aligned movdqa is atomic on every
        // CPU with AVX (see cpu.rs). Memory is clobbered: Release.
        unsafe {
            asm!(
                "movq {both}, {low}",
                "movq {other}, {high}",
                "punpcklqdq {both}, {other}",
                "movdqa xmmword ptr [{at}], {both}",
                at = in(reg) at,
                low = in(reg) value[0],
                high = in(reg) value[1],
                both = out(xmm_reg) _,
                other = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    // SAFETY: the caller's promise.
    let mut old = unsafe { load_pair(at, false) };
    loop {
        let (low, high): (u64, u64);
        let same: u8;
        // SAFETY: as above. rbx is the compiler's: swapped in and out;
        // the others are named so that none of them is rbx.
        unsafe {
            asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "sete r8b",
                "mov rbx, rsi",
                in("rdi") at,
                inout("rsi") value[0] => _,
                out("r8b") same,
                in("rcx") value[1],
                inout("rax") old[0] => low,
                inout("rdx") old[1] => high,
                options(nostack),
            );
        }
        if same != 0 {
            return;
        }
        old = [low, high];
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::Pmem;

    /// Goal: pairs stored by two threads are never seen mixed, with either instruction.
    #[test]
    fn pairs_are_stored_and_loaded_whole() {
        for wide_moves in [true, false] {
            let mut mem = Pmem::private(4096);
            mem.wide_moves = wide_moves && mem.wide_moves;
            let mem = &mem;
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for start in [0, 1] {
                    let stop = &stop;
                    scope.spawn(move || {
                        let mut i = start;
                        while !stop.load(Ordering::Relaxed) {
                            mem.store_pair(48, [i, !i]);
                            i += 2;
                        }
                    });
                }
                mem.store_pair(48, [0, !0]);
                let mut seen = std::collections::HashSet::new();
                let mut looks = 0;
                // The loop ends once the threads have been seen to run at the same time.
                while looks < 300_000 || seen.len() < 1000 {
                    looks += 1;
                    let [low, high] = mem.load_pair(48);
                    if low != !high {
                        stop.store(true, Ordering::Relaxed);
                        panic!("torn: {low:#x} {high:#x}, wide {wide_moves}");
                    }
                    seen.insert(low);
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }

    /// Goal: a thread adds to its own words of the mapping in which it got them, and to no others.
    /// Method: two mappings and two threads in turn.
    #[test]
    fn a_tally_is_a_threads_and_a_mappings() {
        let (mut one, other) = (Pmem::private(4096), Pmem::private(4096));
        assert!(!one.tally([(0, 1)]));
        one.tally_in(64);
        assert!(one.tally([(0, 1), (7, u64::MAX)]) && one.tally([(7, 2)]));
        assert!(!other.tally([(0, 1)]));
        let apart = std::thread::scope(|scope| scope.spawn(|| one.tally([(0, 1)])).join());
        assert!(!apart.expect("the thread"));
        assert_eq!([one.load(64), one.load(120), other.load(64)], [1, 1, 0]);
        other.tally_in(0);
        assert!(other.tally([(1, 3)]) && !one.tally([(1, 3)]));
        one.tally_in(128);
        one.end_tallies();
        assert!(!one.tally([(1, 3)]));
        assert_eq!([one.load(136), other.load(8)], [0, 3]);
    }

    #[test]
    #[should_panic = "outside the pool"]
    fn a_tally_is_inside() {
        Pmem::private(4096).tally_in(4096 - 56);
    }
}
