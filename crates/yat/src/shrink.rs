//! Shrinking: what goes wrong in a long workload of calls, in the shortest one in which something
//! still does.
//!
//! Calls are dropped, half of them at once, then fewer, down to one at a time; then offsets,
//! lengths and sizes are made smaller; then long names short; again, until nothing more can go. The
//! rest need not be wrong in the same way.

use crate::campaign::{self, Explored};
use crate::explore::{Options, Violation};
use crate::files::call::{Call, Name};
use crate::files::{FileSystem, Steps};
use crate::program::Program;
use std::collections::HashSet;
use std::mem::discriminant;
use std::ops::Range;

/// Explorations after which the shortest so far must do.
pub const TRIES_MAX: u32 = 300;

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk<T> {
    /// The shortest workload that was found.
    pub calls: Vec<Call>,
    /// The fault in it.
    pub found: T,
    /// The number of workloads that were tried.
    pub tries: u32,
}

/// Shrinks a workload in which `wrong` found something, trying `tries_max` others at most.
pub fn shrink<T>(
    calls: &[Call],
    found: T,
    tries_max: u32,
    wrong: impl Fn(&[Call]) -> Option<T>,
) -> Shrunk<T> {
    let mut search = Search {
        best: Shrunk {
            calls: calls.to_vec(),
            found,
            tries: 0,
        },
        tried: HashSet::new(),
        tries_max,
        wrong,
    };
    loop {
        let before = search.best.calls.clone();
        search.drop_calls();
        search.shrink_numbers();
        search.shorten_names();
        if search.best.calls == before {
            return search.best;
        }
    }
}

struct Search<T, F> {
    best: Shrunk<T>,
    tried: HashSet<Vec<Call>>,
    tries_max: u32,
    wrong: F,
}

impl<T, F: Fn(&[Call]) -> Option<T>> Search<T, F> {
    /// Goes on from `candidate` if something is wrong in it too.
    fn attempt(&mut self, candidate: Vec<Call>) -> bool {
        if self.best.tries == self.tries_max || !self.tried.insert(candidate.clone()) {
            return false;
        }
        self.best.tries += 1;
        let Some(found) = (self.wrong)(&candidate) else {
            return false;
        };
        self.best.calls = candidate;
        self.best.found = found;
        true
    }

    fn drop_calls(&mut self) {
        let mut count = self.best.calls.len().div_ceil(2);
        while count > 0 {
            let mut end = self.best.calls.len();
            while end > 0 {
                let start = end.saturating_sub(count);
                self.attempt(without(&self.best.calls, start..end));
                // References to a dropped descriptor went too.
                end = start.min(self.best.calls.len());
            }
            count /= 2;
        }
    }

    fn shrink_numbers(&mut self) {
        for call in 0..self.best.calls.len() {
            for number in 0..self.best.calls[call].clone().numbers().len() {
                self.shrink_number(call, number);
            }
        }
    }

