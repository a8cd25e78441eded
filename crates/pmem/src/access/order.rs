//! Order and durability: flush and fence.

use crate::access::flush::{lines, store_fence};
use crate::cpu::{LINE, cpu};
use crate::processes::counters;
use crate::{Error, FlushInstr, Pmem, RECORDING, emulate};

impl Pmem {
    /// Flushes by this instruction from now on, whatever the medium needs, and always fences: for
    /// measurements of an instruction's cost.
    ///
    /// # Errors
    /// `Unsupported`: the CPU does not have the instruction.
    pub fn flushing_by(mut self, instr: FlushInstr) -> Result<Pmem, Error> {
        if !cpu().has(instr) {
            return Err(Error::Unsupported {
                what: match instr {
                    FlushInstr::Clwb => "clwb",
                    FlushInstr::Clflushopt => "clflushopt",
                    FlushInstr::Clflush | FlushInstr::None => "clflush",
                },
            });
        }
        self.medium.flush = instr;
        self.fence_always = true;
        Ok(self)
    }

    /// Writes back every line that `off..off + len` touches. The write-back is complete when the
    /// next fence returns. Nothing happens on a medium that needs no flush.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush(&self, off: u64, len: u64) {
        // Usually the range is inside one line.
        let in_a_line = len > 0 && off ^ (off + len - 1) < LINE;
        if !in_a_line || RECORDING || emulate::active() != 0 || self.dirty.is_some() {
            return self.flush_lines(off, len);
        }
        let line = self
            .range(off, len)
            .wrapping_sub((off & (LINE - 1)) as usize);
        counters::flushed(1);
        // SAFETY: the line of a range that was checked; the mapping is whole pages, so it lies in
        // it.
        unsafe { lines(self.medium.flush, line, 1) };
    }

    #[inline(never)]
    #[cfg_attr(feature = "record", track_caller)]
    fn flush_lines(&self, off: u64, len: u64) {
        match emulate::active() {
            0 => self.flush_lines_as::<false>(off, len),
            _ => self.flush_lines_slowed(off, len),
        }
    }

    #[cold]
    #[inline(never)]
    #[cfg_attr(feature = "record", track_caller)]
    fn flush_lines_slowed(&self, off: u64, len: u64) {
        self.flush_lines_as::<true>(off, len);
    }

    /// Flushes, on an emulated medium if it is `SLOW`.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn flush_lines_as<const SLOW: bool>(&self, off: u64, len: u64) {
        self.range(off, len);
        if len == 0 {
            return;
        }
        let first = off & !(LINE - 1);
        let count = (off + len - first).div_ceil(LINE);
        counters::flushed(count);
        let due = match SLOW {
            true => self.charge_write(emulate::Op::Flush, off, count),
            false => 0,
        };
        self.note_flush(off, len);
        if self.medium.flush != FlushInstr::None {
            let line = self.base.wrapping_add(first as usize);
            // SAFETY: lines of a range that was checked; the mapping is whole
            // pages, so a line at its end lies in it.
            unsafe { lines(self.medium.flush, line, count) };
        }
        self.written(due);
        self.note_dirty(off, len);
    }

    /// Returns whether [`Pmem::flush`] writes lines back on this medium; otherwise it only counts.
    pub fn needs_flush(&self) -> bool {
        self.medium.flush != FlushInstr::None || self.dirty.is_some()
    }

    /// The barrier, pm_wbarrier in the PMFS paper (section 3.3). On return, all that this thread
    /// has flushed or stored non-temporally is as durable as the medium allows. Where flushing is
    /// left out, an sfence is executed only for non-temporal stores, which x86 does not order
    /// otherwise.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn fence(&self) {
        let streamed = counters::fenced();
        self.note_fence();
        if self.fence_always || streamed {
            store_fence();
        }
        if let Some(dirty) = &self.dirty {
            dirty.sync(self);
        }
        let active = emulate::active();
        if active != 0 {
            self.at_barrier(active);
        }
    }

    /// Orders earlier cached stores before later non-temporal stores, which x86 does not do by
    /// itself. This is no barrier: nothing becomes durable and nothing is counted.
    #[inline]
    pub fn fence_stores(&self) {
        store_fence();
    }

    /// Orders non-temporal stores of this thread that wait for a fence before its later stores, as
    /// a locked instruction does: for the release of a lock by a plain store. This is no barrier.
    #[inline]
    pub fn order_streamed(&self) {
        if counters::is_streaming() {
            store_fence();
        }
    }

    /// Notes a range for the msync of the next fence.
    #[inline(always)]
    pub(crate) fn note_dirty(&self, off: u64, len: u64) {
        if let Some(dirty) = &self.dirty {
            dirty.add(off, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a measured instruction is the one asked for, and no instruction that the CPU lacks is
    /// executed.
    #[test]
    fn a_pool_flushes_by_the_instruction_asked_for() {
        for instr in [
            FlushInstr::Clwb,
            FlushInstr::Clflushopt,
            FlushInstr::Clflush,
        ] {
            let mem = Pmem::private(4096).flushing_by(instr);
            if !cpu().has(instr) {
                assert!(matches!(mem, Err(Error::Unsupported { .. })), "{instr}");
                continue;
            }
            let mem = mem.unwrap();
            assert_eq!(mem.medium().flush, instr);
            mem.store(64, 7);
            mem.flush(64, 8);
            mem.fence();
            assert_eq!(mem.load(64), 7, "{instr}");
        }
        assert!(cpu().has(cpu().flush));
    }

    #[test]
    fn a_cpu_has_the_instructions_that_it_tells() {
        let old = crate::cpu::Cpu {
            clwb: false,
            clflushopt: false,
            ..*cpu()
        };
        assert!(old.has(FlushInstr::Clflush));
        assert!(!old.has(FlushInstr::Clwb) && !old.has(FlushInstr::Clflushopt));
    }
}
