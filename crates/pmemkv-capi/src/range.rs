//! Calls on the keys of a range. The keys of the call itself are counted only where its name says
//! so, and those of `between` never.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Bound;
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::db::{Db, ShowEntry, unsorted};
use crate::open::Engine;
use crate::pointers::{bytes, put, there};
use crate::status::{Answer, not_found, run};

/// A range of keys: its two ends.
pub type Keys = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Db {
    fn count_range(&self, keys: Keys) -> Answer<usize> {
        match &self.engine {
            Engine::Blackhole => Ok(0),
            Engine::Stored(stored) if !stored.is_sorted() => unsorted(),
            Engine::Stored(stored) => {
                let mut count = 0;
                for entry in stored.kv().between(keys.0, keys.1) {
                    entry?;
                    count += 1;
                }
                Ok(count)
            }
        }
    }

    fn show_range(&self, keys: Keys, show: ShowEntry, argument: *mut c_void) -> Answer<()> {
        match &self.engine {
            Engine::Blackhole => not_found(),
            Engine::Stored(stored) if !stored.is_sorted() => unsorted(),
            Engine::Stored(_) => self.each(keys, show, argument),
        }
    }
}

/// The calls on one side of a key.
macro_rules! range {
    ($count:ident, $show:ident, $key:ident => $keys:expr) => {
        /// See libpmemkv(3).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $count(
            db: *mut Db,
            key: *const c_char,
            size: usize,
            count: *mut usize,
        ) -> c_int {
            run(|| {
                // SAFETY: as the page says.
                let (db, $key) = unsafe { (there(db)?, bytes(key, size)?.to_vec()) };
                // SAFETY: as the page says.
                unsafe { put(count, db.count_range($keys)?) }
            })
        }

        /// See libpmemkv(3).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $show(
            db: *mut Db,
            key: *const c_char,
            size: usize,
            show: ShowEntry,
            argument: *mut c_void,
        ) -> c_int {
            run(|| {
                // SAFETY: as the page says.
                let (db, $key) = unsafe { (there(db)?, bytes(key, size)?.to_vec()) };
                db.show_range($keys, show, argument)
            })
        }
    };
}
range!(pmemkv_count_above, pmemkv_get_above, key => (Excluded(key), Unbounded));
range!(pmemkv_count_equal_above, pmemkv_get_equal_above, key => (Included(key), Unbounded));
range!(pmemkv_count_equal_below, pmemkv_get_equal_below, key => (Unbounded, Included(key)));
range!(pmemkv_count_below, pmemkv_get_below, key => (Unbounded, Excluded(key)));

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_count_between(
    db: *mut Db,
    first: *const c_char,
    first_size: usize,
    last: *const c_char,
    last_size: usize,
    count: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, first) = unsafe { (there(db)?, bytes(first, first_size)?.to_vec()) };
        // SAFETY: as the page says.
        let last = unsafe { bytes(last, last_size) }?.to_vec();
        let counted = db.count_range((Excluded(first), Excluded(last)))?;
        // SAFETY: as the page says.
        unsafe { put(count, counted) }
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_get_between(
    db: *mut Db,
    first: *const c_char,
    first_size: usize,
    last: *const c_char,
    last_size: usize,
    show: ShowEntry,
    argument: *mut c_void,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (db, first) = unsafe { (there(db)?, bytes(first, first_size)?.to_vec()) };
        // SAFETY: as the page says.
        let last = unsafe { bytes(last, last_size) }?.to_vec();
        db.show_range((Excluded(first), Excluded(last)), show, argument)
    })
}

/// See libpmemkv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_get_all(
    db: *mut Db,
    show: ShowEntry,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as the page says.
    run(|| unsafe { there(db) }?.each((Unbounded, Unbounded), show, argument))
}
