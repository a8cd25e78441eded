//! The program's environment, before libc can be asked.

use std::ffi::{CStr, c_char};

/// The environment as the loader passes it: strings, then a null pointer. It is read before the
/// program begins, which may change it.
#[derive(Clone, Copy)]
pub(crate) struct Environment(pub *const *const c_char);

impl Iterator for Environment {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<&'static [u8]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not past the null pointer, where it stays.
        unsafe {
            let entry = *self.0;
            if entry.is_null() {
                return None;
            }
            self.0 = self.0.add(1);
            Some(CStr::from_ptr(entry).to_bytes())
        }
    }
}

/// The value of `name=value`.
pub(crate) fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}
