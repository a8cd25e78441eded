//! The parent: starts the workers, kills them, starts their successors, looks at what the dead held.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pmfs::{Fs, Look, MkfsOptions, OpenOptions, OwnerWords, RecoveryKind};
use tempfile::TempDir;

use crate::control::Control;
use crate::face::{Face, Library};
use crate::op::{MIXED, RECORD_BYTES, State, WORKERS, home};
use crate::random::Random;
use crate::tally::{Fall, Manner, Tally, Times};
use crate::worker::Orders;
use crate::{DIR, SEED, WORKER, condemnation, journal, judge, shared};

/// From one kill to the next.
const TICK: Duration = Duration::from_millis(100);
/// How long what a dead process held is watched.
const PATIENCE: Duration = Duration::from_millis(80);
/// How long a victim is watched for a lock, or for its end at a barrier, before it is killed as it is.
const AIM_MAX: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_micros(200);
/// In so many ticks all are killed at once.
const ALL_AT_ONCE: u32 = 60;
/// How long workers may take to verify and leave.
const FINISH_MAX: Duration = Duration::from_secs(120);

/// What came of it.
#[derive(Default)]
pub struct Outcome {
    pub tally: Tally,
    pub times: Releases,
    operations: u64,
    together: u64,
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
    workers: Vec<Process>,
    dir: TempDir,
    seed: u64,
    log_bytes_max: u64,
    epoch: u64,
    paced: bool,
    /// See [`condemnation`].
    condemned: File,
    look: Look,
    control: Control,
    outcome: Outcome,
}

/// A worker's process, or none yet.
#[derive(Default)]
struct Process {
    incarnation: u32,
    child: Option<Child>,
}

