//! Goal: writers get the number of cores that the device model says is best for their load, within
//! bounds, and a load that goes to and fro does not move them each time. Method: the rules on
//! random numbers, the model beside all numbers tried, and looks at simulated loads, all without a
//! clock.

use pmep::{Device, Op, Order};
use pmmon::adapt::{
    Adaptive, Bounds, Change, EVERY_NS, HOLD_NS, Load, Model, Number, Seen, next, wanted,
};
use pmmon::{Access, Exposure, Origin, Sample, Tid};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn model(modules: u32, store: Op) -> Model {
    Model::new(Device::named("optane-100").unwrap(), modules, store).unwrap()
}

fn bounds(min: u32, max: u32) -> Bounds {
    Bounds { min, max }
}

proptest! {
    /// Goal: the wish is within 3 % of the best of all numbers, no fewer would be as good, and once
    /// it is given it stays.
    #[test]
    fn a_wish_is_good_and_stays(
        bandwidths in proptest::collection::vec(0.1..10.0_f64, 1..40),
        (min, more) in (1..10_u32, 0..30_u32),
        now in 0..30_u32,
    ) {
        let bounds = bounds(min, min + more);
        let now = min + now.min(more);
        let with = |cores: u32| bandwidths[(cores as usize - 1).min(bandwidths.len() - 1)];
        let found = wanted(&bandwidths, bounds, now);
        prop_assert!((bounds.min..=bounds.max).contains(&found));
        let most = (bounds.min..=bounds.max).map(with).fold(0.0, f64::max);
        prop_assert!(with(found) >= most * 0.97);
        if found != now {
            prop_assert!((bounds.min..found).all(|fewer| with(fewer) < most * 0.98));
        }
        prop_assert_eq!(wanted(&bandwidths, bounds, found), found);
    }

    /// Goal: two changes are never nearer than the time for which a wish has to last, each goes the
    /// way that all wishes of that time have gone, and no further than any of them.
    #[test]
    fn changes_are_apart(looks in proptest::collection::vec((0..6_u32, 1..400 * MS), 1..200)) {
        let mut number = Number { cores: 3, wish: None };
        let (mut now_ns, mut changed_ns) = (0, None::<u64>);
        // Wishes since the last that was no wish to go this way.
        let mut before: Vec<(u32, u64)> = Vec::new();
        for (wish, time) in looks {
            now_ns += time;
            // Nought is no load.
            let wish = Some(wish).filter(|wish| *wish > 0);
            let way = |to: u32| to.cmp(&number.cores);
            match wish {
                Some(to) if to != number.cores => {
                    before.retain(|(other, _)| way(*other) == way(to));
                    before.push((to, now_ns));
                }
                _ => before.clear(),
            }
            let after = next(number, wish, now_ns);
            if after.cores != number.cores {
                let since = before[0].1;
                prop_assert!(now_ns - since >= HOLD_NS);
                prop_assert!(changed_ns.is_none_or(|at| now_ns - at >= HOLD_NS));
                let all = before.iter().map(|(to, _)| *to);
                let nearest = if after.cores > number.cores { all.min() } else { all.max() };
                prop_assert_eq!(Some(after.cores), nearest);
                changed_ns = Some(now_ns);
                before.clear();
            } else if let Some((_, since)) = before.first() {
                prop_assert!(now_ns - since < HOLD_NS, "it lasts, and is not granted");
            }
            number = after;
        }
    }
}

/// Goal: the numbers for known loads. Method: six modules, where a writer past the caches takes
/// 4.3 GiB/s and all together 12 to 13; and one module, which one writer fills.
#[test]
fn numbers_of_known_loads() {
    let load = |writers, access, order| Load {
        writers,
        access,
        order,
    };
    let all = bounds(1, 16);
    for (modules, store, load, cores) in [
        (6, Op::NtStore, load(32, 256, Order::Sequential), 4),
        (6, Op::NtStore, load(2, 256, Order::Sequential), 2),
        (6, Op::NtStore, load(32, 64, Order::Random), 2),
        (1, Op::NtStore, load(32, 256, Order::Sequential), 1),
    ] {
        let bandwidths = model(modules, store).bandwidths(&load, 16);
        assert_eq!(wanted(&bandwidths, all, 1), cores, "{modules}, {load:?}");
        assert_eq!(wanted(&bandwidths, all, 16), cores, "{modules}, {load:?}");
    }
    // Flushed stores are slower, so that more of them are needed.
    let flushed = model(6, Op::StoreClwb).bandwidths(&load(32, 256, Order::Sequential), 16);
    assert!(wanted(&flushed, all, 1) > 4, "{flushed:?}");
    assert_eq!(wanted(&flushed, bounds(2, 3), 2), 3, "bounds win");
    assert!(Model::new(Device::named("dram").unwrap(), 6, Op::Load).is_err());
    assert!(Model::new(Device::named("dram").unwrap(), 0, Op::NtStore).is_err());
}

