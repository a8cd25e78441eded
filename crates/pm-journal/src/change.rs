//! Words of one line that a transaction changes.

use crate::transaction::{Logged, Sealed, Transaction};
use arrayvec::ArrayVec;

/// The most runs of changing words: every other one of eight.
const RUNS_MAX: usize = 4;

/// New values of words, of which those that change are logged ([`Transaction::change`]).
pub struct Change<const N: usize> {
    off: u64,
    new: [u64; N],
    /// The logged ranges that differ, one for each run.
    logged: ArrayVec<Logged, RUNS_MAX>,
}

impl Transaction<'_> {
    /// Logs those of the words at `off` that differ between `old`, the present values, and `new`.
    /// No other word is stored.
    #[inline]
    #[must_use]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn change<const N: usize>(
        &mut self,
        off: u64,
        old: &[u64; N],
        new: &[u64; N],
    ) -> Change<N> {
        let mut change = Change::of(off, *new);
        let mut at = 0;
        while at < N {
            let words = (at..N).take_while(|&word| old[word] != new[word]).count();
            if words > 0 {
                change.push(self.log_bytes(off + at as u64 * 8, words as u64 * 8));
            }
            at += words + 1;
        }
        change
    }
}

impl<const N: usize> Change<N> {
    /// A change of the words at `off` to `new`, without any log yet.
    #[inline]
    fn of(off: u64, new: [u64; N]) -> Change<N> {
        assert!(N <= 8, "words of one line");
        Change {
            off,
            new,
            logged: ArrayVec::new(),
        }
    }

    /// Adds a logged run.
    #[inline]
    fn push(&mut self, run: Logged) {
        self.logged.push(run);
    }

    /// Stores the changed words.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn apply(&self, tx: &mut Sealed<'_>) {
        for run in &self.logged {
            let first = ((run.off - self.off) / 8) as usize;
            tx.set_words(run, 0, &self.new[first..first + run.words as usize]);
        }
    }
}
