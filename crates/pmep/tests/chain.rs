//! Goal: chains follow what their steps say. Method: shapes that hold whatever the numbers are, and
//! chains of one step beside the same pattern without a chain.

use pmep::analytic::{Chained, chained, predict};
use pmep::chain::Chain;
use pmep::device::Numbers;
use pmep::{Device, Generation, Machine, Op, Order, Pattern};

const CHAINS: [&str; 9] = [
    "rp_64",
    "rp_512",
    "rp_64,wp_64_cache",
    "rp_64,wp_64_none",
    "rp_256,wp_256_nocache",
    "rp_64,wp_64_cacheinv,wp_64_cacheinv",
    "rp_512,wp_64_cache_128,wp_64_cache_-128",
    "rp_512,rp_512,rp_512,wp_64_cache_320,wp_64_cache_-64",
    "rd_512,rd_512,rp_512,wp_64_nocache",
];

fn numbers() -> Numbers {
    Device::named("optane-100").unwrap().numbers
}

fn machine(dimms: u32, generation: Generation) -> Machine {
    Machine {
        fenced: true,
        generation,
        ..Machine::plain(dimms, 4096).unwrap()
    }
}

fn get(text: &str, machine: &Machine, threads: u32, cores: u32) -> Chained {
    let chain = Chain::parse(text).unwrap();
    let said = chained(&numbers(), &chain, machine, threads, cores);
    assert!(said.per_s.is_finite() && said.per_s > 0.0, "{text}");
    assert!(
        said.latency_ns.is_finite() && said.latency_ns > 0.0,
        "{text}"
    );
    said
}

fn rate(text: &str, machine: &Machine, threads: u32) -> f64 {
    get(text, machine, threads, 64).per_s
}

#[test]
fn more_threads_get_more_up_to_the_limit() {
    for generation in [Generation::First, Generation::Second] {
        let six = machine(6, generation);
        for text in CHAINS {
            let rates: Vec<f64> = (1..=32).map(|threads| rate(text, &six, threads)).collect();
            let best = rates.iter().copied().fold(0.0, f64::max);
            let at = rates.iter().position(|rate| *rate == best).unwrap();
            assert!(at >= 5, "{text}: best of {} threads", at + 1);
            for (threads, pair) in rates[..=at].windows(2).enumerate() {
                assert!(pair[1] > pair[0], "{text}: {} threads", threads + 2);
            }
            assert!(rates[31] > 0.6 * best, "{text}: {rates:?}");
        }
    }
}

#[test]
fn more_modules_get_more_and_more_threads_than_cores_do_not() {
    for text in CHAINS {
        let rates = [1, 2, 4, 6].map(|dimms| rate(text, &machine(dimms, Generation::First), 16));
        assert!(rates.is_sorted(), "{text}: {rates:?}");
        let six = machine(6, Generation::First);
        assert_eq!(get(text, &six, 18, 18), get(text, &six, 32, 18), "{text}");
    }
}

#[test]
fn a_further_step_never_makes_a_chain_faster() {
    for text in CHAINS {
        for threads in [1, 16] {
            let six = machine(6, Generation::First);
            let mut before = f64::INFINITY;
            for (end, _) in text.match_indices(',').chain([(text.len(), "")]) {
                let Some(chain) = Chain::parse(&text[..end]).ok().filter(Chain::meets_modules)
                else {
                    continue;
                };
                let now = chained(&numbers(), &chain, &six, threads, 64).per_s;
                assert!(now <= before, "{text} up to {end}");
                before = now;
            }
        }
    }
}

/// A chain of one step is the plain pattern where the modules bound both. Reads of one thread
/// differ: a chain's do not overlap as a loop's do. Its stores of one request do not differ.
#[test]
fn a_chain_of_one_step_is_the_plain_pattern() {
    let cases = [
        ("rp_64", Op::Load, 64),
        ("rp_256", Op::Load, 256),
        ("wp_64_cache", Op::StoreClwb, 64),
        ("wp_64_nocache", Op::NtStore, 64),
        ("wp_256_nocache", Op::NtStore, 256),
        ("wp_256_cacheinv", Op::StoreClflushopt, 256),
        ("wp_256_none", Op::Store, 256),
    ];
    for (text, op, access) in cases {
        let plain = |dimms, threads| {
            let pattern = Pattern::new(op, Order::Random, access, None, threads).unwrap();
            let machine = machine(dimms, Generation::First);
            let said = predict(&numbers(), &pattern, &machine);
            let chain = rate(text, &machine, threads) * access as f64 / f64::from(1 << 30);
            chain / said.bandwidth_gib_s
        };
        let many = plain(1, 32);
        assert!((0.8..1.2).contains(&many), "{text}, 32 threads: {many}");
        if op != Op::Load && access == 64 {
            let one = plain(6, 1);
            assert!((0.95..1.05).contains(&one), "{text}, one thread: {one}");
        }
    }
}

/// Goal: distances count. Method: the second write goes to the first one's line, or to another.
#[test]
fn a_second_write_to_a_line_costs_less_than_one_to_another() {
    let six = machine(6, Generation::First);
    for way in ["cache", "nocache"] {
        let both = |offset: i32| {
            let text = format!("rp_512,wp_64_{way},wp_64_{way}_{offset}");
            rate(&text, &six, 16)
        };
        assert!(both(0) > 1.1 * both(256), "{way}");
        assert_eq!(both(128), both(64), "{way}");
    }
    let second = machine(6, Generation::Second);
    let kept = rate("rp_64,wp_64_cache,wp_64_cache", &second, 1);
    let dropped = rate("rp_64,wp_64_cacheinv,wp_64_cacheinv", &second, 1);
    assert!(kept > 1.5 * dropped, "{kept} {dropped}");
}
