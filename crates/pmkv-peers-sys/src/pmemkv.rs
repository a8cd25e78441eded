//! pmemkv of Intel, whose library no distribution has any more: a directory with it is named.
//!
//! PMFS has a library of the same name and functions. It is no peer, so it is refused: the original
//! stands on libpmemobj, and finds that library's functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use crate::library::{copy, load};
use crate::{Error, Result};

const FILES: [&str; 2] = ["libpmemkv.so", "libpmemkv.so.1"];
/// A function of libpmemobj.
const OF_THE_ORIGINAL: &str = "pmemobj_create";

const OK: c_int = 0;
const NOT_FOUND: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const STOPPED_BY_CB: c_int = 7;
const WRONG_ENGINE_NAME: c_int = 9;

type GetValue = unsafe extern "C" fn(*const c_char, usize, *mut c_void);
type GetEntry =
    unsafe extern "C" fn(*const c_char, usize, *const c_char, usize, *mut c_void) -> c_int;

functions! { Calls:
    pmemkv_config_new() -> *mut c_void;
    pmemkv_config_put_size(*mut c_void, u64) -> c_int;
    pmemkv_config_put_path(*mut c_void, *const c_char) -> c_int;
    pmemkv_config_put_create_if_missing(*mut c_void, bool) -> c_int;
    pmemkv_open(*const c_char, *mut c_void, *mut *mut c_void) -> c_int;
    pmemkv_close(*mut c_void);
    pmemkv_put(*mut c_void, *const u8, usize, *const u8, usize) -> c_int;
    pmemkv_get(*mut c_void, *const u8, usize, GetValue, *mut c_void) -> c_int;
    pmemkv_get_equal_above(*mut c_void, *const u8, usize, GetEntry, *mut c_void) -> c_int;
    pmemkv_remove(*mut c_void, *const u8, usize) -> c_int;
    pmemkv_errormsg() -> *const c_char;
}

/// A database of one of its engines. Its calls may not be used by several threads at once.
pub struct Pmemkv {
    calls: Calls,
    db: *mut c_void,
}

/// A walk that ends after so many keys.
struct Walk<'v> {
    left: usize,
    seen: usize,
    value: &'v mut Vec<u8>,
}

impl Pmemkv {
    /// Makes a database: in the file `path`, or, of a volatile engine, in the directory `path`. Its
    /// library is in a directory that the caller trusts.
    ///
    /// # Errors
    /// `Missing`: the directory has no libpmemkv, or that library lacks the engine, or is PMFS's.
    /// `Failed`: the database can't be made.
    pub fn create(libraries: &Path, engine: &str, path: &Path, bytes: u64) -> Result<Pmemkv> {
        let files = FILES.map(|name| libraries.join(name));
        let files: Vec<PathBuf> = files.into_iter().filter(|file| file.exists()).collect();
        let no = |why: &dyn Display| Error::Missing(format!("{}: {why}", libraries.display()));
        if files.is_empty() {
            return Err(no(&"there is no libpmemkv.so"));
        }
        let library = load(&files).map_err(|why| no(&why))?;
        // SAFETY: the pointer is looked at, not called.
        let original = unsafe { library.get::<*const c_void>(OF_THE_ORIGINAL) };
        if original.is_err() {
            return Err(no(
                &"its libpmemkv does not stand on libpmemobj: is it PMFS's?",
            ));
        }
        let calls = Calls::of(library).map_err(|why| no(&why))?;
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| Error::Failed("a zero in a path".to_owned()))
        };
        let (name, path) = (text(engine.as_bytes())?, text(path.as_os_str().as_bytes())?);
        let mut db = null_mut();
        // SAFETY: the texts end with a zero; `pmemkv_open` takes the configuration as its own.
        let status = unsafe {
            let config = (calls.pmemkv_config_new)();
            (calls.pmemkv_config_put_path)(config, path.as_ptr());
            (calls.pmemkv_config_put_size)(config, bytes);
            (calls.pmemkv_config_put_create_if_missing)(config, true);
            (calls.pmemkv_open)(name.as_ptr(), config, &raw mut db)
        };
        match status {
            OK => Ok(Pmemkv { calls, db }),
            WRONG_ENGINE_NAME => Err(no(&format!("its libpmemkv has no engine {engine}"))),
            status => Err(calls.failed(status)),
        }
    }

    /// A key has this value, durably if the engine is persistent.
    ///
    /// # Errors
    /// `Failed`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the database is open, and the slices are read during the call alone.
        let status = unsafe {
            (self.calls.pmemkv_put)(
                self.db,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            )
        };
        self.calls.is_there(status).map(|_| ())
    }

    /// Whether the key is there; its value is in the buffer then.
    ///
    /// # Errors
    /// `Failed`.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let buffer = (&raw mut *value).cast();
        // SAFETY: as in `put`; the callback alone uses the buffer meanwhile.
        let status = unsafe {
            (self.calls.pmemkv_get)(self.db, key.as_ptr(), key.len(), take_value, buffer)
        };
        self.calls.is_there(status)
    }

    /// Whether the key was there, and is not any more.
    ///
    /// # Errors
    /// `Failed`.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        // SAFETY: as in `put`.
        let status = unsafe { (self.calls.pmemkv_remove)(self.db, key.as_ptr(), key.len()) };
        self.calls.is_there(status)
    }

    /// Copies the values of so many keys, from one on and in their order, each into the buffer;
    /// returns how many there were. `None`: the engine has no order, or no such call.
    ///
    /// # Errors
    /// `Failed`.
    pub fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        let mut walk = Walk {
            left: count,
            seen: 0,
            value,
        };
        let argument = (&raw mut walk).cast();
        // SAFETY: as in `get`.
        let status = unsafe {
            (self.calls.pmemkv_get_equal_above)(
                self.db,
                from.as_ptr(),
                from.len(),
                take_entry,
                argument,
            )
        };
        match status {
            OK | NOT_FOUND | STOPPED_BY_CB => Ok(Some(walk.seen)),
            NOT_SUPPORTED => Ok(None),
            status => Err(self.calls.failed(status)),
        }
    }
}

