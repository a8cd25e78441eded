//! Goal: a fit finds the numbers that made its points. Method: the shipped device answers a grid of
//! questions; a fit of these answers, from two seeds, has to return to the device.

use pmep::device::{KEYS, Key};
use pmep::fit::{Point, fit, fold, start};
use pmep::points::{Question, answer};
use pmep::{Device, Generation, Machine, Op, Order, Pattern};

fn machines() -> Vec<Machine> {
    let mut all = Vec::new();
    for dimms in [1, 6] {
        let plain = Machine::plain(dimms, 4096).unwrap();
        let host = |second_host, slow_clock, fenced, prefetcher| Machine {
            second_host,
            slow_clock,
            fenced,
            prefetcher,
            ..plain
        };
        all.push(plain);
        all.push(host(true, false, false, false));
        all.push(host(false, true, true, true));
        all.push(host(false, false, true, true));
        all.push(Machine {
            other_capacity: true,
            ..plain
        });
        all.push(Machine {
            generation: Generation::Second,
            fenced: true,
            ..plain
        });
        all.push(plain.at_budget(12.5).unwrap());
        all.push(plain.at_budget(18.0).unwrap());
    }
    all
}

fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for machine in machines() {
        for op in [Op::Load, Op::NtStore, Op::StoreClwb, Op::Store] {
            for access in [64, 128, 256, 1024, 4096, 65_536] {
                for threads in [1, 2, 4, 8, 16, 24] {
                    for (order, stride) in [
                        (Order::Random, None),
                        (Order::Sequential, None),
                        (Order::Strided, Some(16_384.max(access))),
                    ] {
                        let pattern = Pattern::new(op, order, access, stride, threads).unwrap();
                        all.push(Question::Bandwidth(pattern, machine));
                    }
                }
            }
        }
    }
    let six = Machine::plain(6, 4096).unwrap();
    for delay in [0.0, 100.0, 200.0, 300.0, 500.0, 1000.0] {
        all.push(Question::LoadedBandwidth(six, 16, delay));
        all.push(Question::LoadedLatency(six, 16, delay));
    }
    for readers in [2, 4, 8, 12, 14] {
        all.push(Question::ThreadMix(six, readers, 16 - readers));
    }
    all
}

#[test]
fn a_fit_returns_to_the_device_that_made_its_points() {
    let device = Device::named("optane-100").unwrap().numbers;
    let points: Vec<Point> = (questions().into_iter())
        .map(|question| Point {
            question,
            value: answer(&device, &question),
            weight: 1.0,
            fold: fold("all"),
        })
        .collect();
    for seed in [1, 2] {
        let fitted = fit(&points, &start(seed));
        for key in KEYS.iter().filter(|key| key.is_fitted()) {
            let name = key.entry().name;
            let off = (fitted.numbers[*key] / device[*key] - 1.0).abs();
            assert!(off < 0.03, "seed {seed}, {name}: {off:.3} off");
        }
    }
    assert_eq!(device[Key::BufferLines], 64.0);
}
