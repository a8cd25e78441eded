//! Words of one line that a transaction changes.

use super::{Logged, Sealed};
use arrayvec::ArrayVec;

/// Runs of neighbours, at most: every other one of eight words.
const RUNS_MAX: usize = 4;

/// Words as they are to be, of which those are logged that change ([`super::Transaction::change`]).
pub(crate) struct Change<const N: usize> {
    off: u64,
    new: [u64; N],
    /// What differs, run by run.
    logged: ArrayVec<Logged, RUNS_MAX>,
}

impl<const N: usize> Change<N> {
    /// The words at `off` are to be `new`; nothing of it is logged.
    pub(super) fn of(off: u64, new: [u64; N]) -> Change<N> {
        assert!(N <= 8, "words of one line");
        Change {
            off,
            new,
            logged: ArrayVec::new(),
        }
    }

    /// A run of them is logged.
    pub(super) fn push(&mut self, run: Logged) {
        self.logged.push(run);
    }

    /// Stores what changes.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn apply(&self, tx: &mut Sealed<'_>) {
        for run in &self.logged {
            let first = ((run.off - self.off) / 8) as usize;
            tx.set_words(run, 0, &self.new[first..first + run.words as usize]);
        }
    }
}
