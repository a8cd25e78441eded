//! Batches of changes, and keys that expire.

use std::ffi::c_void;
use std::time::Duration;

use pmkv::{Change, Expiry};

use crate::answer::{Answer, Code, Failure, NULL, done, wrong};
use crate::engines::{EngineHandle, with};
use crate::pointers::{put, values};

/// `struct pmkv_change`.
#[repr(C)]
pub struct ChangeRaw {
    kind: u32,
    reserved: u32,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    expires: u64,
}

const _: () = assert!(size_of::<ChangeRaw>() == 48);

/// # Safety
/// Those of [`values`], for the key and the value.
unsafe fn change(raw: &ChangeRaw) -> Answer<Change<'_>> {
    if raw.reserved != 0 {
        return wrong("the reserved word of a change is not 0");
    }
    // SAFETY: the caller's promise.
    let key = unsafe { values(raw.key.cast::<u8>(), raw.key_size) }?;
    // SAFETY: the caller's promise.
    let value = unsafe { values(raw.value.cast::<u8>(), raw.value_size) }?;
    match (raw.kind, raw.expires) {
        (0, 0) => Ok(Change::Put(key, value)),
        (0, at) => Ok(Change::PutUntil(key, value, at)),
        (1, 0) if value.is_empty() => Ok(Change::Delete(key)),
        (1, _) => wrong("a key that is taken away has neither a value nor an end"),
        _ => wrong("no such change: see enum pmkv_change_kind"),
    }
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_batch(
    kv: *mut EngineHandle,
    changes: *const ChangeRaw,
    count: usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let changes = unsafe { values(changes, count) }?;
        // SAFETY: as the header says.
        let each = changes.iter().map(|raw| unsafe { change(raw) });
        let each = each.collect::<Answer<Vec<_>>>()?;
        with(kv, |engine| Ok(engine.store().batch(&each)?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_put_ttl(
    kv: *mut EngineHandle,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    ttl_ms: u64,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        // SAFETY: as the header says.
        let value = unsafe { values(value.cast::<u8>(), value_size) }?;
        let ttl = Duration::from_millis(ttl_ms);
        with(kv, |engine| Ok(engine.store().put_ttl(key, value, ttl)?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_expiry(
    kv: *mut EngineHandle,
    key: *const c_void,
    key_size: usize,
    expires: *mut u64,
) -> Code {
    done(|| {
        if expires.is_null() {
            return Err(NULL);
        }
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        let at = match with(kv, |engine| Ok(engine.store().expiry(key)?))? {
            Some(Expiry::Never) => 0,
            Some(Expiry::At(at)) => at,
            None => return Err(Failure::Plain(Code::NoKey)),
        };
        // SAFETY: as the header says.
        unsafe { put(expires, at) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_purge_expired(kv: *mut EngineHandle, count: *mut u64) -> Code {
    done(|| {
        let purged = with(kv, |engine| Ok(engine.store().purge_expired()?))?;
        if count.is_null() {
            return Ok(());
        }
        // SAFETY: as the header says.
        unsafe { put(count, purged) }
    })
}
