//! Maps and trees of bytes, in a heap or in a transaction.

use std::ffi::{c_char, c_void};
use std::ops::Bound;

use pmlib::containers::{At, PBytes, PMap, PTree};
use pmlib::{Error, Field, Heap, P, PmSafe, RawP, Tx};

use crate::answer::{Answer, Code, Failure, NULL, done, wrong};
use crate::engines::{EntryCallback, went_on};
use crate::heaps::{HeapHandle, with as with_heap};
use crate::pointers::{given, name, put, room, values};
use crate::transactions::{TxHandle, with_stored};

type Map = PMap<PBytes, PBytes>;
type Tree = PTree<PBytes, PBytes>;

/// `enum pmheap_kind`.
const MAP: u32 = 1;
const TREE: u32 = 2;

const NO_KEY: Failure = Failure::Plain(Code::NoKey);

/// `struct pmheap_map`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MapRaw {
    object: u64,
    start: u64,
    kind: u32,
    reserved: u32,
}

/// `struct pmheap_bytes`.
#[repr(C)]
pub struct BytesRaw {
    at: *const c_void,
    size: usize,
}

/// A container where the program says that it is.
enum Place {
    Map(Field<Map>),
    Tree(Field<Tree>),
}

impl Place {
    /// # Safety
    /// That of [`given`].
    unsafe fn of(map: *const MapRaw) -> Answer<Place> {
        // SAFETY: the caller's promise.
        let raw = unsafe { given(map) }?.ok_or(NULL)?;
        if raw.reserved != 0 {
            return wrong("the reserved word of a map is not 0");
        }
        if !raw.start.is_multiple_of(8) {
            return wrong("a map begins at a multiple of 8 bytes");
        }
        match raw.kind {
            MAP => Ok(Place::Map(Field::at(RawP(raw.object), raw.start))),
            TREE => Ok(Place::Tree(Field::at(RawP(raw.object), raw.start))),
            _ => wrong("a map is of kind PMHEAP_MAP or PMHEAP_TREE"),
        }
    }
}

/// Bytes of the caller's.
///
/// # Safety
/// That of [`values`].
pub unsafe fn bytes<'a>(from: *const c_void, size: usize) -> Answer<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { values(from.cast::<u8>(), size) }
}

/// A call on a container that is the same for maps and trees.
macro_rules! on {
    ($source:expr, $place:expr, $at:ident => $call:expr) => {
        match $place {
            Place::Map(place) => {
                let mut $at = $source.at(place);
                $call
            }
            Place::Tree(place) => {
                let mut $at = $source.at(place);
                $call
            }
        }
    };
}

/// Copies a key's bytes, if there is room for all; and how many there are.
///
/// # Safety
/// Those of [`room`] and [`put`].
pub unsafe fn give(
    value: Option<Vec<u8>>,
    into: *mut c_void,
    size: usize,
    value_size: *mut usize,
) -> Answer<()> {
    let value = value.ok_or(NO_KEY)?;
    if !value_size.is_null() {
        // SAFETY: the caller's promise.
        unsafe { put(value_size, value.len()) }?;
    }
    // SAFETY: the caller's promise.
    let room = unsafe { room(into, size) }?;
    let room = room.get_mut(..value.len());
    let room = room.ok_or(Failure::Plain(Code::Short))?;
    room.copy_from_slice(&value);
    Ok(())
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_root(
    heap: *mut HeapHandle,
    called: *const c_char,
    kind: u32,
    into: *mut MapRaw,
) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let called = unsafe { name(called) }?;
            let RawP(object) = match kind {
                MAP => root::<Map>(heap, called)?,
                TREE => root::<Tree>(heap, called)?,
                _ => return wrong("a map is of kind PMHEAP_MAP or PMHEAP_TREE"),
            };
            let made = MapRaw {
                object,
                start: 0,
                kind,
                reserved: 0,
            };
            // SAFETY: as the header says.
            unsafe { put(into, made) }
        })
    })
}

