//! Threads in directories of their own, each against a reference of its own: whatever they share
//! inside the engine, none may notice the others.

use crate::apply::World;
use crate::crew::{Crew, Going, NODE};
use crate::generate::{Generator, Taste};
use crate::pool::TestPool;
use crate::random::Random;
use pmfs::DataMode::{self, Atomic, Ordered};
use pmfs::{Fs, ROOT_INO};

const TASTE: Taste = Taste {
    nodes_max: 600,
    // The bound is for all threads, as the pool counts them: a file that grows may have 2 MiB for a
    // byte.
    blocks_max: POOL_BYTES / 4096 / 3,
    large_one_in: 80,
    // Somebody else's inodes are not in the reference.
    strangers: false,
};

const POOL_BYTES: u64 = 256 << 20;
/// Operations between two looks at how full the pool is: a full one is not in the reference.
const LOOK_EVERY: u64 = 50;
/// Operations between two comparisons of everything.
const COMPARE_EVERY: u64 = 2000;
/// Operations between two ends of an instance that comes and goes.
const LIFE: u64 = 300;

struct Thread<'p> {
    number: u64,
    world: World<'p>,
    generator: Generator,
    random: Random,
}

impl<'p> Thread<'p> {
    fn new(number: u64, fs: &Fs, pool: &'p TestPool) -> Thread<'p> {
        let seed = crate::number("PMFS_MODEL_SEED", 1) * 1000 + number;
        let name = format!("thread-{number}");
        let dir = fs.mkdir(ROOT_INO, name.as_bytes(), &NODE).expect("mkdir");
        let mut world = World::new(pool, &dir, ROOT_INO, 1);
        world.records = 512;
        world.alone = false;
        Thread {
            number,
            world,
            generator: Generator::new(seed, TASTE),
            random: Random::new(!seed),
        }
    }

    fn step(&mut self, fs: &Fs) {
        self.world.model.operation += 1;
        if self.world.model.operation.is_multiple_of(LOOK_EVERY) {
            let room = fs.statfs().expect("statfs");
            self.generator.blocks = room.blocks - room.blocks_free;
        }
        let operation = self.generator.next(&self.world.model, 0);
        if let Err(text) = self.world.run(fs, 0, &operation) {
            let count = self.world.model.operation;
            panic!(
                "thread {}, operation {count}: {operation:?}\n  {text}",
                self.number
            );
        }
        if self.random.one_in(COMPARE_EVERY) {
            self.compare(fs);
        }
    }

    fn compare(&mut self, fs: &Fs) {
        if let Err(text) = self.world.compare_all(fs) {
            let count = self.world.model.operation;
            panic!("thread {}, after operation {count}: {text}", self.number);
        }
    }

    fn work(&mut self, fs: &Fs, going: &Going) {
        while going.on() {
            self.step(fs);
        }
        self.compare(fs);
    }

    /// Works on an instance that is closed, or dropped with files open, again and again.
    fn come_and_go(&mut self, going: &Going) {
        while going.on() {
            let fs = self.world.pool.open(Atomic, true).expect("open");
            for _ in 0..LIFE {
                self.step(&fs);
            }
            self.compare(&fs);
            if self.random.one_in(2) {
                fs.close().expect("close");
            } else {
                drop(fs);
            }
            self.world.model.forget_holds(0);
        }
    }
}

fn each_sees_its_own(modes: &[DataMode], guests: u64) {
    let crew = Crew::new(POOL_BYTES, modes);
    let mut threads: Vec<Thread> = (0..4 + guests)
        .map(|number| Thread::new(number, crew.fs(), &crew.pool))
        .collect();
    crew.run(
        threads
            .iter_mut()
            .map(|thread| -> crate::crew::Job<'_> {
                if thread.number < 4 {
                    Box::new(|fs, going| thread.work(fs, going))
                } else {
                    Box::new(|_, going| thread.come_and_go(going))
                }
            })
            .collect(),
    );
    let operations: u64 = threads
        .iter()
        .map(|thread| thread.world.model.operation)
        .sum();
    assert!(operations > 0, "nothing was done");
    // At rest, all of them together.
    for thread in &mut threads {
        thread.compare(crew.fs());
    }
}

#[test]
fn threads_in_directories_of_their_own() {
    each_sees_its_own(&[Atomic], 0);
}

#[test]
fn threads_of_two_instances_in_directories_of_their_own() {
    each_sees_its_own(&[Atomic, Ordered], 0);
}

/// The guests' instances end with files open; whoever comes next cleans up while all others work.
#[test]
fn instances_come_and_go_among_working_threads() {
    each_sees_its_own(&[Ordered, Atomic], 2);
}
