//! The place of libc's own constants: since glibc 2.33 its fstat is fstatat(file, "",
//! AT_EMPTY_PATH), a call by path that a program makes as often as any by descriptor.
//!
//! The entry passes it on at once if the descriptor is not ours, as it does with read and its kin.
//! For that it has to read the string, which is safe only where memory is there for certain;
//! another pointer is read by a guarded copy, as all pointers of the program are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The first address of libc's read-only data.
pub(crate) static FROM: AtomicUsize = AtomicUsize::new(0);
/// Its length, bytes; 0: not known.
pub(crate) static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Notes it. Once, while there is one thread.
pub(crate) fn is_in((from, bytes): (usize, usize)) {
    FROM.store(from, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
}
