//! The kill model: a call is stopped before its n-th store of any kind, flush or fence, runtime
//! area and lock words included, while a third instance is in the middle of a call; another
//! instance, attached to the same live memory at another address, cleans up after the dead one.
//! Then the third call goes on, the tree is compared, power fails, and what the survivor saw must
//! still be there. The same holds after the survivor has made the dead one's call again.

use crate::explore::Counts;
use crate::files::tree::{self, Exceptions, Tree};
use crate::files::{Attached, FileSystem, pool, usage};
use crate::memory::Pending;
use crate::program::{Moment, Program};
use crate::quiet::quietly;
use crate::stopper::{Killed, die};
use crate::third::{Release, Survivor, Third};
use crate::trace::{Place, Recorder};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{DataMode, Fs, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Stops the thread at a step, and lets nothing of it reach the pool from then on.
pub(crate) struct Killer {
    /// Stores, flushes and fences still to be done; `OFF` while it is not counting.
    pub left: AtomicU64,
    pub recorder: Recorder,
    pub release: Release,
}

pub(crate) const OFF: u64 = u64::MAX;
const DEAD: u64 = 0;

impl Killer {
    /// One more step; whether it is to be done. The last one is not: the thread dies there.
    fn step(&self) -> bool {
        match self.left.load(Ordering::Relaxed) {
            OFF => true,
            DEAD => false,
            1 => {
                self.left.store(DEAD, Ordering::Relaxed);
                die();
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                true
            }
        }
    }
}

impl Observer for Killer {
    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        if self.step() {
            self.recorder.store(mem, off, bytes, kind, at)
        } else {
            Verdict::Skip
        }
    }

    fn flush(&self, mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        if self.step() {
            self.recorder.flush(mem, line, asked, at);
        }
    }

    fn fence(&self, mem: &Pmem, at: Place) {
        if self.step() {
            self.recorder.fence(mem, at);
        }
    }

    fn wait(&self, _mem: &Pmem, _off: u64) {
        self.release.release();
    }
}

/// A pool file with the instance that survives and a third one, and its memory as it is before each
/// round.
struct Arena<'a> {
    program: &'a FileSystem,
    path: PathBuf,
    other: Attached,
    third: Third,
    base: Vec<u8>,
    survivor: Arc<Survivor>,
    /// The trees after so many steps, the third call done.
    history: Vec<Tree>,
}

