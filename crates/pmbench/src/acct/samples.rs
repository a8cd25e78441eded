//! A PMU's samples, simulated (section 5.4.2 of ACCT): threads that stream 256 bytes as four stores
//! of 64, of which each n-th store is sampled, through the monitor's own account.
//!
//! A loop has further stores, as to the stack, which the event counts too. After an overflow the
//! sample is that of a later store (the shadow). Where period and shadow have a factor in common
//! with the loop's length, a fixed period meets some of the loop's stores alone.

use clap::{Args, ValueEnum};
use pmmon::account::Account;
use pmmon::{Access, Drained, Exposure, Origin, Sample};
use serde_json::json;

use super::Random;

/// Stores to persistent memory in a loop, and their bytes.
const STORES: u64 = 4;
const STORE_BYTES: u64 = 64;
/// Samples after which another period is drawn: some 100 ms of a writer's.
const DRAWN_EVERY: u64 = 200;
/// The periods that are drawn: primes.
const DRAWN: std::ops::Range<u64> = 2000..11_000;

/// The load and the PMU.
#[derive(Args)]
pub struct Options {
    /// Threads that write.
    #[arg(long)]
    threads: u32,
    /// Mebibytes that each of them writes.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// The period, or the first one.
    #[arg(long)]
    period: u64,
    /// The periods.
    #[arg(long, value_enum)]
    periods: Periods,
    /// Stores of the loop, four of them to persistent memory.
    #[arg(long, default_value_t = 6)]
    stores: u64,
    /// Stores between an overflow and its sample.
    #[arg(long, default_value_t = 0)]
    shadow: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Periods {
    Fixed,
    Drawn,
}

fn is_prime(number: u64) -> bool {
    (2..)
        .take_while(|by| by * by <= number)
        .all(|by| !number.is_multiple_of(by))
}

/// The samples of a thread, whose loop begins at a place of its own.
fn sampled(options: &Options, tid: u32, primes: &[u64], to: &mut Vec<Sample>) {
    let loops = (options.mib << 20) / (STORES * STORE_BYTES);
    let end = loops * options.stores;
    let mut random = Random(u64::from(tid) + 1);
    let mut period = options.period;
    let mut at = random.below(period);
    for number in 1.. {
        at += options.shadow;
        if at >= end {
            return;
        }
        if at % options.stores < STORES {
            to.push(Sample {
                tid,
                time_ns: at,
                ip: at % options.stores,
                address: at / options.stores * STORES * STORE_BYTES,
                access: Access::Write,
                bytes: STORE_BYTES as u32,
                exposure: Exposure::Probability(1.0 / period as f64),
                origin: Origin::Mapped,
            });
        }
        if options.periods == Periods::Drawn && number % DRAWN_EVERY == 0 {
            period = primes[random.below(primes.len() as u64) as usize];
        }
        at += period;
    }
}

/// A monitor's figures of such threads.
struct Told {
    /// Samples of a thread's stores to persistent memory, on average.
    detections: f64,
    /// Bytes by those written, of all threads.
    ratio: f64,
    /// The largest deviation of a thread from their mean.
    deviation: f64,
    /// Threads whose interval of 95 % holds the truth.
    held: u32,
}

fn told(options: &Options) -> Told {
    let primes: Vec<u64> = DRAWN.filter(|number| is_prime(*number)).collect();
    let mut account = Account::new(0.0);
    let mut samples = Vec::new();
    for tid in 0..options.threads {
        sampled(options, tid, &primes, &mut samples);
    }
    account.add(&samples, &Drained::default());
    let truth = (options.mib << 20) as f64;
    let each = (0..options.threads).map(|tid| account.usage(&[tid], Access::Write).bytes);
    let each: Vec<_> = each.collect();
    let threads = f64::from(options.threads);
    let mean = each.iter().map(|bytes| bytes.value).sum::<f64>() / threads;
    let off = |value: f64| (value / mean.max(1.0) - 1.0).abs();
    let holds = |bytes: &&pmmon::account::Figure| bytes.low <= truth && truth <= bytes.high;
    Told {
        detections: samples.len() as f64 / threads,
        ratio: mean / truth,
        deviation: each
            .iter()
            .map(|bytes| off(bytes.value))
            .fold(0.0, f64::max),
        held: each.iter().filter(holds).count() as u32,
    }
}

/// Simulates, and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.threads > 0 && options.period > 0,
        "nothing to sample"
    );
    anyhow::ensure!(options.stores >= STORES, "a loop has four stores at least");
    let told = told(options);
    println!(
        "{}",
        json!({
            "kind": "simulated",
            "detections": told.detections,
            "ratio": told.ratio,
            "deviation": told.deviation,
            "held": told.held,
        })
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(period: u64, periods: Periods, stores: u64, shadow: u64) -> Options {
        Options {
            threads: 4,
            mib: 1024,
            period,
            periods,
            stores,
            shadow,
        }
    }

    /// Goal: the thesis' own figures agree with each other: samples x period x 64 bytes by 32 GiB.
    #[test]
    fn the_thesis_figures_are_consistent() {
        let of = |samples: f64, period: f64| samples * period * 64.0 / (32_u64 << 30) as f64;
        assert!((of(304_596.0, 2503.0) - 1.42).abs() < 0.005);
        assert!((of(44_758.0, 9973.0) - 0.8315).abs() < 0.005);
    }

    /// Goal: a period that has nothing in common with the loop tells the truth, one that has may
    /// tell anything, and drawn ones tell it on the mean of threads, though not by thread: a prime
    /// and an odd shadow are even, as most loops are.
    #[test]
    fn drawn_periods_do_not_lock() {
        for period in [2503, 5107, 9973] {
            let free = told(&options(period, Periods::Fixed, 6, 0));
            assert!((free.ratio - 1.0).abs() < 0.01, "{period}: {}", free.ratio);
        }
        let locked = told(&options(5107, Periods::Fixed, 6, 5));
        assert!(locked.deviation > 0.2, "{}", locked.deviation);
        for (stores, shadow) in [(5, 0), (6, 1), (6, 5), (8, 3), (12, 5)] {
            let drawn = told(&options(2503, Periods::Drawn, stores, shadow));
            assert!(
                (drawn.ratio - 1.0).abs() < 0.05,
                "{stores}, {shadow}: {}",
                drawn.ratio
            );
        }
    }
}
