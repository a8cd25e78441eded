//! Damaged pools, many words at once: the corpus that the fuzzer left (`make fuzz`), and inputs at
//! random.
//!
//! `PMFS_FUZZ` inputs are tried, made from `PMFS_FUZZ_SEED`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use yat::files::damage::Base;

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Up to a dozen edits.
fn input(random: &mut u64) -> Vec<u8> {
    let len = 4 + next(random) % 60;
    (0..len).map(|_| (next(random) >> 24) as u8).collect()
}

/// The bytes of a line of the corpus: two hexadecimal digits a byte.
fn bytes_of(line: &str) -> Vec<u8> {
    assert!(line.len().is_multiple_of(2), "{line}");
    (0..line.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

fn try_one(base: &Base, input: &[u8], name: &str) {
    let tried = catch_unwind(AssertUnwindSafe(|| base.try_input(input)));
    assert!(tried.is_ok(), "{name}: {input:02x?}");
}

#[test]
fn what_the_fuzzer_found() {
    let base = Base::new();
    let corpus = include_str!("../corpus.txt");
    let mut count = 0;
    for line in corpus.lines().filter(|line| !line.starts_with('#')) {
        try_one(&base, &bytes_of(line), line);
        count += 1;
    }
    println!("{count} inputs of the corpus");
    assert!(count > 0);
}

#[test]
fn inputs_at_random() {
    let count: u64 = std::env::var("PMFS_FUZZ").map_or(1000, |count| count.parse().unwrap());
    let seed: u64 = std::env::var("PMFS_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("PMFS_FUZZ_SEED={seed}, {count} inputs");
    let base = Base::new();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in 0..count {
        try_one(&base, &input(&mut random), &format!("input {at}"));
    }
}
