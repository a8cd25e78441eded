//! Calls one after the other on the same few words, so that each meets the pending commit of the
//! one before: bytes of a file, its end in the middle of a word, a directory's names, an inode's
//! first line, a number and a block that are given out again.
//!
//! Each begins in two ways, which sum to an even and to an odd number: so its calls change lanes at
//! each step in one, and at each second step in the other.

use super::call::{Call, parse};

const BEGINNINGS: [&str; 2] = ["mkdir A", "mkdir B"];

const CALLS: [&str; 19] = [
    // Bytes over bytes.
    "create foo; write foo 0 200; write foo 8 24; write foo 16 24; write foo 0 40",
    "create foo; write foo 0 200; write foo 8 24; write foo 8 8; write foo 13 21; write foo 16 24",
    "create foo; write foo 0 9000; write foo 4080 40; write foo 4088 24; write foo 0 4096; write foo 4100 16",
    // An end inside of a word.
    "create foo; write foo 0 13; write foo 3 10; append foo 5; write foo 2 12; truncate foo 40",
    "create foo; write foo 0 29; write foo 0 29; truncate foo 60; write foo 24 30; append foo 300",
    // An end that a log has, and that moves on over old bytes, or right there.
    "create foo; write foo 0 5000; link foo bar; write foo 6000 10",
    "create foo; write foo 0 5000; link foo bar; append foo 10",
    // Blocks that go.
    "create foo; write foo 0 9000; write foo 100 24; truncate foo 0; create bar; write bar 0 4096",
    "create foo; write foo 0 9000; write foo 0 8192; write foo 4096 4904; unlink foo; create bar; write bar 0 4096",
    "create foo; write foo 0 200; write foo 8 24; unlink foo; create bar; write bar 0 4096",
    // Numbers that are given out again.
    "create foo; unlink foo; create bar; unlink bar; mkdir C; rmdir C; create foo",
    "create foo; create bar; rename foo bar; create foo; unlink bar; tmpfile A",
    // A first name that another lane gives.
    "tmpfile /; link #0 foo",
    "tmpfile /; chown #0 7; link #0 foo",
    // A pending commit that a file without a name completes, after calls of another lane.
    "create foo; create bar; mkdir C; create C/foo; mkdir baz; create C/bar; mkdir C/A; tmpfile C; mkdir C/B",
    // Times that an overwrite has stored unflushed, beside a flag that a log has.
    "create foo; write foo 0 1; utimens foo; fallocate foo 3 0 1; unlink foo",
    // Names and attributes.
    "create foo; link foo bar; chmod foo 384; rename foo baz; unlink bar; append baz 8",
    "create foo; setxattr foo 10; chmod foo 384; chown foo 7; utimens foo; write foo 0 5; removexattr foo",
    "create foo; mkdir C; rename foo C/foo; chmod C 448; rename C/foo bar; rmdir C",
];

/// All of them.
///
/// # Panics
/// Never: the calls can be read.
#[must_use]
pub fn pending() -> Vec<Vec<Call>> {
    let all = CALLS
        .iter()
        .flat_map(|calls| BEGINNINGS.map(|beginning| format!("{beginning}; {calls}")));
    all.map(|calls| parse(&calls).expect("calls that can be read"))
        .collect()
}
