//! RocksDB: a new database whose puts and deletes are synced, without compression.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use crate::library::{copy, load};
use crate::{Error, Result};

/// Names of the library, without and with the version that Debian 12 has.
const NAMES: [&str; 2] = ["librocksdb.so", "librocksdb.so.7.8"];
const MISSING: &str = "librocksdb is missing: apt-get install librocksdb7.8";
/// No compression, of the values that a database may have.
const PLAIN: c_int = 0;

functions! { Calls:
    rocksdb_options_create() -> *mut c_void;
    rocksdb_options_destroy(*mut c_void);
    rocksdb_options_set_create_if_missing(*mut c_void, c_uchar);
    rocksdb_options_set_compression(*mut c_void, c_int);
    rocksdb_readoptions_create() -> *mut c_void;
    rocksdb_readoptions_destroy(*mut c_void);
    rocksdb_writeoptions_create() -> *mut c_void;
    rocksdb_writeoptions_destroy(*mut c_void);
    rocksdb_writeoptions_set_sync(*mut c_void, c_uchar);
    rocksdb_open(*const c_void, *const c_char, *mut *mut c_char) -> *mut c_void;
    rocksdb_close(*mut c_void);
    rocksdb_put(*mut c_void, *const c_void, *const u8, usize, *const u8, usize, *mut *mut c_char);
    rocksdb_delete(*mut c_void, *const c_void, *const u8, usize, *mut *mut c_char);
    rocksdb_get_pinned(*mut c_void, *const c_void, *const u8, usize, *mut *mut c_char) -> *mut c_void;
    rocksdb_pinnableslice_value(*const c_void, *mut usize) -> *const u8;
    rocksdb_pinnableslice_destroy(*mut c_void);
    rocksdb_create_iterator(*mut c_void, *const c_void) -> *mut c_void;
    rocksdb_iter_destroy(*mut c_void);
    rocksdb_iter_seek(*mut c_void, *const u8, usize);
    rocksdb_iter_valid(*const c_void) -> c_uchar;
    rocksdb_iter_next(*mut c_void);
    rocksdb_iter_value(*const c_void, *mut usize) -> *const u8;
    rocksdb_iter_get_error(*const c_void, *mut *mut c_char);
    rocksdb_free(*mut c_void);
}

/// A database. Its calls may be used by several threads at once, but this is not offered.
pub struct RocksDb {
    calls: Calls,
    db: *mut c_void,
    read: *mut c_void,
    write: *mut c_void,
}

impl RocksDb {
    /// Makes a database in a directory, or opens the one that is there.
    ///
    /// # Errors
    /// `Missing`: there is no librocksdb. `Failed`: the database can't be opened.
    pub fn open(dir: &Path) -> Result<RocksDb> {
        let missing = |why| Error::Missing(format!("{MISSING} ({why})"));
        let library = load(&NAMES).map_err(|_| Error::Missing(MISSING.to_owned()))?;
        let calls = Calls::of(library).map_err(missing)?;
        let path = CString::new(dir.as_os_str().as_bytes())
            .map_err(|_| Error::Failed(format!("{} is no path", dir.display())))?;
        let mut error = null_mut();
        // SAFETY: the options live until after the call, and the path ends with a zero.
        let db = unsafe {
            let options = (calls.rocksdb_options_create)();
            (calls.rocksdb_options_set_create_if_missing)(options, 1);
            (calls.rocksdb_options_set_compression)(options, PLAIN);
            let db = (calls.rocksdb_open)(options, path.as_ptr(), &raw mut error);
            (calls.rocksdb_options_destroy)(options);
            db
        };
        calls.told(error)?;
        // SAFETY: these make options of their own, which the database here destroys.
        let (read, write) = unsafe {
            let write = (calls.rocksdb_writeoptions_create)();
            (calls.rocksdb_writeoptions_set_sync)(write, 1);
            ((calls.rocksdb_readoptions_create)(), write)
        };
        Ok(RocksDb {
            calls,
            db,
            read,
            write,
        })
    }

