//! The end of a function: a status, and the cause in words.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `PMEMKV_STATUS_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    Ok = 0,
    UnknownError = 1,
    NotFound = 2,
    NotSupported = 3,
    InvalidArgument = 4,
    ConfigTypeError = 6,
    StoppedByCb = 7,
    OutOfMemory = 8,
    WrongEngineName = 9,
}

/// The cause for which a function failed.
pub struct Failure {
    pub status: Status,
    words: Words,
}

enum Words {
    /// Known beforehand, so that an answer like "not found" makes none.
    Known(&'static CStr),
    Made(CString),
}

/// The result of a function's body.
pub type Answer<T> = Result<T, Failure>;

thread_local! {
    static LAST: RefCell<Words> = const { RefCell::new(Words::Known(c"")) };
}

/// A failure whose words are known.
pub fn fail<T>(status: Status, words: &'static CStr) -> Answer<T> {
    let words = Words::Known(words);
    Err(Failure { status, words })
}

/// A failure in words of its own.
pub fn told<T>(status: Status, words: &str) -> Answer<T> {
    let words = Words::Made(CString::new(words.replace('\0', " ")).unwrap_or_default());
    Err(Failure { status, words })
}

pub fn null<T>() -> Answer<T> {
    fail(Status::InvalidArgument, c"a pointer is NULL")
}

pub fn not_found<T>() -> Answer<T> {
    fail(Status::NotFound, c"the key is not there")
}

impl From<pmkv::Error> for Failure {
    fn from(error: pmkv::Error) -> Failure {
        let status = match &error {
            pmkv::Error::TooLarge { .. } => Status::InvalidArgument,
            pmkv::Error::Crowded => Status::OutOfMemory,
            pmkv::Error::Heap(pmlib::Error::Full { .. } | pmlib::Error::Size { .. }) => {
                Status::OutOfMemory
            }
            _ => Status::UnknownError,
        };
        let words = CString::new(error.to_string()).unwrap_or_default();
        let words = Words::Made(words);
        Failure { status, words }
    }
}

/// Runs a function's body. Nothing unwinds into C.
pub fn run(body: impl FnOnce() -> Answer<()>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(_) => Failure {
            status: Status::UnknownError,
            words: Words::Known(c"an invariant is broken: please report it"),
        },
    };
    // A thread that ends has no place for them any more.
    let _ = LAST.try_with(|last| last.replace(failure.words));
    failure.status as c_int
}

/// The words of this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn pmemkv_errormsg() -> *const c_char {
    let words = LAST.try_with(|last| match &*last.borrow() {
        Words::Known(words) => words.as_ptr(),
        Words::Made(words) => words.as_ptr(),
    });
    words.unwrap_or(c"".as_ptr())
}
