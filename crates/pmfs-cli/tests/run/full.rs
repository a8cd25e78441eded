//! Goal: a program that has taken every descriptor its limit allows can do what needs none on
//! Linux: fork, become another program, map files, and each call by name.
//!
//! Method: `full.c` takes all 64 and says what works, on a plain directory and on the pool, with a
//! mount and without.

use crate::program::{Run, both, both_apart, both_with};

fn with_a_mount_and_without(what: &str) {
    both("full.c", &[what]);
    both_apart("full.c", what);
}

#[test]
fn a_fork() {
    with_a_mount_and_without("fork");
}

#[test]
fn all_before_the_pool_is_attached() {
    with_a_mount_and_without("low");
}

#[test]
fn mappings() {
    with_a_mount_and_without("mapped");
}

#[test]
fn the_next_program() {
    with_a_mount_and_without("exec");
}

#[test]
fn a_static_program() {
    both_with("full.c", "strange", "static");
}

#[test]
fn calls_that_need_none() {
    with_a_mount_and_without("calls");
}

/// A file that can't be opened is neither made nor emptied.
#[test]
fn nothing_is_made() {
    with_a_mount_and_without("made");
}

/// The process leaves the pool as any other does.
#[test]
fn the_end() {
    let run = Run::unmounted();
    let program = run.build("full.c", &[]);
    let said = run.apart(&program, &["made"]);
    assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
    let state = run.state();
    assert!(state.contains("\"state\":\"clean\""), "{state}");
}
