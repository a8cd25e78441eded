//! Goal: intervals of 95 % hold the truth in 90 to 98 % of the runs, for each estimator and each
//! kind of program. Method: simulated programs whose counts are known, `PMMON_COVERAGE_RUNS` of
//! each kind (200), from seeds that are always the same
//! (`PMMON_SEED`). The whole table is printed. Kinds whose intervals are wider than they have to
//! be, and one for which draws are not enough, are in it too and named so.

use std::env;

use pmmon::account::{Account, Figure};
use pmmon::{Access, Arm, Drained, Exposure, Origin, Sample};

const TID: u32 = 7;
const WORDS: u64 = 4096;
const ACCESS_NS: u64 = 20;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Where accesses go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Sequential,
    Random,
    /// Zipf's law over pages: the word within is anywhere.
    ZipfPages,
    /// Zipf's law over words, in an order that says nothing of their places.
    ZipfWords,
}

/// A kind of runs.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    order: Order,
    bytes: u32,
    /// The time of a trap, in nanoseconds.
    trap_ns: u64,
    /// The thread runs for a part of a round that varies, as where others use its core.
    is_pushed: bool,
    /// The share of samples that the kernel drops.
    lost: f64,
    held: Held,
}

/// How often intervals hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// Neither more nor less often than they say.
    Within,
    /// More often: the interval is wider than it has to be.
    Wide,
    /// Less often, which is told and not required.
    Open,
}

const PLAIN: Kind = Kind {
    name: "",
    order: Order::Random,
    bytes: 8,
    trap_ns: 0,
    is_pushed: true,
    lost: 0.0,
    held: Held::Within,
};

/// Places by Zipf's law of 0.99: cumulated weights of ranks, and the place of each rank.
struct Zipf {
    sums: Vec<f64>,
    places: Vec<u64>,
}

impl Zipf {
    fn new(places: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64).powf(-0.99);
            sum
        };
        let sums: Vec<f64> = (1..=places).map(weight).collect();
        let mut shuffled: Vec<u64> = (0..places).collect();
        let mut random = Random(99);
        for at in (1..shuffled.len()).rev() {
            shuffled.swap(at, random.below(at as u64 + 1) as usize);
        }
        Self {
            sums,
            places: shuffled,
        }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let at = random.part() * self.sums.last().expect("places");
        let rank = self.sums.partition_point(|sum| *sum < at);
        self.places[rank.min(self.places.len() - 1)]
    }
}

/// A program that goes on for as long as it is asked.
struct Program {
    kind: Kind,
    zipf: Option<Zipf>,
    turn: u64,
}

impl Program {
    fn new(kind: Kind) -> Self {
        let zipf = match kind.order {
            Order::ZipfPages => Some(Zipf::new(WORDS / 64)),
            Order::ZipfWords => Some(Zipf::new(WORDS)),
            _ => None,
        };
        Self {
            kind,
            zipf,
            turn: 0,
        }
    }

    /// The address of the next access.
    fn next(&mut self, random: &mut Random) -> u64 {
        self.turn += 1;
        let bytes = u64::from(self.kind.bytes);
        let all = WORDS * 8;
        match (self.kind.order, &self.zipf) {
            (Order::Sequential, _) => self.turn * bytes % all,
            (Order::ZipfPages, Some(zipf)) => zipf.draw(random) * 512 + random.below(64) * 8,
            (Order::ZipfWords, Some(zipf)) => zipf.draw(random) * 8,
            _ => random.below(all / bytes) * bytes,
        }
    }
}

