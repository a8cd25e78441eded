//! Goal: what threads have counted comes to them, and nothing is lost or told twice where lines
//! come, go and change their owners. Method: lines as a process publishes them, round by round.

use std::collections::BTreeMap;

use pmmon::calls::{Calls, Line, Lines, Owner};

fn line(name: u64, start: u64, written: u64) -> Line {
    Line {
        owner: Owner {
            name,
            number: u32::try_from(name % 1000).unwrap(),
            is_caller: false,
            start,
            process: 0,
        },
        counts: Calls {
            written_bytes: written,
            changes: u64::from(written > 0),
            ..Calls::default()
        },
    }
}

/// Sums by name over rounds.
fn sums(rounds: &[&[Line]]) -> BTreeMap<u64, u64> {
    let mut lines = Lines::default();
    let mut sums = BTreeMap::new();
    for round in rounds {
        for (owner, more) in lines.take(round) {
            let sum: &mut u64 = sums.entry(owner.name).or_default();
            *sum = sum.wrapping_add(more.written_bytes);
        }
    }
    sums
}

/// A check that planted bugs turn red, too.
pub fn bytes_come_to_their_threads() {
    let found = sums(&[
        &[line(1, 10, 100), line(2, 11, 7)],
        &[line(1, 10, 150), line(2, 11, 7)],
        &[line(1, 10, 150), line(2, 11, 9), line(3, 12, 1)],
    ]);
    assert_eq!(found, BTreeMap::from([(1, 150), (2, 9), (3, 1)]));
}

#[test]
fn by_thread() {
    bytes_come_to_their_threads();
}

/// Goal: a line that is emptied into that of the others is not told twice, and what it had counted
/// since it was read comes to the others.
#[test]
fn an_emptied_line_is_told_once() {
    let found = sums(&[
        &[line(1000, 0, 5), line(1, 10, 100)],
        &[line(1000, 0, 125)],
        &[line(1000, 0, 126), line(1, 20, 3)],
        // Emptied and claimed by another thread of this number between two looks.
        &[line(1000, 0, 129), line(1, 30, 8)],
    ]);
    assert_eq!(found[&1], 111);
    assert_eq!(found.values().sum::<u64>(), 137);
}

#[test]
fn the_start_may_be_told_later() {
    let found = sums(&[&[line(1, 0, 5)], &[line(1, 10, 8)]]);
    assert_eq!(found, BTreeMap::from([(1, 8)]));
}

#[test]
fn two_lines_of_one_caller() {
    let found = sums(&[
        &[line(1, 10, 5), line(1, 10, 6)],
        &[line(1, 10, 5), line(1, 10, 9)],
    ]);
    assert_eq!(found, BTreeMap::from([(1, 14)]));
}
