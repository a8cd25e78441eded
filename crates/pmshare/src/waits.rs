//! The context of a call that may have to wait for others and clean up after them.

use crate::cleaning::Rescue;
use crate::layout::Shared;
use crate::member::Share;
use std::ops::Deref;

/// A member of a pool's processes that can clean up after the dead.
pub trait Member<S: Shared>: Rescue<S::Error> {
    /// Its place.
    fn share(&self) -> &Share<S>;
}

/// A place in a pool, and the way to clean up. The latter is used by waits alone, and costs nothing
/// without one.
pub struct Waits<'a, S: Shared> {
    /// The place.
    pub share: &'a Share<S>,
    /// The way to clean up.
    pub rescue: &'a dyn Rescue<S::Error>,
}

impl<S: Shared> Copy for Waits<'_, S> {}

impl<S: Shared> Clone for Waits<'_, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, S: Shared, M: Member<S>> From<&'a M> for Waits<'a, S> {
    #[inline(always)]
    fn from(member: &'a M) -> Waits<'a, S> {
        Waits {
            share: member.share(),
            rescue: member,
        }
    }
}

impl<S: Shared> Deref for Waits<'_, S> {
    type Target = Share<S>;

    #[inline(always)]
    fn deref(&self) -> &Share<S> {
        self.share
    }
}
