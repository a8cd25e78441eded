//! Loads. Any process may store to the same place at the same time.

use std::arch::asm;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::access::copy;
use crate::cpu::LINE;
use crate::error::BadAddress;
use crate::{Fault, Pmem, Side, emulate};

/// Bytes copied between one group of prefetches and the next.
const STEP: usize = 1024;

impl Pmem {
    /// The word at `off` (8-aligned), loaded with Acquire order.
    #[inline]
    pub fn load(&self, off: u64) -> u64 {
        if emulate::active() != 0 {
            self.await_words(off, 8);
        }
        self.load_cached(off)
    }

    /// Loads as [`Pmem::load`] does, for a line that is in a cache. Emulation never charges for the
    /// load.
    #[inline(always)]
    pub fn load_cached(&self, off: u64) -> u64 {
        let at = self.word(off);
        self.note_load(off, 8);
        // SAFETY: `word` gave an aligned address in the mapping, which lives
        // as long as `self`; all other accesses to it are atomic or assembly.
        unsafe { AtomicU64::from_ptr(at) }.load(Ordering::Acquire)
    }

    /// Loads as [`Pmem::load_cached`] does, at an unchecked offset. Returns 0 where the pool has no
    /// such word.
    #[inline(always)]
    pub fn load_if_there(&self, off: u64) -> u64 {
        if self.has_word(off) {
            self.load_cached(off)
        } else {
            0
        }
    }

    /// The two words at `off` (16-aligned), loaded in one piece with Acquire order.
    #[inline]
    pub fn load_pair(&self, off: u64) -> [u64; 2] {
        let at = self.pair(off);
        if emulate::active() != 0 {
            self.await_words(off, 16);
        }
        self.note_load(off, 16);
        // SAFETY: `pair` gave a 16-aligned address in the mapping.
        unsafe { load_pair(at, self.wide_moves) }
    }

    /// `W` words from `off` on (8-aligned), each loaded atomically, in address order.
    #[inline]
    pub fn read<const W: usize>(&self, off: u64) -> [u64; W] {
        let at = self.word_range(off, W);
        if W > 0 && emulate::active() != 0 {
            self.await_words(off, 8 * W as u64);
        }
        self.note_load(off, 8 * W as u64);
        // Acquire costs nothing on x86, and stops the compiler from reordering.
        std::array::from_fn(|i| {
            // SAFETY: `word_range` checked all W aligned words from `at` on.
            unsafe { AtomicU64::from_ptr(at.add(i)) }.load(Ordering::Acquire)
        })
    }

    /// Copies `to.len()` bytes from `off` on, at any alignment. Each byte that others store
    /// meanwhile comes out old or new.
    ///
    /// # Errors
    /// The medium or the buffer can't be accessed. [`Fault::done`] counts the bytes copied before.
    #[inline(always)]
    pub fn copy_out(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        let from = self.source(off, to.len());
        let copied = match emulate::active() {
            // SAFETY: `to` is the caller's exclusive buffer of that length; the
            // source is in the mapping.
            0 => unsafe { self.copier.copy(to.as_mut_ptr(), from, to.len()) },
            _ => self.copy_slowed(off, to),
        };
        copied.map_err(|(done, address)| self.stopped(off, to, done, address))
    }

    /// Copies `len` bytes from `off` on into a buffer in place of what it has, as
    /// [`Pmem::copy_out`] does, without a store of zeros before.
    ///
    /// # Errors
    /// The medium can't be accessed. The buffer is empty then.
    #[inline]
    pub fn copy_to_vec(&self, off: u64, len: usize, to: &mut Vec<u8>) -> Result<(), Fault> {
        to.clear();
        if emulate::active() != 0 {
            to.resize(len, 0);
            return self.copy_out(off, to).inspect_err(|_| to.clear());
        }
        let from = self.source(off, len);
        to.reserve(len);
        // SAFETY: the buffer has room for so many bytes, and nobody else has it; the source is in
        // the mapping.
        let copied = unsafe { self.copier.copy(to.as_mut_ptr(), from, len) };
        copied.map_err(|(done, _)| Fault {
            offset: off + done as u64,
            done,
            side: Side::Pool,
        })?;
        // SAFETY: all of them were stored.
        unsafe { to.set_len(len) };
        Ok(())
    }

