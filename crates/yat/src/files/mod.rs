//! The first target: the file system itself.

pub mod ace;
mod apart;
pub mod call;
pub mod clones;
mod colliding;
pub mod crafted;
pub mod damage;
mod edges;
pub mod kinds;
mod left;
mod nowhere;
pub mod pending;
mod pinned;
pub mod pool;
pub mod reopen;
pub mod tree;
pub mod trees;
pub(crate) mod usage;

use crate::program::{Moment, Program};
use crate::quiet::elsewhere;
use crate::trace::Cpu;
use call::{Call, Held};
use kinds::{Kind, Prepared};
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{DataMode, Fs, LargePages, OpenOptions};
use std::ops::Range;
use std::sync::Arc;
use tree::{Exceptions, Tree};

/// The CPU for the calls of the second lane.
const OTHER_CPU: Cpu = 3;

/// The steps of a workload.
#[derive(Clone)]
pub enum Steps {
    /// One call of a kind, on a pool that has one of everything.
    Kind(Kind),
    /// Calls on an empty pool. One that fails has changed nothing.
    Calls(Vec<Call>),
}

/// A workload on a file system.
#[derive(Clone)]
pub struct FileSystem {
    /// The mode: what a write promises.
    pub mode: DataMode,
    /// The steps that are done.
    pub steps: Steps,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Entries that are left in the lane before its log begins at its start again, when the call of
    /// a kind begins.
    pub entries_left: Option<u64>,
}

/// An attached pool.
pub struct Attached {
    pub(crate) fs: Fs,
    pub(crate) prepared: Option<Prepared>,
    held: Held,
}

impl Attached {
    /// Nothing held open yet.
    pub(crate) fn to(fs: Fs) -> Attached {
        Attached {
            fs,
            prepared: None,
            held: Held::new(),
        }
    }

    /// Lets go of what its calls have opened.
    pub(crate) fn let_go(&mut self) -> pmfs::Result<()> {
        let held = std::mem::take(&mut self.held);
        let mut inos = held.into_iter().flatten();
        inos.try_for_each(|ino| self.fs.release(ino))
    }
}

impl FileSystem {
    /// One call of a kind.
    #[must_use]
    pub fn of_kind(kind: &Kind, mode: DataMode) -> FileSystem {
        FileSystem {
            mode,
            pool_bytes: kind.pool_bytes,
            steps: Steps::Kind(kind.clone()),
            entries_left: None,
        }
    }

    /// Makes a workload like [`FileSystem::of_kind`]: the lane's log begins at its start again
    /// inside of the call's transaction.
    #[must_use]
    pub fn of_kind_at_wrap(kind: &Kind, mode: DataMode) -> FileSystem {
        FileSystem {
            entries_left: Some(1),
            ..FileSystem::of_kind(kind, mode)
        }
    }

    /// Calls on an empty pool.
    #[must_use]
    pub fn of_calls(calls: &[Call], mode: DataMode) -> FileSystem {
        FileSystem {
            mode,
            pool_bytes: pool::POOL_BYTES,
            steps: Steps::Calls(calls.to_vec()),
            entries_left: None,
        }
    }

    /// For an instance that counts its clock from `start`.
    pub(crate) fn options(&self, start: i64) -> OpenOptions {
        OpenOptions {
            large: match &self.steps {
                Steps::Kind(kind) => kind.large,
                Steps::Calls(_) => LargePages::default(),
            },
            ..pool::open_options(self.mode, start)
        }
    }

    /// The lane of a step's transaction. Some workloads change lanes at each step, others at each
    /// second one; those that begin alike do alike, and the other way in the other mode.
    fn lane(&self, step: usize) -> u64 {
        let Steps::Calls(calls) = &self.steps else {
            return 0;
        };
        let first: usize = calls
            .first()
            .map_or(0, |call| call.to_string().bytes().map(usize::from).sum());
        let slowly = (first + usize::from(self.mode == DataMode::Ordered)) % 2;
        (step >> slowly & 1) as u64
    }

    /// Returns whether a step may write over what a file has.
    fn overwrites(&self, step: usize) -> bool {
        match &self.steps {
            Steps::Kind(kind) => kind.overwrites,
            Steps::Calls(calls) => calls[step].overwrites(),
        }
    }

    /// Returns whether an overwrite that is cut short may have been done in part.
    fn may_tear(&self) -> bool {
        self.mode == DataMode::Ordered || matches!(&self.steps, Steps::Kind(kind) if kind.in_place)
    }

    /// Returns what the contract lets go either way after a crash.
    pub(crate) fn exceptions(&self, moment: &Moment<'_, Tree>) -> Exceptions {
        exceptions(moment, |step| self.overwrites(step), self.may_tear())
    }
}

/// Writes entries to the first lane until so many are left before its log begins at its start
/// again.
fn fill_lane(fs: &Fs, left: u64) -> pmfs::Result<()> {
    let name = b"fills the lane";
    fs.create(pmfs::ROOT_INO, name, &pool::NODE)?;
    let chmod = |mode| {
        let attr = pmfs::SetAttr {
            mode: Some(mode),
            ..Default::default()
        };
        fs.setattr(fs.lookup(pmfs::ROOT_INO, name)?.ino, &attr)
    };
    for mode in 0..1000 {
        let now = pmfs::lane_entries_left(fs, 0);
        if now == left {
            return Ok(());
        }
        // A link takes an odd number of entries, and what undoes it mostly too; a change of the
        // mode takes two.
        if (now - left) % 2 == 1 {
            let ino = fs.lookup(pmfs::ROOT_INO, name)?.ino;
            match fs.link(ino, pmfs::ROOT_INO, b"linked to fill") {
                Ok(_) => {}
                Err(_) => fs.unlink(pmfs::ROOT_INO, b"linked to fill")?,
            }
        } else {
            chmod(0o600 | (mode % 2))?;
        }
    }
    panic!("a lane's log that never gets to {left} entries before its end");
}

