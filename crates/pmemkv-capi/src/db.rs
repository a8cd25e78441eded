//! Databases, and the calls on them.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::config::Config;
use crate::open::Engine;
use crate::pointers::{bytes, lend, put, take_back, text, there};
use crate::range::Keys;
use crate::status::{Answer, Status, fail, not_found, null, run};

/// A thread keeps its buffer for values up to so many bytes.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// The buffer for values, while no call has it.
    static VALUE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// `pmemkv_db`.
pub struct Db {
    pub engine: Engine,
    /// It has become the database's, and may have what the program's functions refer to.
    _config: Box<Config>,
}

type ShowValue = Option<unsafe extern "C" fn(*const c_char, usize, *mut c_void)>;
pub type ShowEntry =
    Option<unsafe extern "C" fn(*const c_char, usize, *const c_char, usize, *mut c_void) -> c_int>;

/// Only sorted engines have it.
pub fn unsorted<T>() -> Answer<T> {
    fail(Status::NotSupported, c"the engine is not sorted")
}

impl Db {
    /// Hands a value on; `NotFound`: the key is not there.
    pub fn with_value<T>(&self, key: &[u8], body: impl FnOnce(&[u8]) -> Answer<T>) -> Answer<T> {
        let Engine::Stored(stored) = &self.engine else {
            return not_found();
        };
        let mut value = VALUE.try_with(Cell::take).unwrap_or_default();
        let done = match stored.kv().get_into(key, &mut value) {
            Ok(true) => body(&value),
            Ok(false) => not_found(),
            Err(error) => Err(error.into()),
        };
        if value.capacity() <= KEPT_BYTES {
            // A thread that ends keeps none.
            let _ = VALUE.try_with(|kept| kept.set(value));
        }
        done
    }

    /// Shows the keys of a range with their values. A damaged record is told when the others have
    /// come.
    pub fn each(&self, keys: Keys, show: ShowEntry, argument: *mut c_void) -> Answer<()> {
        let Engine::Stored(stored) = &self.engine else {
            return not_found();
        };
        let Some(show) = show else {
            return null();
        };
        let mut damaged = Ok(());
        let mut entries = stored.kv().between(keys.0, keys.1);
        while let Some(entry) = entries.next_ref() {
            let (key, value) = match entry {
                Ok(entry) => entry,
                Err(error @ pmkv::Error::Corrupt { .. }) => {
                    damaged = Err(error.into());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let (of_key, of_value) = (key.as_ptr().cast(), value.as_ptr().cast());
            // SAFETY: as the page says; both are this call's until the function has returned.
            let answer = unsafe { show(of_key, key.len(), of_value, value.len(), argument) };
            if answer != 0 {
                return fail(Status::StoppedByCb, c"the callback has stopped the walk");
            }
        }
        damaged
    }
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_open(
    engine: *const c_char,
    config: *mut Config,
    db: *mut *mut Db,
) -> c_int {
    // SAFETY: as the page says: the config is the library's from here on, whatever follows.
    let config = unsafe { take_back(config) };
    run(|| {
        // SAFETY: as the page says.
        unsafe { put(db, null_mut()) }?;
        let Some(config) = config else {
            return null();
        };
        // SAFETY: as the page says.
        let engine = Engine::open(unsafe { text(engine) }?.to_bytes(), &config)?;
        let opened = lend(Db {
            engine,
            _config: config,
        });
        // SAFETY: as the page says.
        unsafe { put(db, opened) }
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_close(db: *mut Db) {
    run(|| {
        // SAFETY: as the page says.
        let Some(db) = (unsafe { take_back(db) }) else {
            return Ok(());
        };
        if let Engine::Stored(stored) = db.engine
            && let Some(heap) = Arc::into_inner(stored.owned.into_heap())
        {
            heap.close().map_err(pmkv::Error::from)?;
        }
        Ok(())
    });
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_count_all(db: *mut Db, count: *mut usize) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let keys = match unsafe { &there(db)?.engine } {
            Engine::Blackhole => 0,
            Engine::Stored(stored) => stored.kv().stats()?.keys,
        };
        // SAFETY: as the page says.
        unsafe { put(count, keys as usize) }
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_exists(db: *mut Db, key: *const c_char, size: usize) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, key) = unsafe { (there(db)?, bytes(key, size)?) };
        db.with_value(key, |_| Ok(()))
    })
}

/// See libpmemkv(3). The value is a copy, which is this call's until the function has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_get(
    db: *mut Db,
    key: *const c_char,
    size: usize,
    show: ShowValue,
    argument: *mut c_void,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, key) = unsafe { (there(db)?, bytes(key, size)?) };
        db.with_value(key, |value| {
            let Some(show) = show else {
                return null();
            };
            // SAFETY: as the page says.
            unsafe { show(value.as_ptr().cast(), value.len(), argument) };
            Ok(())
        })
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_get_copy(
    db: *mut Db,
    key: *const c_char,
    size: usize,
    buffer: *mut c_char,
    buffer_size: usize,
    value_size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, key) = unsafe { (there(db)?, bytes(key, size)?) };
        db.with_value(key, |value| {
            if !value_size.is_null() {
                // SAFETY: as the page says.
                unsafe { put(value_size, value.len()) }?;
            }
            if value.len() > buffer_size {
                return fail(
                    Status::UnknownError,
                    c"the buffer has fewer bytes than the value",
                );
            }
            if value.is_empty() {
                return Ok(());
            }
            if buffer.is_null() {
                return null();
            }
            // SAFETY: as the page says: it has room, and is none of the library's.
            unsafe { buffer.copy_from_nonoverlapping(value.as_ptr().cast(), value.len()) };
            Ok(())
        })
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_put(
    db: *mut Db,
    key: *const c_char,
    size: usize,
    value: *const c_char,
    value_size: usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, key) = unsafe { (there(db)?, bytes(key, size)?) };
        // SAFETY: as the page says.
        let value = unsafe { bytes(value, value_size) }?;
        match &db.engine {
            Engine::Blackhole => Ok(()),
            Engine::Stored(stored) => Ok(stored.kv().put(key, value)?),
        }
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_remove(db: *mut Db, key: *const c_char, size: usize) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, key) = unsafe { (there(db)?, bytes(key, size)?) };
        match &db.engine {
            Engine::Blackhole => Ok(()),
            Engine::Stored(stored) => match stored.kv().delete(key)? {
                true => Ok(()),
                false => not_found(),
            },
        }
    })
}

/// See libpmemkv(3). Places of deleted records are given out again by themselves, so that there is
/// nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_defrag(db: *mut Db, start: f64, amount: f64) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let db = unsafe { there(db) }?;
        match &db.engine {
            Engine::Stored(stored) if stored.lasts => {
                let is_part = start >= 0.0 && amount >= 0.0 && start + amount <= 100.0;
                match is_part {
                    true => Ok(()),
                    false => fail(Status::InvalidArgument, c"no part of 100 percent"),
                }
            }
            _ => fail(
                Status::NotSupported,
                c"the engine has nothing to defragment",
            ),
        }
    })
}
