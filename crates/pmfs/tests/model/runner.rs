//! A run on one pool: operations, comparisons, ends of all kinds, and at last an empty pool.

use crate::apply::World;
use crate::coverage::Coverage;
use crate::generate::{Generator, Taste};
use crate::operation::Operation;
use crate::pool::TestPool;
use crate::random::Random;
use pmfs::{DataMode, Fs, Ino, NewNode, OpenOptions, ProtectMode, ROOT_INO, RecoveryKind};
use pmfs_admin::Admin;
use std::collections::VecDeque;

/// Operations that are kept, and shown, for a failure.
const PAST: usize = 3000;
const PAST_SHOWN: usize = 12;

/// A pool and how it is used.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub bytes: u64,
    pub inodes: u64,
    /// Data mode of each instance.
    pub modes: &'static [DataMode],
    pub taste: Taste,
    /// The way in which its pool is closed to stray stores.
    pub protect: ProtectMode,
    /// Operations until everything is deleted and the space must be back.
    pub round: u64,
    /// Operations between two comparisons of everything, on average.
    pub compare_every: u64,
    /// Parts in 100 of a run's operations.
    pub share: u64,
}

pub struct Run<'p> {
    setting: Setting,
    pub world: World<'p>,
    instances: Vec<Option<Fs>>,
    generator: Generator,
    random: Random,
    free_at_start: u64,
    /// From this operation on, the files that an operation names are compared after it.
    compare_from: u64,
    /// The last operations.
    past: VecDeque<(u64, usize, Operation)>,
}