    /// Fills a caller's buffer with zeros, where a program reads bytes that were never written.
    ///
    /// # Errors
    /// The buffer can't be accessed.
    pub fn zero_out(&self, to: &mut [u8]) -> Result<(), BadAddress> {
        static ZEROS: [u8; 4096] = [0; 4096];
        let mut done = 0;
        for part in to.chunks_mut(ZEROS.len()) {
            // SAFETY: the caller's exclusive buffer, and no more of the zeros than there are.
            unsafe {
                self.copier
                    .copy(part.as_mut_ptr(), ZEROS.as_ptr(), part.len())
            }
            .map_err(|(more, _)| BadAddress { done: done + more })?;
            done += part.len();
        }
        Ok(())
    }

    /// Copies as [`Pmem::copy_out`] does, and prefetches the lines of `next` meanwhile, a few at a
    /// time. The processor's own prefetching begins anew on each page; if all lines were requested
    /// at once, the copy would wait behind them.
    ///
    /// # Errors
    /// Those of [`Pmem::copy_out`].
    pub fn copy_out_before(&self, off: u64, to: &mut [u8], next: Range<u64>) -> Result<(), Fault> {
        let beside = next.end.saturating_sub(next.start);
        self.range(next.start, beside);
        let from = self.source(off, to.len());
        if emulate::active() != 0 {
            return (self.copy_slowed(off, to))
                .map_err(|(done, address)| self.stopped(off, to, done, address));
        }
        let mut lines = next.step_by(LINE as usize);
        // The last bytes of the copy run beside the prefetches, as many as those cover.
        let mut step = to.len().saturating_sub(beside as usize);
        let mut done = 0;
        while done < to.len() {
            if step == 0 {
                step = STEP.min(to.len() - done);
                let few = lines.by_ref().take(STEP / LINE as usize);
                few.for_each(|line| self.prefetch_if_there(line));
            }
            // SAFETY: as in `copy_out`, for `step` bytes from `done` on, which both have.
            unsafe {
                self.copier
                    .copy(to.as_mut_ptr().add(done), from.wrapping_add(done), step)
            }
            .map_err(|(more, address)| self.stopped(off, to, done + more, address))?;
            done += step;
            step = 0;
        }
        lines.for_each(|line| self.prefetch_if_there(line));
        Ok(())
    }

    /// Copies as [`Pmem::copy_out`] does, in the time that an emulated medium takes.
    #[cold]
    #[inline(never)]
    fn copy_slowed(&self, off: u64, to: &mut [u8]) -> Result<(), (usize, usize)> {
        let from = self.range(off, to.len() as u64);
        let due = self.charge_copy(off, to.len() as u64);
        // SAFETY: as in `copy_out`.
        let copied = unsafe { self.copier.copy(to.as_mut_ptr(), from, to.len()) };
        self.copied_out(due);
        copied
    }

    /// Waits as long as an emulated medium takes for words. They are fetched meanwhile.
    #[cold]
    #[inline(never)]
    fn await_words(&self, off: u64, len: u64) {
        self.prefetch_if_there(off);
        self.charge_words(off, len);
    }

    /// The source address of a copy, which is recorded.
    #[inline(always)]
    fn source(&self, off: u64, bytes: usize) -> *const u8 {
        let from = self.range(off, bytes as u64);
        self.note_load(off, bytes as u64);
        from
    }

    /// The fault of a copy from `off` that met `address` after `done` bytes.
    #[cold]
    fn stopped(&self, off: u64, to: &[u8], done: usize, address: usize) -> Fault {
        Fault {
            offset: off + done as u64,
            done,
            side: self.side_of_target(to, address),
        }
    }

