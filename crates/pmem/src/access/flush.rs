//! The choice of the flush instruction, and the instructions themselves.

use std::arch::asm;
use std::fmt;
use std::str::FromStr;

/// Bytes in a cache line.
pub(crate) const LINE: u64 = 64;

/// How a line is written back to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushInstr {
    /// Not at all: the caches are inside the persistence domain (eADR), or the
    /// medium can't outlive power anyway.
    None,
    /// clwb: writes back, may keep the line.
    Clwb,
    /// clflushopt: writes back and evicts, weakly ordered.
    Clflushopt,
    /// clflush: writes back and evicts, serialised.
    Clflush,
}

impl fmt::Display for FlushInstr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlushInstr::None => "none",
            FlushInstr::Clwb => "clwb",
            FlushInstr::Clflushopt => "clflushopt",
            FlushInstr::Clflush => "clflush",
        })
    }
}

/// Whether lines are flushed on media that can't outlive power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// Leave flush and fence out where they can't matter.
    #[default]
    Auto,
    /// Flush everywhere, as on a power-fail safe medium: for measurements.
    Always,
}

impl fmt::Display for FlushMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlushMode::Auto => "auto",
            FlushMode::Always => "always",
        })
    }
}

impl FromStr for FlushMode {
    type Err = String;

    fn from_str(s: &str) -> Result<FlushMode, String> {
        match s {
            "auto" => Ok(FlushMode::Auto),
            "always" => Ok(FlushMode::Always),
            _ => Err(format!("flush mode is auto or always, not {s:?}")),
        }
    }
}

/// Writes back `count` lines from `line` on.
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

/// Orders flushes and non-temporal stores before everything after it.
#[inline]
pub(crate) fn store_fence() {
    // SAFETY: sfence touches no operand; memory is clobbered on purpose.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