impl Calls {
    fn is_there(&self, status: c_int) -> Result<bool> {
        match status {
            OK => Ok(true),
            NOT_FOUND => Ok(false),
            status => Err(self.failed(status)),
        }
    }

    fn failed(&self, status: c_int) -> Error {
        // SAFETY: the thread's last error is a text that ends with a zero.
        let text = unsafe { CStr::from_ptr((self.pmemkv_errormsg)()) };
        let text = text.to_string_lossy();
        Error::Failed(format!("pmemkv: status {status}: {text}"))
    }
}

/// # Safety
/// The argument is a buffer that nobody else uses meanwhile, and so many bytes can be read.
unsafe extern "C" fn take_value(start: *const c_char, len: usize, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { copy(start.cast(), len, &mut *argument.cast::<Vec<u8>>()) }
}

/// # Safety
/// The argument is a [`Walk`] that nobody else uses meanwhile, and so many bytes can be read.
unsafe extern "C" fn take_entry(
    _: *const c_char,
    _: usize,
    start: *const c_char,
    len: usize,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let walk = unsafe { &mut *argument.cast::<Walk>() };
    // SAFETY: the caller's promise.
    unsafe { copy(start.cast(), len, walk.value) }
    walk.seen += 1;
    walk.left -= 1;
    c_int::from(walk.left == 0)
}

impl Drop for Pmemkv {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody uses it any more.
        unsafe { (self.calls.pmemkv_close)(self.db) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL_BYTES: u64 = 64 << 20;

    /// Goal: what was put is found, by key and in order. Method: a hash and a tree, where
    /// `PMKV_PEERS` names a directory with the library.
    #[test]
    fn pmemkv_keeps_what_was_put() {
        let Some(libraries) = std::env::var_os("PMKV_PEERS") else {
            return eprintln!("skipped: PMKV_PEERS names no directory with libpmemkv.so");
        };
        let mut value = Vec::new();
        for (engine, is_ordered) in [("cmap", false), ("stree", true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("pool");
            let db = Pmemkv::create(libraries.as_ref(), engine, &path, POOL_BYTES).unwrap();
            for key in [b"a", b"b", b"c"] {
                db.put(key, key).unwrap();
            }
            assert!(db.get(b"b", &mut value).unwrap() && value == b"b");
            assert!(db.delete(b"b").unwrap() && !db.delete(b"b").unwrap());
            assert!(!db.get(b"b", &mut value).unwrap());
            let seen = db.scan(b"b", 1, &mut value).unwrap();
            assert_eq!(seen, is_ordered.then_some(1), "{engine}");
            assert!(!is_ordered || value == b"c");
            assert_eq!(
                db.scan(b"d", 9, &mut value).unwrap(),
                is_ordered.then_some(0)
            );
        }
    }

    #[test]
    fn a_directory_without_the_library_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let made = Pmemkv::create(dir.path(), "cmap", &dir.path().join("pool"), POOL_BYTES);
        let Err(Error::Missing(why)) = made else {
            panic!("it was made")
        };
        assert!(why.contains("libpmemkv.so"), "{why}");
    }
}
