//! The process's key-value engines, and the calls on them.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::Bound;
use std::ptr::null_mut;
use std::sync::Arc;

use pmkv::{Error, Expect, Kind as EngineKind, Owned};

use crate::answer::{Answer, Code, Failure, NULL, answer, done, wrong};
use crate::handles::{Kind, Table};
use crate::heaps::{HeapHandle, with as with_heap};
use crate::pointers::{given, name, put, room, values};

/// A thread keeps its buffer for values up to so many bytes.
const KEPT_BYTES: usize = 64 << 10;

/// The type of handles. None is ever looked at: the pointer is a number.
#[repr(C)]
pub struct EngineHandle {
    _nothing: [u8; 0],
}

static ENGINES: Table<Owned> = Table::of(Kind {
    bits: 0x3,
    none: Failure::Wrong(Code::Handle, "no such engine: it was closed, or never open"),
    many: Failure::Wrong(
        Code::Engines,
        "256 engines are open in this process: close one",
    ),
    in_use: Failure::Wrong(
        Code::InUse,
        "a walk over this engine goes on, or a reader or a snapshot is open: end it first",
    ),
});

/// Does something with an engine. It must not call the program.
pub fn with<T>(kv: *mut EngineHandle, body: impl FnOnce(&Arc<Owned>) -> Answer<T>) -> Answer<T> {
    ENGINES.with(kv, body)
}

