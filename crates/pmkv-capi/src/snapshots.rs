//! The process's snapshots of engines, and the calls on them.

use std::ffi::c_void;
use std::ops::Bound;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use pmkv::{Owned, OwnedSnapshot};

use crate::answer::{Answer, Code, Failure, NULL, answer, done};
use crate::engines::{
    Bounds, EngineHandle, EntryCallback, bounds, show_entries, with as with_engine,
};
use crate::handles::{Kind, Table};
use crate::pointers::{put, room, values};

/// The type of handles. None is ever looked at: the pointer is a number.
#[repr(C)]
pub struct SnapshotHandle {
    _nothing: [u8; 0],
}

static SNAPSHOTS: Table<OwnedSnapshot> = Table::of(Kind {
    bits: 0x9,
    none: Failure::Wrong(
        Code::Handle,
        "no such snapshot: it was closed, or never open",
    ),
    many: Failure::Wrong(
        Code::Engines,
        "256 snapshots are open in this process: close one",
    ),
    in_use: Failure::Wrong(
        Code::InUse,
        "a walk over this snapshot goes on: end it first",
    ),
});

fn limit_of(milliseconds: u64) -> Duration {
    match milliseconds {
        u64::MAX => Duration::MAX,
        limit => Duration::from_millis(limit),
    }
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshot_open(
    kv: *mut EngineHandle,
    milliseconds: u64,
) -> *mut SnapshotHandle {
    answer(null_mut(), || {
        let engine = with_engine(kv, |engine| Ok(engine.clone()))?;
        let snapshot = engine.snapshot(limit_of(milliseconds))?;
        SNAPSHOTS.keep(Arc::new(snapshot))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshots_open(
    kvs: *const *mut EngineHandle,
    count: usize,
    milliseconds: u64,
    snapshots: *mut *mut SnapshotHandle,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let kvs = unsafe { values(kvs, count) }?;
        if snapshots.is_null() && count > 0 {
            return Err(NULL);
        }
        let engine = |&kv: &*mut EngineHandle| with_engine(kv, |engine| Ok(engine.clone()));
        let engines: Answer<Vec<Arc<Owned>>> = kvs.iter().map(engine).collect();
        let opened = Owned::snapshots(engines?, limit_of(milliseconds))?;
        let mut kept: Vec<*mut SnapshotHandle> = Vec::with_capacity(count);
        for snapshot in opened {
            match SNAPSHOTS.keep(Arc::new(snapshot)) {
                Ok(handle) => kept.push(handle),
                Err(failure) => {
                    // All of them or none.
                    kept.into_iter()
                        .try_for_each(|handle| SNAPSHOTS.take(handle).map(drop))?;
                    return Err(failure);
                }
            }
        }
        for (nth, handle) in kept.into_iter().enumerate() {
            // SAFETY: as the header says, room for `count` of them.
            unsafe { put(snapshots.wrapping_add(nth), handle) }?;
        }
        Ok(())
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshot_close(closed: *mut SnapshotHandle) -> Code {
    done(|| SNAPSHOTS.take(closed).map(drop))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshot_get(
    snapshot: *mut SnapshotHandle,
    key: *const c_void,
    key_size: usize,
    into: *mut c_void,
    size: usize,
    value_size: *mut usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        // SAFETY: as the header says.
        let into = unsafe { room(into, size) }?;
        let mut value = Vec::new();
        let is_there = SNAPSHOTS.with(snapshot, |snapshot| {
            Ok(snapshot.snapshot().get_into(key, &mut value)?)
        })?;
        if !is_there {
            return Err(Failure::Plain(Code::NoKey));
        }
        if !value_size.is_null() {
            // SAFETY: as the header says.
            unsafe { put(value_size, value.len()) }?;
        }
        let Some(into) = into.get_mut(..value.len()) else {
            return Err(Failure::Plain(Code::Short));
        };
        into.copy_from_slice(&value);
        Ok(())
    })
}

/// Shows a snapshot's entries to a callback.
fn show_each(
    snapshot: *mut SnapshotHandle,
    (start, end): Bounds,
    callback: EntryCallback,
    argument: *mut c_void,
) -> Answer<()> {
    let callback = callback.ok_or(NULL)?;
    // A share: the callback may call the library.
    let snapshot = SNAPSHOTS.with(snapshot, |snapshot| Ok(snapshot.clone()))?;
    // SAFETY: as the header says.
    unsafe { show_entries(snapshot.walk(start, end), callback, argument) }
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshot_each(
    snapshot: *mut SnapshotHandle,
    callback: EntryCallback,
    argument: *mut c_void,
) -> Code {
    let all = (Bound::Unbounded, Bound::Unbounded);
    done(|| show_each(snapshot, all, callback, argument))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshot_each_between(
    snapshot: *mut SnapshotHandle,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
    callback: EntryCallback,
    argument: *mut c_void,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let bounds = unsafe { bounds((from, from_size), (to, to_size)) }?;
        show_each(snapshot, bounds, callback, argument)
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_snapshot_count(
    snapshot: *mut SnapshotHandle,
    count: *mut u64,
) -> Code {
    done(|| {
        let keys = SNAPSHOTS.with(snapshot, |snapshot| Ok(snapshot.snapshot().count()?))?;
        // SAFETY: as the header says.
        unsafe { put(count, keys) }
    })
}
