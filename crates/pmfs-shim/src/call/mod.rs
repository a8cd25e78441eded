//! A system call: how it arrives, which there are, and what becomes of it.

pub(crate) mod class;

use pmfs::Error;

/// Numbers from here on are the kernel's to refuse.
pub(crate) const NUMBERS: usize = 512;

/// A system call, as the entry leaves it on the library's stack.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Call {
    /// Its number; on return, what the program gets.
    pub rax: u64,
    /// Its arguments.
    pub args: [u64; 6],
    unused: u64,
    /// xmm0 to xmm15, which libc's compiler knows `syscall` to keep. Where it can't have used that
    /// (`pmfs-patch` knows) stubs save a fifteenth of a short call by the entry without.
    vectors: [[u8; 16]; 16],
}

impl Call {
    /// One argument, as it was stored: two at once, as the compiler would have them,
    /// have to wait for both stores to reach the cache.
    #[inline(always)]
    pub fn arg(&self, at: usize) -> u64 {
        // SAFETY: a word of our own. Volatile reads are not made one.
        unsafe { (&raw const self.args[at]).read_volatile() }
    }
}

/// Bytes of [`Call`].
pub(crate) const FRAME: usize = 320;
const _: () = assert!(size_of::<Call>() == FRAME);

/// The answer of a call: a number, or an errno.
pub(crate) type Answer = Result<u64, i32>;

/// The engine's error as a number.
pub(crate) fn errno(error: Error) -> i32 {
    error.errno().raw_os_error()
}

/// The kernel's answer.
pub(crate) fn kernel_answer(answer: i64) -> Answer {
    if answer < 0 {
        Err(-answer as i32)
    } else {
        Ok(answer as u64)
    }
}

/// The treatment of a call.
pub(crate) enum Verdict {
    /// The kernel is to do it.
    Pass,
    /// It is done: what the program gets in rax, a number or an errno below 0. Two
    /// plain words, which a function answers in registers.
    Done(u64),
    /// It is to be done again, once signals have been handled.
    Again,
}

impl Verdict {
    #[inline]
    pub fn done(answer: Answer) -> Verdict {
        Verdict::Done(match answer {
            Ok(value) => value,
            Err(errno) => in_rax(errno),
        })
    }

    /// Returns whether it failed for this reason.
    pub fn is_error(&self, errno: i32) -> bool {
        matches!(self, Verdict::Done(rax) if *rax == in_rax(errno))
    }

    /// The answer that the program gets.
    pub fn answer(rax: u64) -> Answer {
        const ERRNO_MAX: i64 = 4095;
        let value = rax as i64;
        if (-ERRNO_MAX..0).contains(&value) {
            Err(-value as i32)
        } else {
            Ok(rax)
        }
    }
}

impl From<Answer> for Verdict {
    #[inline]
    fn from(answer: Answer) -> Verdict {
        Verdict::done(answer)
    }
}

const fn in_rax(errno: i32) -> u64 {
    -(errno as i64) as u64
}
