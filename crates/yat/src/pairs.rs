//! Pairs of calls in two lanes, interleaved before their fences in every order, and power lost at
//! each of them.
//!
//! A correct state is one after some order of the calls that had returned, and of any of those that
//! had not; inode numbers and times go by who came first and are not compared.

use crate::crash_image::Chooser;
use crate::explore::{Counts, Explorer, IMAGES_MAX, Options, Recording, Violation, When};
use crate::files::call::{self, Call, Held, parse};
use crate::files::clones::{BEGINNING, LEAVES_BEGINNING};
use crate::files::tree::{self, Exceptions, Tree};
use crate::files::{Attached, FileSystem, Steps, pool};
use crate::memory::Pending;
use crate::mutants::{Mutant, Scope};
use crate::program::{Moment, Program};
use crate::quiet::quietly;
use crate::trace::{Event, Recorder, Trace};
use crate::turns::Turns;
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{DataMode, Fs};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Schedules of one pair after which the rest is left, unless the pair says otherwise.
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

/// The calls that the pairs of [`further`] begin with, but for the last.
const FILES: &str = "mkdir d; create d/small; write d/small 0 100; create d/large; write d/large 0 20557; \
                     create d/sparse; write d/sparse 12288 4096";

/// More pairs: both change one inode; or the second call may get the blocks that the first one
/// gives back.
const FURTHER: [(&str, &str); 6] = [
    ("append d/small 40", "append d/small 30"),
    ("fallocate d/small 0 0 9000", "append d/small 10000"),
    ("create d/one", "create d/other"),
    ("write d/large 8192 4096", "append d/sparse 36864"),
    ("truncate d/large 0", "append d/sparse 36864"),
    ("unlink d/large", "append d/sparse 36864"),
];

const DEPENDENT_SETUP: &str = "mkdir d; mkdir e; create d/f; write d/f 0 9000; create d/x; create d/y; mkdir d/m; \
                               create d/m/q; create e/f; write e/f 0 100";

/// Pairs of calls: the second needs what the first makes, or finds something else if the first has
/// been.
const DEPENDENT: [(&str, &str); 26] = [
    ("mkdir d/a", "create d/a/x"),
    ("mkdir d/a", "mkdir d/a/b"),
    ("mkdir d/a", "rename e/f d/a/f"),
    ("create d/a", "write d/a 0 10"),
    ("create d/a", "link d/a e/a"),
    ("create d/a", "rename d/a e/a"),
    ("create d/a", "unlink d/a"),
    ("create d/a", "chmod d/a 384"),
    ("link d/f e/b", "unlink d/f"),
    ("link d/f e/b", "write e/b 9000 50"),
    ("rename d/m e/m", "create e/m/x"),
    ("rename d/x e/z", "link e/z d/q"),
    ("rename d/x e/z", "write e/z 0 50"),
    ("rename d/x d/y", "create d/x"),
    ("unlink d/x", "create d/x"),
    ("unlink d/x", "rename d/y d/x"),
    ("setxattr d/f 300", "chmod d/f 384"),
    ("write d/f 9000 50", "write d/f 9050 50"),
    ("write d/f 9000 5000", "copy d/f 9000 e/f 100 5000"),
    ("write d/f 100 5000", "copy d/f 100 e/f 50 5000"),
    ("write d/f 100 3", "copy d/f 96 e/f 50 16"),
    ("truncate d/f 50", "copy d/f 40 e/f 100 100"),
    ("chmod d/f 384", "link d/f e/b"),
    ("unlink d/m/q", "unlink d/m/q; rmdir d/m"),
    ("rmdir d/m", "create d/m/z"),
    ("write d/f 100 24", "write d/f 108 24"),
];

/// Pairs of calls on files that share blocks.
const SHARING: [(&str, &str); 13] = [
    ("clone f c", "write f 100 5000"),
    ("clone f c", "write g 4096 4096"),
    ("clone f c", "append f 5000"),
    ("clone f c", "truncate f 0"),
    ("clone f c", "unlink f"),
    ("clone f c", "clone g e"),
    ("clone f c", "clone f e"),
    ("clone f c", "rename g c"),
    ("write f 4096 4096", "write g 4096 4096"),
    ("unlink f", "write g 100 3"),
    ("truncate f 0", "unlink g"),
    ("unlink f", "unlink g"),
    ("write f 100 3", "truncate g 0"),
];

/// Two directories, each moved to below the other.
const TWO_DIRECTORIES: [&str; 3] = [
    "mkdir p1; mkdir p1/a; mkdir p1/a/d; mkdir p2; mkdir p2/b; mkdir p2/b/c",
    "rename p1/a p2/b/c/a",
    "rename p2/b p1/a/d/b",
];

/// The last two calls of the setup leave committed redo records in the first lane, which goes on
/// while words of the older one change.
const COMMITTED: [&str; 3] = [
    "mkdir d; mkdir e; create d/f; write d/f 0 9000; create e/f; write e/f 0 100; create d/x; create d/y; \
     write d/f 100 24; write e/f 8 24",
    "write e/f 40 24",
    "write d/f 104 4",
];

