//! Values from C as Rust types. Each of these functions relies on its caller that the pointer is as
//! the manual page requires.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::status::{Answer, Status, fail, null};

/// A text.
///
/// # Safety
/// NULL, or ends with a NUL and stays as it is during the call.
pub unsafe fn text<'a>(text: *const c_char) -> Answer<&'a CStr> {
    if text.is_null() {
        return null();
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Bytes to read.
///
/// # Safety
/// `len` bytes from there on are the caller's, and stay as they are during the call.
pub unsafe fn bytes<'a>(from: *const c_char, len: usize) -> Answer<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return null();
    }
    if len > isize::MAX as usize {
        return fail(Status::InvalidArgument, c"no memory has so many bytes");
    }
    // SAFETY: the caller's promise; it is no larger than a slice can be.
    Ok(unsafe { slice::from_raw_parts(from.cast(), len) })
}

/// A structure of this library; NULL is told.
///
/// # Safety
/// NULL, or a pointer that this library gave and that was not given back.
pub unsafe fn there<'a, T>(pointer: *const T) -> Answer<&'a T> {
    // SAFETY: the caller's promise.
    match unsafe { pointer.as_ref() } {
        Some(thing) => Ok(thing),
        None => null(),
    }
}

/// The same, to change it.
///
/// # Safety
/// That of [`there`], and nobody else uses it during the call.
pub unsafe fn there_mut<'a, T>(pointer: *mut T) -> Answer<&'a mut T> {
    // SAFETY: the caller's promise.
    match unsafe { pointer.as_mut() } {
        Some(thing) => Ok(thing),
        None => null(),
    }
}

/// Writes an answer; NULL is told.
///
/// # Safety
/// NULL, or room for it.
pub unsafe fn put<T>(into: *mut T, value: T) -> Answer<()> {
    if into.is_null() {
        return null();
    }
    // SAFETY: the caller's promise.
    unsafe { into.write(value) };
    Ok(())
}

/// A structure given to the program.
pub fn lend<T>(thing: T) -> *mut T {
    Box::into_raw(Box::new(thing))
}

/// Takes a structure back; NULL is none.
///
/// # Safety
/// NULL, or of [`lend`] and not taken back before.
pub unsafe fn take_back<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}
