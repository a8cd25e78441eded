//! Whether a history of calls that overlap in time can be explained by some order of them, each
//! call at one moment between its begin and its end (linearizability, by the search of Wing and
//! Gong, which remembers where it has been).
//!
//! A call that was cut off has no answer. It may have happened at some moment up to its end, which
//! is when its process was cleaned up after, or not at all. With that a history may go over crashes
//! (durable linearizability): a call that had answered has happened.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// Calls of a history at most: a bit each.
pub const CALLS_MAX: usize = 128;

/// The state that calls are on, one after the other.
pub trait Model: Clone + Eq + Hash {
    /// A call.
    type Call: Debug;
    /// The answer to one.
    type Answer: PartialEq + Debug;

    /// Does a call; answers what it would have answered.
    fn apply(&mut self, call: &Self::Call) -> Self::Answer;
}

/// One call of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<C, A> {
    /// The thread that did it.
    pub by: usize,
    /// The call.
    pub call: C,
    /// The time of its begin; no two times of a history are the same.
    pub begun: u64,
    /// The time of its end.
    pub ended: u64,
    /// Its answer; `None`: it was cut off.
    pub answer: Option<A>,
}

/// Events of a model.
pub type Events<M> = [Event<<M as Model>::Call, <M as Model>::Answer>];

struct Search<'a, M: Model> {
    events: &'a Events<M>,
    been: HashSet<(u128, M)>,
    /// The most calls that could be explained.
    most: u32,
}

/// Looks for an order of the calls that explains all answers; answers how many states it saw.
///
/// # Errors
/// There is none: how many calls could be explained at most.
///
/// # Panics
/// If there are more than [`CALLS_MAX`] calls.
pub fn explain<M: Model>(initial: &M, events: &Events<M>) -> Result<usize, u32> {
    assert!(events.len() <= CALLS_MAX, "a bit each");
    let mut search = Search {
        events,
        been: HashSet::new(),
        most: 0,
    };
    match search.goes_on(0, initial) {
        true => Ok(search.been.len()),
        false => Err(search.most),
    }
}

impl<M: Model> Search<'_, M> {
    /// Whether the calls that are not in `done` can be explained from this state on.
    fn goes_on(&mut self, done: u128, state: &M) -> bool {
        let events = self.events;
        self.most = self.most.max(done.count_ones());
        if done.count_ones() as usize == events.len() {
            return true;
        }
        if !self.been.insert((done, state.clone())) {
            return false;
        }
        let is_left = |at: &usize| done >> at & 1 == 0;
        let left = (0..events.len()).filter(is_left);
        let first_end = left.clone().map(|at| events[at].ended).min();
        // One that begins after another one's end comes after it.
        for at in left.filter(|&at| Some(events[at].begun) < first_end) {
            let (event, after) = (&events[at], done | 1 << at);
            let mut changed = state.clone();
            let answer = changed.apply(&event.call);
            let fits = event.answer.as_ref().is_none_or(|seen| *seen == answer);
            if fits && self.goes_on(after, &changed) {
                return true;
            }
            if event.answer.is_none() && self.goes_on(after, state) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that is read and written.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Word(u64);

    #[derive(Clone, Debug)]
    enum Call {
        Write(u64),
        Read,
    }

    impl Model for Word {
        type Call = Call;
        type Answer = u64;

        fn apply(&mut self, call: &Call) -> u64 {
            if let Call::Write(value) = call {
                self.0 = *value;
            }
            self.0
        }
    }

    fn at(times: (u64, u64), call: Call, answer: Option<u64>) -> Event<Call, u64> {
        Event {
            by: 0,
            call,
            begun: times.0,
            ended: times.1,
            answer,
        }
    }

    #[test]
    fn calls_that_overlap_come_in_either_order() {
        for seen in [0, 1] {
            let history = [
                at((1, 4), Call::Write(1), Some(1)),
                at((2, 3), Call::Read, Some(seen)),
            ];
            assert!(explain(&Word(0), &history).is_ok());
        }
    }

    #[test]
    fn an_old_value_after_a_write_is_none() {
        let history = [
            at((1, 2), Call::Write(1), Some(1)),
            at((3, 4), Call::Read, Some(0)),
        ];
        assert_eq!(explain(&Word(0), &history), Err(1));
    }

    /// Two readers see two writes in opposite orders.
    #[test]
    fn there_is_one_order_for_all() {
        let history = |last| {
            [
                at((1, 20), Call::Write(1), Some(1)),
                at((2, 21), Call::Write(2), Some(2)),
                at((3, 4), Call::Read, Some(1)),
                at((5, 6), Call::Read, Some(2)),
                at((7, 8), Call::Read, Some(last)),
            ]
        };
        assert!(explain(&Word(0), &history(2)).is_ok());
        assert_eq!(explain(&Word(0), &history(1)), Err(4));
    }

    /// A call that was cut off has happened or has not, and stays so.
    #[test]
    fn a_call_that_was_cut_off_may_be_there() {
        let history = |first, second| {
            [
                at((1, 2), Call::Write(1), Some(1)),
                at((3, 5), Call::Write(2), None),
                at((6, 7), Call::Read, Some(first)),
                at((8, 9), Call::Read, Some(second)),
            ]
        };
        assert!(explain(&Word(0), &history(1, 1)).is_ok());
        assert!(explain(&Word(0), &history(2, 2)).is_ok());
        assert!(explain(&Word(0), &history(1, 2)).is_err());
        assert!(explain(&Word(0), &history(0, 0)).is_err());
    }
}
