//! Goal: what one face of an engine has acknowledged is there for all faces, whatever end the
//! processes meet; and a damaged record is told by each face, of its key alone. Method: processes
//! that use one heap through Rust, C, Python and libpmemkv at once are killed at random, some five
//! a second, while the others go on. The test keeps their acknowledgements. It verifies all keys of
//! a worker when it was killed, and what they share when all were. Workers look at each other's
//! values meanwhile: each is whole.
//!
//! `PMKV_FACES` names a directory with the workers of the other faces (`tests/kv-faces.sh`); all
//! are Rust's without. `PMKV_FACES_SECONDS`, `PMKV_FACES_SEED`: how long, and the choices again.

mod flips;
mod model;
mod worker;

use std::path::Path;
use std::time::{Duration, Instant};

use pmkv::{Kind, OnDamage};
use pmlib::{Heap, Options};

use model::{EACH, Model};
use worker::{Face, ROLE, Worker, name};

const KINDS: [Kind; 2] = [Kind::Hash, Kind::Tree];
const WORKERS: u64 = EACH * KINDS.len() as u64;
/// All processes leave the heap so often.
const ROUND: Duration = Duration::from_secs(4);
/// A worker that acknowledges nothing for so long hangs.
const HANGS: Duration = Duration::from_secs(120);

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// No test: the processes that the tests run.
#[test]
fn as_another_process() {
    if let Ok(words) = std::env::var(ROLE) {
        worker::work(&words);
    }
}

fn kind_of(worker: u64) -> Kind {
    KINDS[(worker / EACH) as usize]
}

/// The state of a campaign.
struct Torture {
    random: Random,
    models: Vec<Model>,
    kills: u64,
}

impl Torture {
    fn start(&self, path: &Path, worker: u64) -> Worker {
        let first = self.models[worker as usize].next;
        Worker::start(path, worker, kind_of(worker), first)
    }

    fn killed(&mut self, worker: u64, next: u64) {
        self.models[worker as usize].acknowledge(next);
        self.kills += 1;
    }

    /// Kills one after the other, and starts it again once its keys are verified.
    fn round(&mut self, path: &Path, until: Instant) {
        let heap = Heap::open(path, &Options::default()).expect("the heap");
        let engines = KINDS.map(|kind| kind.open(&heap, name(kind)).expect("the engine"));
        let mut workers: Vec<Worker> = (0..WORKERS).map(|nth| self.start(path, nth)).collect();
        while Instant::now() < until {
            std::thread::sleep(Duration::from_micros(self.random.below(250_000)));
            let victim = self.random.below(WORKERS);
            let at = victim as usize;
            // Now and then before its first step.
            if self.random.below(8) > 0 {
                self.wait_for(&workers[at], victim);
            }
            let killed = workers.remove(at).kill();
            self.killed(victim, killed);
            self.models[at].verify(&*engines[at / EACH as usize], &self.whence(victim));
            workers.insert(at, self.start(path, victim));
        }
        for (nth, worker) in (0..).zip(workers) {
            self.wait_for(&worker, nth);
            let next = worker.kill();
            self.killed(nth, next);
        }
        drop(engines);
        heap.close().expect("left");
    }

    fn whence(&self, worker: u64) -> String {
        let (face, kind) = (Face::of(worker), kind_of(worker));
        format!("kill {}, {face:?} on a {kind}", self.kills)
    }

    fn wait_for(&self, worker: &Worker, nth: u64) {
        let begun = Instant::now();
        while worker.next() == self.models[nth as usize].next {
            let waited = begun.elapsed();
            assert!(waited < HANGS, "{}: no step is done", self.whence(nth));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Everything, by a process that comes when all have gone.
    fn verify(&self, path: &Path) {
        let heap = Heap::open(path, &Options::default()).expect("the heap");
        for kind in KINDS {
            let kv = kind.open(&heap, name(kind)).expect("the engine");
            let whence = format!("kill {}, all are gone, {kind}", self.kills);
            let of_kind: Vec<usize> = (0..self.models.len())
                .filter(|&nth| kind_of(nth as u64) == kind)
                .collect();
            let models = &self.models[of_kind[0]..=of_kind[of_kind.len() - 1]];
            models.iter().for_each(|model| model.verify(&*kv, &whence));
            model::verify_shared(&*kv, models, self.kills, &whence);
            assert!(kv.entries().all(|entry| entry.is_ok()), "{whence}");
            for step in kv.scrub(OnDamage::Keep) {
                assert_eq!(step.expect("a scrub").damaged, [], "{whence}");
            }
        }
        heap.check().expect("no byte is lost");
        heap.close().expect("left");
    }
}

#[test]
fn what_a_face_acknowledged_is_there_for_all() {
    let seconds = number("PMKV_FACES_SECONDS", 4);
    let seed = number("PMKV_FACES_SEED", u64::from(std::process::id()) * 77 + 1);
    println!("PMKV_FACES_SEED={seed}");
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let made = Heap::create(&path, 64 << 20, &Options::default()).expect("a heap");
    for kind in KINDS {
        kind.open(&made, name(kind)).expect("the engine");
    }
    made.close().expect("left");
    let mut torture = Torture {
        random: Random(seed.max(1)),
        models: (0..WORKERS).map(Model::new).collect(),
        kills: 0,
    };
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    while Instant::now() < until {
        torture.round(&path, until.min(Instant::now() + ROUND));
        torture.verify(&path);
    }
    for (worker, model) in torture.models.iter().enumerate() {
        let (face, kind) = (Face::of(worker as u64), kind_of(worker as u64));
        println!("{face:?}, {kind}: {} steps", model.next);
        assert!(model.next > 0, "{face:?} has done nothing");
    }
    let steps: u64 = torture.models.iter().map(|model| model.next).sum();
    let (kills, passed) = (torture.kills, begun.elapsed().as_secs());
    println!("{kills} kills, {steps} acknowledged steps, 0 lost, 0 torn, {passed} s");
}
