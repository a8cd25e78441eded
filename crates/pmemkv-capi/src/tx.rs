//! Transactions: puts and removes that are kept here and done by one batch at the commit.

use std::ffi::{c_char, c_int};

use pmkv::Change;

use crate::db::Db;
use crate::open::Engine;
use crate::pointers::{bytes, lend, put, take_back, there, there_mut};
use crate::status::{null, run};

/// `pmemkv_tx`.
pub struct Tx {
    db: *const Db,
    /// Keys with their values; `None`: the key is to be removed.
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// See libpmemkv_tx(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_tx_begin(db: *mut Db, made: *mut *mut Tx) -> c_int {
    run(|| {
        if made.is_null() {
            return null();
        }
        // SAFETY: as the page says.
        unsafe { there(db) }?;
        let changes = Vec::new();
        // SAFETY: as the page says.
        unsafe { put(made, lend(Tx { db, changes })) }
    })
}

/// See libpmemkv_tx(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_tx_put(
    tx: *mut Tx,
    key: *const c_char,
    size: usize,
    value: *const c_char,
    value_size: usize,
) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (tx, key) = unsafe { (there_mut(tx)?, bytes(key, size)?) };
        // SAFETY: as the page says.
        let value = unsafe { bytes(value, value_size) }?;
        tx.changes.push((key.to_vec(), Some(value.to_vec())));
        Ok(())
    })
}

/// See libpmemkv_tx(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_tx_remove(tx: *mut Tx, key: *const c_char, size: usize) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let (tx, key) = unsafe { (there_mut(tx)?, bytes(key, size)?) };
        tx.changes.push((key.to_vec(), None));
        Ok(())
    })
}

/// See libpmemkv_tx(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_tx_commit(tx: *mut Tx) -> c_int {
    run(|| {
        // SAFETY: as the page says.
        let tx = unsafe { there_mut(tx) }?;
        let changes = std::mem::take(&mut tx.changes);
        // SAFETY: a database outlives its transactions, as the page says.
        let Engine::Stored(stored) = (unsafe { &there(tx.db)?.engine }) else {
            return Ok(());
        };
        let each = changes.iter().map(|(key, value)| match value {
            Some(value) => Change::Put(key, value),
            None => Change::Delete(key),
        });
        Ok(stored.kv().batch(&each.collect::<Vec<_>>())?)
    })
}

/// See libpmemkv_tx(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_tx_abort(tx: *mut Tx) {
    run(|| {
        // SAFETY: as the page says.
        unsafe { there_mut(tx) }?.changes.clear();
        Ok(())
    });
}

/// See libpmemkv_tx(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_tx_end(tx: *mut Tx) {
    // SAFETY: as the page says.
    drop(unsafe { take_back(tx) });
}
