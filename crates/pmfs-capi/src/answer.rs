//! The end of a function: its answer, errno, and the cause in words for `pmfs_error`.

use pmfs::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Causes for which a function failed.
pub enum Failure {
    /// The engine said so.
    Engine(Error),
    /// The caller's doing: errno, and why.
    Wrong(i32, &'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

/// The result of a function's body.
pub type Answer<T> = Result<T, Failure>;

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// The most walks of a path whose file was gone between lookup and use because others replaced it.
const AGAIN_MAX: u32 = 1000;

/// Runs a function's body, again if it met a file that was gone and so has changed
/// nothing; `failed` is what it answers if that fails. Nothing unwinds into C.
pub fn answer<T>(failed: T, mut body: impl FnMut() -> Answer<T>) -> T {
    let again = || {
        let mut answer = body();
        for _ in 0..AGAIN_MAX {
            if !matches!(answer, Err(Failure::Engine(Error::Stale))) {
                break;
            }
            answer = body();
        }
        answer
    };
    let (errno, words) = match catch_unwind(AssertUnwindSafe(again)) {
        Ok(Ok(value)) => return value,
        Ok(Err(Failure::Engine(error))) => (error.errno().raw_os_error(), error.to_string()),
        Ok(Err(Failure::Wrong(errno, words))) => (errno, words.to_owned()),
        Err(_) => (
            libc::EIO,
            "an invariant is broken, and the pool was let go; please report it".to_owned(),
        ),
    };
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    WORDS.with_borrow_mut(|there| *there = words);
    // SAFETY: errno's place is this thread's.
    unsafe { *libc::__errno_location() = errno };
    failed
}

/// Runs a body as [`answer`] does, for functions that answer 0.
pub fn done(mut body: impl FnMut() -> Answer<()>) -> i32 {
    answer(-1, || body().map(|()| 0))
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pmfs_error() -> *const c_char {
    WORDS.with_borrow(|words| words.as_ptr())
}
