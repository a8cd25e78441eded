//! Which bug is there, at run time: one word.

use super::BUGS;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No bug's number.
const NONE: usize = usize::MAX;

static SELECTED: AtomicUsize = AtomicUsize::new(NONE);

/// Makes this bug, and no other, be there from now on; `None`: none.
///
/// # Panics
/// If no bug has that name.
pub fn select(name: Option<&str>) {
    SELECTED.store(name.map_or(NONE, number_of), Ordering::Relaxed);
}

/// The number of the bug that is there.
#[inline]
pub(crate) fn selected() -> usize {
    SELECTED.load(Ordering::Relaxed)
}

/// The number of a bug; at compile time, a name that is none is an error.
pub(crate) const fn number_of(name: &str) -> usize {
    let mut number = 0;
    while number < BUGS.len() {
        if same(BUGS[number].name.as_bytes(), name.as_bytes()) {
            return number;
        }
        number += 1;
    }
    panic!("no planted bug has that name");
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
