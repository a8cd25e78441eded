//! The numbers that are this library's own, and so not open for the program.

use std::sync::atomic::Ordering;

use crate::descriptors::kept;
use crate::descriptors::placeholders;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::descriptors::table::{FILES, FLOOR_BEFORE, floor, is_kept, range_from};
use crate::own::config;
use crate::own::kernel;

/// Returns whether a number is this library's own: for the program it is not open.
pub(crate) fn is_own(number: u64) -> bool {
    is_kept(number) && is_own_among_kept(number)
}

/// The program may have come as far up itself: what the kernel has there tells.
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

/// Numbers that this library's own may have, in order.
pub(crate) fn numbers() -> impl Iterator<Item = u32> {
    // A limit that was lowered: the later ones are the lower.
    range_from(floor()).chain(range_from(FLOOR_BEFORE.load(Ordering::Acquire)))
}