/// A run under watched words: the estimate of its bytes, and the truth.
fn watched(program: &mut Program, random: &mut Random) -> (Figure, f64) {
    let kind = program.kind;
    let mut account = Account::new(kind.trap_ns as f64);
    let (mut now, mut truth, mut number) = (0, 0.0, 0);
    let mut place = random.next();
    program.turn = random.next() >> 40;
    for _ in 0..100 {
        let part = if kind.is_pushed {
            random.below(140) + 30
        } else {
            100
        };
        let (begin, end) = (now, now + 600 * part);
        let words: [u64; 4] = std::array::from_fn(|_| {
            place = place.wrapping_add(GOLDEN);
            ((u128::from(place) * u128::from(WORDS)) >> 64) as u64 * 8
        });
        let mut hits = [0; 4];
        let (mut samples, mut drained) = (Vec::new(), Drained::default());
        while now < end {
            let address = program.next(random);
            (now, truth) = (now + ACCESS_NS, truth + f64::from(kind.bytes));
            for (at, word) in words.iter().enumerate() {
                if address < word + 8 && address + u64::from(kind.bytes) > *word {
                    hits[at] += 1;
                    now += kind.trap_ns;
                    if random.part() < kind.lost {
                        drained.lost += 1;
                        continue;
                    }
                    let exposure = Exposure::Word {
                        address: *word,
                        arm: number + at as u64,
                    };
                    samples.push(sample(address, kind.bytes, exposure, now));
                }
            }
        }
        let traps = hits.iter().sum();
        for (at, hits) in hits.into_iter().enumerate() {
            drained.arms.push(Arm {
                number: number + at as u64,
                tid: TID,
                words: WORDS,
                ran_ns: now - begin,
                beside: 4,
                watched_ns: now - begin,
                hits,
                traps,
                round_traps: traps,
                stopped: false,
                neighbour: None,
            });
        }
        drained.ran.push((TID, now));
        number += 4;
        account.add(&samples, &drained);
    }
    (account.usage(&[TID], Access::Write).bytes, truth)
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

/// A run under a PMU's samples, each access with the same probability.
fn sampled(program: &mut Program, random: &mut Random) -> (Figure, f64) {
    let (kind, probability) = (program.kind, 1.0 / 101.0);
    let mut account = Account::new(0.0);
    let (mut samples, mut lost, mut truth) = (Vec::new(), 0, 0.0);
    for turn in 0..20_000 {
        // Sizes of two instructions: an estimate of bytes has more spread than one of accesses.
        let bytes = if turn % 4 == 0 { 64 } else { kind.bytes };
        let address = program.next(random);
        truth += f64::from(bytes);
        if random.part() >= probability {
            continue;
        }
        if random.part() < kind.lost {
            lost += 1;
            continue;
        }
        samples.push(sample(
            address,
            bytes,
            Exposure::Probability(probability),
            turn,
        ));
    }
    let drained = Drained {
        lost,
        ..Drained::default()
    };
    account.add(&samples, &drained);
    (account.usage(&[TID], Access::Write).bytes, truth)
}

/// A run under a clock that ticks at any time: the time in accesses.
fn ticked(program: &mut Program, random: &mut Random) -> (Figure, f64) {
    let share = 0.05 + 0.01 * f64::from(program.kind.bytes);
    let ticks = 20_000;
    let period_s = 0.001;
    let found = (0..ticks).filter(|_| random.part() < share * 0.1).count();
    let truth = f64::from(ticks) * share * 0.1 * period_s;
    (Figure::counted(found as u64, period_s), truth)
}

type Estimator = fn(&mut Program, &mut Random) -> (Figure, f64);

/// Prints a row. Returns how many of the runs held the truth.
fn row(name: &str, kind: Kind, estimator: Estimator, runs: u64) -> f64 {
    let mut random = Random(number("PMMON_SEED", 1) ^ u64::from(kind.bytes) << 32);
    let mut program = Program::new(kind);
    let (mut held, mut error, mut half) = (0, 0.0, 0.0);
    for _ in 0..runs {
        let (figure, truth) = estimator(&mut program, &mut random);
        held += u64::from(figure.low <= truth && truth <= figure.high);
        error += (figure.value / truth - 1.0).powi(2) / runs as f64;
        half += (figure.high - figure.low) / 2.0 / truth / runs as f64;
    }
    let share = held as f64 / runs as f64;
    println!(
        "| {name} | {} | {} | {runs} | {:.1} % | {:.1} % | {:.1} %{} |",
        kind.name,
        kind.bytes,
        error.sqrt() * 100.0,
        half * 100.0,
        share * 100.0,
        match kind.held {
            Held::Within => "",
            Held::Wide => ", wide",
            Held::Open => ", open",
        }
    );
    share
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for bytes in [1, 8, 64] {
        kinds.push(Kind {
            name: "sequential",
            order: Order::Sequential,
            bytes,
            // Draws that fill the file evenly meet such a program evenly.
            held: Held::Wide,
            ..PLAIN
        });
        kinds.push(Kind {
            name: "random",
            bytes,
            ..PLAIN
        });
    }
    kinds.extend([
        Kind {
            name: "random, traps a twentieth of the time",
            trap_ns: 1000,
            ..PLAIN
        },
        Kind {
            name: "random, a third of the samples lost",
            lost: 0.33,
            // An arm that lost all of its samples has both ends of a word in its interval.
            held: Held::Wide,
            ..PLAIN
        },
        Kind {
            name: "random, undisturbed",
            is_pushed: false,
            ..PLAIN
        },
        Kind {
            name: "zipf 0.99 over pages",
            order: Order::ZipfPages,
            held: Held::Wide,
            ..PLAIN
        },
        Kind {
            name: "zipf 0.99 over words",
            order: Order::ZipfWords,
            // A word that takes most accesses is drawn seldom.
            held: Held::Open,
            ..PLAIN
        },
    ]);
    kinds
}

/// Prints the table, and fails for kinds that are out of 90 to 98 %.
fn table(runs: u64) {
    println!(
        "PMMON_SEED={} PMMON_COVERAGE_RUNS={runs}",
        number("PMMON_SEED", 1)
    );
    println!("| estimator | program | bytes | runs | rms error | half interval | held |");
    println!("|---|---|---|---|---|---|---|");
    let mut out = Vec::new();
    let mut check = |estimator: &str, kind: Kind, share: f64| {
        let is_well = match kind.held {
            Held::Within => (0.90..=0.98).contains(&share),
            Held::Wide => share >= 0.90,
            Held::Open => true,
        };
        if !is_well {
            out.push(format!(
                "{estimator}, {}, {}: {share}",
                kind.name, kind.bytes
            ));
        }
    };
    for kind in kinds() {
        check("words", kind, row("watched words", kind, watched, runs));
    }
    let lossy = Kind {
        name: "two sizes, a third lost",
        lost: 0.33,
        held: Held::Wide,
        ..PLAIN
    };
    let whole = Kind {
        name: "two sizes",
        ..PLAIN
    };
    for kind in [whole, lossy] {
        check(
            "samples",
            kind,
            row("samples of a period", kind, sampled, runs),
        );
    }
    let ticks = Kind {
        name: "time in accesses",
        ..PLAIN
    };
    check("clock", ticks, row("ticks of a clock", ticks, ticked, runs));
    assert!(out.is_empty(), "{out:?}");
}

#[test]
fn intervals_hold_as_often_as_they_say() {
    table(number("PMMON_COVERAGE_RUNS", 200));
}