pub(crate) fn shared(mode: DataMode, start: i64) -> OpenOptions {
    pool::open_options(mode, start)
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

impl<'a> Arena<'a> {
    fn new(program: &'a FileSystem, dir: &Path) -> Result<Arena<'a>, String> {
        let path = dir.join("pool");
        let mut mkfs = pool::mkfs_options(program.pool_bytes);
        mkfs.force = true;
        pmfs_admin::mkfs(&path, &mkfs).map_err(words)?;
        let range = {
            let fs = Fs::open(&path, &program.options(4_000_000)).map_err(words)?;
            Third::prepare(&fs).map_err(words)?;
            let range = pool::runtime_range(fs.mapping());
            fs.close().map_err(words)?;
            range
        };
        let survivor = Arc::new(Survivor {
            recorder: Recorder::new(range).beside(1),
            release: Mutex::default(),
        });
        let mut options = program.options(5_000_000);
        options.observer = Some(survivor.clone());
        let other = Attached::to(Fs::open(&path, &options).map_err(words)?);
        let recorder = survivor.recorder.beside(2);
        let third = Third::attach(&path, program.mode, recorder).map_err(words)?;
        *survivor.release.lock().expect("nobody has it") = Some(third.release());
        let base = other.fs.mapping().snapshot_image();
        let mut arena = Arena {
            program,
            path,
            other,
            third,
            base,
            survivor,
            history: Vec::new(),
        };
        for steps in 0..=program.steps() {
            let tree = arena.whole(steps)?;
            arena.history.push(tree);
        }
        Ok(arena)
    }

    /// An instance on the pool as it was, whose observer is asleep, after so many steps; `stop`
    /// says where the third call waits meanwhile. It has its lane in each round, so that the victim
    /// gets the same one.
    fn instance(&self, steps: usize, stop: u64) -> Result<(Attached, Arc<Killer>), String> {
        self.other.fs.mapping().poke(0, &self.base);
        self.third.begin(stop);
        let killer = Arc::new(Killer {
            left: AtomicU64::new(OFF),
            recorder: self.survivor.recorder.beside(0),
            release: self.third.release(),
        });
        let mut options = self.program.options(1_000_000);
        options.observer = Some(killer.clone());
        let release = self.third.release();
        let program = self.program;
        let prepared = program.leave_dead(&self.path, &self.other.fs, release)?;
        let mut victim = Attached::to(Fs::open(&self.path, &options).map_err(words)?);
        match prepared {
            Some(_) => victim.prepared = prepared,
            None => self.program.prepare(&mut victim)?,
        }
        for step in 0..steps {
            self.program.step(&mut victim, step)?;
        }
        Ok((victim, killer))
    }

    /// So many steps done whole, and then the third call.
    fn whole(&self, steps: usize) -> Result<Tree, String> {
        let (mut victim, _) = self.instance(steps, 0)?;
        self.third.end()?;
        self.program.inspect(&mut victim)
    }

    /// Kills at one store of a step; `None` if the step came to its end before.
    fn kill(&mut self, step: usize, stores: u64) -> Result<Option<Pending>, String> {
        let (mut victim, killer) = self.instance(step, stores)?;
        self.other.prepared = victim.prepared;
        let mut pending = Pending::new(self.other.fs.mapping().snapshot_image());
        self.survivor.recorder.start();
        killer.recorder.start();
        self.third.record();
        killer.left.store(stores, Ordering::Relaxed);
        let call = AssertUnwindSafe(|| self.program.step(&mut victim, step));
        let answer = catch_unwind(call);
        let is_dead = match answer {
            Ok(answer) => {
                killer.left.store(OFF, Ordering::Relaxed);
                answer?;
                false
            }
            Err(payload) if payload.is::<Killed>() => true,
            Err(payload) => resume_unwind(payload),
        };
        // Dropped as a process drops it: its locks go, nothing is stored.
        drop(victim);
        let recovered = self.other.fs.recover_dead();
        self.third.end()?;
        recovered.map_err(words)?;
        pending.apply_all(&self.survivor.recorder.stop());
        Ok(is_dead.then_some(pending))
    }

    /// Kills at one store of the first step, and lets the survivor find out by waiting for what the
    /// dead one holds.
    fn kill_and_wait(
        &self,
        stores: u64,
        then: fn(&Fs) -> pmfs::Result<()>,
    ) -> Result<bool, String> {
        let (mut victim, killer) = self.instance(0, stores)?;
        self.third.end()?;
        killer.left.store(stores, Ordering::Relaxed);
        let call = AssertUnwindSafe(|| self.program.step(&mut victim, 0));
        let is_dead = catch_unwind(call).is_err();
        killer.left.store(OFF, Ordering::Relaxed);
        drop(victim);
        then(&self.other.fs).map_err(words)?;
        self.other.fs.recover_dead().map_err(words)?;
        usage::sound(&self.other.fs)?;
        usage::use_up(&self.other.fs)?;
        Ok(is_dead)
    }

    /// Judges what is left after a kill.
    fn judge(&mut self, step: usize, pending: &mut Pending) -> Result<bool, String> {
        let program = self.program;
        program.check(&mut self.other)?;
        let seen = program.inspect(&mut self.other)?;
        program.accepts(&seen, &self.moment(step))?;
        self.survives_power([&seen, &seen], pending, &self.moment(step))
            .map_err(|text| format!("then power loss: {text}"))?;
        // The survivor would hold another file without a name to its end.
        if !program.step_name(step).starts_with("tmpfile") {
            let again = self.does_it_again(step, pending)?;
            self.survives_power([&seen, &again], pending, &self.moment(step))
                .map_err(|text| format!("again by the survivor, then power loss: {text}"))?;
        }
        usage::use_up(&self.other.fs).map_err(|text| format!("using it: {text}"))?;
        Ok(seen == self.history[step])
    }

    fn moment(&self, step: usize) -> Moment<'_, Tree> {
        Moment {
            history: &self.history,
            step,
            returned: false,
        }
    }

    /// The survivor makes the dead one's call: it must not trust a store that the dead one made and
    /// did not flush. Returns the tree that it then sees.
    fn does_it_again(&mut self, step: usize, pending: &mut Pending) -> Result<Tree, String> {
        self.survivor.recorder.start();
        // A call that was done before its caller's death may fail now.
        let _ = self.program.step(&mut self.other, step);
        self.other.let_go().map_err(words)?;
        pending.apply_all(&self.survivor.recorder.stop());
        self.program.inspect(&mut self.other)
    }

    /// Power fails after the survivor's work, and every line that is not durable is lost: what it
    /// saw must still be there, but for the times of an overwrite. `before` is the tree that the
    /// survivor found.
    fn survives_power(
        &self,
        [before, live]: [&Tree; 2],
        pending: &Pending,
        moment: &Moment<'_, Tree>,
    ) -> Result<(), String> {
        let mem = Pmem::private(pending.durable.len() as u64);
        mem.poke(0, &pending.durable);
        let options = pool::open_options(DataMode::Atomic, 9_000_000);
        let fs = Fs::open_private(mem, &options).map_err(|error| format!("recovery: {error}"))?;
        usage::sound(&fs)?;
        let seen = tree::read(&fs).map_err(words)?;
        let mut exceptions: Exceptions = self.program.exceptions(moment);
        for (path, node) in live {
            let old = before.get(path).filter(|old| old.times != node.times);
            if old.is_some() {
                exceptions.times.entry(node.ino).or_default();
            }
            if let Some((mtimes, ctimes)) = exceptions.times.get_mut(&node.ino) {
                for node in old.into_iter().chain([node]) {
                    mtimes.insert(node.times.0);
                    ctimes.insert(node.times.1);
                }
            }
        }
        match tree::difference(&seen, live, &exceptions) {
            None => Ok(()),
            Some(text) => Err(text),
        }
    }
}

/// The amounts that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Kills, each recovered and judged.
    pub kills: u64,
    /// Those that left the tree as it was before the call.
    pub undone: u64,
}

