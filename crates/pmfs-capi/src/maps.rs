//! Files at addresses of the program.

use crate::answer::{Answer, Failure, answer, done};
use crate::pointers::{offset, place, pool};
use crate::pools::Shared;
use pmfs::{FileMap, MapMode};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// The content of a `pmfs_map_t`.
pub struct Map(FileMap<'static>);

/// `PMFS_MAP_*` of the header.
fn mode_of(mode: c_int) -> Answer<MapMode> {
    match mode {
        0 => Ok(MapMode::Read),
        1 => Ok(MapMode::Shared),
        2 => Ok(MapMode::Atomic),
        _ => Err(Failure::Wrong(
            libc::EINVAL,
            "a way of mapping that is not known",
        )),
    }
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_map(
    on: *mut Shared,
    handle: c_int,
    at: libc::off_t,
    size: libc::size_t,
    mode: c_int,
) -> *mut Map {
    answer(null_mut(), || {
        // SAFETY: as the header says: the pool is closed after what is mapped of it.
        let shared: &'static Shared = unsafe { pool(on) }?;
        let mode = mode_of(mode)?;
        // mmap(2) asks the same: shared memory that is stored to is read as well.
        let handle = shared.readable(handle)?;
        if mode != MapMode::Read && !handle.is_for_writing() {
            return Err(Failure::Wrong(libc::EACCES, "not open for writing"));
        }
        let map = shared.fs.map(handle.ino, offset(at)?, size as u64, mode)?;
        Ok(Box::into_raw(Box::new(Map(map))))
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_map_address(map: *mut Map) -> *mut c_void {
    answer(null_mut(), || {
        // SAFETY: as the header says.
        Ok(unsafe { place(map) }?.0.as_ptr().cast())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_map_sync(map: *mut Map) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        Ok(unsafe { place(map) }?.0.sync()?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_unmap(map: *mut Map) -> c_int {
    done(|| {
        // SAFETY: as the header says. One that can't be synced stays.
        unsafe { place(map) }?.0.sync()?;
        // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(map) });
        Ok(())
    })
}
