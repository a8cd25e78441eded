//! The lane of a transaction.

use pmshare::holder::thread_tag;

use crate::engine::Core;
use crate::error::Result;
use crate::lane::{Lease, Spare};
use crate::locks::Patience;

/// The lane of a transaction. Until it has one it holds nothing that others may wait for.
#[inline(always)]
pub(super) fn lane_of<'a, 'h>(
    core: &'h Core,
    lane: &'a mut Option<Lease<'h>>,
    spare: &mut Spare,
) -> Result<&'a mut Lease<'h>> {
    match lane {
        Some(lane) => Ok(lane),
        none => Ok(none.insert(any_lane(core, spare)?)),
    }
}

/// A lane for a thread: the one that it had last if nobody has it, or the next that is free, or its
/// own when it is.
#[inline(always)]
fn any_lane<'h>(core: &'h Core, spare: &mut Spare) -> Result<Lease<'h>> {
    let first = match spare {
        Some(last) if last.heap() == core.id => last.index(),
        _ => first_lane(core),
    };
    let window = core.mem.window();
    let free = core.try_lease(first, spare);
    drop(window);
    match free {
        Some(lane) => Ok(lane),
        None => next_lane(core, first, spare),
    }
}

/// The lane that a thread without one asks for.
#[cold]
fn first_lane(core: &Core) -> u32 {
    // Threads of one process have counts one after the other.
    let spread = thread_tag() ^ core.holder().slot << 7;
    (spread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % core.header.lanes
}

/// The next lane after `first` that is free, or that one when it is.
#[cold]
fn next_lane<'h>(core: &'h Core, first: u32, spare: &mut Spare) -> Result<Lease<'h>> {
    let count = core.header.lanes;
    let mut patience = Patience::default();
    loop {
        let window = core.mem.window();
        let free = (0..count).find_map(|step| core.try_lease((first + step) % count, spare));
        drop(window);
        if let Some(lane) = free {
            return Ok(lane);
        }
        core.enter()?;
        core.wait_for(core.lane_owner(first), &mut patience);
    }
}
