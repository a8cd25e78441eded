//! What a transaction that was closed by a proof leaves to be done (docs/adr/0016).
//!
//! Its proof holds as long as the words that it logged are what they became. So before one of them changes again, or is somebody
//! else's, the transaction must be closed for good: the line of its closing entry, a commit by then, must be durable. Each lock
//! that covers such words has the debt; whoever takes the lock flushes that line, and fences before it stores in place, which its own
//! first barrier mostly does. Nobody waits for it alone.

use crate::lane::LAST_ID;
use crate::pool::Pool;
use pmfs_format::runtime::DEBT_ID_SHIFT;

const LINE_MASK: u64 = (1 << DEBT_ID_SHIFT) - 1;

/// A closing entry that is not durable for certain: a lock's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debt(u64);

impl Debt {
    /// Of transaction `id`, whose closing entry is the journal's line `number`; `None` where these don't fit a word.
    #[inline]
    pub fn new(number: u64, id: u64) -> Option<Debt> {
        let fits = number <= LINE_MASK && id >> (64 - DEBT_ID_SHIFT) == 0;
        fits.then_some(Debt(id << DEBT_ID_SHIFT | number))
    }

    /// As a lock has it.
    #[inline]
    pub fn load(pool: &Pool, word: u64) -> Option<Debt> {
        let word = pool.pm.runtime().load(word);
        (word != 0).then_some(Debt(word))
    }

    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Where the closing entry is, bytes.
    #[inline]
    pub fn line(self, pool: &Pool) -> u64 {
        pool.geometry.journal + (self.0 & LINE_MASK) * 64
    }

    /// Whether the lane has gone on so far that it is paid: the transaction behind this one has ended, so that an entry of it is
    /// durable, and that proves this one done.
    #[inline]
    pub fn is_paid(self, pool: &Pool) -> bool {
        let lane = (self.0 & LINE_MASK) / pool.geometry.lane_entries();
        if lane >= pool.geometry.lanes {
            return true;
        }
        let last = pool
            .pm
            .runtime()
            .load(pool.geometry.lane_line(lane) + LAST_ID);
        last >= (self.0 >> DEBT_ID_SHIFT) + 2
    }
}
