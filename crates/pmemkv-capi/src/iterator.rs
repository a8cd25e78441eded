//! Iterators. One of an unsorted engine finds keys, reads their values and changes them, as the
//! original's does; it has no neighbours. One of a sorted engine goes to its neighbours by their
//! keys: whatever was put or removed meanwhile counts.

use std::ffi::{c_char, c_int};
use std::ops::Bound::{Excluded, Included, Unbounded};

use pmkv::Expect;

use crate::db::{Db, unsorted};
use crate::open::Engine;
use crate::pointers::{bytes, lend, put, take_back, there, there_mut};
use crate::range::Keys;
use crate::status::{Answer, Status, fail, not_found, null, run};

/// The entry that an iterator is on.
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    /// The value as the program changes it.
    changed: Option<Vec<u8>>,
}

/// `pmemkv_iterator`.
pub struct Iter {
    db: *const Db,
    entry: Option<Entry>,
}

/// `pmemkv_write_iterator`.
#[repr(C)]
pub struct WriteIter {
    iter: *mut Iter,
}

impl Iter {
    fn entry(&mut self) -> Answer<&mut Entry> {
        match &mut self.entry {
            Some(entry) => Ok(entry),
            None => fail(Status::NotFound, c"the iterator is on no record"),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Answer<()> {
        self.entry = None;
        // SAFETY: a database outlives its iterators, as the page says.
        let value = unsafe { there(self.db) }?.with_value(key, |value| Ok(value.to_vec()))?;
        self.entry = Some(Entry {
            key: key.to_vec(),
            value,
            changed: None,
        });
        Ok(())
    }

    /// The entry at an end of a range; `NotFound`: the range is empty.
    fn at_end(&self, (start, end): Keys, is_first: bool) -> Answer<Entry> {
        // SAFETY: a database outlives its iterators, as the page says.
        let stored = match unsafe { &there(self.db)?.engine } {
            Engine::Blackhole => return not_found(),
            Engine::Stored(stored) if !stored.is_sorted() => return unsorted(),
            Engine::Stored(stored) => stored.kv(),
        };
        let found = match is_first {
            true => stored.between(start, end).next().transpose()?,
            false => stored.last(start, end)?,
        };
        let Some((key, value)) = found else {
            return not_found();
        };
        Ok(Entry {
            key,
            value,
            changed: None,
        })
    }

    /// Goes to an end of a range, or to no record.
    fn seek_end(&mut self, keys: Keys, is_first: bool) -> Answer<()> {
        self.entry = None;
        self.entry = Some(self.at_end(keys, is_first)?);
        Ok(())
    }

    /// The neighbour of the entry that it is on.
    fn beside(&self, is_next: bool) -> Answer<Entry> {
        let keys = match (&self.entry, is_next) {
            (Some(entry), true) => (Excluded(entry.key.clone()), Unbounded),
            (Some(entry), false) => (Unbounded, Excluded(entry.key.clone())),
            // An empty range: an engine without order is told as such all the same.
            (None, _) => (Excluded(Vec::new()), Excluded(Vec::new())),
        };
        self.at_end(keys, is_next)
    }

    fn commit(&mut self) -> Answer<()> {
        // SAFETY: a database outlives its iterators, as the page says.
        let db = unsafe { there(self.db) }?;
        let entry = self.entry()?;
        let (Engine::Stored(stored), Some(changed)) = (&db.engine, entry.changed.take()) else {
            return Ok(());
        };
        let expected = Expect::Value(&entry.value);
        if !stored.kv().put_if(&entry.key, expected, &changed)? {
            return fail(
                Status::UnknownError,
                c"the record was changed by another since the iterator has read it",
            );
        }
        entry.value = changed;
        Ok(())
    }
}

/// The part of `size` bytes that `count` bytes from `start` on are; fewer where it ends.
fn part(size: usize, start: usize, count: usize) -> Answer<(usize, usize)> {
    if start > size {
        return fail(Status::InvalidArgument, c"the value has fewer bytes");
    }
    Ok((start, count.min(size - start)))
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_new(db: *mut Db, made: *mut *mut Iter) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        unsafe { there(db) }?;
        if made.is_null() {
            return null();
        }
        // SAFETY: as the page says.
        unsafe { put(made, lend(Iter { db, entry: None })) }
    })
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_write_iterator_new(
    db: *mut Db,
    made: *mut *mut WriteIter,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        unsafe { there(db) }?;
        if made.is_null() {
            return null();
        }
        let iter = lend(Iter { db, entry: None });
        // SAFETY: as the page says.
        unsafe { put(made, lend(WriteIter { iter })) }
    })
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_delete(iter: *mut Iter) {
    // SAFETY: as the page says.
    drop(unsafe { take_back(iter) });
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_write_iterator_delete(iter: *mut WriteIter) {
    // SAFETY: as the page says.
    if let Some(write) = unsafe { take_back(iter) } {
        // SAFETY: `pmemkv_write_iterator_new` has put it there.
        drop(unsafe { take_back(write.iter) });
    }
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_seek(
    iter: *mut Iter,
    key: *const c_char,
    size: usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (iter, key) = unsafe { (there_mut(iter)?, bytes(key, size)?) };
        iter.seek(key)
    })
}

