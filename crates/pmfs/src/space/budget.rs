//! Free blocks, as a process counts on them.

use crate::space::bitmap::Bitmap;
use crate::space::hints::Hints;
use pm_journal::error::{Error, Result};
use pm_journal::medium::store::Share;
use pm_journal::medium::store::Waits;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};

/// The pool's blocks, to be given out.
pub struct Space {
    share: Share,
    /// Blocks that ordinary calls may take before the free ones are counted again.
    budget: AtomicI64,
    pub(super) hints: Hints,
}

impl Deref for Space {
    type Target = Share;

    #[inline(always)]
    fn deref(&self) -> &Share {
        &self.share
    }
}

impl Space {
    /// Makes the count of a pool; nothing is counted yet.
    pub fn new(share: Share) -> Space {
        Space {
            share,
            budget: AtomicI64::new(0),
            hints: Hints::default(),
        }
    }

    /// The way back.
    pub fn into_share(self) -> Share {
        self.share
    }

    /// Checks that an ordinary call may take `want` blocks; the reserve is not for it.
    pub(super) fn afford(&self, waits: Waits<'_>, want: u64) -> Result<()> {
        if self.budget.fetch_sub(want as i64, Ordering::Relaxed) >= want as i64 {
            return Ok(());
        }
        let free = Bitmap::blocks(waits).free();
        let spare = free.saturating_sub(self.geometry.reserve_blocks);
        // Others spend too: only a quarter is taken on trust until the next count, and so little
        // that what a few who counted long ago take amiss is not the whole reserve.
        let trust = (spare / 4).min(self.geometry.reserve_blocks / 8);
        self.budget
            .store(trust as i64 - want as i64, Ordering::Relaxed);
        if spare < want {
            Err(Error::NoSpace)
        } else {
            Ok(())
        }
    }
}