    /// Checks that the line at `off` can be read, and prefetches it without waiting.
    ///
    /// # Errors
    /// The medium can't be accessed.
    #[inline]
    pub fn touch(&self, off: u64) -> Result<(), Fault> {
        let at = self.range(off, 1);
        self.note_load(off, 1);
        if emulate::active() != 0 {
            self.await_words(off & !7, 8);
        }
        copy::touch(at).map_err(|_| Fault {
            offset: off,
            done: 0,
            side: Side::Pool,
        })
    }

    /// Prefetches the line at `off`.
    #[inline]
    pub fn prefetch(&self, off: u64) {
        self.range(off, 1);
        self.prefetch_if_there(off);
    }

    /// Prefetches as [`Pmem::prefetch`] does, at any offset. It does nothing outside the pool.
    #[inline(always)]
    pub fn prefetch_if_there(&self, off: u64) {
        let at = self.base.wrapping_add(off as usize);
        // SAFETY: a prefetch is a hint: it changes nothing and never faults, whatever the address.
        unsafe {
            asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }

    /// The address of `len` bytes from `off` on. Other processes may change them at any time,
    /// unless a layer above keeps them from it; threads that have not entered may not read there.
    #[inline]
    #[must_use]
    pub fn address(&self, off: u64, len: u64) -> *const u8 {
        self.range(off, len)
    }

    /// Orders the loads of a seqlock reader before its second load of the sequence number, for the
    /// CPU and the compiler.
    #[inline]
    pub fn acquire(&self) {
        fence(Ordering::Acquire);
    }

    /// The side on which a copy out faulted at `address`. The target may lie in the pool itself, if
    /// a program passed a bad pointer.
    #[cold]
    fn side_of_target(&self, to: &[u8], address: usize) -> Side {
        let pages = to.as_ptr().addr() & !4095..to.as_ptr_range().end.addr();
        if pages.contains(&address) {
            Side::User
        } else {
            self.side(address)
        }
    }

    /// The side of a copy on which an address faulted.
    #[cold]
    pub(crate) fn side(&self, address: usize) -> Side {
        // The range extends to the end of its last page, because a chunk may begin before a bad
        // page.
        let mapped = self.room().next_multiple_of(4096);
        if (address.wrapping_sub(self.base.addr()) as u64) < mapped {
            Side::Pool
        } else {
            Side::User
        }
    }
}

/// Loads 16 bytes in one piece.
///
/// # Safety
/// `at` is 16-aligned and may be loaded; without `wide_moves` also stored to.
#[inline(always)]
pub(crate) unsafe fn load_pair(at: *mut u64, wide_moves: bool) -> [u64; 2] {
    let (low, high): (u64, u64);
    if wide_moves {
        // SAFETY: the caller's promise. An aligned movdqa is atomic on every
        // CPU with AVX (see cpu.rs). Memory is clobbered: nothing later may be
        // loaded before it.
        unsafe {
            asm!(
                "movdqa {both}, xmmword ptr [{at}]",
                "movq {low}, {both}",
                "punpckhqdq {both}, {both}",
                "movq {high}, {both}",
                at = in(reg) at,
                both = out(xmm_reg) _,
                low = out(reg) low,
                high = out(reg) high,
                options(nostack, preserves_flags),
            );
        }
    } else {
        // SAFETY: as above; comparing with zero and storing zero where it is
        // zero changes nothing. rbx is the compiler's: swapped in and out;
        // the others are named so that none of them is rbx.
        unsafe {
            asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "mov rbx, rsi",
                in("rdi") at,
                inout("rsi") 0u64 => _,
                in("rcx") 0u64,
                inout("rax") 0u64 => low,
                inout("rdx") 0u64 => high,
                options(nostack),
            );
        }
    }
    [low, high]
}
