//! The loops, by size and instruction.

use std::arch::asm;

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

/// Loops of stores by size; the texts in brackets follow the stores of 64, 128 and 256 bytes and
/// write lines back.
macro_rules! stores {
    ($base:expr, $offsets:expr, $bytes:expr, [$($one:literal)?], [$($two:literal)?], [$($four:literal)*]) => {
        match $bytes {
            1 => each!($base, $offsets, ["mov byte ptr [{at}], al" $(, $one)?]),
            2 => each!($base, $offsets, ["mov word ptr [{at}], ax" $(, $one)?]),
            4 => each!($base, $offsets, ["mov dword ptr [{at}], eax" $(, $one)?]),
            8 => each!($base, $offsets, ["mov qword ptr [{at}], rax" $(, $one)?]),
            16 => each!($base, $offsets, ["movups [{at}], xmm0" $(, $one)?]),
            32 => each!($base, $offsets, ["vmovups [{at}], ymm0" $(, $one)?]),
            64 => each!($base, $offsets, ["vmovups [{at}], zmm0" $(, $one)?]),
            128 => each!(
                $base,
                $offsets,
                ["vmovups [{at}], zmm0", "vmovups [{at} + 64], zmm0" $(, $one)? $(, $two)?]
            ),
            _ => each!(
                $base,
                $offsets,
                [
                    "vmovups [{at}], zmm0",
                    "vmovups [{at} + 64], zmm0",
                    "vmovups [{at} + 128], zmm0",
                    "vmovups [{at} + 192], zmm0"
                    $(, $one)? $(, $two)? $(, $four)*
                ]
            ),
        }
    };
}

/// The places of accesses, as bytes from the mapping's start.
pub(super) type Offsets = std::ops::Range<*const u32>;

/// # Safety
/// `run` has checked its arguments.
pub(super) unsafe fn store(base: *mut u8, offsets: Offsets, bytes: u32) {
    // SAFETY: the caller's.
    unsafe { stores!(base, offsets, bytes, [], [], []) }
}

/// # Safety
/// `run` has checked its arguments, and that the CPU has `clwb`.
pub(super) unsafe fn store_flushed(base: *mut u8, offsets: Offsets, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        stores!(
            base,
            offsets,
            bytes,
            ["clwb [{at}]"],
            ["clwb [{at} + 64]"],
            ["clwb [{at} + 128]" "clwb [{at} + 192]"]
        );
        asm!("sfence", options(nostack, preserves_flags));
    }
}

/// # Safety
/// `run` has checked its arguments.
pub(super) unsafe fn stream(base: *mut u8, offsets: Offsets, bytes: u32) {
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
/// `run` has checked its arguments.
pub(super) unsafe fn read(base: *mut u8, offsets: Offsets, bytes: u32) {
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
