//! A message on stderr about a store or load that a closed pool refused: its kind, and that no data
//! is lost.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::raw;

/// The most refused accesses that are reported where the handler continues.
const TOLD_MAX: u32 = 8;

static TOLD: AtomicU32 = AtomicU32::new(0);

/// si_code values that libc lacks (asm-generic/siginfo.h).
const SEGV_ACCERR: libc::c_int = 2;
const SEGV_PKUERR: libc::c_int = 4;
/// Bit of the page-fault error code: the access was a store (Intel SDM 3A 4.7).
const FAULT_WRITE: i64 = 2;

type Registers = [libc::greg_t; 23];

fn is_store(registers: &Registers) -> bool {
    registers[libc::REG_ERR as usize] & FAULT_WRITE != 0
}

/// Returns whether the fault is a store to a mapped page whose permissions refuse it.
pub(crate) fn is_refused_store(
    signal: libc::c_int,
    code: libc::c_int,
    registers: &Registers,
) -> bool {
    signal == libc::SIGSEGV && code == SEGV_ACCERR && is_store(registers)
}

/// A line of text, built without allocation.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = &mut self.bytes[self.len..];
        let len = text.len().min(left.len());
        left[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// Reports the fault if a mapping of a pool refused the access; `offset_in_pool` converts an
/// address inside a pool. Async-signal-safe.
///
/// # Safety
/// The pointers are those that the kernel gave to a handler of the signal.
pub(crate) unsafe fn tell(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    offset_in_pool: fn(usize) -> Option<usize>,
) {
    // SAFETY: the caller's promise.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if signal != libc::SIGSEGV || !matches!(code, SEGV_ACCERR | SEGV_PKUERR) {
        return;
    }
    let Some(offset) = offset_in_pool(address) else {
        return;
    };
    // The count is read first, so that it never gets far past its end.
    if TOLD.load(Ordering::Relaxed) >= TOLD_MAX || TOLD.fetch_add(1, Ordering::Relaxed) >= TOLD_MAX
    {
        return;
    }
    // SAFETY: as above.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let what = if is_store(registers) {
        "store to"
    } else {
        "load from"
    };
    let by = if code == SEGV_PKUERR {
        "protection key"
    } else {
        "page permissions"
    };
    let mut line = Line {
        bytes: [0; 256],
        len: 0,
    };
    // SAFETY: neither touches memory.
    let [process, thread] =
        [libc::SYS_getpid, libc::SYS_gettid].map(|number| unsafe { raw::call(number, [0; 6]) });
    // Writing to a `Line` can't fail.
    let _ = writeln!(
        line,
        "pmfs: process {process}, thread {thread}: a stray {what} offset {offset:#x} of a pool, outside any write window, was refused ({by}); the pool is unharmed"
    );
    let text = line.bytes.as_ptr().expose_provenance();
    // SAFETY: the line's own bytes.
    unsafe { raw::call(libc::SYS_write, [2, text, line.len, 0, 0, 0]) };
}
