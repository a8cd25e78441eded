//! The engine against a reference that is nothing but maps.
//!
//! Every call is made on both, every answer compared: values, errnos, attributes, times. Now and
//! then the whole tree is compared, the engine checks itself, is closed and opened, dropped and
//! opened, or a copy of its pool is opened as after power loss. A failure prints the line that
//! replays it.
//!
//! `PMFS_MODEL_SEED` picks the run, `PMFS_MODEL_OPS` the number of operations over all pools,
//! `PMFS_MODEL_POOL` one pool alone; `PMFS_MODEL_COMPARE_FROM` compares the files that an operation
//! names after each from that number on, which finds the operation at fault.

mod acl;
mod apply;
mod apply_inode;
mod clones;
mod compare;
mod content;
mod coverage;
mod crew;
mod disjoint;
mod generate;
mod names;
mod operation;
mod pins;
mod pool;
mod random;
mod reader;
mod reference;
mod runner;
mod shared_directory;
mod shared_file;

use coverage::{Coverage, LONG_RUN};
use generate::Taste;
use pmfs::DataMode::{Atomic, Ordered};
use pmfs::ProtectMode;
use runner::Setting;
use std::sync::Mutex;

const OPERATIONS: u64 = 1_200_000;

const ORDINARY: Taste = Taste {
    nodes_max: 3000,
    blocks_max: 4000,
    large_one_in: 60,
    strangers: true,
};

const SETTINGS: [Setting; 6] = [
    Setting {
        name: "atomic",
        bytes: 64 << 20,
        inodes: 6016,
        modes: &[Atomic],
        taste: ORDINARY,
        protect: ProtectMode::Auto,
        round: 40_000,
        compare_every: 2000,
        share: 25,
    },
    Setting {
        name: "ordered",
        bytes: 64 << 20,
        inodes: 6016,
        modes: &[Ordered],
        taste: ORDINARY,
        protect: ProtectMode::Auto,
        round: 40_000,
        compare_every: 2000,
        share: 20,
    },
    Setting {
        name: "shared",
        bytes: 48 << 20,
        inodes: 6016,
        modes: &[Atomic, Ordered],
        taste: ORDINARY,
        protect: ProtectMode::Auto,
        round: 20_000,
        compare_every: 1000,
        share: 20,
    },
    Setting {
        name: "full",
        bytes: 4 << 20,
        inodes: 512,
        modes: &[Atomic],
        taste: Taste {
            nodes_max: 1000,
            blocks_max: u64::MAX,
            large_one_in: 40,
            strangers: true,
        },
        protect: ProtectMode::Auto,
        round: 4000,
        compare_every: 500,
        share: 20,
    },
    Setting {
        name: "full-shared",
        bytes: 10 << 20,
        inodes: 1024,
        modes: &[Ordered, Atomic],
        taste: Taste {
            nodes_max: 2000,
            blocks_max: u64::MAX,
            large_one_in: 30,
            strangers: true,
        },
        protect: ProtectMode::Auto,
        round: 4000,
        compare_every: 500,
        share: 15,
    },
    // A store outside a window is the end of this process. Each window is two system calls, so
    // there are few.
    Setting {
        name: "closed",
        bytes: 4 << 20,
        inodes: 512,
        modes: &[Atomic, Ordered],
        taste: Taste {
            nodes_max: 1000,
            blocks_max: u64::MAX,
            large_one_in: 40,
            strangers: true,
        },
        protect: ProtectMode::Pages,
        round: 4000,
        compare_every: 500,
        share: 1,
    },
];

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => default,
    }
}

#[test]
fn every_call_answers_as_the_reference_does() {
    let seed = number("PMFS_MODEL_SEED", 1);
    let operations = number("PMFS_MODEL_OPS", OPERATIONS);
    let only = std::env::var("PMFS_MODEL_POOL").ok();
    let wanted = |setting: &&Setting| only.as_ref().is_none_or(|name| name == setting.name);
    let queue: Mutex<Vec<Setting>> =
        Mutex::new(SETTINGS.iter().rev().filter(wanted).copied().collect());
    let seen = Mutex::new((Coverage::default(), Vec::new()));
    let began = std::time::Instant::now();
    let worker = || {
        loop {
            let Some(setting) = queue.lock().expect("no panic").pop() else {
                return;
            };
            let count = operations * setting.share / 100;
            match runner::run(setting, seed, count) {
                Ok(coverage) => seen.lock().expect("no panic").0.add(&coverage),
                Err(text) => seen.lock().expect("no panic").1.push(format!(
                    "{text}\n  again: PMFS_MODEL_SEED={seed} PMFS_MODEL_OPS={operations} \
                     PMFS_MODEL_POOL={} cargo test -p pmfs --test model every_call",
                    setting.name
                )),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(worker);
        }
    });
    let (coverage, failures) = seen.into_inner().expect("no panic");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    let seconds = began.elapsed().as_secs_f64();
    println!("{operations} operations in {seconds:.1} s, seed {seed}\n{coverage}");
    if operations >= LONG_RUN && only.is_none() {
        let missing = coverage.missing();
        assert!(missing.is_empty(), "never seen: {missing:#?}");
    }
}