/// A test that fails leaves no process.
impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Until the child has ended, or that is over.
fn wait(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        let end = child.try_wait().expect("wait");
        if end.is_some() || Instant::now() > deadline {
            return end;
        }
        thread::sleep(POLL / 2);
    }
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
    let mut torture = Torture {
        look: Look::open(&Orders::pool(dir.path())).expect("the pool"),
        condemned: condemnation::open(dir.path()).expect("a file"),
        dir,
        seed,
        log_bytes_max: pool_bytes / 8,
        epoch: 0,
        paced: false,
        control: Control::start(),
        workers: (0..WORKERS).map(|_| Process::default()).collect(),
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
    let made = Fs::mkfs(&path, &options).expect("mkfs");
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
        let said = File::create(self.dir.path().join(format!("w{worker}.said"))).expect("a file");
        let (incarnation, finish) = (process.incarnation, u8::from(finish));
        let (log, epoch, paced) = (self.log_bytes_max, self.epoch, u8::from(self.paced));
        let name = "a_killed_process_loses_nothing_and_holds_nothing";
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(
                WORKER,
                format!("{worker} {incarnation} {finish} {log} {epoch} {paced}"),
            )
            .env(DIR, self.dir.path())
            .env(SEED, self.seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn();
        process.child = Some(child.expect("a worker"));
    }

    fn run(&mut self, time: Duration) {
        let mut random = Random::new(self.seed ^ 0x0070_6172_656e_7400);
        for worker in 0..WORKERS {
            self.start(worker, false);
        }
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
                for worker in 0..WORKERS {
                    self.start(worker, false);
                }
            } else {
                let victim = random.below(WORKERS as u64) as usize;
                self.kill_one(victim, random.below(2) == 0, Manner::choose(&mut random));
            }
        }
    }

    fn assert_all_run(&mut self) {
        for worker in 0..WORKERS {
            let child = self.workers[worker].child.as_mut().expect("started");
            if let Some(end) = child.try_wait().expect("wait") {
                self.fail(worker, end);
            }
        }
    }

    fn fail(&self, worker: usize, end: ExitStatus) -> ! {
        let said = fs::read_to_string(self.path().join(format!("w{worker}.said")));
        panic!(
            "worker {worker} ended by itself: {end}: {}",
            said.unwrap_or_default()
        );
    }

    /// The slot of a worker's process, if it is attached.
    fn slot(&self, worker: usize) -> Option<u64> {
        let pid = self.workers[worker]
            .child
            .as_ref()
            .map(|child| u64::from(child.id()))?;
        let processs = self.look.processes();
        let mine = processs
            .iter()
            .find(|process| process.pid == pid && process.is_alive);
        mine.map(|process| process.slot)
    }

    fn kill_one(&mut self, worker: usize, successor: bool, manner: Manner) {
        let slot = self.slot(worker);
        if let (Some(slot), Manner::Holding) = (slot, manner) {
            self.wait_for_a_lock(slot);
        }
        let fall = self.kill(worker, slot, manner);
        self.outcome.tally.add(&fall);
        if successor {
            self.start(worker, false);
        }
        if let (Some(slot), Some(held)) = (slot, fall.held)
            && held.total() > 0
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
            self.start(worker, false);
        }
    }

    /// Calls are short: few kills would fall where something is held.
    fn wait_for_a_lock(&self, slot: u64) {
        let deadline = Instant::now() + AIM_MAX;
        while Instant::now() < deadline && self.look.owner_words(Some(slot)).total() == 0 {
            std::hint::spin_loop();
        }
    }

    /// Kills, reaps, and tells what the dead one left. While its memory stands nobody cleans up after it.
    fn kill(&mut self, worker: usize, slot: Option<u64>, manner: Manner) -> Fall {
        let mut child = self.workers[worker].child.take().expect("started");
        if let (
            Some(_),
            Manner::Barrier {
                barrier,
                instructions,
            },
        ) = (slot, manner)
        {
            condemnation::write(&self.condemned, worker, barrier, instructions).expect("a word");
            wait(&mut child, Instant::now() + AIM_MAX);
        }
        child.kill().expect("kill");
        let look = || slot.map(|slot| self.look.owner_words(Some(slot)));
        let mut seen: Option<OwnerWords> = None;
        let end = loop {
            if let Some(end) = child.try_wait().expect("wait") {
                break end;
            }
            seen = look();
            thread::sleep(POLL / 2);
        };
        self.assert_killed(worker, end);
        condemnation::lift(&self.condemned, worker).expect("a word");
        Fall {
            manner,
            within: journal::last_begun(self.path(), worker),
            held: seen.or_else(look),
        }
    }

    fn assert_killed(&self, worker: usize, end: ExitStatus) {
        use std::os::unix::process::ExitStatusExt;
        if end.signal() != Some(9) {
            self.fail(worker, end);
        }
    }

    /// From the kernel's release of the dead one's memory until it holds nothing, less what the control thread was late.
    fn time_to_release(&self, slot: u64) -> Option<Duration> {
        let alive = |slot| {
            self.look
                .processes()
                .iter()
                .any(|process| process.slot == slot && process.is_alive)
        };
        while alive(slot) && self.look.owner_words(Some(slot)).total() > 0 {
            thread::sleep(POLL);
        }
        let from = Instant::now();
        while self.look.owner_words(Some(slot)).total() > 0 {
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
        let slots: Vec<Option<u64>> = (0..WORKERS).map(|worker| self.slot(worker)).collect();
        for process in &mut self.workers {
            process
                .child
                .as_mut()
                .expect("started")
                .kill()
                .expect("kill");
        }
        for (worker, slot) in slots.into_iter().enumerate() {
            let fall = self.kill(worker, slot, Manner::Random);
            self.outcome.tally.add(&fall);
        }
    }

    /// Nobody is left: the next one recovers slots, and finds the pool sound. It leaves in good order, or not.
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
        for worker in 0..WORKERS {
            self.start(worker, true);
        }
        let deadline = Instant::now() + FINISH_MAX;
        for worker in 0..WORKERS {
            let child = self.workers[worker].child.as_mut().expect("started");
            let end = wait(child, deadline);
            let end = end.unwrap_or_else(|| panic!("worker {worker} does not end"));
            self.workers[worker].child = None;
            if !end.success() {
                self.fail(worker, end);
            }
        }
        assert_eq!(self.look.processes(), [], "a slot is in use");
        let held = self.look.owner_words(None);
        assert_eq!(held, OwnerWords::default(), "something is held");
        let left = (0..WORKERS).map(|worker| journal::replay(self.path(), worker, self.seed));
        left.map(|left| left.state).collect()
    }

    /// What is in the pool is judged, and then nothing is.
    fn end(&mut self, used: u64) {
        self.assert_all_run();
        self.kill_all();
        self.recover(false);
        let states = self.finish();
        self.outcome.operations = states.iter().map(|state| state.number).sum();
        self.outcome.ended = judge::judge(&Orders::pool(self.path()), &states, used);
    }
}
