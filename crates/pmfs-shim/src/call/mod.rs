//! A system call: its arrival, its class and its answer.

pub(crate) mod class;

use pmfs::Error;

/// The kernel refuses all numbers from here on.
pub(crate) const NUMBERS: usize = 512;

/// A system call, as the entry leaves it on the library's stack.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Call {
    /// The number; on return, the program's result.
    pub rax: u64,
    /// Its arguments.
    pub args: [u64; 6],
    unused: u64,
    /// xmm0 to xmm15, which libc's compiler knows `syscall` to keep. Stubs for sites where libc
    /// can't use that (`pmfs-patch` knows them) skip it and save a fifteenth of a short call.
    vectors: [[u8; 16]; 16],
}

impl Call {
    /// An argument, loaded as it was stored. The compiler would load two at once, which has to wait
    /// until both stores reach the cache.
    #[inline(always)]
    pub fn arg(&self, at: usize) -> u64 {
        // SAFETY: a word of our own. Volatile reads are not made one.
        unsafe { (&raw const self.args[at]).read_volatile() }
    }
}

/// Bytes of [`Call`].
pub(crate) const FRAME: usize = 320;
const _: () = assert!(size_of::<Call>() == FRAME);

/// The answer of a call: a result, or an errno.
pub(crate) type Answer = Result<u64, i32>;

/// The errno of an engine's error.
pub(crate) fn errno(error: Error) -> i32 {
    error.errno().raw_os_error()
}

/// Converts the kernel's answer.
pub(crate) fn kernel_answer(answer: i64) -> Answer {
    if answer < 0 {
        Err(-answer as i32)
    } else {
        Ok(answer as u64)
    }
}

/// The treatment of a call.
pub(crate) enum Verdict {
    /// The kernel executes the call.
    Pass,
    /// The call is done, with the program's rax: a result, or a negative errno. Two plain words fit
    /// into registers.
    Done(u64),
    /// The call is repeated, after signals have been handled.
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

    /// Returns whether the call failed with this errno.
    pub fn is_error(&self, errno: i32) -> bool {
        matches!(self, Verdict::Done(rax) if *rax == in_rax(errno))
    }

    /// The answer in the rax that the program gets.
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