impl From<Kills> for Counts {
    fn from(kills: Kills) -> Counts {
        Counts {
            workloads: 1,
            points: kills.kills,
            images: kills.kills,
            states: kills.undone,
            ..Counts::default()
        }
    }
}

/// Kills a workload's first step before each of its stores, flushes and fences; each time the
/// survivor does `then`, which may have to wait for what the dead one holds. Answers how many kills
/// that were.
///
/// # Errors
/// The first violation. A survivor that waits for ever hangs here: tests have a time limit of their
/// own.
pub fn kill_and_call(
    program: &FileSystem,
    dir: &Path,
    then: fn(&Fs) -> pmfs::Result<()>,
) -> Result<u64, String> {
    let arena = Arena::new(program, dir)?;
    let mut kills = 0;
    for stores in 1.. {
        let place = format!("{} killed at step {stores}", program.name());
        let is_dead = arena.kill_and_wait(stores, then);
        if !is_dead.map_err(|text| format!("{place}: {text}"))? {
            break;
        }
        kills += 1;
    }
    Ok(kills)
}

/// Kills a workload's steps from `from` on before each of their stores, flushes and fences; the
/// pool file is made in `dir`.
///
/// # Errors
/// The first violation.
pub fn kill_everywhere(program: &FileSystem, from: usize, dir: &Path) -> Result<Kills, String> {
    kill_one_in(program, from, dir, 1, 0)
}

/// Kills like [`kill_everywhere`], before one in so many of these places: which, the seed says.
///
/// # Errors
/// The first violation.
pub fn kill_one_in(
    program: &FileSystem,
    from: usize,
    dir: &Path,
    one_in: u64,
    seed: u64,
) -> Result<Kills, String> {
    let mut kills = Kills::default();
    let is_chosen = |stores: u64| stores % one_in == seed % one_in;
    kill_chosen(program, from, dir, is_chosen, &mut kills).map(|()| kills)
}

/// Kills like [`kill_everywhere`]; adds to `kills` those that left nothing wrong, also if one did.
///
/// # Errors
/// The first violation.
pub fn kill_counting(
    program: &FileSystem,
    from: usize,
    dir: &Path,
    kills: &mut Kills,
) -> Result<(), String> {
    kill_chosen(program, from, dir, |_| true, kills)
}

/// Kills before those places that are chosen, of which there have to be some behind any other.
fn kill_chosen(
    program: &FileSystem,
    from: usize,
    dir: &Path,
    is_chosen: impl Fn(u64) -> bool,
    kills: &mut Kills,
) -> Result<(), String> {
    let name = program.name();
    let mut arena = quietly(|| Arena::new(program, dir))
        .and_then(|arena| arena)
        .map_err(|text| format!("{name}: {text}"))?;
    for step in from..program.steps() {
        for stores in (1..).filter(|&stores| is_chosen(stores)) {
            let round = quietly(|| {
                let Some(mut pending) = arena.kill(step, stores)? else {
                    return Ok(None);
                };
                arena.judge(step, &mut pending).map(Some)
            });
            match round.and_then(|round: Result<_, String>| round) {
                Ok(None) => break,
                Ok(Some(undone)) => kills.undone += u64::from(undone),
                Err(text) => {
                    let call = program.step_name(step);
                    return Err(format!("{name}: `{call}` killed at step {stores}: {text}"));
                }
            }
            kills.kills += 1;
        }
    }
    Ok(())
}
