//! The flush instructions themselves, and the fence.

use std::arch::asm;

use crate::cpu::{FlushInstr, LINE};

/// Writes back `count` lines, starting at `line`.
///
/// # Safety
/// `line` is the address of a line, and all `count` lines lie in one mapping.
#[inline]
pub(crate) unsafe fn lines(instr: FlushInstr, line: *const u8, count: u64) {
    macro_rules! each {
        ($text:literal) => {{
            let mut at = line;
            for _ in 0..count {
                // SAFETY: the line is mapped (the caller's promise); the
                // instruction changes no byte and no register. Memory is
                // clobbered on purpose: earlier stores must not sink past it.
                unsafe { asm!($text, in(reg) at, options(nostack, preserves_flags)) };
                at = at.wrapping_add(LINE as usize);
            }
        }};
    }
    match instr {
        FlushInstr::None => {}
        FlushInstr::Clwb => each!("clwb [{}]"),
        FlushInstr::Clflushopt => each!("clflushopt [{}]"),
        FlushInstr::Clflush => each!("clflush [{}]"),
    }
}

/// Orders earlier flushes and non-temporal stores before all later stores.
#[inline]
pub(crate) fn store_fence() {
    // SAFETY: sfence touches no operand; memory is clobbered on purpose.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
