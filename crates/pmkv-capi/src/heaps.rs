//! The process's heaps. A handle is a number and no address: it is looked up, so that one that was
//! made up or closed is told.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use pmem::{Durability, MapOptions};
use pmlib::{Error, Heap, Options};

use crate::answer::{Answer, Code, Failure, NULL, answer, done, wrong};
use crate::pointers::{given, name, put, room, text};

/// Heaps of a process.
const HEAPS_MAX: usize = 256;
/// The low four bits of a heap's handle; its place follows in eight, and a count in 52.
const KIND: u64 = 0x5;
/// The size of a heap for which none is said, bytes.
const SIZE: u64 = 64 << 20;

/// The type of handles. None is ever looked at: the pointer is a number.
#[repr(C)]
pub struct HeapHandle {
    _nothing: [u8; 0],
}

/// A heap that is open.
struct Open {
    handle: u64,
    /// Its transactions have it too.
    heap: Arc<Heap>,
}

struct Slot {
    /// The process that opened it: in a forked child the lock may be held by a thread that is not
    /// there.
    opener: AtomicU32,
    open: RwLock<Option<Open>>,
}

static SLOTS: [Slot; HEAPS_MAX] = [const {
    Slot {
        opener: AtomicU32::new(0),
        open: RwLock::new(None),
    }
}; HEAPS_MAX];

const NO_HEAP: Failure = Failure::Wrong(Code::Handle, "no such heap: it was closed, or never open");

impl Slot {
    fn of(handle: u64) -> Answer<&'static Slot> {
        match handle & 0xf {
            _ if handle == 0 => Err(NULL),
            KIND => Ok(&SLOTS[(handle >> 4) as usize % HEAPS_MAX]),
            _ => Err(NO_HEAP),
        }
    }

    fn is_forked(&self) -> bool {
        self.opener.load(Ordering::Relaxed) != std::process::id()
    }

    fn read(&self) -> Answer<RwLockReadGuard<'_, Option<Open>>> {
        loop {
            match self.open.try_read() {
                Ok(open) => return Ok(open),
                Err(TryLockError::Poisoned(open)) => return Ok(open.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_forked() => {
                    return Err(Error::Forked.into());
                }
                // Somebody opens or closes, which waits for nothing under this lock.
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

/// Keeps a heap that was opened; answers its handle.
fn keep(heap: Heap) -> Answer<*mut HeapHandle> {
    // 52 bits: with a million heaps a second a handle is another heap's after 142 years.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for (index, slot) in SLOTS.iter().enumerate() {
        // One that is locked is somebody's.
        let Ok(mut open) = slot.open.try_write() else {
            continue;
        };
        if open.is_none() {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let handle = count << 12 | (index as u64) << 4 | KIND;
            slot.opener.store(std::process::id(), Ordering::Relaxed);
            let heap = Arc::new(heap);
            *open = Some(Open { handle, heap });
            return Ok(without_provenance_mut(handle as usize));
        }
    }
    Err(Failure::Wrong(
        Code::Heaps,
        "256 heaps are open in this process: close one",
    ))
}

/// Does something with a heap.
pub fn with<T>(handle: *const HeapHandle, body: impl FnOnce(&Arc<Heap>) -> Answer<T>) -> Answer<T> {
    let handle = handle.addr() as u64;
    let open = Slot::of(handle)?.read()?;
    match &*open {
        Some(open) if open.handle == handle => body(&open.heap),
        _ => Err(NO_HEAP),
    }
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
    reserved: [u32; 7],
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
        if self.reserved != [0; 7] {
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
        let handle = closed.addr() as u64;
        let slot = Slot::of(handle)?;
        let mut open = if slot.is_forked() {
            let open = slot.open.try_write();
            open.map_err(|_| Error::Forked)?
        } else {
            slot.open.write().unwrap_or_else(PoisonError::into_inner)
        };
        match open.take() {
            Some(there) if there.handle == handle => match Arc::try_unwrap(there.heap) {
                Ok(heap) => {
                    drop(open);
                    heap.close()?;
                    Ok(())
                }
                Err(heap) => {
                    *open = Some(Open { handle, heap });
                    Err(Failure::Wrong(
                        Code::InUse,
                        "transactions of this heap go on: end them first",
                    ))
                }
            },
            other => {
                *open = other;
                Err(NO_HEAP)
            }
        }
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
