//! The context of a call that may have to wait for others, and to clean up after them.

use crate::share::cleaning::Rescue;
use crate::share::member::Share;
use std::ops::Deref;

/// Has a place in a pool, and cleans up after the dead.
pub(crate) trait Member: Rescue {
    /// Its place.
    fn share(&self) -> &Share;
}

/// A place in a pool, and how it cleans up. The second is for waits alone: without one it costs
/// nothing.
#[derive(Clone, Copy)]
pub(crate) struct Waits<'a> {
    pub share: &'a Share,
    pub rescue: &'a dyn Rescue,
}

impl<'a, M: Member> From<&'a M> for Waits<'a> {
    #[inline(always)]
    fn from(member: &'a M) -> Waits<'a> {
        Waits {
            share: member.share(),
            rescue: member,
        }
    }
}

impl Deref for Waits<'_> {
    type Target = Share;

    #[inline(always)]
    fn deref(&self) -> &Share {
        self.share
    }
}
