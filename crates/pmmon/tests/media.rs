//! Goal: media bytes are those of programs whose amplification is known by their order. Method:
//! traces of them as a replay has them, and the same programs as a backend that watches pairs of
//! words sees them.

use pmmon::account::Figure;
use pmmon::calls::Calls;
use pmmon::media::{Media, Source, Written, of_calls};
use pmmon::{Access, Arm, Drained, Exposure, Origin, Sample, Tid};

const TID: Tid = 7;
const FILE: u64 = 4 << 20;
const TRAP_NS: u64 = 15_000;
const STORE_NS: u64 = 60;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(end)) >> 64) as u64
    }
}

/// A program: its n-th store.
type Program = fn(&mut Random, u64) -> (u64, u32);

fn sequential_256(_: &mut Random, turn: u64) -> (u64, u32) {
    (turn * 256 % FILE, 256)
}

/// The same, as a processor without longer stores does it.
fn sequential_64(_: &mut Random, turn: u64) -> (u64, u32) {
    (turn * 64 % FILE, 64)
}

fn random_64(random: &mut Random, _: u64) -> (u64, u32) {
    (random.below(FILE / 64) * 64, 64)
}

fn random_128(random: &mut Random, turn: u64) -> (u64, u32) {
    // Both halves by one instruction, of which the second one is the next.
    let place = |random: &mut Random| random.below(FILE / 128) * 128;
    let mut same = Random(turn / 2);
    let _ = random;
    (place(&mut same) + turn % 2 * 64, 64)
}

fn sample(address: u64, bytes: u32, exposure: Exposure, time_ns: u64) -> Sample {
    Sample {
        tid: TID,
        time_ns,
        ip: 0x1000,
        address,
        access: Access::Write,
        bytes,
        exposure,
        origin: Origin::Mapped,
    }
}

fn exact(value: f64) -> Figure {
    Figure {
        value,
        low: value,
        high: value,
        hits: 0,
    }
}

/// The media bytes of so many stores, each of which is seen with a probability.
fn traced(program: Program, stores: u64, probability: f64) -> Option<Written> {
    let (mut media, mut random) = (Media::new(0.0), Random(1));
    let mut samples = Vec::new();
    for turn in 0..stores {
        let (address, bytes) = program(&mut random, turn);
        let exposure = Exposure::Probability(probability);
        samples.push(sample(address, bytes, exposure, turn));
    }
    media.add(&samples, &Drained::default());
    media.written(&[TID], &exact(0.0), 1.0)
}

/// The media bytes by pairs of words, each of which is watched for a time.
fn paired(program: Program, arms: u64) -> Option<Written> {
    let (mut media, mut random) = (Media::new(TRAP_NS as f64), Random(2));
    let (mut now, mut turn) = (0, 0);
    for number in 0..arms {
        let word = random.below(FILE / 8) * 8;
        let other = word / 256 * 256 + (word / 64 + 1 + random.below(3)) % 4 * 64;
        let neighbour = other + random.below(8) * 8;
        let end = now + 20_000_000;
        let mut samples = Vec::new();
        while now < end {
            let (address, bytes) = program(&mut random, turn);
            turn += 1;
            now += STORE_NS;
            let covers = |at: u64| address < at + 8 && address + u64::from(bytes) > at;
            let here = Exposure::Word {
                address: word,
                arm: number,
            };
            let beside = Exposure::Beside {
                address: neighbour,
                arm: number,
            };
            for exposure in [(word, here), (neighbour, beside)] {
                if covers(exposure.0) {
                    samples.push(sample(address, bytes, exposure.1, now));
                    now += TRAP_NS;
                }
            }
        }
        let arm = Arm {
            number,
            tid: TID,
            words: FILE / 8,
            ran_ns: 20_000_000,
            beside: 1,
            watched_ns: 20_000_000,
            hits: samples.len() as u64,
            traps: samples.len() as u64,
            round_traps: samples.len() as u64,
            stopped: false,
            neighbour: Some(neighbour),
        };
        let drained = Drained {
            arms: vec![arm],
            ..Drained::default()
        };
        media.add(&samples, &drained);
    }
    media.written(&[TID], &exact(1e9), 64.0 / STORE_NS as f64)
}

/// Goal: the amplification is the ratio of lines to bytes.
#[test]
fn traces_have_their_amplification() {
    for (name, program, stores, expected) in [
        ("sequential 256", sequential_256 as Program, 50_000, 1.0),
        ("sequential 64", sequential_64, 200_000, 1.0),
        ("random 64", random_64, 50_000, 4.0),
        ("random 128", random_128, 100_000, 2.0),
    ] {
        let written = traced(program, stores, 1.0).expect("a model");
        let ratio = written.amplification.expect("bytes");
        println!("{name}: {ratio:?}");
        assert_eq!(written.source, Source::Trace);
        assert!(
            (ratio.value / expected - 1.0).abs() < 0.1,
            "{name}: {ratio:?}"
        );
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
    }
}

/// Goal: neighbours that were not seen are not guessed.
#[test]
fn a_part_of_a_trace_tells_nothing() {
    assert_eq!(traced(sequential_64, 100, 0.5), None);
}

pub(crate) fn pairs_have_their_amplification() {
    for (name, program, expected) in [
        ("sequential 64", sequential_64 as Program, 1.0),
        ("random 64", random_64, 4.0),
        ("random 128", random_128, 2.0),
    ] {
        let written = paired(program, 400).expect("enough samples");
        let ratio = written.amplification.expect("bytes");
        println!("{name}: {ratio:?}");
        assert_eq!(written.source, Source::Neighbours);
        assert!(
            (ratio.value / expected - 1.0).abs() < 0.12,
            "{name}: {ratio:?}"
        );
        assert!(
            ratio.low <= expected * 1.1 && expected * 0.93 <= ratio.high,
            "{name}: {ratio:?}"
        );
        assert!((written.bytes.value - 1e9 * ratio.value).abs() < 1.0);
    }
}

#[test]
fn pairs_of_words_tell_the_amplification() {
    pairs_have_their_amplification();
}

/// Goal: few samples tell nothing.
#[test]
fn few_pairs_are_not_told() {
    assert_eq!(paired(random_64, 5), None);
}

/// Goal: calls that are whole lines cost what they write, and small ones a line each.
#[test]
fn calls_are_as_large_as_their_mean() {
    let calls = |bytes: u64, flushed_lines| Calls {
        written_bytes: bytes * 1000,
        changes: 1000,
        flushed_lines,
        ..Calls::default()
    };
    let ratio = |calls: &Calls| of_calls(calls).unwrap().amplification.unwrap();
    let (small, large) = (ratio(&calls(64, 0)), ratio(&calls(4096, 0)));
    assert!((small.value - 4.0).abs() < 0.3, "{small:?}");
    assert_eq!(small.low, 1.0);
    assert!((large.value - 1.06).abs() < 0.07, "{large:?}");
    let flushed = of_calls(&calls(64, 1000)).unwrap();
    assert_eq!(flushed.bytes.low, 64.0 * 2000.0);
    assert_eq!(of_calls(&Calls::default()).unwrap().amplification, None);
}