    /// A key has this value, durably.
    ///
    /// # Errors
    /// `Failed`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: database and options are open, and the slices are read during the call alone.
        unsafe {
            (self.calls.rocksdb_put)(
                self.db,
                self.write,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &raw mut error,
            );
        }
        self.calls.told(error)
    }

    /// The key is not there any more, durably. Whether it was is not known.
    ///
    /// # Errors
    /// `Failed`.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: as in `put`.
        unsafe {
            (self.calls.rocksdb_delete)(
                self.db,
                self.write,
                key.as_ptr(),
                key.len(),
                &raw mut error,
            );
        }
        self.calls.told(error)
    }

    /// Whether the key is there; its value is in the buffer then.
    ///
    /// # Errors
    /// `Failed`.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut error = null_mut();
        // SAFETY: as in `put`.
        let found = unsafe {
            (self.calls.rocksdb_get_pinned)(
                self.db,
                self.read,
                key.as_ptr(),
                key.len(),
                &raw mut error,
            )
        };
        self.calls.told(error)?;
        if found.is_null() {
            return Ok(false);
        }
        let mut len = 0;
        // SAFETY: the slice is pinned until it is destroyed, after it was copied.
        unsafe {
            let start = (self.calls.rocksdb_pinnableslice_value)(found, &raw mut len);
            copy(start, len, value);
            (self.calls.rocksdb_pinnableslice_destroy)(found);
        }
        Ok(true)
    }

    /// Copies the values of so many keys, from one on and in their order, each into the buffer;
    /// returns how many there were.
    ///
    /// # Errors
    /// `Failed`.
    pub fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<usize> {
        let (mut seen, mut error, mut len) = (0, null_mut(), 0);
        // SAFETY: the iterator lives until it is destroyed, and a value until it goes on.
        unsafe {
            let walk = (self.calls.rocksdb_create_iterator)(self.db, self.read);
            (self.calls.rocksdb_iter_seek)(walk, from.as_ptr(), from.len());
            while seen < count && (self.calls.rocksdb_iter_valid)(walk) != 0 {
                let start = (self.calls.rocksdb_iter_value)(walk, &raw mut len);
                copy(start, len, value);
                (self.calls.rocksdb_iter_next)(walk);
                seen += 1;
            }
            (self.calls.rocksdb_iter_get_error)(walk, &raw mut error);
            (self.calls.rocksdb_iter_destroy)(walk);
        }
        self.calls.told(error)?;
        Ok(seen)
    }
}

impl Calls {
    /// An error that a call has left, if it has.
    fn told(&self, error: *mut c_char) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: an error is a text that ends with a zero, and the caller's to free.
        let text = unsafe {
            let text = CStr::from_ptr(error).to_string_lossy().into_owned();
            (self.rocksdb_free)(error.cast());
            text
        };
        Err(Error::Failed(format!("RocksDB: {text}")))
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: these are open, and nobody uses them any more.
        unsafe {
            (self.calls.rocksdb_readoptions_destroy)(self.read);
            (self.calls.rocksdb_writeoptions_destroy)(self.write);
            (self.calls.rocksdb_close)(self.db);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was put is found, by key and in order, also by one who opens it later. Method:
    /// a small database, opened twice.
    #[test]
    fn rocksdb_keeps_what_was_put() {
        let dir = tempfile::tempdir().unwrap();
        let mut value = Vec::new();
        let db = match RocksDb::open(dir.path()) {
            Ok(db) => db,
            Err(Error::Missing(why)) => return eprintln!("skipped: {why}"),
            Err(why) => panic!("{why}"),
        };
        for key in [b"a", b"b", b"c"] {
            db.put(key, key).unwrap();
        }
        db.put(b"empty", b"").unwrap();
        drop(db);
        let db = RocksDb::open(dir.path()).unwrap();
        assert!(db.get(b"b", &mut value).unwrap() && value == b"b");
        assert!(db.get(b"empty", &mut value).unwrap() && value.is_empty());
        db.delete(b"b").unwrap();
        db.delete(b"b").unwrap();
        assert!(!db.get(b"b", &mut value).unwrap());
        assert_eq!(db.scan(b"b", 1, &mut value).unwrap(), 1);
        assert_eq!(value, b"c");
        assert_eq!(db.scan(b"", 9, &mut value).unwrap(), 3);
        drop(db);
        let other = RocksDb::open(&dir.path().join("none").join("there"));
        assert!(matches!(other, Err(Error::Failed(why)) if why.contains("RocksDB: ")));
    }
}
