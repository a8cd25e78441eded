//! Non-temporal stores: whole lines go past the caches, need no flush, and are ordered by the next
//! fence. The unaligned ends are cached stores, whose lines are flushed here.

use crate::access::copy::{Outcome, finish};
use crate::access::flush::lines;
use crate::cpu::LINE;
use crate::processes::counters;
use crate::{Fault, FlushInstr, Pmem, RECORDING, Side, emulate};

#[cfg(feature = "record")]
use crate::recorder::record::StoreKind;
#[cfg(not(feature = "record"))]
use crate::recorder::unrecorded::StoreKind;

static ZEROS: [u8; 4096] = [0; 4096];

/// Cuts a range at line boundaries: the bytes before the first whole line, and the bytes in whole
/// lines. The rest is the tail.
#[inline(always)]
fn cut(off: u64, len: usize) -> (usize, usize) {
    let head = (off.wrapping_neg() & (LINE - 1)) as usize;
    let head = head.min(len);
    (head, (len - head) & !(LINE as usize - 1))
}

impl Pmem {
    /// Stores `bytes` from `off` on, at any alignment; durable after the next fence. `bytes` may be
    /// inaccessible memory of a program.
    ///
    /// # Errors
    /// The copy met an inaccessible address on either side. [`Fault::done`] counts the bytes stored
    /// before.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn write_nt(&self, off: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.range(off, bytes.len() as u64);
        if RECORDING && self.is_observed() {
            return self.write_nt_observed(off, bytes);
        }
        // SAFETY: the range was checked.
        let copied = unsafe { self.stream_in(off, bytes.as_ptr(), bytes.len()) };
        copied.map_err(|(done, address)| Fault {
            offset: off + done as u64,
            done,
            side: self.side(address),
        })
    }

    /// Copies `len` bytes from `from` to `to`, at any alignment; durable after the next fence. Both
    /// ranges are in the pool and do not overlap.
    ///
    /// # Errors
    /// The medium failed at [`Fault::offset`], which is on the failed side.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn copy_nt(&self, to: u64, from: u64, len: u64) -> Result<(), Fault> {
        self.range(to, len);
        let source = self.range(from, len);
        if RECORDING && self.is_observed() {
            return self.copy_nt_observed(to, from, len as usize);
        }
        if emulate::active() != 0 {
            self.copied_out(self.charge_copy(from, len));
        }
        // SAFETY: both ranges were checked.
        let copied = unsafe { self.stream_in(to, source, len as usize) };
        copied.map_err(|(done, address)| self.copy_fault(to, from, len, done, address))
    }

    /// Zeroes `len` bytes from `off` on, at any alignment; durable after the next fence.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn zero_nt(&self, off: u64, len: u64) {
        if RECORDING && self.is_observed() {
            self.range(off, len);
            let mut done = 0;
            while done < len {
                // A step ends at a page boundary, so that no line is cut in two.
                let step = (4096 - ((off + done) & 4095)).min(len - done);
                // The fault handler marks a failed medium here too.
                let _ = self.write_nt_observed(off + done, &ZEROS[..step as usize]);
                done += step;
            }
            return;
        }
        match emulate::active() {
            0 => self.zero_as::<false>(off, len),
            _ => self.zero_slowed(off, len),
        }
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(feature = "record", track_caller)]
    fn zero_slowed(&self, off: u64, len: u64) {
        self.zero_as::<true>(off, len);
    }

    /// Zeroes, on an emulated medium if it is `SLOW`.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn zero_as<const SLOW: bool>(&self, off: u64, len: u64) {
        let at = self.range(off, len);
        let (head, body) = cut(off, len as usize);
        self.write_bytes(off, &ZEROS[..head]);
        self.flush_ends::<SLOW>(off, head);
        let due = match SLOW {
            true => self.charge_write(emulate::Op::Stream, off + head as u64, body as u64 / LINE),
            false => 0,
        };
        // SAFETY: whole lines of the range that was checked, from a line on.
        unsafe { self.copier.zero(at.add(head), body) };
        self.written(due);
        if body > 0 {
            counters::streamed(body as u64);
        }
        let tail = len as usize - head - body;
        self.write_bytes(off + (head + body) as u64, &ZEROS[..tail]);
        self.flush_ends::<SLOW>(off + (head + body) as u64, tail);
        self.note_dirty(off, len);
    }

    /// The copy of `write_nt` and `copy_nt`, without the observer.
    ///
    /// # Safety
    /// `off..off + len` was checked; the source may fault, but is not that range.
    #[inline(always)]
    unsafe fn stream_in(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
    ) -> Result<(), (usize, usize)> {
        let copied = match emulate::active() {
            // SAFETY: the caller's promise.
            0 => unsafe { self.stream_all::<false>(off, from, len) },
            // SAFETY: the same.
            _ => unsafe { self.stream_all_slowed(off, from, len) },
        };
        // The range is noted after the stores. If it were noted before, the fence of another thread
        // could take it too early, and this thread's fence would not find it.
        self.note_dirty(off, len as u64);
        copied
    }

    /// # Safety
    /// The rules of [`Pmem::stream_in`].
    #[cold]
    #[inline(never)]
    unsafe fn stream_all_slowed(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
    ) -> Result<(), (usize, usize)> {
        // SAFETY: the caller's promise.
        unsafe { self.stream_all::<true>(off, from, len) }
    }

    /// Copies, on an emulated medium if it is `SLOW`.
    ///
    /// # Safety
    /// The rules of [`Pmem::stream_in`].
    #[inline(always)]
    unsafe fn stream_all<const SLOW: bool>(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
    ) -> Result<(), (usize, usize)> {
        let (head, body) = cut(off, len);
        let tail = len - head - body;
        let to = self.base.wrapping_add(off as usize);
        if head > 0 {
            // SAFETY: the head of the range that was checked.
            let copied = unsafe { self.copier.copy(to, from, head) };
            self.flush_ends::<SLOW>(off, head);
            copied?;
        }
        if body > 0 {
            counters::streamed(body as u64);
            let due = match SLOW {
                true => {
                    self.charge_write(emulate::Op::Stream, off + head as u64, body as u64 / LINE)
                }
                false => 0,
            };
            let (to, from) = (to.wrapping_add(head), from.wrapping_add(head));
            // SAFETY: whole lines of the range that was checked, from a line on.
            let streamed = unsafe { self.copier.stream(to, from, body) };
            self.written(due);
            if let Err(outcome) = streamed {
                // SAFETY: the same ranges.
                unsafe { self.finish_stream(to, from, body, outcome) }
                    .map_err(|(done, address)| (head + done, address))?;
            }
        }
        if tail > 0 {
            let done = head + body;
            // SAFETY: the tail of the range that was checked.
            let copied = unsafe {
                self.copier
                    .copy(to.add(done), from.wrapping_add(done), tail)
            };
            self.flush_ends::<SLOW>(off + done as u64, tail);
            copied.map_err(|(more, address)| (done + more, address))?;
        }
        Ok(())
    }

    /// Completes a copy that met a fault, up to the exact end. It uses cached stores and flushes
    /// them, so that the bytes become durable with the rest.
    ///
    /// # Safety
    /// The rules of `Copier::stream`, which gave `outcome` for the same arguments.
    #[cold]
    #[inline(never)]
    unsafe fn finish_stream(
        &self,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        outcome: Outcome,
    ) -> Result<(), (usize, usize)> {
        // SAFETY: the caller's promise.
        let finished = unsafe { finish(to, from, bytes, outcome) };
        let done = finished.map_or_else(|(done, _)| done, |()| bytes);
        let streamed = bytes - outcome.left;
        let cached = (done - streamed) as u64;
        // SAFETY: `streamed` is whole lines; these are the ones after them, as
        // far as bytes were stored.
        unsafe { lines(self.medium.flush, to.add(streamed), cached.div_ceil(LINE)) };
        finished
    }

    /// Flushes the one line that an unaligned end lies in, on an emulated medium if it is `SLOW`.
    #[inline]
    fn flush_ends<const SLOW: bool>(&self, off: u64, len: usize) {
        if len > 0 {
            counters::flushed(1);
            let due = match SLOW {
                true => self.charge_write(emulate::Op::Flush, off, 1),
                false => 0,
            };
            if self.medium.flush != FlushInstr::None {
                let line = self.base.wrapping_add((off & !(LINE - 1)) as usize);
                // SAFETY: the line of an offset that was checked; lines don't
                // straddle the end of a mapping, which is whole pages.
                unsafe { lines(self.medium.flush, line, 1) };
            }
            self.written(due);
        }
    }

    #[cold]
    fn copy_fault(&self, to: u64, from: u64, len: u64, done: usize, address: usize) -> Fault {
        let offset = (address.wrapping_sub(self.base.addr())) as u64;
        let side = if offset.wrapping_sub(from & !4095) < len + 4096 {
            from
        } else {
            to
        };
        Fault {
            offset: side + done as u64,
            done,
            side: Side::Pool,
        }
    }

    /// Copies as `copy_nt` does, through a buffer that the observer can see.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn copy_nt_observed(&self, to: u64, from: u64, len: usize) -> Result<(), Fault> {
        let mut bytes = vec![0; len];
        let source = self.copy_out(from, &mut bytes);
        let readable = source.map_or_else(|fault| fault.done, |()| len);
        self.write_nt_observed(to, &bytes[..readable])?;
        source
    }

    /// Stores as `write_nt` does, in separate accesses for the observer: the ends as cached stores
    /// and flushes, the lines between them as one non-temporal store.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn write_nt_observed(&self, off: u64, bytes: &[u8]) -> Result<(), Fault> {
        // The bytes are copied first, because the observer must be able to read them.
        let mut copy = vec![0; bytes.len()];
        // SAFETY: a buffer of that length; the source may fault.
        let fetched = unsafe {
            self.copier
                .copy(copy.as_mut_ptr(), bytes.as_ptr(), bytes.len())
        };
        let readable = fetched.map_or_else(|(done, _)| done, |()| bytes.len());
        let copy = &copy[..readable];
        let (head, body) = cut(off, readable);
        let (line_off, tail_off) = (off + head as u64, off + (head + body) as u64);
        if head > 0 {
            self.write_bytes(off, &copy[..head]);
            self.flush(off, head as u64);
        }
        let lines = &copy[head..head + body];
        if body > 0 && self.may_store(line_off, lines, StoreKind::NonTemporal) {
            // SAFETY: part of a range that the caller has checked.
            unsafe { self.stream_in(line_off, lines.as_ptr(), body) }.map_err(
                |(done, address)| Fault {
                    offset: line_off + done as u64,
                    done: head + done,
                    side: self.side(address),
                },
            )?;
        }
        if head + body < readable {
            self.write_bytes(tail_off, &copy[head + body..]);
            self.flush(tail_off, (readable - head - body) as u64);
        }
        fetched.map_err(|(done, address)| Fault {
            offset: off + done as u64,
            done,
            side: self.side(address),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::address_space::Mapping;
    use crate::processes::counters;
    use crate::{Fault, Pmem, Side};

    /// Goal: a program's buffer that ends at an inaccessible page is the program's fault. The bytes
    /// before it are in the pool, and the count is exact.
    #[test]
    fn a_bad_buffer_is_the_callers_fault() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let pages = Mapping::new(None, 8192, 4096, protection, flags).unwrap();
        // SAFETY: the second page of the mapping just made.
        unsafe {
            pages.base().write_bytes(7, 4096);
            libc::mprotect(pages.base().add(4096).cast(), 4096, libc::PROT_NONE);
        }
        let mem = Pmem::private(64 << 10);
        for (off, good) in [(0, 0), (0, 100), (4096, 4096), (61, 2), (61, 3), (61, 1000)] {
            mem.zero_nt(0, 16384);
            let start = pages.base().wrapping_add(4096 - good);
            // SAFETY: no reference to valid memory, as a program's bad pointer
            // is not; only the copy routine, which may fault, looks at it.
            let bytes = unsafe { std::slice::from_raw_parts(start, good + 3000) };
            let fault = Fault {
                offset: off + good as u64,
                done: good,
                side: Side::User,
            };
            assert_eq!(mem.write_nt(off, bytes), Err(fault));
            let mut found = vec![0; 8192];
            mem.copy_out(off, &mut found).unwrap();
            assert!(found[..good].iter().all(|&b| b == 7), "{off} {good}");
            assert!(found[good..].iter().all(|&b| b == 0), "{off} {good}");
            // SAFETY: as above, to be stored to.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, good + 3000) };
            assert_eq!(mem.copy_out(off, bytes), Err(fault));
        }
    }

    /// Goal: where flushing is left out, a fence is an sfence only if non-temporal stores are
    /// pending.
    #[test]
    fn a_fence_knows_of_non_temporal_stores() {
        let mem = Pmem::private(16384);
        mem.fence();
        assert!(!counters::fenced());
        mem.write_nt(4096, &[1; 64]).unwrap();
        assert!(counters::fenced());
        mem.store(0, 1);
        assert!(!counters::fenced());
        mem.zero_nt(4096, 64);
        mem.fence();
        assert!(!counters::fenced());
    }
}
