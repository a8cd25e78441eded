//! The parent: starts the workers, kills them, starts their successors, looks at what
//! the dead held.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pmfs::{Fs, OpenOptions, RecoveryKind};
use pmfs_admin::{Inspector, MkfsOptions, OwnerWords, Process};
use tempfile::TempDir;

use crate::control::Control;
use crate::face::{Face, Library, Way};
use crate::mounts::{self, MOUNTS, Mount};
use crate::op::{MIXED, RECORD_BYTES, State, WORKERS, home};
use crate::process::{self, Process as Worker};
use crate::random::Random;
use crate::tally::{Fall, Manner, Tally, Times};
use crate::worker::Orders;
use crate::{DIR, RUN, SEED, WORKER, calls, condemnation, journal, judge, shared, stale};

/// From one kill to the next.
const TICK: Duration = Duration::from_millis(100);
/// The time for which what a dead process held is watched.
const PATIENCE: Duration = Duration::from_millis(80);
/// The time for which a victim is watched for a lock, or for its end at a barrier, before it is
/// killed as it is.
const AIM_MAX: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_micros(200);
/// In so many ticks all are killed at once.
const ALL_AT_ONCE: u32 = 60;
/// The time that workers may take to verify and leave.
const FINISH_MAX: Duration = Duration::from_secs(120);

/// The outcome of a run.
#[derive(Default)]
pub struct Outcome {
    pub tally: Tally,
    pub times: Releases,
    operations: u64,
    together: u64,
    /// Renames and other calls below mounts that gave ESTALE.
    stale: (usize, usize),
    ended: String,
}

/// From the death of a process to the release of what it held.
#[derive(Default)]
pub struct Releases {
    /// By the other workers, while they pause now and then.
    pub paced: Times,
    /// By the other workers, eight of which are ready for each processor.
    busy: Times,
    /// While a successor attaches, who cleans up too.
    succeeded: Times,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.tally)?;
        let Releases {
            paced,
            busy,
            succeeded,
        } = &self.times;
        writeln!(
            f,
            "release of what the dead held, machine not full: {paced}"
        )?;
        writeln!(
            f,
            "release with eight workers ready for each processor: {busy}"
        )?;
        writeln!(f, "release while a successor attaches: {succeeded}")?;
        let (renames, others) = self.stale;
        writeln!(
            f,
            "below the mounts {renames} renames and {others} other calls gave ESTALE and were made again"
        )?;
        write!(
            f,
            "{} kills, 0 operations lost of {}; {} times all at once; {}",
            self.tally.kills, self.operations, self.together, self.ended
        )
    }
}

/// A directory on tmpfs with the pool, the journals, and what workers said.
struct Torture {
    /// Gone before the directory is, in which they write.
    workers: Vec<Worker>,
    mounts: Vec<Mount>,
    dir: TempDir,
    seed: u64,
    log_bytes_max: u64,
    epoch: u64,
    paced: bool,
    /// See [`condemnation`].
    condemned: File,
    look: Inspector,
    control: Control,
    outcome: Outcome,
}

/// Workers that use the library for C.
const C_WORKERS: std::ops::Range<usize> = 8..12;
/// Workers that `pmfs run` starts, and such as use a mount, where there is one; the
/// others use the library.
const RUN_WORKERS: std::ops::Range<usize> = 5..8;
const MOUNT_WORKERS: std::ops::Range<usize> = 12..16;

fn way(worker: usize, mounts: usize) -> Way {
    if C_WORKERS.contains(&worker) {
        return Way::C;
    }
    if RUN_WORKERS.contains(&worker) && mounts > 0 {
        return Way::Run(worker % mounts);
    }
    if MOUNT_WORKERS.contains(&worker) && mounts > 0 {
        return Way::Mount(worker % mounts);
    }
    Way::Library
}

/// The slot of a process.
#[derive(Clone, Copy)]
struct Slot {
    number: u64,
    pid: u64,
}

/// The worker that is to die.
#[derive(Clone, Copy)]
enum Victim {
    Worker(usize),
    /// A mount's daemon, and the workers below that mount.
    Daemon(usize),
}

pub fn torture(seed: u64, time: Duration, pool_bytes: u64) -> Outcome {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    let dir = TempDir::with_prefix_in("pmfs-torture-", place).expect("a directory");
    let used = lay_out(dir.path(), pool_bytes);
    calls::build(dir.path());
    let count = if mounts::are_possible() { MOUNTS } else { 0 };
    let process = |worker| Worker::new(dir.path(), worker, way(worker, count));
    let mut torture = Torture {
        look: Inspector::open(&Orders::pool(dir.path())).expect("the pool"),
        condemned: condemnation::open(dir.path()).expect("a file"),
        workers: (0..WORKERS).map(process).collect(),
        mounts: (0..count)
            .map(|mount| Mount::new(dir.path(), mount))
            .collect(),
        dir,
        seed,
        log_bytes_max: pool_bytes / 8,
        epoch: 0,
        paced: false,
        control: Control::start(),
        outcome: Outcome::default(),
    };
    torture.run(time);
    torture.end(used);
    std::mem::take(&mut torture.outcome)
}

