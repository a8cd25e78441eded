//! A lane for one call, and how its records end with the call.

use crate::lane::Lane;
use crate::medium::store::Store;
use crate::undo::undo_lane;
use pmshare::Member;
use pmshare::member::Began;

/// The end of a call's open records. Trees decide it, which this layer does not know.
pub trait Resolve: Member<Store> {
    /// Frees what is nobody's of all that the lane's records name. The caller holds the locks of
    /// the inodes in them.
    fn resolve(&self, lane: &Lane<'_>);
}

/// A claimed lane with its end: intents that are left open are resolved.
pub struct Claim<'a> {
    lane: Lane<'a>,
    ends: &'a dyn Resolve,
    began: Began,
}

impl<'a> Claim<'a> {
    /// Claims a lane for one call.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn new<S: Resolve>(pool: &'a S) -> Claim<'a> {
        Claim {
            lane: Lane::claim(pool.into()),
            ends: pool,
            began: Began::now(),
        }
    }
}

impl<'a> std::ops::Deref for Claim<'a> {
    type Target = Lane<'a>;

    #[inline]
    fn deref(&self) -> &Lane<'a> {
        &self.lane
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lane.share().gives_up(self.began) {
            return;
        }
        if !may_go(&self.lane) {
            return;
        }
        if self.lane.intent_count() > 0 {
            self.ends.resolve(&self.lane);
            // While the records stand, recovery would count anew.
            self.lane.store_block_count();
            self.lane.clear_intents();
        }
        self.lane.release();
    }
}

/// Returns whether others may have the lane next.
#[inline(always)]
pub(super) fn may_go(lane: &Lane<'_>) -> bool {
    lane.share().pm.intact().is_ok() || is_undone(lane)
}

/// The medium has failed: half a transaction must not be what others find, so it is undone first.
/// Records that are open then need somebody who can read the medium, so the lane stays this
/// process's until it is gone.
#[cold]
fn is_undone(lane: &Lane<'_>) -> bool {
    undo_lane(lane.share(), lane, true).is_ok() && lane.intent_count() == 0
}
