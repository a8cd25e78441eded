//! Values from C as Rust types. Each of these functions relies on its caller that the pointer is as
//! the header requires.

use crate::answer::{Answer, Failure};
use crate::pools::Shared;
use pmfs::Attr;
use pmfs_posix::stat::fill_stat;
use std::ffi::{CStr, c_char, c_void};

const NULL: Failure = Failure::Wrong(libc::EFAULT, "a pointer is NULL");

/// The pool behind a handle.
///
/// # Safety
/// NULL, or from `pmfs_open_pool` and not closed.
pub unsafe fn pool<'a>(pool: *const Shared) -> Answer<&'a Shared> {
    // SAFETY: the caller's promise.
    unsafe { pool.as_ref() }.ok_or(NULL)
}

/// A string.
///
/// # Safety
/// NULL, or ends with a NUL and stays as it is during the call.
pub unsafe fn text<'a>(text: *const c_char) -> Answer<&'a [u8]> {
    if text.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Bytes to read.
///
/// # Safety
/// `len` bytes from `from` on are the caller's, and stay as they are during the call.
pub unsafe fn bytes<'a>(from: *const c_void, len: usize) -> Answer<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), len.min(isize::MAX as usize)) })
}

/// Bytes to fill.
///
/// # Safety
/// `len` bytes from `into` on are the caller's to write, and nobody else's during the call.
pub unsafe fn room<'a>(into: *mut c_void, len: usize) -> Answer<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if into.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), len.min(isize::MAX as usize)) })
}

/// A structure to fill or change.
///
/// # Safety
/// NULL, or a structure that is the caller's, all bytes of it written before.
pub unsafe fn place<'a, T>(into: *mut T) -> Answer<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { into.as_mut() }.ok_or(NULL)
}

/// Writes a structure.
///
/// # Safety
/// NULL, or room for it.
pub unsafe fn put<T>(into: *mut T, value: T) -> Answer<()> {
    if into.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's promise.
    unsafe { into.write(value) };
    Ok(())
}

/// Attributes as `stat(2)` has them.
pub fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: all-zero is a valid struct stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // A pool is no device.
    fill_stat(&mut stat, attr, 0);
    stat
}

/// A count that fits the answer.
pub fn signed(count: usize) -> isize {
    isize::try_from(count).unwrap_or(isize::MAX)
}

/// An offset that is not negative.
pub fn offset(offset: i64) -> Answer<u64> {
    u64::try_from(offset).map_err(|_| Failure::Wrong(libc::EINVAL, "a negative offset or size"))
}
