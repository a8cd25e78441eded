//! The process's heaps, and the calls on them.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use pmem::{Durability, MapOptions};
use pmlib::{Error, Heap, Options};

use crate::answer::{Answer, Code, Failure, answer, done, wrong};
use crate::handles::{Kind, Table};
use crate::pointers::{given, name, put, room, text};

/// The size of a heap for which none is said, bytes.
const SIZE: u64 = 64 << 20;

/// The type of handles. None is ever looked at: the pointer is a number.
#[repr(C)]
pub struct HeapHandle {
    _nothing: [u8; 0],
}

/// Transactions and engines have a share of their heap.
static HEAPS: Table<Heap> = Table::of(Kind {
    bits: 0x5,
    none: Failure::Wrong(Code::Handle, "no such heap: it was closed, or never open"),
    many: Failure::Wrong(Code::Heaps, "256 heaps are open in this process: close one"),
    in_use: Failure::Wrong(
        Code::InUse,
        "transactions or engines of this heap are open: end and close them first",
    ),
});

/// Keeps a heap that was opened; answers its handle.
fn keep(heap: Heap) -> Answer<*mut HeapHandle> {
    HEAPS.keep(Arc::new(heap))
}

/// Does something with a heap.
pub fn with<T>(handle: *const HeapHandle, body: impl FnOnce(&Arc<Heap>) -> Answer<T>) -> Answer<T> {
    HEAPS.with(handle, body)
}

/// `struct pmheap_options`.
#[derive(Default)]
#[repr(C)]
pub struct OptionsRaw {
    size: u64,
    max: u64,
    lanes: u32,
    processes: u32,
    read_only: u32,
    is_private: u32,
    adopt: u32,
    wait_ms: u32,
    reserved: [u32; 6],
}

/// `struct pmheap_stat`.
#[repr(C)]
pub struct StatRaw {
    bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    lanes: u32,
    spans: u32,
    survives_power_loss: u32,
    reserved: [u32; 7],
    medium: [u8; 32],
}

/// `struct pmheap_census`.
#[repr(C)]
pub struct CensusRaw {
    objects: u64,
    object_bytes: u64,
    spare_bytes: u64,
    free_bytes: u64,
    own_bytes: u64,
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<OptionsRaw>() == 64 && size_of::<StatRaw>() == 96);
const _: () = assert!(size_of::<CensusRaw>() == 72);

impl OptionsRaw {
    fn options(&self) -> Answer<Options> {
        if self.reserved != [0; 6] {
            return wrong("a reserved word of the options is not 0");
        }
        Ok(Options {
            map: MapOptions {
                read_only: self.read_only != 0,
                ..MapOptions::default()
            },
            lanes: self.lanes,
            processes: self.processes,
            max: self.max,
            adopt: self.adopt != 0,
            wait: Duration::from_millis(self.wait_ms.into()),
            ..Options::default()
        })
    }
}

