//! The count of free blocks that a process relies on.

use crate::bitmap::Bitmap;
use crate::hints::Hints;
use pm_journal::error::{Error, Result};
use pm_journal::medium::store::{Share, Waits};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};

/// The right of a call to take from the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The call makes the pool fuller.
    Ordinary,
    /// The call frees or replaces blocks, and must succeed on a full pool (docs/adr/0035-space.md).
    Privileged,
}

/// The blocks of a pool; `P` is the meaning of intents.
pub struct Space<P> {
    share: Share,
    /// Blocks that ordinary calls may take before the free ones are counted again.
    budget: AtomicI64,
    pub(super) hints: Hints,
    meaning: PhantomData<P>,
}

impl<P> Deref for Space<P> {
    type Target = Share;

    #[inline(always)]
    fn deref(&self) -> &Share {
        &self.share
    }
}

impl<P> Space<P> {
    /// Creates the space of a pool, with nothing counted yet.
    pub fn new(share: Share) -> Space<P> {
        Space {
            share,
            budget: AtomicI64::new(0),
            hints: Hints::default(),
            meaning: PhantomData,
        }
    }

    /// Unwraps the attachment.
    pub fn into_share(self) -> Share {
        self.share
    }

    /// Checks that a call may take `want` blocks; ordinary calls can't use the reserve.
    pub(super) fn afford(&self, waits: Waits<'_>, class: Class, want: u64) -> Result<()> {
        if class == Class::Privileged
            || self.budget.fetch_sub(want as i64, Ordering::Relaxed) >= want as i64
        {
            return Ok(());
        }
        let free = Bitmap::blocks(waits).free();
        let spare = free.saturating_sub(self.geometry.reserve_blocks);
        // Other processes allocate too: only a quarter is used without a new count, and so little
        // that processes with an old count can't use up the reserve.
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