/// Returns what the contract lets go either way after a crash, by the steps that may write over
/// what a file has, and whether one that is cut short may have been done in part.
fn exceptions(
    moment: &Moment<'_, Tree>,
    overwrites: impl Fn(usize) -> bool,
    may_tear: bool,
) -> Exceptions {
    let mut exceptions = Exceptions::default();
    let overwriting = (0..=moment.step).filter(|&step| overwrites(step));
    for step in overwriting {
        let (before, after) = (&moment.history[step], &moment.history[step + 1]);
        for node in after.values() {
            let old = before.values().find(|old| old.ino == node.ino);
            let Some(old) = old.filter(|old| (&old.data, old.times) != (&node.data, node.times))
            else {
                continue;
            };
            exceptions.times.entry(node.ino).or_default();
            if step == moment.step && !moment.returned && may_tear {
                let both = vec![old.data.clone(), node.data.clone()];
                exceptions.torn.insert(node.ino, both);
            }
        }
    }
    for node in moment.history[..moment.step + 2]
        .iter()
        .flat_map(Tree::values)
    {
        if let Some((mtimes, ctimes)) = exceptions.times.get_mut(&node.ino) {
            mtimes.insert(node.times.0);
            ctimes.insert(node.times.1);
        }
    }
    exceptions
}

impl Program for FileSystem {
    type Running = Attached;
    type Visible = Tree;

    fn name(&self) -> String {
        match &self.steps {
            Steps::Kind(kind) if self.entries_left.is_some() => {
                format!("{:?}: {}, where the lane wraps", self.mode, kind.name)
            }
            Steps::Kind(kind) => format!("{:?}: {}", self.mode, kind.name),
            Steps::Calls(calls) => format!("{:?}: {}", self.mode, call::text(calls)),
        }
    }

    fn setup(&self) -> Result<Pmem, String> {
        Ok(pool::fresh(self.pool_bytes))
    }

    fn volatile(&self, mem: &Pmem) -> Range<u64> {
        pool::runtime_range(mem)
    }

    fn attach(&self, mem: Pmem, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        let mut options = self.options(1_000_000);
        options.observer = Some(observer);
        let fs = Fs::open_private(mem, &options).map_err(|error| format!("recovery: {error}"))?;
        pmfs::prefer_lane(0);
        Ok(Attached::to(fs))
    }

    fn prepare(&self, running: &mut Attached) -> Result<(), String> {
        if let Steps::Kind(kind) = &self.steps {
            let prepared = kinds::prepare(&running.fs).map_err(|error| error.to_string())?;
            (kind.first)(&running.fs, &prepared).map_err(|error| error.to_string())?;
            if let Some(left) = self.entries_left {
                fill_lane(&running.fs, left).map_err(|error| error.to_string())?;
            }
            running.prepared = Some(prepared);
        }
        Ok(())
    }

    fn steps(&self) -> usize {
        match &self.steps {
            Steps::Kind(_) => 1,
            Steps::Calls(calls) => calls.len(),
        }
    }

    fn step_name(&self, step: usize) -> String {
        match &self.steps {
            Steps::Kind(kind) => kind.name.to_owned(),
            Steps::Calls(calls) => calls[step].to_string(),
        }
    }

    fn step(&self, running: &mut Attached, step: usize) -> Result<(), String> {
        match &self.steps {
            Steps::Kind(kind) => {
                let prepared = running.prepared.expect("prepared before the first step");
                (kind.call)(&running.fs, &prepared).map_err(|error| error.to_string())
            }
            Steps::Calls(calls) => {
                let lane = self.lane(step);
                let mut call = || {
                    pmfs::prefer_lane(lane);
                    // A call may fail: then it must have changed nothing, and the history shows the
                    // same tree twice.
                    let _ = calls[step].run(&running.fs, &mut running.held, step as u8 + 1);
                };
                // The next transaction in that lane has to find in the pool what a thread knows of
                // its last one.
                match lane {
                    0 => call(),
                    _ => elsewhere(OTHER_CPU, call),
                }
                Ok(())
            }
        }
    }

    fn inspect(&self, running: &mut Attached) -> Result<Tree, String> {
        tree::read(&running.fs).map_err(|error| format!("reading the tree: {error}"))
    }

    fn check(&self, running: &mut Attached) -> Result<(), String> {
        usage::sound(&running.fs).map(drop)
    }

    fn accepts(&self, seen: &Tree, moment: &Moment<'_, Tree>) -> Result<(), String> {
        if moment.allowed().contains(seen) {
            return Ok(());
        }
        let exceptions = self.exceptions(moment);
        let mut text = String::new();
        for (at, expected) in moment.allowed().iter().enumerate() {
            let Some(difference) = tree::difference(seen, expected, &exceptions) else {
                return Ok(());
            };
            let which = if at + 1 == moment.allowed().len() {
                "after"
            } else {
                "before"
            };
            text.push_str(&format!("\nnot the tree {which} the call:\n{difference}"));
        }
        Err(text)
    }

    fn go_on(&self, running: &mut Attached) -> Result<(), String> {
        // Not the lane of the last call: where that was interrupted its log must stay closed though
        // nothing is written over it.
        pmfs::prefer_lane(1 - self.lane(self.steps().saturating_sub(1)));
        usage::use_up(&running.fs)
    }

    fn detach(&self, running: Attached) -> Option<Pmem> {
        Some(running.fs.into_mapping())
    }
}
