//! A loop whose code is made at run time, as a compiler of another language would: no file has it.

use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::{Kind, Mapping, Op, check, supported};

/// Bytes of a page, which holds a loop.
const PAGE_BYTES: usize = 4096;

/// A loop of accesses of 1 to 16 bytes, made at run time.
#[derive(Debug)]
pub struct Compiled {
    code: NonNull<u8>,
    length: usize,
    op: Op,
    bytes: u32,
}

// SAFETY: the page is only read and run after `new` has written it.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

/// The instruction on `[rcx]`. `None` if there is none that needs no more than SSE2.
fn instruction(op: Op, bytes: u32) -> Option<&'static [u8]> {
    Some(match (op, bytes) {
        (Op::Write(Kind::Temporal), 1) => &[0x88, 0x01],
        (Op::Write(Kind::Temporal), 2) => &[0x66, 0x89, 0x01],
        (Op::Write(Kind::Temporal), 4) => &[0x89, 0x01],
        (Op::Write(Kind::Temporal), 8) => &[0x48, 0x89, 0x01],
        (Op::Write(Kind::Temporal), 16) => &[0x0f, 0x11, 0x01],
        (Op::Write(Kind::NonTemporal), 4) => &[0x0f, 0xc3, 0x01],
        (Op::Write(Kind::NonTemporal), 8) => &[0x48, 0x0f, 0xc3, 0x01],
        (Op::Write(Kind::NonTemporal), 16) => &[0x66, 0x0f, 0xe7, 0x01],
        (Op::Read, 1) => &[0x8a, 0x01],
        (Op::Read, 2) => &[0x66, 0x8b, 0x01],
        (Op::Read, 4) => &[0x8b, 0x01],
        (Op::Read, 8) => &[0x48, 0x8b, 0x01],
        (Op::Read, 16) => &[0x0f, 0x10, 0x01],
        _ => return None,
    })
}

/// The loop: `mov ecx, [rsi]; add rcx, rdi; ...; add rsi, 4; cmp rsi, rdx; jne; sfence; ret`.
fn code(instruction: &[u8]) -> Vec<u8> {
    let mut code = vec![0x8b, 0x0e, 0x48, 0x01, 0xf9];
    code.extend_from_slice(instruction);
    code.extend_from_slice(&[0x48, 0x83, 0xc6, 0x04, 0x48, 0x39, 0xd6, 0x75]);
    let back = code.len() as u8 + 1;
    code.push(back.wrapping_neg());
    code.extend_from_slice(&[0x0f, 0xae, 0xf8, 0xc3]);
    code
}

impl Compiled {
    /// Makes the loop.
    ///
    /// # Errors
    /// `Unsupported` for sizes and kinds that have none; those of mmap(2) and mprotect(2).
    pub fn new(op: Op, bytes: u32) -> io::Result<Self> {
        let body = instruction(op, bytes).filter(|_| supported(op, bytes));
        let body = body.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let text = code(body);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(null_mut(), PAGE_BYTES, protection, MapFlags::PRIVATE) };
        let start = NonNull::new(start?.cast::<u8>()).ok_or_else(|| io::Error::other("at 0"))?;
        let made = Self {
            code: start,
            length: text.len(),
            op,
            bytes,
        };
        // SAFETY: the page is ours and writable, and the loop is shorter than it.
        unsafe {
            start
                .as_ptr()
                .copy_from_nonoverlapping(text.as_ptr(), text.len())
        };
        let runnable = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the page is ours, and nothing is stored into it from here on.
        unsafe { mprotect(start.as_ptr().cast(), PAGE_BYTES, runnable) }?;
        Ok(made)
    }

    /// Where its code is, for `/tmp/perf-PID.map`.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        let start = self.code.as_ptr() as u64;
        start..start + self.length as u64
    }

    /// Makes one access at each of the offsets.
    ///
    /// # Panics
    /// An offset is not within the mapping, or not aligned.
    pub fn run(&self, mapping: &Mapping, offsets: &[u32]) {
        check(mapping, self.bytes, offsets);
        let aligned = offsets.iter().all(|at| at.is_multiple_of(self.bytes));
        assert!(aligned || self.op == Op::Read, "stores are aligned");
        if offsets.is_empty() {
            return;
        }
        let range = offsets.as_ptr_range();
        // SAFETY: `new` has written a function of this type there, which keeps the calling
        // convention: it changes RCX, RSI, RAX, XMM0 and flags.
        let run: unsafe extern "sysv64" fn(*mut u8, *const u32, *const u32) =
            unsafe { std::mem::transmute(self.code.as_ptr()) };
        // SAFETY: each access lies in the mapping (`check`), and offsets are only read.
        unsafe { run(mapping.start.as_ptr(), range.start, range.end) };
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and nobody runs it: `run` borrows it.
        let _ = unsafe { munmap(self.code.as_ptr().cast(), PAGE_BYTES) };
    }
}
