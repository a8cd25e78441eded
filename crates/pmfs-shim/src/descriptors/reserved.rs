//! The numbers of this library's own descriptors, which the program sees as closed.

use std::sync::atomic::Ordering;

use crate::descriptors::kept;
use crate::descriptors::placeholders;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::descriptors::table::{FILES, FLOOR_BEFORE, floor, is_kept, range_from};
use crate::own::config;
use crate::own::kernel;

/// Returns whether a number is this library's own.
pub(crate) fn is_own(number: u64) -> bool {
    is_kept(number) && is_own_among_kept(number)
}

/// Returns whether a number in the kept range is this library's own. The program may use the range
/// too, so the file at the number decides.
#[cold]
fn is_own_among_kept(number: u64) -> bool {
    let number = number as u32;
    if FILES[number as usize].load(Ordering::Acquire) != 0 {
        return false;
    }
    if placeholders::is_anchor(number)
        || config::get().keeper == Some(number)
        || config::get().is_image(number)
        || promote::is_root(number)
        || kept::has(number)
        || spare::has(number)
        || pool::attached().is_some_and(|fs| fs.watches_by(number as i32))
    {
        return true;
    }
    let pool = [config::get().pool.as_slice(), b"\0"].concat();
    let here = kernel::file_of(&pool);
    here.is_some() && here == kernel::file_at(number)
}

/// The numbers that this library's own descriptors may have, in order.
pub(crate) fn numbers() -> impl Iterator<Item = u32> {
    // After the limit was lowered, the later ones are the lower.
    range_from(floor()).chain(range_from(FLOOR_BEFORE.load(Ordering::Acquire)))
}