/// Two calls at once, or two that are calls each.
#[derive(Clone)]
pub struct Pair {
    /// The mode: what a write promises.
    pub mode: DataMode,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    setup: Vec<Call>,
    calls: [Vec<Call>; 2],
    /// A store, flush or fence that is got wrong, as if the source were so.
    pub mutant: Option<Mutant>,
    /// Schedules after which the rest is left.
    pub schedules_max: u64,
    /// The images that one crash point may have before they are sampled.
    pub images_max: u64,
}

/// All pairs: 7 x 7 kinds, on the same files and on others.
///
/// # Panics
/// If one of the calls here is none.
#[must_use]
pub fn pairs(mode: DataMode) -> Vec<Pair> {
    let seconds = SAME.into_iter().chain(OTHER);
    seconds
        .flat_map(|second| FIRST.map(|first| (first, second)))
        .map(|(first, second)| Pair::of(mode, [SETUP, first, second]))
        .collect()
}

/// All pairs whose crash states are explored, those that show most first.
#[must_use]
pub fn everything(mode: DataMode) -> Vec<Pair> {
    let mut all = further(mode);
    all.extend(building_on(mode));
    all.extend(dependent(mode));
    all.extend(sharing(mode));
    all.extend(pairs(mode));
    all
}

/// Pairs of calls on files that share a node, and on files that share blocks.
#[must_use]
pub fn sharing(mode: DataMode) -> Vec<Pair> {
    let beginnings = [BEGINNING, LEAVES_BEGINNING];
    let pair = |(first, second)| {
        beginnings.map(|setup| Pair::of(mode, [&format!("{setup}; create e"), first, second]))
    };
    SHARING.into_iter().flat_map(pair).collect()
}

/// Further pairs.
#[must_use]
pub fn further(mode: DataMode) -> Vec<Pair> {
    let mut all = vec![Pair::of(mode, TWO_DIRECTORIES), Pair::of(mode, COMMITTED)];
    all.extend(FURTHER.map(|(first, second)| Pair::of(mode, [FILES, first, second])));
    all
}

/// Pairs of calls of which the second one can only be, or is another, when the first has been.
#[must_use]
pub fn dependent(mode: DataMode) -> Vec<Pair> {
    let pairs = DEPENDENT.iter();
    pairs
        .map(|&(first, second)| Pair::of(mode, [DEPENDENT_SETUP, first, second]))
        .collect()
}

/// Pairs of which the second builds on what the first has stored and not yet made durable: inodes
/// in the table's new block, the block of a bucket that was split.
#[must_use]
pub fn building_on(mode: DataMode) -> Vec<Pair> {
    let names = |count, long| -> String {
        let name = |number| format!("; create d/n{number}{long}");
        (0..count).map(name).collect()
    };
    let table = format!("mkdir d; mkdir e{}", names(27, ""));
    let bucket = format!(
        "mkdir d; create f; write f 0 10; create full; fallocate full 0 0 840000{}",
        names(12, "*255")
    );
    vec![
        Pair::of(mode, [&table, "create d/a", "create e/b"]),
        Pair::of(mode, [&bucket, "create d/a*255", "append f 40950"]),
    ]
}

/// A call that gives blocks back, and beside it so many overwrites on a pool nearly full that every
/// free block is had once. All overwrites are of three blocks: one alone would be put where the
/// lane's spare block is, and that would be the only one that is ever had, or given back.
#[must_use]
pub fn on_a_full_pool(mode: DataMode) -> Vec<Pair> {
    let fill = "append d/sparse 65536; ".repeat(128);
    // The block at which it was full is not the same each time.
    let setup = format!("{FILES}; {fill} truncate d/sparse 7700000");
    let writes: Vec<String> = (16..216)
        .map(|at| format!("write d/sparse {} 12288", at * 12288))
        .collect();
    let writes = writes.join("; ");
    let firsts = [
        "write d/large 4096 12288",
        "truncate d/large 0",
        "unlink d/large",
    ];
    let pairs = firsts.map(|first| Pair {
        pool_bytes: pool::LARGE_POOL_BYTES,
        ..Pair::of(mode, [&setup, first, &writes])
    });
    pairs.to_vec()
}

/// A tree without what goes by who came first.
pub(crate) fn without_order(tree: &Tree) -> Tree {
    let mut numbers = BTreeMap::new();
    let renumbered = tree.iter().map(|(path, node)| {
        let mut node = node.clone();
        let next = numbers.len() as u64;
        node.ino = *numbers.entry(node.ino).or_insert(next);
        (node.times, node.used) = ((0, 0), 0);
        (path.clone(), node)
    });
    renumbered.collect()
}

/// The states that the two calls may leave, by which of them had returned: bit 0 is the first one.
struct Allowed([Vec<Tree>; 4]);

impl Pair {
    /// Makes a pair of the calls before, the first and the second one, as [`parse`] takes them.
    pub(crate) fn of(mode: DataMode, texts: [&str; 3]) -> Pair {
        let [setup, first, second] = texts.map(|text| parse(text).expect("calls"));
        Pair::of_calls(mode, setup, [first, second])
    }

