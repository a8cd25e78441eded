//! The program's memory. Every pointer may be bad, which must be EFAULT and have no other effect.

pub(crate) mod copies;
pub(crate) mod credentials;
pub(crate) mod limits;
pub(crate) mod umask;

use std::slice;

use libc::EFAULT;
use pmem::program;

use crate::thread::PATH_MAX;

/// Bytes of a page; a string is read page by page.
const PAGE: usize = 4096;

/// Reads a structure of plain numbers.
pub(crate) fn read<T: Copy>(from: u64) -> Result<T, i32> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the bytes of a zeroed value.
    let bytes = unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
    program::copy_in(bytes, from as usize).map_err(|_| EFAULT)?;
    // SAFETY: callers name structures of numbers, for which any bytes are good.
    Ok(unsafe { value.assume_init() })
}

/// Stores a structure of plain numbers, without padding that was never set.
pub(crate) fn write<T: Copy>(to: u64, value: &T) -> Result<(), i32> {
    // SAFETY: the bytes of a value that callers made by zeroing.
    let bytes = unsafe { slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    write_bytes(to, bytes)
}

/// Stores bytes.
pub(crate) fn write_bytes(to: u64, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: the program asked for it in a system call.
    unsafe { program::copy_out(to as usize, bytes) }.map_err(|_| EFAULT)
}

/// Reads bytes.
pub(crate) fn read_bytes(from: u64, bytes: &mut [u8]) -> Result<(), i32> {
    program::copy_in(bytes, from as usize).map_err(|_| EFAULT)
}

/// The count of bytes from there to the end of the page.
pub(crate) fn to_page_end(at: u64) -> usize {
    PAGE - at as usize % PAGE
}

/// Reads a path and the NUL behind it. Returns its length without NUL.
///
/// # Errors
/// EFAULT, ENAMETOOLONG.
pub(crate) fn path(from: u64, room: &mut [u8; PATH_MAX]) -> Result<usize, i32> {
    let mut done = 0;
    while done < PATH_MAX {
        let at = from as usize + done;
        let step = to_page_end(at as u64).min(PATH_MAX - done).min(256);
        program::copy_in(&mut room[done..done + step], at).map_err(|_| EFAULT)?;
        if let Some(end) = position_of_nul(&room[done..done + step]) {
            return Ok(done + end);
        }
        done += step;
    }
    Err(libc::ENAMETOOLONG)
}

/// The position of NUL, found by libc many bytes at once.
fn position_of_nul(bytes: &[u8]) -> Option<usize> {
    let start = bytes.as_ptr();
    // SAFETY: as many bytes as the slice has.
    let there = unsafe { libc::memchr(start.cast(), 0, bytes.len()) };
    (!there.is_null()).then(|| there.addr() - start.addr())
}

/// Reads a short name (of an attribute) and the NUL behind it.
///
/// # Errors
/// EFAULT; ERANGE: empty, or longer than 255.
pub(crate) fn name(from: u64) -> Result<Vec<u8>, i32> {
    let mut name = Vec::new();
    loop {
        let byte: u8 = read(from + name.len() as u64)?;
        match byte {
            0 if name.is_empty() => return Err(libc::ERANGE),
            0 => return Ok(name),
            _ if name.len() == 255 => return Err(libc::ERANGE),
            byte => name.push(byte),
        }
    }
}

/// A buffer of the program for the engine. Whether it is accessible shows when the engine copies to
/// it, by a copy with a landing pad; no other code of the engine touches it.
///
/// # Safety
/// It is valid during one call of the engine that fills it.
pub(crate) unsafe fn buffer<'a>(at: u64, bytes: usize) -> &'a mut [u8] {
    let start = at_least_something(at);
    // SAFETY: see above; a length that no slice may have was cut by the caller (at most
    // 2 GiB, as the kernel does).
    unsafe { slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), bytes) }
}

/// The greatest length of data that are copied before the engine sees them. The engine copies
/// longer data with a landing pad.
const SHORT: usize = pmfs::UNGUARDED_MAX;

/// Space for such data.
pub(crate) type Short = [std::mem::MaybeUninit<u8>; SHORT];

/// An empty [`Short`].
pub(crate) const NOTHING: Short = [const { std::mem::MaybeUninit::uninit() }; SHORT];

/// Data of the program for a write.
///
/// # Errors
/// EFAULT for short data; the engine meets it in longer data.
///
/// # Safety
/// They are valid during one call of the engine.
#[inline]
pub(crate) unsafe fn data(room: &mut Short, at: u64, bytes: usize) -> Result<&[u8], i32> {
    if bytes <= SHORT {
        // SAFETY: room for bytes, written before they are read.
        let room = unsafe { slice::from_raw_parts_mut(room.as_mut_ptr().cast(), bytes) };
        read_bytes(at, room)?;
        return Ok(room);
    }
    let at = std::ptr::with_exposed_provenance(at_least_something(at));
    // SAFETY: as in `buffer`.
    Ok(unsafe { slice::from_raw_parts(at, bytes) })
}

/// Replaces a null pointer, which a slice may not have, by the next address, which is as bad.
fn at_least_something(at: u64) -> usize {
    (at as usize).max(1)
}

/// The most bytes that one call moves, as in the kernel.
pub(crate) const IO_MAX: u64 = 0x7fff_f000;
