//! Pairs of calls in two lanes, interleaved at their fences in every order, and power lost at each of them.
//!
//! What may be seen: some order of the calls that had returned, and of any of those that had not; inode numbers and
//! times go by who came first and are not compared.

use crate::explore::{Counts, Explorer, Options, Recording, Violation};
use crate::files::call::{Call, Held, parse};
use crate::files::tree::{self, Exceptions, Tree};
use crate::files::{Attached, FileSystem, pool};
use crate::image::Chooser;
use crate::memory::Pending;
use crate::program::{Moment, Program};
use crate::quiet::quietly;
use crate::trace::{Event, Recorder, Trace};
use crate::turns::Turns;
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{DataMode, Fs};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Schedules of one pair after which the rest is left.
const SCHEDULES_MAX: u64 = 4000;

const SETUP: &str = "mkdir d; mkdir e; create d/f; write d/f 0 9000; create d/x; create d/y; create e/f; \
                     write e/f 0 9000; create e/x; create e/y";

/// The seven kinds of the first call.
const FIRST: [&str; 7] = [
    "create d/a",
    "mkdir d/a",
    "link d/f d/a",
    "unlink d/x",
    "rename d/x d/y",
    "write d/f 100 5000",
    "truncate d/f 2500",
];

/// Those of the second call, on the same directory and files.
const SAME: [&str; 7] = [
    "create d/b",
    "mkdir d/a",
    "link d/f e/b",
    "unlink d/x",
    "rename d/y e/y",
    "write d/f 3000 7000",
    "truncate d/f 6000",
];

/// Those of the second call, on others.
const OTHER: [&str; 7] = [
    "create e/b",
    "mkdir e/b",
    "link e/f e/b",
    "unlink e/x",
    "rename e/x e/y",
    "write e/f 3000 7000",
    "truncate e/f 6000",
];

/// Two calls at once.
#[derive(Clone)]
pub struct Pair {
    /// What a write promises.
    pub mode: DataMode,
    calls: [Call; 2],
}

/// All pairs: 7 x 7 kinds, on the same files and on others.
///
/// # Panics
/// If one of the calls here is none.
#[must_use]
pub fn pairs(mode: DataMode) -> Vec<Pair> {
    let call = |text: &str| parse(text).expect("a call").remove(0);
    let seconds = SAME.into_iter().chain(OTHER);
    seconds
        .flat_map(|second| FIRST.map(|first| (first, second)))
        .map(|(first, second)| Pair {
            mode,
            calls: [call(first), call(second)],
        })
        .collect()
}

/// A tree without what goes by who came first.
fn without_order(tree: &Tree) -> Tree {
    let mut numbers = BTreeMap::new();
    let renumbered = tree.iter().map(|(path, node)| {
        let mut node = node.clone();
        let next = numbers.len() as u64;
        node.ino = *numbers.entry(node.ino).or_insert(next);
        node.times = (0, 0);
        (path.clone(), node)
    });
    renumbered.collect()
}

/// The states that the two calls may leave, by which of them had returned: bit 0 is the first one.
struct Allowed([Vec<Tree>; 4]);

impl Pair {
    fn program(&self) -> FileSystem {
        let calls = parse(SETUP).expect("calls");
        FileSystem::of_calls(&calls, self.mode)
    }

    /// An instance with everything in place.
    fn prepared(&self, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        let program = self.program();
        let mut attached = program.attach(program.setup()?, observer)?;
        for step in 0..program.steps() {
            program.step(&mut attached, step)?;
        }
        Ok(attached)
    }

    fn run(&self, fs: &Fs, which: usize) -> bool {
        let done = self.calls[which].run(fs, &mut Held::new(), 100 + which as u8);
        done.is_ok()
    }

    /// What is seen after some of the calls in an order.
    fn after(&self, order: &[usize]) -> Result<Tree, String> {
        let quiet = Arc::new(Recorder::new(0..0));
        let attached = self.prepared(quiet)?;
        for &which in order {
            self.run(&attached.fs, which);
        }
        let tree = tree::read(&attached.fs).map_err(|error| error.to_string())?;
        Ok(without_order(&tree))
    }

    fn allowed(&self) -> Result<Allowed, String> {
        let both = [self.after(&[0, 1])?, self.after(&[1, 0])?];
        let with = |some: &[&[usize]]| -> Result<Vec<Tree>, String> {
            let mut trees = both.to_vec();
            for order in some {
                trees.push(self.after(order)?);
            }
            Ok(trees)
        };
        Ok(Allowed([
            with(&[&[], &[0], &[1]])?,
            with(&[&[0]])?,
            with(&[&[1]])?,
            with(&[])?,
        ]))
    }

    /// Runs both calls as `chooser` says.
    fn execute(&self, chooser: Chooser) -> Result<(Run, Chooser), String> {
        let range = pool::runtime_range(&pool::fresh(pool::POOL_BYTES));
        let recorder = Recorder::new(range);
        let turns = Arc::new(Turns::new(&recorder, chooser));
        let attached = self.prepared(turns.clone())?;
        let mem = attached.fs.mapping();
        let base = mem.snapshot_image();
        turns.start(mem);
        let panics = std::thread::scope(|scope| {
            let threads = [0, 1].map(|me| {
                let (turns, attached) = (&turns, &attached);
                scope.spawn(move || {
                    pmfs::prefer_lane(me as u64);
                    quietly(|| turns.take_part(me, mem, || self.run(&attached.fs, me))).err()
                })
            });
            threads.map(|thread| thread.join().expect("its panics are caught"))
        });
        if let Some(text) = panics.into_iter().flatten().next() {
            return Err(format!("{}: {text}", self.name()));
        }
        let trace = recorder.stop();
        let tree = tree::read(&attached.fs).map_err(|error| error.to_string())?;
        let run = Run {
            base,
            trace,
            tree: without_order(&tree),
        };
        Ok((run, turns.take_chooser()))
    }