/// Moves to the record beside a key.
macro_rules! seek {
    ($($name:ident, $key:ident => $keys:expr, $is_first:expr;)+) => {$(
        /// See libpmemkv_iterator(3).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(iter: *mut Iter, key: *const c_char, size: usize) -> c_int {
            run(|| {
                // SAFETY: as the page says.
                let (iter, $key) = unsafe { (there_mut(iter)?, bytes(key, size)?.to_vec()) };
                iter.seek_end($keys, $is_first)
            })
        }
    )+};
}
seek! {
    pmemkv_iterator_seek_lower, key => (Unbounded, Excluded(key)), false;
    pmemkv_iterator_seek_lower_eq, key => (Unbounded, Included(key)), false;
    pmemkv_iterator_seek_higher, key => (Excluded(key), Unbounded), true;
    pmemkv_iterator_seek_higher_eq, key => (Included(key), Unbounded), true;
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_seek_to_first(iter: *mut Iter) -> c_int {
    // SAFETY: as the page says.
    run(|| unsafe { there_mut(iter) }?.seek_end((Unbounded, Unbounded), true))
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_seek_to_last(iter: *mut Iter) -> c_int {
    // SAFETY: as the page says.
    run(|| unsafe { there_mut(iter) }?.seek_end((Unbounded, Unbounded), false))
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_is_next(iter: *mut Iter) -> c_int {
    // SAFETY: as the page says.
    run(|| unsafe { there(iter) }?.beside(true).map(drop))
}

/// See libpmemkv_iterator(3). Behind the last record the iterator is on none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_next(iter: *mut Iter) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let iter = unsafe { there_mut(iter) }?;
        let next = iter.beside(true);
        iter.entry = None;
        iter.entry = Some(next?);
        Ok(())
    })
}

/// See libpmemkv_iterator(3). An iterator on the first record stays there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_prev(iter: *mut Iter) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let iter = unsafe { there_mut(iter) }?;
        iter.entry = Some(iter.beside(false)?);
        Ok(())
    })
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_key(
    iter: *mut Iter,
    key: *mut *const c_char,
    size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let entry = unsafe { there_mut(iter) }?.entry()?;
        // SAFETY: as the page says.
        unsafe { put(key, entry.key.as_ptr().cast()).and_then(|()| put(size, entry.key.len())) }
    })
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_iterator_read_range(
    iter: *mut Iter,
    start: usize,
    count: usize,
    data: *mut *const c_char,
    size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let entry = unsafe { there_mut(iter) }?.entry()?;
        let (start, count) = part(entry.value.len(), start, count)?;
        let from = entry.value[start..].as_ptr().cast();
        // SAFETY: as the page says.
        unsafe { put(data, from).and_then(|()| put(size, count)) }
    })
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_write_iterator_write_range(
    iter: *mut WriteIter,
    start: usize,
    count: usize,
    data: *mut *mut c_char,
    size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let entry = unsafe { there_mut(there(iter)?.iter) }?.entry()?;
        let (start, count) = part(entry.value.len(), start, count)?;
        let changed = entry.changed.get_or_insert_with(|| entry.value.clone());
        let from = changed[start..].as_mut_ptr().cast();
        // SAFETY: as the page says.
        unsafe { put(data, from).and_then(|()| put(size, count)) }
    })
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_write_iterator_commit(iter: *mut WriteIter) -> c_int {
    // SAFETY: as the page says.
    run(|| unsafe { there_mut(there(iter)?.iter) }?.commit())
}

/// See libpmemkv_iterator(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_write_iterator_abort(iter: *mut WriteIter) {
    run(|| {
        // SAFETY: as the page says.
        let iter = unsafe { there_mut(there(iter)?.iter) }?;
        if let Some(entry) = &mut iter.entry {
            entry.changed = None;
        }
        Ok(())
    });
}