/// # Safety
/// That of [`text`].
unsafe fn path<'a>(path: *const c_char) -> Answer<&'a Path> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { text(path) }?.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_create(
    file: *const c_char,
    options: *const OptionsRaw,
) -> *mut HeapHandle {
    answer(null_mut(), || {
        let none = OptionsRaw::default();
        // SAFETY: as the header says.
        let raw = unsafe { given(options) }?.unwrap_or(&none);
        let options = raw.options()?;
        let size = if raw.size == 0 { SIZE } else { raw.size };
        if raw.is_private == 0 {
            // SAFETY: as the header says.
            return keep(Heap::create(unsafe { path(file) }?, size, &options)?);
        }
        if !file.is_null() {
            return wrong("a heap in memory has no path");
        }
        if options.map.read_only {
            return Err(Error::ReadOnly.into());
        }
        keep(Heap::private(size, &options)?)
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_open(
    file: *const c_char,
    options: *const OptionsRaw,
) -> *mut HeapHandle {
    answer(null_mut(), || {
        let none = OptionsRaw::default();
        // SAFETY: as the header says.
        let raw = unsafe { given(options) }?.unwrap_or(&none);
        if raw.is_private != 0 {
            return wrong("a heap in memory can only be made");
        }
        // SAFETY: as the header says.
        keep(Heap::open(unsafe { path(file) }?, &raw.options()?)?)
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_close(closed: *mut HeapHandle) -> Code {
    done(|| {
        HEAPS.take(closed)?.close()?;
        Ok(())
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_stat(heap: *mut HeapHandle, into: *mut StatRaw) -> Code {
    done(|| {
        with(heap, |heap| {
            // Whether it can be used.
            heap.view(|_| Ok(()))?;
            let (stats, medium) = (heap.stats()?, heap.medium());
            let mut words = [0; 32];
            let kind = medium.kind.to_string();
            for (to, byte) in words[..31].iter_mut().zip(kind.bytes()) {
                *to = byte;
            }
            let stat = StatRaw {
                bytes: stats.bytes,
                free_bytes: stats.free_bytes,
                largest_free_bytes: stats.largest_free_bytes,
                lanes: stats.lanes,
                spans: u32::try_from(stats.spans).unwrap_or(u32::MAX),
                survives_power_loss: u32::from(medium.durability != Durability::Process),
                reserved: [0; 7],
                medium: words,
            };
            // SAFETY: as the header says.
            unsafe { put(into, stat) }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_give_back(heap: *mut HeapHandle, bytes: *mut u64) -> Code {
    done(|| {
        // SAFETY: as the header says. A place that is none is told before anything is done.
        unsafe { put(bytes, 0) }?;
        let given = with(heap, |heap| Ok(heap.give_back()?))?;
        // SAFETY: as above.
        unsafe { put(bytes, given) }
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_check(heap: *mut HeapHandle, into: *mut CensusRaw) -> Code {
    done(|| {
        with(heap, |heap| {
            let census = heap.check()?;
            let census = CensusRaw {
                objects: census.objects,
                object_bytes: census.object_bytes,
                spare_bytes: census.spare_bytes,
                free_bytes: census.free_bytes,
                own_bytes: census.own_bytes,
                reserved: [0; 4],
            };
            // SAFETY: as the header says.
            unsafe { put(into, census) }
        })
    })
}

/// Whether so many bytes are in an object: asked before memory for them is believed in.
pub fn test_size(object: u64, found: u64, start: u64, size: usize) -> Answer<()> {
    let end = start.saturating_add(size as u64);
    if end <= found {
        return Ok(());
    }
    Err(Failure::Heap(Error::Range {
        offset: object,
        size: found,
        start,
        end,
    }))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_read(
    heap: *mut HeapHandle,
    object: u64,
    start: u64,
    into: *mut c_void,
    size: usize,
) -> Code {
    done(|| {
        with(heap, |heap| {
            test_size(object, heap.size_of(object)?, start, size)?;
            // SAFETY: as the header says.
            heap.read_bytes(object, start, unsafe { room(into, size) }?)?;
            Ok(())
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_size_of(heap: *mut HeapHandle, object: u64) -> u64 {
    answer(0, || with(heap, |heap| Ok(heap.size_of(object)?)))
}

/// Whether a root can be of this type.
pub fn test_type(fingerprint: u64) -> Answer<()> {
    if fingerprint == 0 {
        return wrong("0 is no type's fingerprint: the type was not registered");
    }
    Ok(())
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_root(
    heap: *mut HeapHandle,
    called: *const c_char,
    size: u64,
    fingerprint: u64,
) -> u64 {
    answer(0, || {
        with(heap, |heap| {
            test_type(fingerprint)?;
            // SAFETY: as the header says.
            Ok(heap.root_of(unsafe { name(called) }?, fingerprint, size)?)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_root_object(heap: *mut HeapHandle) -> u64 {
    answer(0, || with(heap, |heap| Ok(heap.root_offset()?)))
}
