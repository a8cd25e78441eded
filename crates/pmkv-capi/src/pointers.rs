//! Values from C as Rust types. Each of these functions relies on its caller that the pointer is as
//! the header requires.

use std::ffi::{CStr, c_char, c_void};

use crate::answer::{Answer, NULL, wrong};

/// A string.
///
/// # Safety
/// NULL, or ends with a NUL and stays as it is during the call.
pub unsafe fn text<'a>(text: *const c_char) -> Answer<&'a CStr> {
    if text.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A name.
///
/// # Safety
/// That of [`text`].
pub unsafe fn name<'a>(name: *const c_char) -> Answer<&'a str> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) }?.to_str();
    name.or_else(|_| wrong("a name is not UTF-8"))
}

/// Values to read.
///
/// # Safety
/// `count` of them are the caller's from `from` on, and stay as they are during the call.
pub unsafe fn values<'a, T>(from: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(NULL);
    }
    if count > isize::MAX as usize / size_of::<T>() || !from.is_aligned() {
        return wrong("no array has so many elements, or begins there");
    }
    // SAFETY: the caller's promise; it is aligned, and no larger than a slice can be.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
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
    if len > isize::MAX as usize {
        return wrong("no memory has so many bytes");
    }
    // SAFETY: the caller's promise; it is no larger than a slice can be.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), len) })
}

/// A structure to read; `None` for NULL.
///
/// # Safety
/// NULL, or a structure that stays as it is during the call.
pub unsafe fn given<'a, T>(from: *const T) -> Answer<Option<&'a T>> {
    if !from.is_aligned() {
        return wrong("a structure does not begin there");
    }
    // SAFETY: the caller's promise; it is aligned.
    Ok(unsafe { from.as_ref() })
}

/// Writes a structure.
///
/// # Safety
/// NULL, or room for it.
pub unsafe fn put<T>(into: *mut T, value: T) -> Answer<()> {
    if into.is_null() {
        return Err(NULL);
    }
    if !into.is_aligned() {
        return wrong("a structure does not begin there");
    }
    // SAFETY: the caller's promise; it is aligned.
    unsafe { into.write(value) };
    Ok(())
}