/// The pool, with what is shared in it; how many blocks were in use before.
fn lay_out(dir: &Path, bytes: u64) -> u64 {
    let path = Orders::pool(dir);
    let options = MkfsOptions {
        size: Some(bytes),
        ..MkfsOptions::default()
    };
    let made = pmfs_admin::mkfs(&path, &options).expect("mkfs");
    let face = Library::attach(&path).expect("attach");
    for worker in 0..WORKERS {
        face.mkdir(&home(worker), 0o755).expect("mkdir");
    }
    face.mkdir(MIXED, 0o755).expect("mkdir");
    shared::lay_out(&face).expect("lay out");
    face.leave().expect("detach");
    made.blocks - made.blocks_free
}

impl Torture {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn start(&mut self, worker: usize, finish: bool) {
        let process = &mut self.workers[worker];
        process.incarnation += 1;
        let (incarnation, finish) = (process.incarnation, u8::from(finish));
        let (log, epoch, paced) = (self.log_bytes_max, self.epoch, u8::from(self.paced));
        let way = match process.way {
            Way::Library => 0,
            Way::C => 1,
            Way::Mount(mount) => 2 + mount,
            Way::Run(mount) => RUN + mount,
        };
        let name = "a_killed_process_loses_nothing_and_holds_nothing";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(
                WORKER,
                format!("{worker} {incarnation} {finish} {log} {epoch} {paced} {way}"),
            )
            .env(DIR, self.dir.path())
            .env(SEED, self.seed.to_string());
        process.start(self.dir.path(), command);
    }

    fn start_all(&mut self, finish: bool) {
        self.mounts.iter_mut().for_each(Mount::start);
        self.mounts.iter_mut().for_each(Mount::wait);
        for worker in 0..WORKERS {
            self.start(worker, finish);
        }
    }