fn store(tid: Tid, time_ns: u64, address: u64) -> Sample {
    Sample {
        tid,
        time_ns,
        ip: 0x1000,
        address,
        access: Access::Write,
        bytes: 64,
        exposure: Exposure::Time { period_ns: MS },
        origin: Origin::Mapped,
    }
}

/// A millisecond of each writer, in order or anywhere.
fn tick(writers: u32, time_ns: u64, order: Order) -> Vec<Sample> {
    let step = time_ns / MS;
    let address = match order {
        // A file of 64 MiB, begun anew each 32 ms.
        Order::Sequential => (step % 32) << 21,
        _ => step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
    };
    (0..writers)
        .map(|tid| store(tid, time_ns, address))
        .collect()
}

/// Goal: the load is told as it is. Method: writers in order and anywhere, those of a clock and of
/// watched words, loads, and time that passes.
#[test]
fn loads_are_told() {
    let mut seen = Seen::default();
    assert_eq!(seen.load(0), None);
    let load = |writers, order| {
        Some(Load {
            writers,
            access: 64,
            order,
        })
    };
    let mut now_ns = 0;
    for (writers, order) in [
        (3, Order::Random),
        (5, Order::Sequential),
        (2, Order::Random),
    ] {
        for _ in 0..1200 {
            now_ns += MS;
            seen.add(&tick(writers, now_ns, order));
        }
        assert_eq!(seen.load(now_ns), load(writers, order));
    }
    seen.forget(0);
    assert_eq!(seen.load(now_ns), load(1, Order::Random));
    assert_eq!(seen.load(now_ns + 1000 * MS), None, "it is long ago");
    now_ns += 2000 * MS;
    for number in 0..100 {
        let word = Exposure::Word {
            address: number * 8,
            arm: number,
        };
        let hit = Sample {
            exposure: word,
            ..store(7, now_ns + number * MS, number * 8)
        };
        let read = Sample {
            access: Access::Read,
            ..store(8, now_ns, number * 8)
        };
        seen.add(&[hit, read]);
    }
    assert_eq!(seen.load(now_ns + 100 * MS), load(1, Order::Random));
}

/// Runs a load of `writers` for a time, and gives the changes and when they were.
fn run(
    adaptive: &mut Adaptive,
    now_ns: &mut u64,
    time_ms: u64,
    writers: impl Fn(u64) -> u32,
) -> Vec<(u64, Change)> {
    let mut changes = Vec::new();
    for at_ms in 0..time_ms {
        *now_ns += MS;
        adaptive.add(&tick(writers(at_ms), *now_ns, Order::Sequential));
        changes.extend(adaptive.look(*now_ns).map(|change| (at_ms, change)));
    }
    changes
}

/// Goal: the number follows a load that stays, and not one that comes and goes. Method: a simulated
/// load on six modules: none, one writer, many, many for short times, few, none.
#[test]
fn the_number_follows_the_load() {
    let mut adaptive = Adaptive::new(model(6, Op::NtStore), bounds(1, 16));
    let mut now_ns = 0;
    let mut run = |time_ms, writers: &dyn Fn(u64) -> u32| {
        let changes = run(&mut adaptive, &mut now_ns, time_ms, writers);
        (changes, adaptive.cores())
    };
    assert_eq!(run(3000, &|_| 0), (vec![], 1));
    assert_eq!(run(3000, &|_| 1), (vec![], 1));
    let (changes, cores) = run(5000, &|_| 16);
    assert_eq!((changes.len(), cores), (1, 4), "{changes:?}");
    let (at_ms, change) = changes[0];
    let latest = (HOLD_NS + 2 * EVERY_NS) / MS;
    assert!((HOLD_NS / MS..=latest).contains(&at_ms), "{at_ms} ms");
    assert_eq!((change.before, change.cores), (1, 4));
    assert_eq!(change.load.writers, 16);
    assert!(change.gib_s > 2.0 * change.before_gib_s, "{change:?}");
    // Single writers for less than the time that counts as lately do not show at all, and a pause
    // in which nobody writes changes nothing.
    assert_eq!(
        run(8000, &|at| if at % 800 < 400 { 16 } else { 1 }),
        (vec![], 4)
    );
    assert_eq!(run(8000, &|_| 0), (vec![], 4));
    let (changes, cores) = run(5000, &|_| 2);
    assert_eq!((changes.len(), cores), (1, 2), "{changes:?}");
    // A load that changes each 1.5 s shows, but the wish never lasts.
    let to_and_fro = |at: u64| if at % 3000 < 1500 { 1 } else { 2 };
    assert_eq!(run(9000, &to_and_fro), (vec![], 2));
}
