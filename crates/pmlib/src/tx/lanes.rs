//! The lane of a transaction.

use std::cell::Cell;

use pmshare::holder::thread_tag;

use crate::engine::Core;
use crate::error::Result;
use crate::lane::Lease;
use crate::locks::Patience;

thread_local! {
    /// The lane that this thread had last, and the heap's id.
    static LANE: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// The lane of a transaction. Until it has one it holds nothing that others may wait for.
pub(super) fn lane_of<'a, 'h>(
    core: &'h Core,
    lane: &'a mut Option<Lease<'h>>,
) -> Result<&'a mut Lease<'h>> {
    match lane {
        Some(lane) => Ok(lane),
        none => Ok(none.insert(any_lane(core)?)),
    }
}

/// A lane for a thread: the one that it had last if nobody has it, or the next that is free, or its
/// own when it is.
fn any_lane(core: &Core) -> Result<Lease<'_>> {
    let first = match LANE.get() {
        (heap, last) if heap == core.id => last,
        _ => {
            // Threads of one process have counts one after the other.
            let spread = thread_tag() ^ core.holder().slot << 7;
            (spread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % core.header.lanes
        }
    };
    let window = core.mem.window();
    let free = core.try_lease(first);
    drop(window);
    match free {
        Some(lane) => {
            LANE.set((core.id, first));
            Ok(lane)
        }
        None => next_lane(core, first),
    }
}

/// The next lane after `first` that is free, or that one when it is.
#[cold]
fn next_lane(core: &Core, first: u32) -> Result<Lease<'_>> {
    let count = core.header.lanes;
    let mut patience = Patience::default();
    loop {
        let window = core.mem.window();
        let free = (0..count).find_map(|step| core.try_lease((first + step) % count));
        drop(window);
        if let Some(lane) = free {
            LANE.set((core.id, lane.index()));
            return Ok(lane);
        }
        core.enter()?;
        core.wait_for(core.lane_owner(first), &mut patience);
    }
}