    /// Every schedule, every fence and return, every image.
    ///
    /// # Errors
    /// What is wrong beside crash states, in words.
    pub fn explore(&self) -> Result<Result<Counts, Box<Violation>>, String> {
        let allowed = self.allowed()?;
        let mut counts = Counts {
            workloads: 1,
            ..Counts::default()
        };
        let mut seen = HashSet::new();
        let mut chooser = Chooser::default();
        for _ in 0..SCHEDULES_MAX {
            let (run, back) = self.execute(chooser)?;
            chooser = back;
            counts.steps += 1;
            if !allowed.0[3].contains(&run.tree) {
                let difference =
                    tree::difference(&run.tree, &allowed.0[3][0], &Exceptions::default());
                return Err(format!(
                    "{}: schedule {:?}: no order of the calls leaves this: {}",
                    self.name(),
                    chooser.choices(),
                    difference.unwrap_or_default()
                ));
            }
            match self.crash_everywhere(&run, &allowed, &mut seen) {
                Ok(some) => counts += some,
                Err(mut violation) => {
                    violation.workload += &format!(" by schedule {:?}", chooser.choices());
                    return Ok(Err(violation));
                }
            }
            if !chooser.advance() {
                return Ok(Ok(counts));
            }
        }
        counts.sampled += 1;
        Ok(Ok(counts))
    }

    fn crash_everywhere(
        &self,
        run: &Run,
        allowed: &Allowed,
        seen: &mut HashSet<(u64, usize)>,
    ) -> Result<Counts, Box<Violation>> {
        let judge = Judge {
            pair: self,
            allowed,
        };
        let recording = Recording::of(run.base.clone(), run.trace.clone(), &judge);
        let mut explorer = Explorer::new(&judge, &recording, Options::default());
        let mut pending = Pending::new(run.base.clone());
        let mut returned = 0;
        for (at, event) in run.trace.events.iter().enumerate() {
            let place = match *event {
                Event::Fence { at, .. } => Some(at),
                _ => None,
            };
            if place.is_some() && seen.insert((pending.digest(), returned)) {
                explorer.crash_at(&mut pending, returned, Some(at), place)?;
            }
            pending.apply(&run.trace, event);
            if let Event::Return { cpu } = *event {
                returned |= 1 << cpu;
                if seen.insert((pending.digest(), returned)) {
                    explorer.crash_at(&mut pending, returned, None, None)?;
                }
            }
        }
        Ok(explorer.into_counts())
    }

    /// The two calls.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{:?}: {} || {}", self.mode, self.calls[0], self.calls[1])
    }
}

/// One schedule that ran.
struct Run {
    base: Vec<u8>,
    trace: Trace,
    tree: Tree,
}

/// Judges what a crash in the middle of a pair left: a [`Program`] whose step says which calls had returned.
struct Judge<'a> {
    pair: &'a Pair,
    allowed: &'a Allowed,
}

impl Program for Judge<'_> {
    type Running = Attached;
    type Visible = Tree;

    fn name(&self) -> String {
        self.pair.name()
    }

    fn setup(&self) -> Result<Pmem, String> {
        self.pair.program().setup()
    }

    fn volatile(&self, mem: &Pmem) -> std::ops::Range<u64> {
        pool::runtime_range(mem)
    }

    fn attach(&self, mem: Pmem, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        self.pair.program().attach(mem, observer)
    }

    fn steps(&self) -> usize {
        4
    }

    fn step_name(&self, returned: usize) -> String {
        let names = ["neither", "the first", "the second", "both"];
        format!("the pair, {} returned", names[returned])
    }

    fn step(&self, _running: &mut Attached, _step: usize) -> Result<(), String> {
        Ok(())
    }

    fn look(&self, running: &mut Attached) -> Result<Tree, String> {
        self.pair.program().look(running)
    }

    fn check(&self, running: &mut Attached) -> Result<(), String> {
        self.pair.program().check(running)
    }

    fn accepts(&self, seen: &Tree, moment: &Moment<'_, Tree>) -> Result<(), String> {
        let seen = without_order(seen);
        let allowed = &self.allowed.0[moment.step];
        if allowed.contains(&seen) {
            return Ok(());
        }
        let mut exceptions = Exceptions::default();
        if self.pair.mode == DataMode::Ordered {
            exceptions = self.torn(&seen, moment.step);
        }
        let mut text = String::new();
        for expected in allowed {
            match tree::difference(&seen, expected, &exceptions) {
                None => return Ok(()),
                Some(difference) => text.push_str(&format!("\nnot this order:\n{difference}")),
            }
        }
        Err(text)
    }

    fn go_on(&self, running: &mut Attached) -> Result<(), String> {
        self.pair.program().go_on(running)
    }

    fn detach(&self, running: Attached) -> Option<Pmem> {
        self.pair.program().detach(running)
    }
}

impl Judge<'_> {
    /// `ordered`: while an overwrite has not returned, each byte of its file is one that some order leaves there.
    fn torn(&self, seen: &Tree, returned: usize) -> Exceptions {
        let mut exceptions = Exceptions::default();
        let in_flight =
            (0..2).any(|at| returned >> at & 1 == 0 && self.pair.calls[at].overwrites());
        if in_flight {
            for (path, node) in seen {
                let others = self.allowed.0[0].iter().filter_map(|tree| tree.get(path));
                let mut versions: Vec<Vec<u8>> = others.map(|other| other.data.clone()).collect();
                versions.sort();
                versions.dedup();
                exceptions.torn.insert(node.ino, versions);
            }
        }
        exceptions
    }
}