    /// Two calls, or two that are calls each, after what comes before.
    #[must_use]
    pub fn of_calls(mode: DataMode, setup: Vec<Call>, calls: [Vec<Call>; 2]) -> Pair {
        Pair {
            mode,
            pool_bytes: pool::POOL_BYTES,
            setup,
            calls,
            mutant: None,
            schedules_max: SCHEDULES_MAX,
            images_max: IMAGES_MAX,
        }
    }

    /// Returns the workload of the calls before the two.
    pub(crate) fn program(&self) -> FileSystem {
        FileSystem {
            entries_left: None,
            mode: self.mode,
            steps: Steps::Calls(self.setup.clone()),
            pool_bytes: self.pool_bytes,
        }
    }

    /// An instance with everything in place.
    pub(crate) fn prepared(&self, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        let program = self.program();
        let mut attached = program.attach(program.setup()?, observer)?;
        for step in 0..program.steps() {
            program.step(&mut attached, step)?;
        }
        Ok(attached)
    }

    /// Does what comes before the two.
    pub(crate) fn set_up(&self, fs: &Fs) {
        let mut held = Held::new();
        for (at, call) in self.setup.iter().enumerate() {
            // The last of those that fill a pool fails.
            let _ = call.run(fs, &mut held, at as u8 + 1);
        }
    }

    /// Does one of the two. One that fails came too late.
    pub(crate) fn run(&self, fs: &Fs, which: usize) {
        for call in &self.calls[which] {
            let _ = call.run(fs, &mut Held::new(), 100 + which as u8);
        }
    }

    /// Returns what is seen after some of the calls in an order.
    pub(crate) fn after(&self, order: &[usize]) -> Result<Tree, String> {
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
        let range = pool::runtime_range(&pool::fresh(self.pool_bytes));
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
    /// A failure other than a wrong crash state, in words.
    pub fn explore(&self) -> Result<Result<Counts, Box<Violation>>, String> {
        let mut counts = Counts::default();
        let explored = self.explore_counting(&mut counts)?;
        Ok(explored.map(|()| counts))
    }

    /// Explores like [`Pair::explore`]; adds to `counts` what was looked at, also if there is a
    /// violation.
    ///
    /// # Errors
    /// A failure other than a wrong crash state, in words.
    pub fn explore_counting(
        &self,
        counts: &mut Counts,
    ) -> Result<Result<(), Box<Violation>>, String> {
        let allowed = self.allowed()?;
        counts.workloads += 1;
        let mut seen = HashSet::new();
        let mut chooser = Chooser::default();
        for _ in 0..self.schedules_max {
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
                Ok(some) => *counts += some,
                Err(mut violation) => {
                    counts.images += violation.after_images;
                    violation.workload += &format!(" by schedule {:?}", chooser.choices());
                    return Ok(Err(violation));
                }
            }
            if !chooser.advance() {
                return Ok(Ok(()));
            }
        }
        counts.sampled += 1;
        Ok(Ok(()))
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
        let options = Options {
            images_max: self.images_max,
            ..Options::default()
        };
        let mut explorer = Explorer::new(&judge, &recording, options);
        let mut pending = Pending::new(run.base.clone());
        let mut returned = 0;
        for (at, event) in run.trace.without(self.mutant, Scope::Whole).enumerate() {
            let place = match *event {
                Event::Fence { at, .. } => Some(at),
                _ => None,
            };
            if place.is_some() && seen.insert((pending.digest(), returned)) {
                explorer.crash_at(&mut pending, returned, When::Fence(at), place)?;
            }
            pending.apply(&run.trace, event);
            if let Event::Return { cpu } = *event {
                returned |= 1 << cpu;
                if seen.insert((pending.digest(), returned)) {
                    explorer.crash_at(&mut pending, returned, When::Return, None)?;
                }
            }
        }
        Ok(explorer.into_counts())
    }

    /// The two calls.
    #[must_use]
    pub fn name(&self) -> String {
        let [first, second] = &self.calls;
        // The name of the one with the many calls has to fit on a line.
        let second = match second.as_slice() {
            [first, .., last] => format!("{first}; ... {last}"),
            calls => call::text(calls),
        };
        format!("{:?}: {} || {second}", self.mode, call::text(first))
    }
}

/// One schedule that ran.
struct Run {
    base: Vec<u8>,
    trace: Trace,
    tree: Tree,
}

/// Judges what a crash in the middle of a pair left: a [`Program`] whose step says which calls had
/// returned.
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

    fn inspect(&self, running: &mut Attached) -> Result<Tree, String> {
        self.pair.program().inspect(running)
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
    /// `ordered`: while an overwrite has not returned, each byte of its file is one that some order
    /// leaves there.
    fn torn(&self, seen: &Tree, returned: usize) -> Exceptions {
        let mut exceptions = Exceptions::default();
        let in_flight = (0..2)
            .any(|at| returned >> at & 1 == 0 && self.pair.calls[at].iter().any(Call::overwrites));
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
