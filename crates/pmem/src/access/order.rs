//! Order and durability: flush and fence.

use crate::access::flush::{lines, store_fence};
use crate::cpu::{LINE, cpu};
use crate::processes::counters;
use crate::{Error, FlushInstr, Pmem, RECORDING, emulate};

impl Pmem {
    /// Flushes by this instruction from now on, whatever the medium needs, and fences always: to
    /// measure what each costs.
    ///
    /// # Errors
    /// `Unsupported`: the CPU has no such instruction.
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

    /// Writes back every line that `off..off + len` touches; done when the
    /// next fence returns. Nothing on a medium that needs none.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush(&self, off: u64, len: u64) {
        // Mostly it is one line, and nothing else is to be done about it.
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
        self.range(off, len);
        if len == 0 {
            return;
        }
        let first = off & !(LINE - 1);
        let count = (off + len - first).div_ceil(LINE);
        counters::flushed(count);
        let due = self.writes(count);
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

    /// Returns whether [`Pmem::flush`] does anything on this medium but count.
    pub fn needs_flush(&self) -> bool {
        self.medium.flush != FlushInstr::None || self.dirty.is_some()
    }

    /// The paper's pm_wbarrier (PMFS section 3.3): when it returns, what this
    /// thread flushed or stored non-temporally before is as durable as the
    /// medium makes it. Where flushing is left out, an sfence is done only for
    /// non-temporal stores, which x86 does not order otherwise.
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

    /// Keeps non-temporal stores after it from being seen before cached stores that precede it,
    /// which x86 does not do by itself. No barrier: it makes nothing durable and is not counted.
    #[inline]
    pub fn fence_stores(&self) {
        store_fence();
    }

    /// Remembers a range for the msync at the next fence.
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

    /// Goal: what is measured as an instruction is that instruction, and none that the CPU lacks is
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
