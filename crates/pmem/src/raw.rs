//! System calls of a signal handler, by the instruction instead of libc. A face may have patched
//! libc, and would mistake a call on a handler's stack for the program's.

use std::arch::asm;

/// Makes a system call and returns the kernel's answer: a negative errno if it fails.
///
/// # Safety
/// The rules of the system call itself.
pub(crate) unsafe fn call(number: libc::c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let answer: isize;
    // SAFETY: the kernel's convention; it changes rax, rcx and r11 alone, and memory as the call
    // does (the caller's promise).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_refusals() {
        // SAFETY: neither touches memory.
        let (process, refused) = unsafe {
            (
                call(libc::SYS_getpid, [0; 6]),
                call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]),
            )
        };
        assert_eq!(process, std::process::id() as isize);
        assert_eq!(refused, -(libc::EBADF as isize));
    }
}
