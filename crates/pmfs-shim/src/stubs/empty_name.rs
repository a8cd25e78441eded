//! The place of libc's constants. Since glibc 2.33, its fstat is fstatat(file, "", AT_EMPTY_PATH):
//! a call by path that programs make as often as any by descriptor.
//!
//! The entry passes it on at once if the descriptor is not of the pool, as it does with read and
//! the like. For that it must read the string, which is safe only in memory that certainly exists;
//! other pointers are read by a guarded copy, as all pointers of the program are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The first address of libc's read-only data.
pub(crate) static FROM: AtomicUsize = AtomicUsize::new(0);
/// Its length, bytes; 0 if it is unknown.
pub(crate) static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Notes the place, once, while there is one thread.
pub(crate) fn is_in((from, bytes): (usize, usize)) {
    FROM.store(from, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
}
