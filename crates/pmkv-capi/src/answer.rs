//! The end of a function: its answer, its code, and the cause in words.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pmlib::Error;

/// `enum pmheap_code` of `pmkv.h`, which says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Code {
    Ok = 0,
    Null = 1,
    Handle = 2,
    Thread = 3,
    Argument = 4,
    InUse = 5,
    Overlap = 6,
    Nested = 7,
    Deadlock = 8,
    Forked = 9,
    Heaps = 10,
    NoObject = 20,
    Range = 21,
    Size = 22,
    Class = 23,
    Type = 24,
    Name = 25,
    Full = 26,
    Foreign = 30,
    Version = 31,
    TooSmall = 32,
    Damaged = 33,
    ReadOnly = 34,
    Busy = 35,
    Processes = 36,
    Apart = 37,
    Recovery = 38,
    Shorter = 39,
    Open = 40,
    Exists = 41,
    Space = 42,
    Medium = 43,
    Lost = 44,
    Broken = 45,
    Bug = 50,
}

/// Causes for which a function failed.
pub enum Failure {
    /// The heap said so.
    Heap(Error),
    /// The caller's doing.
    Wrong(Code, &'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Heap(error)
    }
}

/// The result of a function's body.
pub type Answer<T> = Result<T, Failure>;

pub const NULL: Failure = Failure::Wrong(Code::Null, "a pointer is NULL");

/// A value that means nothing.
pub fn wrong<T>(why: &'static str) -> Answer<T> {
    Err(Failure::Wrong(Code::Argument, why))
}

thread_local! {
    static CODE: Cell<Code> = const { Cell::new(Code::Ok) };
    static WORDS: RefCell<CString> = RefCell::default();
}

fn code_of(error: &Error) -> Code {
    match error {
        Error::Medium(error) => code_of_medium(error),
        Error::Foreign { .. } => Code::Foreign,
        Error::Version { .. } | Error::Features { .. } => Code::Version,
        Error::ReadOnly => Code::ReadOnly,
        Error::NeedsRecovery { .. } => Code::Recovery,
        Error::Shorter => Code::Shorter,
        Error::TooSmall { .. } => Code::TooSmall,
        Error::Damaged { .. } => Code::Damaged,
        Error::Busy { .. } => Code::Busy,
        Error::Processes { .. } => Code::Processes,
        Error::Apart(_) => Code::Apart,
        Error::Full { .. } => Code::Full,
        Error::Size { .. } => Code::Size,
        Error::NoObject { .. } => Code::NoObject,
        Error::Class { .. } => Code::Class,
        Error::Type { .. } => Code::Type,
        Error::Name { .. } => Code::Name,
        Error::Range { .. } => Code::Range,
        Error::Deadlock => Code::Deadlock,
        Error::Nested => Code::Nested,
        Error::Forked => Code::Forked,
        Error::Lost { .. } => Code::Lost,
        Error::Broken => Code::Broken,
        Error::Ended => Code::Handle,
        // Those of containers and parts, which C has not, or has by other calls.
        _ => Code::Argument,
    }
}

fn code_of_medium(error: &pmem::Error) -> Code {
    match error {
        pmem::Error::Open { .. } | pmem::Error::NotAFile { .. } => Code::Open,
        pmem::Error::TooSmall { .. } => Code::TooSmall,
        pmem::Error::NoSpace { .. } | pmem::Error::Map { .. } | pmem::Error::NoRoom { .. } => {
            Code::Space
        }
        pmem::Error::Exists { .. } => Code::Exists,
        _ => Code::Medium,
    }
}

/// An error and its sources, which have the kernel's word.
fn words_of(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !words.ends_with(&text) {
            words = format!("{words}: {text}");
        }
        source = cause.source();
    }
    words
}

/// Runs a function's body; answers `failed` and its code if that fails. Nothing unwinds into C.
fn run<T>(body: impl FnOnce() -> Answer<T>) -> Result<T, Code> {
    let (code, words) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            let _ = CODE.try_with(|code| code.set(Code::Ok));
            return Ok(value);
        }
        Ok(Err(Failure::Heap(error))) => (code_of(&error), words_of(&error)),
        Ok(Err(Failure::Wrong(code, words))) => (code, words.to_owned()),
        Err(_) => (
            Code::Bug,
            "an invariant is broken, and the transaction was undone; please report it".to_owned(),
        ),
    };
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no place for them any more.
    let _ = CODE.try_with(|there| there.set(code));
    let _ = WORDS.try_with(|there| {
        if let Ok(mut there) = there.try_borrow_mut() {
            *there = words;
        }
    });
    Err(code)
}

/// Runs a body as [`run`] does, for functions that answer a pointer or an offset.
pub fn answer<T>(failed: T, body: impl FnOnce() -> Answer<T>) -> T {
    run(body).unwrap_or(failed)
}

/// Runs a body as [`run`] does, for functions that answer a code.
pub fn done(body: impl FnOnce() -> Answer<()>) -> Code {
    match run(body) {
        Ok(()) => Code::Ok,
        Err(code) => code,
    }
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pmheap_last_code() -> Code {
    CODE.try_with(Cell::get).unwrap_or(Code::Bug)
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pmheap_error() -> *const c_char {
    let none: &'static CStr = c"";
    if pmheap_last_code() == Code::Ok {
        return none.as_ptr();
    }
    let words = WORDS.try_with(|words| words.try_borrow().map(|words| words.as_ptr()));
    words.ok().and_then(Result::ok).unwrap_or(none.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_that_is_not_as_it_was_has_a_code() {
        let errors = [
            (Error::Broken, Code::Broken),
            (Error::Shorter, Code::Shorter),
        ];
        for (error, code) in errors {
            assert_eq!(done(|| Err(Failure::Heap(error))), code);
            assert_eq!(pmheap_last_code(), code);
        }
    }

    /// Goal: a panic ends at the library's edge. Method: a body that panics.
    #[test]
    fn a_panic_is_a_code() {
        let code = done(|| panic!("on purpose"));
        assert_eq!((code, pmheap_last_code()), (Code::Bug, Code::Bug));
        assert_eq!(answer(7, || panic!("on purpose")), 7);
        // SAFETY: the words stay until the next call.
        let words = unsafe { CStr::from_ptr(pmheap_error()) };
        assert!(words.to_str().unwrap().contains("report"));
        assert_eq!(answer(7, || Ok(8)), 8);
        assert_eq!(pmheap_last_code(), Code::Ok);
    }
}