    fn run(&mut self, time: Duration) {
        let mut random = Random::new(self.seed ^ 0x0070_6172_656e_7400);
        self.start_all(false);
        let begin = Instant::now();
        for tick in 1.. {
            let next = begin + TICK * tick;
            if next > begin + time {
                break;
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
            self.assert_all_run();
            if tick % ALL_AT_ONCE == 0 {
                self.kill_all();
                match random.below(3) {
                    0 => self.empty_the_logs(),
                    which => self.recover(which == 1),
                }
                self.paced = !self.paced;
                self.start_all(false);
            } else {
                let victim = self.victim(random.below((WORKERS + self.mounts.len()) as u64));
                self.kill_one(victim, random.below(2) == 0, Manner::choose(&mut random));
            }
        }
    }

    fn victim(&self, number: u64) -> Victim {
        match (number as usize).checked_sub(WORKERS) {
            None => Victim::Worker(number as usize),
            Some(mount) => Victim::Daemon(mount),
        }
    }

    fn assert_all_run(&mut self) {
        for mount in &mut self.mounts {
            let ended = mount.daemon.as_mut().expect("started").try_wait();
            if let Some(end) = ended.expect("wait") {
                panic!("a daemon ended by itself: {end}: {}", mount.said());
            }
        }
        self.workers.iter_mut().for_each(Worker::assert_runs);
    }

    /// The slot of a process, if it is attached.
    fn held_by(&self, victim: Victim) -> Option<Slot> {
        let pid = match victim {
            Victim::Worker(worker) => self.workers[worker].caller(),
            Victim::Daemon(mount) => self.mounts[mount].daemon.as_ref().map(|child| child.id()),
        };
        let pid = u64::from(pid?);
        let processes = self.look.processes();
        let mine = processes
            .iter()
            .find(|process| process.pid == pid && process.is_alive);
        mine.map(|process| Slot {
            number: process.slot,
            pid,
        })
    }

    /// The workers below a mount.
    fn below(&self, mount: usize) -> Vec<usize> {
        let is_below = |worker: &usize| self.workers[*worker].way.mount() == Some(mount);
        (0..WORKERS).filter(is_below).collect()
    }

    fn start_again(&mut self, victim: Victim) {
        match victim {
            Victim::Worker(worker) => self.start(worker, false),
            Victim::Daemon(mount) => {
                self.mounts[mount].start();
                self.mounts[mount].wait();
                for worker in self.below(mount) {
                    self.start(worker, false);
                }
            }
        }
    }

    fn kill_one(&mut self, victim: Victim, successor: bool, manner: Manner) {
        let slot = self.held_by(victim);
        let manner = match victim {
            Victim::Worker(worker) => manner.by(self.workers[worker].way),
            Victim::Daemon(_) => manner.outside(),
        };
        if let Victim::Daemon(mount) = victim {
            self.end_run(mount);
        }
        if let (Some(slot), Manner::Holding) = (slot, manner) {
            self.wait_for_a_lock(slot);
        }
        let fall = match victim {
            Victim::Worker(worker) => self.kill(worker, slot, manner),
            Victim::Daemon(mount) => self.kill_daemon(mount, slot, manner),
        };
        self.outcome.tally.add(&fall);
        if successor {
            self.start_again(victim);
        }
        if let (Some(slot), Some(held)) = (slot, fall.held)
            && held != OwnerWords::default()
        {
            let time = self.time_to_release(slot);
            let releases = &mut self.outcome.times;
            let times = match (successor, self.paced) {
                (true, _) => &mut releases.succeeded,
                (false, true) => &mut releases.paced,
                (false, false) => &mut releases.busy,
            };
            times.add(time);
        }
        if !successor {
            self.start_again(victim);
        }
    }

    /// Calls are short: few kills would fall where something is held.
    fn wait_for_a_lock(&self, slot: Slot) {
        let deadline = Instant::now() + AIM_MAX;
        while Instant::now() < deadline && self.look.owner_words(Some(slot.number)).total() == 0 {
            std::hint::spin_loop();
        }
    }

    /// Kills, reaps, and tells what the dead one left. While its memory stands nobody
    /// cleans up after it.
    fn kill(&mut self, worker: usize, slot: Option<Slot>, manner: Manner) -> Fall {
        let process = &mut self.workers[worker];
        if let (
            Some(_),
            Manner::Barrier {
                barrier,
                instructions,
            },
        ) = (slot, manner)
        {
            condemnation::write(&self.condemned, worker, barrier, instructions).expect("a word");
            process::wait(process.child(), Instant::now() + AIM_MAX);
        }
        let since = begun_since(self.dir.path(), worker, process);
        process.kill();
        let look = || slot.map(|slot| self.look.owner_words(Some(slot.number)));
        let mut seen: Option<OwnerWords> = None;
        process.reap(|| seen = look());
        condemnation::lift(&self.condemned, worker).expect("a word");
        Fall {
            victim: process.way.name(),
            manner,
            within: since.and_then(|_| journal::last_begun(self.dir.path(), worker)),
            since: since.unwrap_or_default(),
            held: seen.or_else(look),
        }
    }

    fn end_workers(&mut self, workers: &[usize]) {
        for &worker in workers {
            self.workers[worker].kill();
            self.workers[worker].reap(|| {});
        }
    }

    /// Kills the workers of `pmfs run` below a mount whose daemon dies next: one that is just
    /// starting would take the dead mount away, and mount the pool there by itself.
    fn end_run(&mut self, mount: usize) {
        let (run, _) = self.run_and_served(mount);
        self.end_workers(&run);
    }

    /// The workers below a mount: those of `pmfs run`, and those that the daemon serves.
    fn run_and_served(&self, mount: usize) -> (Vec<usize>, Vec<usize>) {
        let is_run = |&worker: &usize| matches!(self.workers[worker].way, Way::Run(_));
        self.below(mount).into_iter().partition(is_run)
    }

    /// A daemon, and then the workers that it served.
    fn kill_daemon(&mut self, mount: usize, slot: Option<Slot>, manner: Manner) -> Fall {
        let mut daemon = self.mounts[mount].daemon.take().expect("started");
        daemon.kill().expect("kill");
        let look = || slot.map(|slot| self.look.owner_words(Some(slot.number)));
        let mut seen: Option<OwnerWords> = None;
        let end = process::reap(&mut daemon, || seen = look());
        assert!(
            process::was_killed(end),
            "{end}: {}",
            self.mounts[mount].said()
        );
        let held = seen.or_else(look);
        let (_, served) = self.run_and_served(mount);
        self.end_workers(&served);
        self.mounts[mount].detach();
        let begun = served.iter().filter_map(|&worker| {
            let since = begun_since(self.path(), worker, &self.workers[worker])?;
            Some((journal::last_begun(self.path(), worker)?, since))
        });
        let longest = begun.max_by_key(|(_, since)| *since);
        Fall {
            victim: "a mount's daemon",
            manner,
            within: longest.map(|(within, _)| within),
            since: longest.map(|(_, since)| since).unwrap_or_default(),
            held,
        }
    }

    /// Returns whether something is held by a slot, and that is nobody else's since.
    fn holds(&self, slot: Slot) -> bool {
        let processes = self.look.processes();
        let taken = |process: &Process| process.slot == slot.number && process.pid != slot.pid;
        let held = self.look.owner_words(Some(slot.number));
        held != OwnerWords::default() && !processes.iter().any(taken)
    }

    /// From the kernel's release of the dead one's memory until it holds nothing, less
    /// what the control thread was late.
    fn time_to_release(&self, slot: Slot) -> Option<Duration> {
        let stands = || {
            let processes = self.look.processes();
            let stands = |process: &Process| process.pid == slot.pid && process.is_alive;
            processes.iter().any(stands)
        };
        while self.holds(slot) && stands() {
            thread::sleep(POLL);
        }
        let from = Instant::now();
        while self.holds(slot) {
            if from.elapsed() > PATIENCE {
                return None;
            }
            thread::sleep(POLL);
        }
        let to = Instant::now();
        Some((to - from).saturating_sub(self.control.delay(from, to)))
    }

    /// All at one instant, as far as signals go.
    fn kill_all(&mut self) {
        self.outcome.together += 1;
        let slots: Vec<Option<Slot>> = (0..WORKERS)
            .map(|worker| self.held_by(Victim::Worker(worker)))
            .collect();
        let daemons: Vec<Option<Slot>> = (0..self.mounts.len())
            .map(|mount| self.held_by(Victim::Daemon(mount)))
            .collect();
        // The workers first: see `end_run`.
        self.workers.iter_mut().for_each(Worker::kill);
        for mount in &mut self.mounts {
            mount
                .daemon
                .as_mut()
                .expect("started")
                .kill()
                .expect("kill");
        }
        for (worker, slot) in slots.into_iter().enumerate() {
            let fall = self.kill(worker, slot, Manner::Random);
            self.outcome.tally.add(&fall);
        }
        for (mount, slot) in daemons.into_iter().enumerate() {
            let fall = self.kill_daemon(mount, slot, Manner::Random);
            self.outcome.tally.add(&fall);
        }
        // Children of the dead die with them, but are not reaped here.
        let deadline = Instant::now() + FINISH_MAX;
        while self.look.processes().iter().any(|process| process.is_alive) {
            assert!(Instant::now() < deadline, "somebody lives");
            thread::sleep(POLL);
        }
    }

    /// Nobody is left: the next one recovers slots, and finds the pool sound. It leaves
    /// in good order, or not.
    fn recover(&self, in_order: bool) {
        let options = OpenOptions::default();
        let fs = Fs::open(&Orders::pool(self.path()), &options).expect("a first opener");
        let kind = fs.recovery().kind;
        assert_ne!(
            kind,
            RecoveryKind::Walk,
            "the memory was intact: {}",
            fs.recovery()
        );
        judge::assert_sound(&fs, "after all were killed");
        if in_order {
            fs.close().expect("detach");
        }
    }

    /// All verify and leave; the records of the logs are judged, and go.
    fn empty_the_logs(&mut self) {
        let states = self.finish();
        let face = Library::attach(&Orders::pool(self.path())).expect("attach");
        judge::judge_logs(&face, &states);
        for log in 0..RECORD_BYTES.len() {
            face.unlink(&shared::log_path(log)).expect("unlink");
            face.create(&shared::log_path(log), 0o644).expect("create");
        }
        face.leave().expect("detach");
        self.epoch += 1;
    }

    /// All verify what is left of them, and leave; their states. Nobody holds anything then.
    fn finish(&mut self) -> Vec<State> {
        self.start_all(true);
        let deadline = Instant::now() + FINISH_MAX;
        for process in &mut self.workers {
            process.join(deadline);
        }
        self.mounts.iter_mut().for_each(Mount::stop);
        assert_eq!(self.look.processes(), [], "a slot is in use");
        let held = self.look.owner_words(None);
        assert_eq!(held, OwnerWords::default(), "something is held");
        let left = (0..WORKERS).map(|worker| journal::replay(self.path(), worker, self.seed));
        left.map(|left| left.state).collect()
    }

    /// Judges what is in the pool, and then that nothing is.
    fn end(&mut self, used: u64) {
        self.assert_all_run();
        self.kill_all();
        self.recover(false);
        let states = self.finish();
        self.outcome.stale = stale::counted(self.path());
        self.outcome.operations = states.iter().map(|state| state.number).sum();
        self.outcome.ended = judge::judge(&Orders::pool(self.path()), &states, used);
    }
}

/// How long ago a worker wrote its journal's last entry; `None`: that is its predecessor's.
fn begun_since(dir: &Path, worker: usize, process: &Worker) -> Option<Duration> {
    let age = journal::age(dir, worker);
    (age <= process.age()).then_some(age)
}
