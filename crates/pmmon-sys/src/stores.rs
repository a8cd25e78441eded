//! Loops of loads and stores whose number is known: each loop has one instruction that touches the
//! mapping, or as many of them as an access of 128 or 256 bytes needs, and no other store.

use std::arch::asm;
use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The sizes of accesses that there are loops for, in bytes. The last two are made of pieces of 64.
pub const ACCESS_BYTES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// How a store goes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Through the caches.
    Temporal,
    /// Past the caches.
    NonTemporal,
}

/// The work of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Loads.
    Read,
    /// Stores.
    Write(Kind),
}

/// A file, mapped shared.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that only the loops below touch, by raw stores and loads of
// which no reference ever exists.
unsafe impl Send for Mapping {}
// SAFETY: as above; races of the loops change which value is left, and nobody reads it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a file.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, bytes })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and no loop runs any more: they borrow it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Whether this CPU has an instruction for accesses of so many bytes; larger ones are made of
/// several of 64.
#[must_use]
pub fn supported(op: Op, bytes: u32) -> bool {
    match bytes {
        1 | 2 => op != Op::Write(Kind::NonTemporal),
        4 | 8 | 16 => true,
        32 => is_x86_feature_detected!("avx"),
        64 | 128 | 256 => is_x86_feature_detected!("avx512f"),
        _ => false,
    }
}

/// One loop: `$text` accesses `{at}`, the place in the mapping.
macro_rules! each {
    ($base:expr, $offsets:expr, [$($text:literal),+]) => {
        asm!(
            "2:",
            "mov {at:e}, dword ptr [{next}]",
            "add {at}, {base}",
            $($text,)+
            "add {next}, 4",
            "cmp {next}, {end}",
            "jne 2b",
            at = out(reg) _,
            base = in(reg) $base,
            next = inout(reg) $offsets.start => _,
            end = in(reg) $offsets.end,
            out("rax") _,
            out("xmm0") _,
            options(nostack),
        )
    };
}

/// Makes one access at each of the offsets, of so many bytes, and waits for stores that went past
/// the caches.
///
/// # Panics
/// An offset is not within the mapping, or the CPU has no such access ([`supported`]).
pub fn run(mapping: &Mapping, op: Op, bytes: u32, offsets: &[u32]) {
    assert!(supported(op, bytes), "no access of {bytes} bytes");
    let last = mapping.bytes.checked_sub(bytes as usize);
    let last = last.expect("a mapping of at least one access");
    assert!(offsets.iter().all(|offset| *offset as usize <= last));
    if offsets.is_empty() {
        return;
    }
    let base = mapping.start.as_ptr();
    let range = offsets.as_ptr_range();
    // SAFETY: every access lies in the mapping, which lives as long as the borrow; the offsets are
    // read only. Non-temporal and vector accesses are aligned if offsets are multiples of `bytes`,
    // which is checked next; the CPU has the instructions.
    unsafe {
        match op {
            Op::Read => read(base, range, bytes),
            Op::Write(Kind::Temporal) => store(base, range, bytes),
            Op::Write(Kind::NonTemporal) => {
                let aligned = offsets.iter().all(|offset| offset.is_multiple_of(bytes));
                assert!(aligned, "stores past the caches are aligned");
                stream(base, range, bytes);
            }
        }
    }
}

type Offsets = std::ops::Range<*const u32>;

/// # Safety
/// [`run`] has checked its arguments.
unsafe fn store(base: *mut u8, offsets: Offsets, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            1 => each!(base, offsets, ["mov byte ptr [{at}], al"]),
            2 => each!(base, offsets, ["mov word ptr [{at}], ax"]),
            4 => each!(base, offsets, ["mov dword ptr [{at}], eax"]),
            8 => each!(base, offsets, ["mov qword ptr [{at}], rax"]),
            16 => each!(base, offsets, ["movups [{at}], xmm0"]),
            32 => each!(base, offsets, ["vmovups [{at}], ymm0"]),
            64 => each!(base, offsets, ["vmovups [{at}], zmm0"]),
            128 => each!(
                base,
                offsets,
                ["vmovups [{at}], zmm0", "vmovups [{at} + 64], zmm0"]
            ),
            _ => each!(
                base,
                offsets,
                [
                    "vmovups [{at}], zmm0",
                    "vmovups [{at} + 64], zmm0",
                    "vmovups [{at} + 128], zmm0",
                    "vmovups [{at} + 192], zmm0"
                ]
            ),
        }
    }
}

/// # Safety
/// [`run`] has checked its arguments.
unsafe fn stream(base: *mut u8, offsets: Offsets, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            4 => each!(base, offsets, ["movnti [{at}], eax"]),
            8 => each!(base, offsets, ["movnti [{at}], rax"]),
            16 => each!(base, offsets, ["movntdq [{at}], xmm0"]),
            32 => each!(base, offsets, ["vmovntdq [{at}], ymm0"]),
            64 => each!(base, offsets, ["vmovntdq [{at}], zmm0"]),
            128 => each!(
                base,
                offsets,
                ["vmovntdq [{at}], zmm0", "vmovntdq [{at} + 64], zmm0"]
            ),
            _ => each!(
                base,
                offsets,
                [
                    "vmovntdq [{at}], zmm0",
                    "vmovntdq [{at} + 64], zmm0",
                    "vmovntdq [{at} + 128], zmm0",
                    "vmovntdq [{at} + 192], zmm0"
                ]
            ),
        }
        asm!("sfence", options(nostack, preserves_flags));
    }
}

/// # Safety
/// [`run`] has checked its arguments.
unsafe fn read(base: *mut u8, offsets: Offsets, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            1 => each!(base, offsets, ["mov al, byte ptr [{at}]"]),
            2 => each!(base, offsets, ["mov ax, word ptr [{at}]"]),
            4 => each!(base, offsets, ["mov eax, dword ptr [{at}]"]),
            8 => each!(base, offsets, ["mov rax, qword ptr [{at}]"]),
            16 => each!(base, offsets, ["movups xmm0, [{at}]"]),
            32 => each!(base, offsets, ["vmovups ymm0, [{at}]"]),
            64 => each!(base, offsets, ["vmovups zmm0, [{at}]"]),
            128 => each!(
                base,
                offsets,
                ["vmovups zmm0, [{at}]", "vmovups zmm0, [{at} + 64]"]
            ),
            _ => each!(
                base,
                offsets,
                [
                    "vmovups zmm0, [{at}]",
                    "vmovups zmm0, [{at} + 64]",
                    "vmovups zmm0, [{at} + 128]",
                    "vmovups zmm0, [{at} + 192]"
                ]
            ),
        }
    }
}
