//! What a transaction leaves to be done that was not closed for good (docs/adr/0016, 0017).
//!
//! Closed by a proof, that holds as long as the words that it logged are what they became; promised by a log of new words, recovery
//! may make it again. So before one of these words changes again, or is somebody else's, the transaction must be closed for good. Each
//! lock that covers such words has the debt. Of a proof, whoever takes the lock flushes the line of the closing entry, and fences before
//! it stores in place, which its own first barrier mostly does. Of a promise, it goes on in the same lane, whose next transaction is all
//! that is needed, or closes it there ([`crate::promise`]).

use crate::lane::LAST_ID;
use crate::pool::Pool;
use pmfs_format::runtime::{DEBT_ID_SHIFT, DEBT_PROMISED};

const LINE_MASK: u64 = (1 << DEBT_ID_SHIFT) - 1;

/// A transaction that is not closed durably for certain: a lock's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debt(u64);

impl Debt {
    /// Of transaction `id`, whose closing entry is the journal's line `number`; `None` where these don't fit a word.
    #[inline]
    pub fn new(number: u64, id: u64) -> Option<Debt> {
        let fits = number <= LINE_MASK && id < DEBT_PROMISED >> DEBT_ID_SHIFT;
        fits.then_some(Debt(id << DEBT_ID_SHIFT | number))
    }

    /// Of transaction `id`, which has no closing entry: the last one of its log is the journal's line `number`.
    #[inline]
    pub fn promised(number: u64, id: u64) -> Option<Debt> {
        Debt::new(number, id).map(|debt| Debt(debt.0 | DEBT_PROMISED))
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

    #[inline]
    pub fn is_promise(self) -> bool {
        self.0 & DEBT_PROMISED != 0
    }

    /// Where that entry is, bytes.
    #[inline]
    pub fn line(self, pool: &Pool) -> u64 {
        pool.geometry.journal + (self.0 & LINE_MASK) * 64
    }

    fn id(self) -> u64 {
        (self.0 & !DEBT_PROMISED) >> DEBT_ID_SHIFT
    }

    /// Whether the lane has gone on so far that it is paid. Behind a proof one transaction must have ended: an entry of it is durable,
    /// and that proves this one done. Behind a promise two: recovery makes the last two.
    #[inline]
    pub fn is_paid(self, pool: &Pool) -> bool {
        let lane = pool.geometry.lane_of_line(self.0 & LINE_MASK);
        if lane >= pool.geometry.lanes {
            return true;
        }
        let last = pool
            .pm
            .runtime()
            .load(pool.geometry.lane_line(lane) + LAST_ID);
        let behind = 2 + u64::from(self.is_promise() && !planted!("bug-promise-paid-early"));
        last >= self.id() + behind
    }
}