pub fn root<T: PmSafe>(heap: &Heap, called: &str) -> Result<RawP, Error> {
    let root: P<T> = heap.root(called)?;
    Ok(root.into())
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_put(
    heap: *mut HeapHandle,
    map: *const MapRaw,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let (key, value) = unsafe { (bytes(key, key_size)?, bytes(value, value_size)?) };
            // SAFETY: as the header says.
            let place = unsafe { Place::of(map) }?;
            on!(heap, place, at => at.set_bytes(key, value))?;
            Ok(())
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_get(
    heap: *mut HeapHandle,
    map: *const MapRaw,
    key: *const c_void,
    key_size: usize,
    into: *mut c_void,
    size: usize,
    value_size: *mut usize,
) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let (key, place) = unsafe { (bytes(key, key_size)?, Place::of(map)?) };
            let value = on!(heap, place, at => at.get_bytes(key))?;
            // SAFETY: as the header says.
            unsafe { give(value, into, size, value_size) }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_remove(
    heap: *mut HeapHandle,
    map: *const MapRaw,
    key: *const c_void,
    key_size: usize,
) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let (key, place) = unsafe { (bytes(key, key_size)?, Place::of(map)?) };
            match on!(heap, place, at => at.remove_bytes(key))? {
                true => Ok(()),
                false => Err(NO_KEY),
            }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_count(
    heap: *mut HeapHandle,
    map: *const MapRaw,
    count: *mut u64,
) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let place = unsafe { Place::of(map) }?;
            let entries = on!(heap, place, at => at.len())?;
            // SAFETY: as the header says.
            unsafe { put(count, entries) }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_clear(heap: *mut HeapHandle, map: *const MapRaw) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let place = unsafe { Place::of(map) }?;
            Ok(on!(heap, place, at => at.clear_bytes())?)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_map_each(
    heap: *mut HeapHandle,
    map: *const MapRaw,
    from: *const BytesRaw,
    to: *const BytesRaw,
    callback: EntryCallback,
    argument: *mut c_void,
) -> Code {
    done(|| {
        // The heap is not locked while the program has the entries: it may close others.
        let heap = with_heap(heap, |heap| Ok(heap.clone()))?;
        // SAFETY: as the header says.
        let (place, low, high) = unsafe { (Place::of(map)?, bound(from)?, bound(to)?) };
        let callback = callback.ok_or(NULL)?;
        let mut show = |key: &[u8], value: &[u8]| {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            // SAFETY: as the header says; the bytes are there during the call.
            went_on(unsafe { callback(argument, key_at, key.len(), value_at, value.len()) })
        };
        match place {
            Place::Map(_) if low.is_some() || high.is_some() => {
                wrong("a map of kind PMHEAP_MAP has no order: its bounds are NULL")
            }
            Place::Map(place) => {
                let keys = heap.at(place).iter().map(|entry| entry.map(|(key, _)| key));
                each(keys, |key| heap.at(place).get_bytes(key), &mut show)
            }
            Place::Tree(place) => {
                let low = low.map_or(Bound::Unbounded, Bound::Included);
                let high = high.map_or(Bound::Unbounded, Bound::Excluded);
                let range = heap.at(place).range((low, high));
                let keys = range.map(|entry| entry.map(|(key, _)| key));
                each(keys, |key| heap.at(place).get_bytes(key), &mut show)
            }
        }
    })
}

/// # Safety
/// Those of [`given`] and [`values`].
unsafe fn bound<'a>(raw: *const BytesRaw) -> Answer<Option<&'a [u8]>> {
    // SAFETY: the caller's promise.
    let raw = unsafe { given(raw) }?;
    // SAFETY: the caller's promise.
    raw.map(|raw| unsafe { bytes(raw.at, raw.size) })
        .transpose()
}

/// Shows entries until that is enough. Each is looked at by itself: one that has gone meanwhile
/// does not come.
fn each(
    keys: impl Iterator<Item = Result<Vec<u8>, Error>>,
    value: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, Error>,
    show: &mut impl FnMut(&[u8], &[u8]) -> Answer<()>,
) -> Answer<()> {
    for key in keys {
        let key = key?;
        if let Some(value) = value(&key)? {
            show(&key, &value)?;
        }
    }
    Ok(())
}

/// Does something with a container in a transaction.
fn in_tx<T>(
    tx: *mut TxHandle,
    place: Place,
    on_map: impl FnOnce(&mut At<&mut Tx<'_>, Map>) -> Result<T, Error>,
    on_tree: impl FnOnce(&mut At<&mut Tx<'_>, Tree>) -> Result<T, Error>,
) -> Answer<T> {
    let head = match &place {
        Place::Map(map) => (map.object().0, map.start(), size_of::<Map>() as u64),
        Place::Tree(tree) => (tree.object().0, tree.start(), size_of::<Tree>() as u64),
    };
    with_stored(tx, head, |tx| match place {
        Place::Map(place) => on_map(&mut tx.at(place)),
        Place::Tree(place) => on_tree(&mut tx.at(place)),
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_map_put(
    tx: *mut TxHandle,
    map: *const MapRaw,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let (key, value) = unsafe { (bytes(key, key_size)?, bytes(value, value_size)?) };
        // SAFETY: as the header says.
        let place = unsafe { Place::of(map) }?;
        in_tx(
            tx,
            place,
            |at| at.set_bytes(key, value),
            |at| at.set_bytes(key, value),
        )?;
        Ok(())
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_map_get(
    tx: *mut TxHandle,
    map: *const MapRaw,
    key: *const c_void,
    key_size: usize,
    into: *mut c_void,
    size: usize,
    value_size: *mut usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let (key, place) = unsafe { (bytes(key, key_size)?, Place::of(map)?) };
        let value = in_tx(tx, place, |at| at.get_bytes(key), |at| at.get_bytes(key))?;
        // SAFETY: as the header says.
        unsafe { give(value, into, size, value_size) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_map_remove(
    tx: *mut TxHandle,
    map: *const MapRaw,
    key: *const c_void,
    key_size: usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let (key, place) = unsafe { (bytes(key, key_size)?, Place::of(map)?) };
        let was = in_tx(
            tx,
            place,
            |at| at.remove_bytes(key),
            |at| at.remove_bytes(key),
        )?;
        if was { Ok(()) } else { Err(NO_KEY) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_map_count(
    tx: *mut TxHandle,
    map: *const MapRaw,
    count: *mut u64,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let place = unsafe { Place::of(map) }?;
        let entries = in_tx(tx, place, |at| at.len(), |at| at.len())?;
        // SAFETY: as the header says.
        unsafe { put(count, entries) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_map_clear(tx: *mut TxHandle, map: *const MapRaw) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let place = unsafe { Place::of(map) }?;
        in_tx(tx, place, |at| at.clear_bytes(), |at| at.clear_bytes())
    })
}
