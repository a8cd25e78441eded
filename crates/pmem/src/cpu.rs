//! The features of this CPU, found once.
//!
//! glibc's loader has asked the CPU already and passes the answer on (glibc 2.33 and later,
//! `<sys/platform/x86.h>`). A process that asks again executes some twenty cpuid instructions, each
//! of which exits a virtual machine: 2.5 us in all.

use std::arch::global_asm;
use std::fmt;
use std::sync::OnceLock;

/// Bytes in a cache line.
pub(crate) const LINE: u64 = 64;

/// The instruction that writes a line back to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushInstr {
    /// No instruction: the caches are inside the persistence domain (eADR), or the medium does not
    /// survive power loss anyway.
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

/// CPU facts that choose instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// 64-byte vectors (registers 16 to 31, so no vzeroupper is needed).
    pub avx512: bool,
    /// 32-byte vectors.
    pub avx2: bool,
    /// Aligned 16-byte loads and stores are atomic (Intel SDM 3A 9.1.1 and AMD APM 2 7.3.2
    /// guarantee it for every CPU with AVX).
    pub avx: bool,
    /// lock cmpxchg16b.
    pub cmpxchg16b: bool,
    /// The cheapest instruction that writes a line back.
    pub flush: FlushInstr,
    /// clwb.
    pub clwb: bool,
    /// clflushopt.
    pub clflushopt: bool,
    /// The base family of leaf 1, without the extension for 15: 6 is Intel, 15 AMD.
    pub family: u32,
    /// Protection keys that the kernel has enabled.
    pub keys: bool,
}

/// The features of the CPU that this process runs on.
pub(crate) fn cpu() -> &'static Cpu {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(|| told().unwrap_or_else(asked))
}

/// Bits of CPUID (Intel SDM 2A): leaf 1, ecx; leaf 7, ebx and ecx.
mod bit {
    pub const CMPXCHG16B: u32 = 1 << 13;
    pub const AVX: u32 = 1 << 28;
    pub const AVX2: u32 = 1 << 5;
    pub const AVX512F: u32 = 1 << 16;
    pub const CLFLUSHOPT: u32 = 1 << 23;
    pub const CLWB: u32 = 1 << 24;
    pub const AVX512VL: u32 = 1 << 31;
    pub const OSPKE: u32 = 1 << 4;
}

impl Cpu {
    /// Builds the features from the signature (leaf 1 eax), the feature bits (leaf 1 ecx, leaf 7
    /// ebx and ecx), and the subset of them that the kernel lets programs use.
    fn of(
        signature: u32,
        (has_1, has_7, has_7_ecx): (u32, u32, u32),
        (usable_1, usable_7): (u32, u32),
    ) -> Cpu {
        let both = bit::AVX512F | bit::AVX512VL;
        let clwb = has_7 & bit::CLWB != 0;
        let clflushopt = has_7 & bit::CLFLUSHOPT != 0;
        Cpu {
            avx512: usable_7 & both == both,
            avx2: usable_7 & bit::AVX2 != 0,
            avx: usable_1 & bit::AVX != 0,
            cmpxchg16b: has_1 & bit::CMPXCHG16B != 0,
            flush: if clwb {
                FlushInstr::Clwb
            } else if clflushopt {
                FlushInstr::Clflushopt
            } else {
                // Every x86-64 CPU has clflush.
                FlushInstr::Clflush
            },
            clwb,
            clflushopt,
            family: signature >> 8 & 15,
            keys: has_7_ecx & bit::OSPKE != 0,
        }
    }

    /// Returns whether the CPU has this instruction.
    pub(crate) fn has(&self, instr: FlushInstr) -> bool {
        match instr {
            FlushInstr::None | FlushInstr::Clflush => true,
            FlushInstr::Clwb => self.clwb,
            FlushInstr::Clflushopt => self.clflushopt,
        }
    }
}

/// glibc's `struct cpuid_feature`: eax, ebx, ecx and edx of a leaf, and the usable subset.
#[repr(C)]
struct Leaf {
    has: [u32; 4],
    usable: [u32; 4],
}

// The loader's function, or 0 where the C library has none.
global_asm!(
    ".pushsection .data.rel.ro.pmem_cpu, \"aw\"",
    ".p2align 3",
    ".weak __x86_get_cpuid_feature_leaf",
    ".globl pmem_cpu_leaf",
    ".hidden pmem_cpu_leaf",
    "pmem_cpu_leaf: .quad __x86_get_cpuid_feature_leaf",
    ".popsection",
);

unsafe extern "C" {
    /// Numbers of leaves: 0 is CPUID's 1, 1 its 7.
    static pmem_cpu_leaf: Option<unsafe extern "C" fn(u32) -> *const Leaf>;
}

/// The features that the loader knows.
fn told() -> Option<Cpu> {
    const EAX: usize = 0;
    const EBX: usize = 1;
    const ECX: usize = 2;
    // SAFETY: the word above, which the loader has set before any code runs.
    let leaf = unsafe { pmem_cpu_leaf }?;
    // SAFETY: glibc's function of that name and type; its answers are constants of the loader's
    // that live as long as the process.
    let (one, seven) = unsafe { (leaf(0).as_ref()?, leaf(1).as_ref()?) };
    // The loader fills an unknown leaf with zeros.
    (one.has[ECX] != 0).then(|| {
        Cpu::of(
            one.has[EAX],
            (one.has[ECX], seven.has[EBX], seven.has[ECX]),
            (one.usable[ECX], seven.usable[EBX]),
        )
    })
}

/// The features that the CPU reports.
fn asked() -> Cpu {
    use std::arch::is_x86_feature_detected as has;
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
    let (seven, seven_ecx) = match __get_cpuid_max(0).0 {
        7.. => {
            let leaf = __cpuid_count(7, 0);
            (leaf.ebx, leaf.ecx)
        }
        _ => (0, 0),
    };
    let bits = |facts: &[(bool, u32)]| {
        let set = facts.iter().filter(|fact| fact.0);
        set.fold(0, |bits, fact| bits | fact.1)
    };
    let usable_1 = bits(&[(has!("avx"), bit::AVX)]);
    let usable_7 = bits(&[
        (has!("avx2"), bit::AVX2),
        (has!("avx512f"), bit::AVX512F),
        (has!("avx512vl"), bit::AVX512VL),
    ]);
    let has_1 = bits(&[(has!("cmpxchg16b"), bit::CMPXCHG16B)]);
    Cpu::of(
        __cpuid_count(1, 0).eax,
        (has_1, seven, seven_ecx),
        (usable_1, usable_7),
    )
}

#[cfg(test)]
mod tests {
    /// Goal: the loader and cpuid give the same features.
    #[test]
    fn the_loader_and_the_cpu_agree() {
        let told = super::told().expect("glibc 2.33 or later");
        assert_eq!(format!("{told:?}"), format!("{:?}", super::asked()));
    }
}
