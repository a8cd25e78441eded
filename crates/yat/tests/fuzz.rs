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

/// The bytes of a line of the corpus: base64 (RFC 4648, section 4).
fn bytes_of(line: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{line}"),
    };
    let digits = line.trim_end_matches('=').bytes().map(digit);
    let digits: Vec<u8> = digits.collect();
    let bytes_of_four = |four: &[u8]| {
        let bits = four
            .iter()
            .fold(0, |bits, digit| bits << 6 | u32::from(*digit));
        let bits = bits << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(bytes_of_four).collect()
}

#[test]
fn a_line_is_read_as_it_was_written() {
    for (line, bytes) in [
        ("", ""),
        ("Zg==", "f"),
        ("Zm8=", "fo"),
        ("Zm9vYg==", "foob"),
    ] {
        assert_eq!(bytes_of(line), bytes.as_bytes());
    }
    assert_eq!(bytes_of("+/8="), [0xfb, 0xff]);
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
