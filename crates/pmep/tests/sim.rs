//! Goal: what the event model adds to patterns: loads that wait for each other, hot blocks, and the
//! other socket. Method: streams of accesses beside the closed forms of the same.

use pmep::analytic::{Idle, far, idle_latency};
use pmep::device::{Key, Numbers};
use pmep::sim::{Access, FarStreams, Sim};
use pmep::{Device, Machine, Op, Order};

fn numbers() -> Numbers {
    Device::named("optane-100").unwrap().numbers
}

fn sim(dimms: u32) -> Sim {
    Sim::new(&numbers(), &Machine::plain(dimms, 4096).unwrap())
}

fn access(stream: u32, op: Op, address: u64, bytes: u64) -> Access {
    Access {
        time_ns: 0.0,
        stream,
        op,
        address,
        bytes,
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}

/// Time of a load of 64 B anywhere in a region, each behind a fence, ns, after the region was met.
fn chase(region: u64, dimms: u32) -> f64 {
    let mut sim = sim(dimms);
    let mut random = Random(88_172_645_463_325_252);
    for line in 0..region.min(64 << 20) / 256 {
        sim.access(&access(0, Op::Load, line * 256, 64)).unwrap();
    }
    let begun = sim.fence(0, 0.0).unwrap().next_ns;
    let loads = 40_000;
    let mut end = begun;
    for _ in 0..loads {
        let address = random.next() % (region / 64) * 64;
        sim.access(&access(0, Op::Load, address, 64)).unwrap();
        end = sim.fence(0, 0.0).unwrap().next_ns;
    }
    (end - begun) / f64::from(loads)
}

#[test]
fn loads_behind_fences_take_the_latency_of_a_chase() {
    let idle = Idle {
        op: Op::Load,
        order: Order::Random,
    };
    for dimms in [1, 6] {
        for region in [4096, 16_384, 65_536, 1 << 20, 16 << 20, 48 << 20, 256 << 20] {
            let said = chase(region, dimms);
            let forms = idle_latency(&numbers(), idle, region as f64, dimms);
            let off = said / forms - 1.0;
            assert!(off.abs() < 0.06, "{dimms} {region}: {said} {forms}");
        }
    }
}

#[test]
fn a_fence_waits_for_what_there_is() {
    let mut sim = sim(1);
    let end = |sim: &mut Sim| sim.fence(0, 0.0).unwrap().next_ns;
    assert_eq!(end(&mut sim), 0.0);
    let stored = sim.access(&access(0, Op::NtStore, 0, 256)).unwrap().next_ns;
    assert!((end(&mut sim) - stored - 94.0).abs() < 1e-9);
    let before = end(&mut sim);
    assert_eq!(end(&mut sim), before);
    sim.access(&access(0, Op::Load, 1 << 30, 64)).unwrap();
    assert!((end(&mut sim) - before - 377.0).abs() < 1e-9);
    sim.access(&access(0, Op::Load, (1 << 30) + 4000, 64))
        .unwrap();
    assert!((end(&mut sim) - before - 377.0 - 310.0).abs() < 1e-9);
}

/// The slowest of 50,000 writes of 256 B that go around in a region, ns, and the moves.
fn overwrites(region: u64) -> (f64, u64) {
    let mut sim = sim(1);
    let (mut last, mut slowest) = (0.0, 0.0_f64);
    for step in 0..50_000_u64 {
        let write = access(0, Op::NtStore, step * 256 % region, 256);
        let end = sim.access(&write).unwrap().next_ns;
        slowest = slowest.max(end - last);
        last = end;
    }
    (slowest, sim.moves())
}

#[test]
fn a_hot_spot_has_tails_and_two_blocks_have_none() {
    for region in [256, 4096, 65_536] {
        let (slowest, moves) = overwrites(region);
        assert_eq!(moves, 5, "{region}");
        assert!((50_000.0..53_000.0).contains(&slowest), "{slowest}");
    }
    for region in [131_072, 1 << 20, 1 << 30] {
        let (slowest, moves) = overwrites(region);
        assert!(moves == 0 && slowest < 2000.0, "{region}: {slowest}");
    }
}

/// Bandwidth of four streams, of which each reads `reads` times for each store, B/ns.
fn mixed(reads: u64, far: &str) -> f64 {
    let streams = match far {
        "" => FarStreams::default(),
        far => FarStreams::parse(far).unwrap(),
    };
    let mut sim = sim(6).with_far(streams);
    let (mut steps, mut clocks) = ([0_u64; 4], [0.0_f64; 4]);
    for _ in 0..40_000 {
        let first = |a: &usize, b: &usize| clocks[*a].total_cmp(&clocks[*b]);
        let at = (0..4).min_by(first).unwrap();
        let op = match steps[at] % (reads + 1) {
            0 if reads < 100 => Op::NtStore,
            _ => Op::Load,
        };
        let address = ((at as u64) << 34) + steps[at] * 256;
        steps[at] += 1;
        let access = access(at as u32, op, address, 256);
        clocks[at] = sim.access(&access).unwrap().next_ns;
    }
    40_000.0 * 256.0 / clocks.into_iter().fold(0.0, f64::max)
}

#[test]
fn the_other_socket_is_slower_as_the_closed_form_has_it() {
    for (reads, share) in [(1000, 1.0), (0, 0.0), (1, 0.5), (3, 0.75)] {
        let falls = mixed(reads, "all") / mixed(reads, "");
        let forms = far(&numbers(), 4.0, share);
        assert!(
            (falls / forms - 1.0).abs() < 0.05,
            "{reads}: {falls} {forms}"
        );
    }
    // Half of the streams far away: between both.
    let (near, some, all) = (mixed(1, ""), mixed(1, "0-1"), mixed(1, "all"));
    assert!(all < some && some < near, "{all} {some} {near}");
    let mut sim = sim(1).with_far(FarStreams::parse("1").unwrap());
    for (stream, latency) in [(0, 377.0), (1, 377.0 + numbers()[Key::HopLatency])] {
        let address = u64::from(stream + 1) << 30;
        sim.access(&access(stream, Op::Load, address, 64)).unwrap();
        assert_eq!(sim.fence(stream, 0.0).unwrap().next_ns, latency);
    }
}