impl<'p> Run<'p> {
    fn begin(setting: Setting, seed: u64, pool: &'p TestPool) -> Result<Run<'p>, String> {
        let shared = setting.modes.len() > 1;
        let mut instances = Vec::new();
        for &mode in setting.modes {
            instances.push(Some(pool.open(mode, shared)?));
        }
        let fs = instances[0].as_ref().expect("just opened");
        fill_inode_table(fs)?;
        let info = fs.info();
        let free_at_start = info.blocks_free + info.blocks_lent;
        let attr = fs.mkdir(ROOT_INO, b"world", &NODE).map_err(said)?;
        let mut world = World::new(pool, &attr, ROOT_INO, instances.len());
        world.records = if setting.bytes < 32 << 20 { 48 } else { 512 };
        Ok(Run {
            setting,
            world,
            instances,
            generator: Generator::new(seed, setting.taste),
            random: Random::new(!seed),
            free_at_start,
            compare_from: crate::number("PMFS_MODEL_COMPARE_FROM", u64::MAX),
            past: VecDeque::new(),
        })
    }

    fn fs(&self, instance: usize) -> &Fs {
        self.instances[instance].as_ref().expect("it is open")
    }

    fn steps(&mut self, count: u64) -> Result<(), String> {
        for step in 1..=count {
            self.world.model.operation += 1;
            let instance = self.random.below(self.instances.len() as u64) as usize;
            let operation = self.generator.next(&self.world.model, instance);
            let number = self.world.model.operation;
            let fs = self.instances[instance].as_ref().expect("it is open");
            let name = self.setting.name;
            let what =
                || format!("{name}, operation {number} on instance {instance}: {operation:?}");
            let note = Note { what: &what };
            let done = self.world.run(fs, instance, &operation);
            drop(note);
            if let Err(text) = done {
                let before = self.before(&operation);
                return Err(format!("{before}{}\n  {text}", what()));
            }
            if self.past.len() == PAST {
                self.past.pop_front();
            }
            if number >= self.compare_from {
                let fs = self.instances[instance].as_ref().expect("it is open");
                let compared = self.world.compare_named(fs, &operation);
                compared.map_err(|text| {
                    format!("{}{}\n  after: {text}", self.before(&operation), what())
                })?;
            }
            self.past.push_back((number, instance, operation.clone()));
            if self.random.one_in(self.setting.compare_every) || step == count {
                self.pause()
                    .map_err(|text| format!("{name}, after operation {number}: {text}"))?;
            }
        }
        Ok(())
    }

    /// The operations that lately named what this one names.
    fn before(&self, operation: &Operation) -> String {
        let named = operation.inos();
        let same =
            |inos: [Option<Ino>; 2]| inos.iter().flatten().any(|ino| named.contains(&Some(*ino)));
        let past = self.past.iter().filter(|(_, _, past)| same(past.inos()));
        let mut lines: Vec<String> = past
            .map(|(number, instance, past)| format!("before: {number} on {instance}: {past:?}\n"))
            .collect();
        lines
            .split_off(lines.len().saturating_sub(PAST_SHOWN))
            .concat()
    }

    /// A comparison of everything, or an end and a new beginning.
    fn pause(&mut self) -> Result<(), String> {
        self.generator.blocks = self.world.model.blocks();
        let instance = self.random.below(self.instances.len() as u64) as usize;
        match self.random.below(6) {
            0 => self.reopen(instance, true)?,
            1 => self.reopen(instance, false)?,
            2 => self.open_copy()?,
            _ => {}
        }
        let fs = self.instances[instance].as_ref().expect("it is open");
        self.world.compare_all(fs)?;
        self.world.coverage.count("compared", "the whole tree");
        Ok(())
    }

    /// Ends an instance, with or without a close, and opens it anew.
    fn reopen(&mut self, instance: usize, close: bool) -> Result<(), String> {
        let alone = self.instances.len() == 1;
        let fs = self.instances[instance].take().expect("it is open");
        if close {
            fs.close().map_err(|error| format!("close: {error}"))?;
        } else {
            drop(fs);
        }
        let before = self.world.model.orphans().len() as u64;
        self.world.model.forget_holds(instance);
        let orphans = before - self.world.model.orphans().len() as u64;
        let mode = self.setting.modes[instance];
        let fs = self.world.pool.open(mode, !alone)?;
        let report = *fs.recovery();
        let count = &mut self.world.coverage;
        count.count("recovery", &format!("{:?}", report.kind));
        let should = if close {
            RecoveryKind::None
        } else {
            RecoveryKind::Slots
        };
        if report.kind != should {
            return Err(format!("opened with {report:?}, not {should:?}"));
        }
        if !close && report.orphans != orphans {
            return Err(format!("{orphans} orphans, but {report:?}"));
        }
        self.instances[instance] = Some(fs);
        Ok(())
    }

    /// Opens a copy of the pool, as after power loss, and compares that.
    fn open_copy(&mut self) -> Result<(), String> {
        let path = self.world.pool.copy();
        let options = OpenOptions {
            adopt: true,
            ..self.world.pool.options(self.setting.modes[0], false)
        };
        let fs = Fs::open(&path, &options).map_err(|error| format!("open the copy: {error}"))?;
        let kind = fs.recovery().kind;
        self.world.coverage.count("recovery", &format!("{kind:?}"));
        if kind != RecoveryKind::Walk {
            return Err(format!("the copy opened with {kind:?}"));
        }
        let kept = self.world.model.clone();
        for instance in 0..self.instances.len() {
            self.world.model.forget_holds(instance);
        }
        let compared = self.world.compare_all(&fs);
        self.world.model = kept;
        drop(fs);
        std::fs::remove_file(&path).map_err(|error| format!("remove the copy: {error}"))?;
        compared.map_err(|text| format!("in a copy: {text}"))
    }

    /// Everything goes, and all space must be back.
    fn clear(&mut self) -> Result<(), String> {
        for instance in 0..self.instances.len() {
            let holds: Vec<_> = self.world.model.holds[instance]
                .clone()
                .into_iter()
                .collect();
            for (ino, count) in holds {
                for _ in 0..count {
                    self.delete(instance, &Operation::Release { ino })?;
                }
            }
        }
        let mut dirs = vec![self.world.model.root];
        let mut at = 0;
        while at < dirs.len() {
            let dir = dirs[at];
            at += 1;
            let entries = self.world.model.entries(dir).expect("a directory").clone();
            for (name, entry) in entries {
                if self.world.model.dirs.contains(&entry.ino) {
                    dirs.push(entry.ino);
                    continue;
                }
                let name = crate::operation::Name(name);
                self.delete(0, &Operation::Unlink { dir, name })?;
            }
        }
        for dir in dirs.into_iter().rev() {
            let entries = self.world.model.entries(dir).expect("a directory").clone();
            for name in entries.into_keys().map(crate::operation::Name) {
                self.delete(0, &Operation::RmDir { dir, name })?;
            }
        }
        self.world.readers.clear();
        // The topmost directory keeps its buckets as long as it lives.
        let fs = self.fs(0);
        fs.rmdir(ROOT_INO, b"world").map_err(said)?;
        let info = fs.info();
        let free = info.blocks_free + info.blocks_lent;
        if free != self.free_at_start {
            return Err(format!(
                "{free} blocks are free after everything was deleted, {} were before",
                self.free_at_start
            ));
        }
        let attr = self.fs(0).mkdir(ROOT_INO, b"world", &NODE).map_err(said)?;
        let operation = self.world.model.operation;
        let instances = self.instances.len();
        self.world.model = crate::reference::Reference::new(&attr, ROOT_INO, instances);
        self.world.model.operation = operation;
        self.world.coverage.count("round", "all space came back");
        self.world.check(self.fs(0))
    }

    fn delete(&mut self, instance: usize, operation: &Operation) -> Result<(), String> {
        let fs = self.instances[instance].as_ref().expect("it is open");
        let done = self.world.run(fs, instance, operation);
        done.map_err(|text| format!("deleting everything, {operation:?}: {text}"))
    }
}

/// Prints what was going on when the engine panicked.
struct Note<'a> {
    what: &'a dyn Fn() -> String,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("panicked in {}", (self.what)());
        }
    }
}

const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o755,
    uid: 5,
    gid: 6,
};

fn said(error: pmfs::Error) -> String {
    error.to_string()
}

/// Gives every inode number its place in the table, which stays: so that free blocks can be
/// compared.
fn fill_inode_table(fs: &Fs) -> Result<(), String> {
    let dir = fs.mkdir(ROOT_INO, b"fill", &NODE).map_err(said)?.ino;
    let mut made = 0;
    loop {
        match fs.create(dir, format!("{made}").as_bytes(), &NODE) {
            Ok(_) => made += 1,
            Err(pmfs::Error::NoInodes) => break,
            Err(error) => return Err(format!("filling the inode table: {error}")),
        }
    }
    for name in 0..made {
        fs.unlink(dir, format!("{name}").as_bytes()).map_err(said)?;
    }
    fs.rmdir(ROOT_INO, b"fill").map_err(said)
}

/// Runs `count` operations on a pool of its own.
pub fn run(setting: Setting, seed: u64, count: u64) -> Result<Coverage, String> {
    let pool = TestPool::new(setting.bytes, Some(setting.inodes), seed).closed(setting.protect);
    let mut run = Run::begin(setting, seed, &pool)?;
    let mut left = count;
    while left > 0 {
        let round = setting.round.min(left);
        run.steps(round)?;
        let number = run.world.model.operation;
        run.clear()
            .map_err(|text| format!("{}, after operation {number}: {text}", setting.name))?;
        left -= round;
    }
    Ok(run.world.coverage)
}