    /// By halves, as if whatever is large enough were wrong.
    fn shrink_number(&mut self, call: usize, number: usize) {
        let (mut high, mut low) = (*self.best.calls[call].numbers()[number], 0);
        if high == 0 || self.attempt_number(call, number, 0) {
            return;
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.attempt_number(call, number, middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
    }

    fn attempt_number(&mut self, call: usize, number: usize, value: u64) -> bool {
        let mut candidate = self.best.calls.clone();
        *candidate[call].numbers()[number] = value;
        self.attempt(candidate)
    }

    /// `name*200` to `name`, wherever it is named.
    fn shorten_names(&mut self) {
        let mut calls = self.best.calls.clone();
        let components = |name: &Name| name.split('/').map(str::to_owned).collect::<Vec<_>>();
        let padded: Vec<String> = calls
            .iter_mut()
            .flat_map(Call::names)
            .flat_map(|name| components(name))
            .filter(|component| component.contains('*'))
            .collect();
        for long in padded {
            let short = long.split('*').next().unwrap_or_default();
            let mut candidate = self.best.calls.clone();
            for name in candidate.iter_mut().flat_map(Call::names) {
                let replaced: Vec<&str> = name
                    .split('/')
                    .map(|component| if component == long { short } else { component })
                    .collect();
                *name = replaced.join("/");
            }
            self.attempt(candidate);
        }
    }
}

/// The workload without some of its calls, and without what refers to descriptors that they would
/// have held; the others keep theirs.
fn without(calls: &[Call], range: Range<usize>) -> Vec<Call> {
    let mut numbers: Vec<Option<usize>> = Vec::new();
    let mut kept = 0;
    let mut left = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let dropped = range.contains(&at);
        let renumbered = (!dropped).then(|| renumber(call, &numbers)).flatten();
        let stays = renumbered.is_some();
        left.extend(renumbered);
        if matches!(call, Call::Open(_) | Call::Tmpfile(_)) {
            numbers.push(stays.then_some(kept));
            kept += usize::from(stays);
        }
    }
    left
}

/// The call with its descriptors' new numbers; none if one of them is no more.
fn renumber(call: &Call, numbers: &[Option<usize>]) -> Option<Call> {
    let new = |old: usize| match numbers.get(old) {
        Some(new) => *new,
        // One that was never opened: the call fails, and may go on doing so.
        None => Some(old),
    };
    let mut call = call.clone();
    if let Call::Close(at) = &mut call {
        *at = new(*at)?;
    }
    for name in call.names() {
        if let Some(old) = name.strip_prefix('#').and_then(|at| at.parse().ok()) {
            *name = format!("#{}", new(old)?);
        }
    }
    Some(call)
}

/// A fault of a workload.
enum Wrong {
    Violation(Box<Violation>),
    Failure(String),
}

/// Explores a workload. A fault is shown in the shortest workload of calls that can be had of it.
///
/// # Errors
/// A workload that fails without a crash, in words; it is shrunk too.
pub fn explore(program: &FileSystem, options: Options) -> Explored {
    let wrong = match campaign::explore(program, options) {
        Ok(Ok(counts)) => return Ok(Ok(counts)),
        Ok(Err(violation)) => Wrong::Violation(violation),
        Err(text) => Wrong::Failure(text),
    };
    let Steps::Calls(long) = &program.steps else {
        return match wrong {
            Wrong::Violation(violation) => Ok(Err(violation)),
            Wrong::Failure(text) => Err(text),
        };
    };
    let mut options = options;
    if let Wrong::Violation(violation) = &wrong {
        options.depth = violation.crash.when.len() - 1;
    }
    let shrunk = shrink(long, wrong, TRIES_MAX, |calls| {
        let shorter = FileSystem {
            steps: Steps::Calls(calls.to_vec()),
            ..program.clone()
        };
        // A call that is not crashed in the long workload is not in the short one.
        let alike = |(one, other): &(&Call, &Call)| discriminant(*one) == discriminant(*other);
        let shared = calls.iter().zip(long).take_while(alike).count();
        let from = options.from.min(shared);
        match campaign::explore(&shorter, Options { from, ..options }) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some(Wrong::Violation(violation)),
            Err(text) => Some(Wrong::Failure(text)),
        }
    });
    let longer = (&shrunk.calls != long).then(|| program.name());
    match shrunk.found {
        Wrong::Violation(mut violation) => {
            violation.shrunk_from = longer;
            Ok(Err(violation))
        }
        Wrong::Failure(text) => match longer {
            Some(longer) => Err(format!("{text}\nfound first in {longer}")),
            None => Err(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;
    use crate::files::call::{Call, parse, text};

    const LONG: &str = "mkdir D; create a; create b*200; open a; open b*200; write a 5 900; write #1 300 5000; \
                        truncate a 3; chmod a 384; close 0; rename a D/c; unlink b*200; close 1";

    /// A bug that needs 700 bytes written through a descriptor of a file b, and a rename after
    /// that.
    fn wrong(calls: &[Call]) -> Option<usize> {
        let opened: Vec<bool> = calls
            .iter()
            .filter_map(|call| match call {
                Call::Open(name) => Some(name.starts_with('b')),
                _ => None,
            })
            .collect();
        let written = calls.iter().position(|call| match call {
            Call::Write { name, len, .. } => {
                let at = name.strip_prefix('#').and_then(|at| at.parse().ok());
                *len >= 700 && at.is_some_and(|at: usize| opened.get(at) == Some(&true))
            }
            _ => false,
        })?;
        let renamed = |call: &Call| matches!(call, Call::Rename { .. });
        calls[written..].iter().any(renamed).then_some(calls.len())
    }

    /// Goal: nothing stays that the bug does not need, and what `wrong` said of the result is what
    /// is answered. Method: a made-up bug, whose shortest workload is known.
    #[test]
    fn only_what_is_needed_stays() {
        let calls = parse(LONG).unwrap();
        let found = wrong(&calls).unwrap();
        let shrunk = shrink(&calls, found, 300, wrong);
        assert_eq!(
            text(&shrunk.calls),
            "open b; write #0 0 700; rename a D/c",
            "after {} tries",
            shrunk.tries
        );
        assert_eq!(shrunk.found, 3);
    }

    /// Goal: it ends in time, with something wrong. Method: every number of tries.
    #[test]
    fn tries_are_bounded() {
        let calls = parse(LONG).unwrap();
        for tries_max in 0..60 {
            let shrunk = shrink(&calls, calls.len(), tries_max, wrong);
            assert!(shrunk.tries <= tries_max);
            assert_eq!(wrong(&shrunk.calls), Some(shrunk.found));
        }
    }
}
