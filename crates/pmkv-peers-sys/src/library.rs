//! Shared libraries and tables of their functions.

use std::ffi::OsStr;
use std::slice;

use libloading::Library;

/// A struct of functions, each found by its name in a library.
macro_rules! functions {
    ($table:ident: $($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[derive(Clone, Copy)]
        struct $table {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            fn of(library: &'static libloading::Library) -> std::result::Result<$table, libloading::Error> {
                Ok($table {
                    $(
                        // SAFETY: the library's header declares the function of this name with
                        // these types, and the library stays in the process.
                        $name: unsafe { *library.get(stringify!($name))? },
                    )*
                })
            }
        }
    };
}

/// The first library that can be loaded, for the rest of the process.
pub fn load<N: AsRef<OsStr>>(names: &[N]) -> Result<&'static Library, libloading::Error> {
    let mut failure = libloading::Error::DlOpenUnknown;
    for name in names {
        // SAFETY: constructors of the libraries that are named here set up their own state alone.
        match unsafe { Library::new(name.as_ref()) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Has a buffer hold a value of a library.
///
/// # Safety
/// So many bytes can be read there; of none, the pointer may be null.
pub unsafe fn copy(start: *const u8, len: usize, value: &mut Vec<u8>) {
    value.clear();
    if len > 0 {
        // SAFETY: the caller's promise.
        value.extend_from_slice(unsafe { slice::from_raw_parts(start, len) });
    }
}
