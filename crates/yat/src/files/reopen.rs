//! Leaving a pool and coming back to it on another boot: a pool that was left clean is believed,
//! its free lists too.

use super::call::{Call, parse};
use super::pool::{self, POOL_BYTES};
use super::tree::{self, Tree};
use super::{Attached, exceptions, usage};
use crate::explore::Options;
use crate::program::{Moment, Program};
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{DataMode, Fs, OpenOptions};
use std::sync::Arc;

/// The calls between an opening and a closing.
const VISITS: [&str; 2] = [
    "create foo; write foo 0 9000; mkdir A; write foo 100 24",
    "write foo 104 24; create A/bar; write A/bar 0 5000; unlink foo",
];

/// Two visits to a pool, with the steps at which it is left and opened again.
pub struct Reopen {
    mode: DataMode,
    steps: Vec<Step>,
}

enum Step {
    Call(Call),
    Leave,
    Return,
}

/// A pool that is open, or was just left.
pub struct Visited {
    attached: Option<Attached>,
    /// While it is closed.
    mem: Option<Pmem>,
    observer: Arc<dyn Observer>,
    /// The tree when it was left.
    seen: Tree,
}

impl Reopen {
    /// A checksum over the runtime area reads all of it: where most of it may be lost there are
    /// more images than can be tried, so those in which least is durable come first, and then those
    /// in which most is.
    pub const OPTIONS: [Options; 2] = [Reopen::beginning_with(false), Reopen::beginning_with(true)];

    const fn beginning_with(durable_first: bool) -> Options {
        Options {
            from: 0,
            depth: 0,
            mutant: None,
            seed: 1,
            images_max: 256,
            images_all: u64::MAX,
            durable_first,
        }
    }

    /// In a data mode.
    ///
    /// # Panics
    /// Never: the calls can be read.
    #[must_use]
    pub fn new(mode: DataMode) -> Reopen {
        let mut steps = Vec::new();
        for visit in VISITS {
            let calls = parse(visit).expect("calls that can be read");
            steps.extend(calls.into_iter().map(Step::Call));
            steps.extend([Step::Leave, Step::Return]);
        }
        steps.pop();
        Reopen { mode, steps }
    }

    fn options(&self, observer: Arc<dyn Observer>) -> OpenOptions {
        OpenOptions {
            observer: Some(observer),
            rebooted: true,
            ..pool::open_options(self.mode, 1_000_000)
        }
    }

    fn open(&self, mem: Pmem, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        let fs = Fs::open_private(mem, &self.options(observer));
        pmfs::prefer_lane(0);
        fs.map(Attached::to)
            .map_err(|error| format!("opening: {error}"))
    }
}

impl Program for Reopen {
    type Running = Visited;
    type Visible = Tree;

    fn name(&self) -> String {
        format!("{:?}: left and opened again", self.mode)
    }

    fn setup(&self) -> Result<Pmem, String> {
        Ok(pool::fresh(POOL_BYTES))
    }

    fn attach(&self, mem: Pmem, observer: Arc<dyn Observer>) -> Result<Visited, String> {
        Ok(Visited {
            attached: Some(self.open(mem, observer.clone())?),
            mem: None,
            observer,
            seen: Tree::default(),
        })
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn step_name(&self, step: usize) -> String {
        match &self.steps[step] {
            Step::Call(call) => call.to_string(),
            Step::Leave => "leave".into(),
            Step::Return => "open again".into(),
        }
    }

    fn step(&self, running: &mut Visited, step: usize) -> Result<(), String> {
        match &self.steps[step] {
            Step::Call(call) => {
                let attached = running.attached.as_mut().ok_or("the pool is closed")?;
                let done = call.run(&attached.fs, &mut attached.held, step as u8 + 1);
                done.map_err(|error| error.to_string())
            }
            Step::Leave => {
                running.seen = self.inspect(running)?;
                let fs = running.attached.take().ok_or("left twice")?.fs;
                fs.detach().map_err(|error| error.to_string())?;
                running.mem = Some(fs.into_mapping());
                Ok(())
            }
            Step::Return => {
                let mem = running.mem.take().ok_or("opened twice")?;
                running.attached = Some(self.open(mem, running.observer.clone())?);
                Ok(())
            }
        }
    }

    fn inspect(&self, running: &mut Visited) -> Result<Tree, String> {
        match &running.attached {
            Some(attached) => {
                tree::read(&attached.fs).map_err(|error| format!("reading the tree: {error}"))
            }
            None => Ok(running.seen.clone()),
        }
    }

    fn check(&self, running: &mut Visited) -> Result<(), String> {
        usage::sound(fs_of(running)?).map(drop)
    }

    fn accepts(&self, seen: &Tree, moment: &Moment<'_, Tree>) -> Result<(), String> {
        if moment.allowed().contains(seen) {
            return Ok(());
        }
        let overwrites =
            |step: usize| matches!(&self.steps[step], Step::Call(call) if call.overwrites());
        let exceptions = exceptions(moment, overwrites, self.mode == DataMode::Ordered);
        let difference = |expected| tree::difference(seen, expected, &exceptions);
        let differences: Option<Vec<String>> = moment.allowed().iter().map(difference).collect();
        // Without one of them it is as it may be.
        differences.map_or(Ok(()), |all| Err(all.join("\nand:\n")))
    }

    fn go_on(&self, running: &mut Visited) -> Result<(), String> {
        pmfs::prefer_lane(1);
        usage::use_up(fs_of(running)?)
    }

    fn detach(&self, running: Visited) -> Option<Pmem> {
        let attached = running.attached.map(|attached| attached.fs.into_mapping());
        attached.or(running.mem)
    }
}

fn fs_of(running: &Visited) -> Result<&Fs, String> {
    let attached = running.attached.as_ref().ok_or("the pool is closed")?;
    Ok(&attached.fs)
}
