//! The end of a function: its answer, its code, and the cause in words.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
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
    Engines = 11,
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
    NoKey = 60,
    Expected = 61,
    Short = 62,
    TooLarge = 63,
    Corrupt = 64,
    Shape = 65,
    Crowded = 66,
    Stopped = 67,
    Ended = 68,
}

/// Causes for which a function failed.
pub enum Failure {
    /// The heap said so.
    Heap(Error),
    /// A key-value engine said so.
    Engine(pmkv::Error),
    /// The caller's doing.
    Wrong(Code, &'static str),
    /// An answer that is no mistake. The words are those of the code, so that none are made.
    Plain(Code),
}

impl Failure {
    /// The same once more; for those that are no error of a heap.
    pub fn again(&self) -> Failure {
        match self {
            Failure::Wrong(code, words) => Failure::Wrong(*code, words),
            Failure::Plain(code) => Failure::Plain(*code),
            Failure::Heap(_) | Failure::Engine(_) => Failure::Plain(Code::Bug),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Heap(error)
    }
}

impl From<pmkv::Error> for Failure {
    fn from(error: pmkv::Error) -> Failure {
        match error {
            pmkv::Error::Heap(error) => Failure::Heap(error),
            error => Failure::Engine(error),
        }
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
    /// Whether the words are the code's.
    static IS_PLAIN: Cell<bool> = const { Cell::new(false) };
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

fn code_of_engine(error: &pmkv::Error) -> Code {
    match error {
        pmkv::Error::Heap(error) => code_of(error),
        pmkv::Error::TooLarge { .. } => Code::TooLarge,
        pmkv::Error::Corrupt { .. } => Code::Corrupt,
        pmkv::Error::Damaged { .. } => Code::Damaged,
        pmkv::Error::Shape { .. } | pmkv::Error::Kind { .. } => Code::Shape,
        pmkv::Error::Crowded => Code::Crowded,
        pmkv::Error::Held { .. } => Code::Full,
        pmkv::Error::Ended => Code::Ended,
        pmkv::Error::Apart => Code::Argument,
        // A later one, which has no number yet.
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
fn words_of(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
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
        Ok(Err(Failure::Plain(code))) => {
            let _ = CODE.try_with(|there| there.set(code));
            let _ = IS_PLAIN.try_with(|is_plain| is_plain.set(true));
            return Err(code);
        }
        Ok(Err(Failure::Heap(error))) => (code_of(&error), words_of(&error)),
        Ok(Err(Failure::Engine(error))) => (code_of_engine(&error), words_of(&error)),
        Ok(Err(Failure::Wrong(code, words))) => (code, words.to_owned()),
        Err(_) => (
            Code::Bug,
            "an invariant is broken, and the transaction was undone; please report it".to_owned(),
        ),
    };
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no place for them any more.
    let _ = CODE.try_with(|there| there.set(code));
    let _ = IS_PLAIN.try_with(|is_plain| is_plain.set(false));
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
    let code = pmheap_last_code();
    if code == Code::Ok {
        return none.as_ptr();
    }
    if IS_PLAIN.try_with(Cell::get) == Ok(true) {
        return pmkv_strerror(code as c_int);
    }
    let words = WORDS.try_with(|words| words.try_borrow().map(|words| words.as_ptr()));
    words.ok().and_then(Result::ok).unwrap_or(none.as_ptr())
}

/// Each code, with its text.
const TEXTS: &[(Code, &CStr)] = &[
    (Code::Ok, c"no error"),
    (Code::Null, c"a pointer is NULL"),
    (Code::Handle, c"no such heap, transaction or engine"),
    (Code::Thread, c"the transaction is another thread's"),
    (Code::Argument, c"a value that means nothing"),
    (Code::InUse, c"something of it is still open"),
    (Code::Overlap, c"an edited range overlaps this one in part"),
    (Code::Nested, c"this thread has a transaction of the heap"),
    (
        Code::Deadlock,
        c"the holder of a lock waits for this transaction",
    ),
    (Code::Forked, c"it was opened before fork: open it again"),
    (Code::Heaps, c"256 heaps are open in this process"),
    (Code::Engines, c"256 engines are open in this process"),
    (Code::NoObject, c"no object is there"),
    (Code::Range, c"bytes that are not all in the object"),
    (Code::Size, c"an object of no bytes, or of too many"),
    (Code::Class, c"the object has fewer bytes than its type"),
    (Code::Type, c"the root is of another type"),
    (Code::Name, c"a name of no bytes, or of more than 255"),
    (Code::Full, c"there is no room, and none can be had"),
    (Code::Foreign, c"the file holds something else"),
    (
        Code::Version,
        c"a later version of the library made the heap",
    ),
    (Code::TooSmall, c"too few bytes for a heap"),
    (Code::Damaged, c"the heap or the engine is damaged"),
    (Code::ReadOnly, c"the heap was opened to be read"),
    (
        Code::Busy,
        c"another process attaches or leaves, for too long",
    ),
    (Code::Processes, c"as many processes have the heap as can"),
    (
        Code::Apart,
        c"the heap can't be shared with those who have it, or is a copy",
    ),
    (Code::Recovery, c"the heap has to be opened once to write"),
    (
        Code::Shorter,
        c"the heap has become shorter since it was opened",
    ),
    (Code::Open, c"the path or the rights to it are wrong"),
    (Code::Exists, c"a file is there already"),
    (
        Code::Space,
        c"the medium or the machine's memory has no room",
    ),
    (Code::Medium, c"the medium can't be used"),
    (
        Code::Lost,
        c"the medium failed: whether the call has happened is not known",
    ),
    (
        Code::Broken,
        c"an earlier call broke off in a commit: open the heap again",
    ),
    (Code::Bug, c"a bug of the library: please report it"),
    (Code::NoKey, c"the key is not there"),
    (Code::Expected, c"the key is not as expected"),
    (Code::Short, c"the buffer has fewer bytes than the value"),
    (
        Code::TooLarge,
        c"a key of more than 64 KiB, or a value of more than 4 GiB",
    ),
    (
        Code::Corrupt,
        c"a record is damaged: its check does not fit",
    ),
    (
        Code::Shape,
        c"the engine is of another kind, or of a later version",
    ),
    (Code::Crowded, c"the index has no room for this key"),
    (Code::Stopped, c"the callback has ended it"),
    (
        Code::Ended,
        c"the session or snapshot has lasted longer than it may, and was ended",
    ),
];

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pmkv_strerror(code: c_int) -> *const c_char {
    let found = TEXTS.iter().find(|(each, _)| *each as c_int == code);
    found.map_or(c"no such code", |(_, text)| text).as_ptr()
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