thread_local! {
    /// The buffer for values, while no call has it.
    static VALUE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// `struct pmkv_options`.
#[derive(Default)]
#[repr(C)]
pub struct OptionsRaw {
    kind: u32,
    must_exist: u32,
    reserved: [u32; 6],
}

/// `struct pmkv_stats`.
#[repr(C)]
pub struct StatsRaw {
    keys: u64,
    index_chunks: u64,
    slots: u64,
    record_runs: u64,
    record_bytes: u64,
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<OptionsRaw>() == 32 && size_of::<StatsRaw>() == 64);

/// The first key of a walk, and the one behind it.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// `pmkv_value_cb`, `pmkv_entry_cb`.
type ValueCallback = Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int>;
pub type EntryCallback = Option<Callback>;
pub type Callback =
    unsafe extern "C" fn(*mut c_void, *const c_void, usize, *const c_void, usize) -> c_int;

/// The end of a callback that was called, and has answered.
pub fn went_on(answer: c_int) -> Answer<()> {
    match answer {
        0 => Ok(()),
        _ => Err(Failure::Plain(Code::Stopped)),
    }
}

/// Reads a value into this thread's buffer; hands it on when nothing of the library is held.
fn with_value<T>(
    kv: *mut EngineHandle,
    key: &[u8],
    body: impl FnOnce(&[u8]) -> Answer<T>,
) -> Answer<T> {
    let mut value = VALUE.try_with(Cell::take).unwrap_or_default();
    let found = ENGINES.with(kv, |engine| Ok(engine.store().get_into(key, &mut value)?));
    let done = match found {
        Ok(true) => body(&value),
        Ok(false) => Err(Failure::Plain(Code::NoKey)),
        Err(failure) => Err(failure),
    };
    if value.capacity() <= KEPT_BYTES {
        // A thread that ends keeps none.
        let _ = VALUE.try_with(|kept| kept.set(value));
    }
    done
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_open(
    heap: *mut HeapHandle,
    called: *const c_char,
    options: *const OptionsRaw,
) -> *mut EngineHandle {
    answer(null_mut(), || {
        let none = OptionsRaw::default();
        // SAFETY: as the header says.
        let options = unsafe { given(options) }?.unwrap_or(&none);
        // SAFETY: as the header says.
        let called = unsafe { name(called) }?;
        let kind = match options.kind {
            0 => EngineKind::Hash,
            1 => EngineKind::Tree,
            _ => return wrong("an engine of a kind that is not known: see enum pmkv_kind"),
        };
        if options.reserved != [0; 6] {
            return wrong("a reserved word is not 0");
        }
        let heap = with_heap(heap, |heap| Ok(heap.clone()))?;
        if options.must_exist != 0 && EngineKind::of_engine(&heap, called)?.is_none() {
            return Err(Failure::Plain(Code::NoKey));
        }
        ENGINES.keep(Arc::new(Owned::open(heap, kind, called)?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_close(closed: *mut EngineHandle) -> Code {
    done(|| ENGINES.take(closed).map(drop))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_get(
    kv: *mut EngineHandle,
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
        with_value(kv, key, |value| {
            if !value_size.is_null() {
                // SAFETY: as the header says.
                unsafe { put(value_size, value.len()) }?;
            }
            let Some(into) = into.get_mut(..value.len()) else {
                return Err(Failure::Plain(Code::Short));
            };
            into.copy_from_slice(value);
            Ok(())
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_get_with(
    kv: *mut EngineHandle,
    key: *const c_void,
    key_size: usize,
    callback: ValueCallback,
    argument: *mut c_void,
) -> Code {
    done(|| {
        let callback = callback.ok_or(NULL)?;
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        with_value(kv, key, |value| {
            // SAFETY: as the header says; the value is this call's until the callback has returned.
            went_on(unsafe { callback(argument, value.as_ptr().cast(), value.len()) })
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_put(
    kv: *mut EngineHandle,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        // SAFETY: as the header says.
        let value = unsafe { values(value.cast::<u8>(), value_size) }?;
        ENGINES.with(kv, |engine| Ok(engine.store().put(key, value)?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_put_if(
    kv: *mut EngineHandle,
    key: *const c_void,
    key_size: usize,
    expected: c_int,
    old: *const c_void,
    old_size: usize,
    value: *const c_void,
    value_size: usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        // SAFETY: as the header says.
        let value = unsafe { values(value.cast::<u8>(), value_size) }?;
        let expected = match expected {
            0 => Expect::Missing,
            1 => Expect::Present,
            // SAFETY: as the header says.
            2 => Expect::Value(unsafe { values(old.cast::<u8>(), old_size) }?),
            _ => return wrong("no such expectation: see enum pmkv_expect"),
        };
        ENGINES.with(kv, |engine| {
            match engine.store().put_if(key, expected, value)? {
                true => Ok(()),
                false => Err(Failure::Plain(Code::Expected)),
            }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_delete(
    kv: *mut EngineHandle,
    key: *const c_void,
    key_size: usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        ENGINES.with(kv, |engine| match engine.store().delete(key)? {
            true => Ok(()),
            false => Err(Failure::Plain(Code::NoKey)),
        })
    })
}

/// Shows a walk's entries to a callback.
fn show_each(
    kv: *mut EngineHandle,
    (start, end): Bounds,
    callback: EntryCallback,
    argument: *mut c_void,
) -> Answer<()> {
    let callback = callback.ok_or(NULL)?;
    // A share: the callback may call the library.
    let engine = ENGINES.with(kv, |engine| Ok(engine.clone()))?;
    let (mut walk, mut damaged) = (engine.walk(start, end), None);
    while let Some(entry) = walk.next_ref() {
        match entry {
            // SAFETY: as the header says.
            Ok(entry) => unsafe { show_entry(entry, callback, argument) }?,
            Err(error @ Error::Corrupt { .. }) => {
                damaged.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    damaged.map_or(Ok(()), |error| Err(error.into()))
}

/// Shows an entry to a callback.
///
/// # Safety
/// The callback may be called with this argument.
unsafe fn show_entry(
    (key, value): (&[u8], &[u8]),
    callback: Callback,
    argument: *mut c_void,
) -> Answer<()> {
    let (of_key, of_value) = (key.as_ptr().cast(), value.as_ptr().cast());
    // SAFETY: the caller's promise; both are this call's until the callback has returned.
    went_on(unsafe { callback(argument, of_key, key.len(), of_value, value.len()) })
}

/// Shows entries to a callback, the damaged ones' error behind them.
///
/// # Safety
/// The callback may be called with this argument.
pub unsafe fn show_entries(
    entries: impl Iterator<Item = pmkv::Result<pmkv::Entry>>,
    callback: Callback,
    argument: *mut c_void,
) -> Answer<()> {
    let mut damaged = None;
    for entry in entries {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error @ Error::Corrupt { .. }) => {
                damaged.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // SAFETY: the caller's promise.
        unsafe { show_entry((&key, &value), callback, argument) }?;
    }
    damaged.map_or(Ok(()), |error| Err(error.into()))
}

/// Bounds as C has them.
///
/// # Safety
/// Those of [`values`] for both; NULL with 0: there is no upper bound.
pub unsafe fn bounds(
    (from, from_size): (*const c_void, usize),
    (to, to_size): (*const c_void, usize),
) -> Answer<Bounds> {
    // SAFETY: the caller's promise.
    let start = Bound::Included(unsafe { values(from.cast::<u8>(), from_size) }?.to_vec());
    let end = match to.is_null() && to_size == 0 {
        true => Bound::Unbounded,
        // SAFETY: the caller's promise.
        false => Bound::Excluded(unsafe { values(to.cast::<u8>(), to_size) }?.to_vec()),
    };
    Ok((start, end))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_each(
    kv: *mut EngineHandle,
    callback: EntryCallback,
    argument: *mut c_void,
) -> Code {
    done(|| show_each(kv, (Bound::Unbounded, Bound::Unbounded), callback, argument))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_each_between(
    kv: *mut EngineHandle,
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
        show_each(kv, bounds, callback, argument)
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_clear(kv: *mut EngineHandle, count: *mut u64) -> Code {
    done(|| {
        let cleared = ENGINES.with(kv, |engine| Ok(engine.store().clear()?))?;
        if count.is_null() {
            return Ok(());
        }
        // SAFETY: as the header says.
        unsafe { put(count, cleared) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_count(kv: *mut EngineHandle, count: *mut u64) -> Code {
    done(|| {
        let keys = ENGINES.with(kv, |engine| Ok(engine.store().stats()?.keys))?;
        // SAFETY: as the header says.
        unsafe { put(count, keys) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_stats(kv: *mut EngineHandle, into: *mut StatsRaw) -> Code {
    done(|| {
        let stats = ENGINES.with(kv, |engine| Ok(engine.store().stats()?))?;
        let stats = StatsRaw {
            keys: stats.keys,
            index_chunks: stats.index_chunks,
            slots: stats.slots,
            record_runs: stats.record_runs,
            record_bytes: stats.record_bytes,
            reserved: [0; 3],
        };
        // SAFETY: as the header says.
        unsafe { put(into, stats) }
    })
}
