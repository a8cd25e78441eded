//! A lane claimed for one call, whose records end with the call.

use crate::lane::{Lane, Meaning};
use pm_journal::lane;
use pm_journal::medium::store::Store;
use pm_journal::undo::may_go;
use pmshare::Member;
use pmshare::member::Began;

/// The resolution of a call's open records. It depends on the trees, which this layer does not
/// know.
pub trait Resolve<P>: Member<Store> {
    /// Frees those blocks in the lane's records that belong to no inode. The caller holds the locks
    /// of the inodes in them.
    fn resolve(&self, lane: &Lane<'_, P>);
}

/// A claimed lane with its end: intents that are left open are resolved.
pub struct Claim<'a, P: Meaning> {
    lane: Lane<'a, P>,
    ends: &'a dyn Resolve<P>,
    began: Began,
}

impl<'a, P: Meaning> Claim<'a, P> {
    /// Claims a lane for one call.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn new<S: Resolve<P>>(pool: &'a S) -> Claim<'a, P> {
        Claim {
            lane: Lane::of(lane::Lane::claim(pool.into())),
            ends: pool,
            began: Began::now(),
        }
    }
}

impl<'a, P: Meaning> std::ops::Deref for Claim<'a, P> {
    type Target = Lane<'a, P>;

    #[inline]
    fn deref(&self) -> &Lane<'a, P> {
        &self.lane
    }
}

impl<P: Meaning> Drop for Claim<'_, P> {
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
            // Recovery would count the blocks again while the records exist.
            self.lane.store_block_count();
            self.lane.clear_intents();
        }
        self.lane.release();
    }
}
