//! Threads on one pool: one instance, or several, each used by some of the threads.

use crate::pool::TestPool;
use pmfs::{DataMode, Error, Fs, Ino, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time that the threads of one test run, unless `PMFS_MODEL_THREADS_MS` says otherwise.
const RUN_MS: u64 = 1000;

pub const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o755,
    uid: 5,
    gid: 6,
};

/// A pool that several threads are about to use.
pub struct Crew {
    pub pool: TestPool,
    pub instances: Vec<Fs>,
}

/// The work of a thread: it is given its instance, and whether to go on.
pub type Job<'a> = Box<dyn FnOnce(&Fs, &Going) + Send + 'a>;

/// Tells the threads when to end: at the time that was set, or when one of them failed.
pub struct Going {
    until: Instant,
    failed: AtomicBool,
}

impl Going {
    pub fn on(&self) -> bool {
        Instant::now() < self.until && !self.failed.load(Ordering::Relaxed)
    }
}

struct Failed<'a>(&'a Going);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Crew {
    /// An instance for each mode.
    pub fn new(bytes: u64, modes: &[DataMode]) -> Crew {
        let pool = TestPool::new(bytes, None, crate::number("PMFS_MODEL_SEED", 1));
        let shared = modes.len() > 1;
        let instances = modes
            .iter()
            .map(|&mode| pool.open(mode, shared).expect("open"))
            .collect();
        Crew { pool, instances }
    }

    /// The first instance, for what is done before and after.
    pub fn fs(&self) -> &Fs {
        &self.instances[0]
    }

    pub fn dir(&self, name: &str) -> Ino {
        let made = self.fs().mkdir(ROOT_INO, name.as_bytes(), &NODE);
        made.expect("mkdir").ino
    }

    pub fn file(&self, name: &str) -> Ino {
        let made = self.fs().create(ROOT_INO, name.as_bytes(), &NODE);
        made.expect("create").ino
    }

    /// Runs the jobs side by side, the n-th on the n-th instance, around and around; then the pool
    /// must be sound, here and in a copy that is opened as after power loss.
    pub fn run(&self, jobs: Vec<Job<'_>>) {
        let run = Duration::from_millis(crate::number("PMFS_MODEL_THREADS_MS", RUN_MS));
        let going = Going {
            until: Instant::now() + run,
            failed: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            for (number, job) in jobs.into_iter().enumerate() {
                let fs = &self.instances[number % self.instances.len()];
                let going = &going;
                scope.spawn(move || {
                    let _failed = Failed(going);
                    job(fs, going);
                });
            }
        });
        self.fs().recover_dead().expect("recover");
        for fs in &self.instances {
            assert_sound(fs);
        }
        let path = self.pool.copy();
        let options = OpenOptions {
            adopt: true,
            ..self.pool.options(DataMode::Atomic, false)
        };
        let copy = Fs::open(&path, &options).expect("open the copy");
        assert_eq!(copy.recovery().damage, 0, "{:?}", copy.recovery());
        assert_sound(&copy);
        drop(copy);
        std::fs::remove_file(&path).expect("remove the copy");
    }
}

pub fn assert_sound(fs: &Fs) {
    let report = fs.check().expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Returns what a call answered; nothing if it failed as one may when others change the same names.
pub fn race<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(Error::NotFound | Error::Stale | Error::Exists) => None,
        Err(error) => panic!("{error}"),
    }
}
