//! What this CPU has, found out once.

use std::arch::is_x86_feature_detected as has;
use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
use std::sync::OnceLock;

use crate::FlushInstr;

/// CPU facts that choose instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// 64-byte vectors (registers 16 to 31, so no vzeroupper is needed).
    pub avx512: bool,
    /// 32-byte vectors.
    pub avx2: bool,
    /// Aligned 16-byte loads and stores are atomic (Intel SDM 3A 9.1.1 and
    /// AMD APM 2 7.3.2 promise it for every CPU with AVX).
    pub avx: bool,
    /// lock cmpxchg16b.
    pub cmpxchg16b: bool,
    /// The cheapest instruction that writes a line back.
    pub flush: FlushInstr,
}

/// The CPU this process runs on.
pub(crate) fn cpu() -> &'static Cpu {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(|| Cpu {
        avx512: has!("avx512f") && has!("avx512vl"),
        avx2: has!("avx2"),
        avx: has!("avx"),
        cmpxchg16b: has!("cmpxchg16b"),
        flush: flush_instr(),
    })
}

/// Intel SDM 2A, CPUID leaf 7: ebx bit 24 is CLWB, bit 23 CLFLUSHOPT. CLFLUSH
/// is on every x86-64 CPU.
fn flush_instr() -> FlushInstr {
    let leaf7_ebx = if __get_cpuid_max(0).0 >= 7 {
        __cpuid_count(7, 0).ebx
    } else {
        0
    };
    if leaf7_ebx & (1 << 24) != 0 {
        FlushInstr::Clwb
    } else if leaf7_ebx & (1 << 23) != 0 {
        FlushInstr::Clflushopt
    } else {
        FlushInstr::Clflush
    }
}
