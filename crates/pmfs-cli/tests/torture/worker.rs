//! A worker: attaches, verifies what its predecessor left, and works on until it is killed.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pmfs::RenameFlags;
use rustix::process::getppid;

use crate::condemnation;
use crate::face::{self, Done, Face, Handle, Stat, Way};
use crate::journal::{self, Journal, Left};
use crate::model::{
    Change, DIR_MODE, FILE_MODE, Found, Kind, Node, Seen, content, difference, view_of,
};
use crate::op::{self, Chooser, MIXED, Op, State};
use crate::shared;

/// Operations between two checkpoints.
const CHECKPOINT_OPS: u64 = 4096;

/// The operations between two pauses, for a worker that is paced.
const PAUSE_OPS: u64 = 32;
const PAUSE: Duration = Duration::from_millis(4);

/// The orders to a worker.
pub struct Orders {
    pub dir: PathBuf,
    pub worker: usize,
    pub incarnation: u32,
    pub seed: u64,
    /// Logs do not grow beyond this, bytes.
    pub log_bytes_max: u64,
    /// The number of times that the logs were emptied.
    pub epoch: u64,
    /// Pauses leave the processors idle now and then, so that times are the engine's.
    pub paced: bool,
    /// The way in which it reaches the pool.
    pub way: Way,
    /// Verify, put everything in order and leave.
    pub finish: bool,
}

impl Orders {
    pub fn pool(dir: &Path) -> PathBuf {
        dir.join("pool")
    }
}

pub struct Worker<'a> {
    pub orders: &'a Orders,
    pub face: Box<dyn Face>,
    pub state: State,
    journal: Journal,
    control: File,
    /// The files that the model says are open, in its order.
    open: Vec<Handle>,
    /// The file of which it has a range.
    pub ranges: Cell<Option<Handle>>,
}

/// The worker's whole life.
pub fn work(orders: &Orders) {
    let (dir, me) = (&orders.dir, orders.worker);
    let parent = getppid();
    let mut journal = Journal::open(dir, me).expect("journal");
    let left = journal::replay(dir, me, orders.seed);
    journal.begin(0, op::ATTACH).expect("journal");
    let face = face::attach(orders.way, dir);
    journal.begin(0, op::VERIFY).expect("journal");
    let mut worker = Worker {
        orders,
        face,
        state: State::default(),
        journal,
        control: condemnation::open(dir).expect("control file"),
        open: Vec::new(),
        ranges: Cell::new(None),
    };
    worker.take_over(left);
    if orders.finish {
        return worker.finish();
    }
    while getppid() == parent {
        worker.step();
    }
}

impl Worker<'_> {
    /// Believes nothing: what is there must be what the journal says, with or without
    /// the operation in flight.
    fn take_over(&mut self, left: Left) {
        self.state = left.state;
        if let Err(before) = self.verify() {
            let op = left.in_flight.as_ref();
            let Some(op) = op.filter(|op| op.number() < op::OWN) else {
                panic!(
                    "{}: {before}; no own operation was in flight: {op:?}",
                    self.name()
                );
            };
            self.state.apply_to_own(op);
            if let Err(after) = self.verify() {
                let name = self.name();
                panic!("{name}: neither before nor after {op:?}\nbefore: {before}\nafter: {after}");
            }
        }
        self.state.own.close_all();
        self.state.range = None;
        if let Some(op) = left.in_flight {
            self.state.number += 1;
            shared::resolve(self, &op);
        }
        self.state.enter(self.orders.epoch);
        shared::verify_counters(self);
        self.journal.checkpoint(&self.state).expect("checkpoint");
    }

    pub fn name(&self) -> String {
        let Orders {
            worker,
            incarnation,
            ..
        } = self.orders;
        format!(
            "worker {worker}, incarnation {incarnation}, operation {}",
            self.state.number
        )
    }

    fn step(&mut self) {
        self.obey();
        if self.orders.paced && self.state.number.is_multiple_of(PAUSE_OPS) {
            thread::sleep(PAUSE);
        }
        let op = Chooser::new(self.orders.seed, self.orders.worker, &self.state).choose();
        self.run(&op);
        if self.state.number.is_multiple_of(CHECKPOINT_OPS) {
            self.journal.checkpoint(&self.state).expect("checkpoint");
        }
    }

    /// A condemned worker dies by its own hand, so many instructions after one of the
    /// next barriers.
    fn obey(&mut self) {
        if let Some((barrier, instructions)) = condemnation::read(&self.control, self.orders.worker)
        {
            condemnation::lift(&self.control, self.orders.worker).expect("control file");
            pmem::death::arm(barrier, instructions);
        }
    }

    fn run(&mut self, op: &Op) {
        let (number, kind) = (self.state.number, op.number());
        self.journal.begin(number, kind).expect("journal");
        let outcome = if kind < op::OWN {
            self.call(op).map(|()| 0)
        } else {
            shared::call(self, op)
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(errno) => panic!("{}: {op:?}: {errno}", self.name()),
        };
        self.journal.end(number, kind, outcome).expect("journal");
        self.state.apply(op, outcome);
    }

    /// A change of the worker's own files: none may fail.
    fn change(&self, change: &Change) -> Done<()> {
        let face = &self.face;
        match change {
            Change::Create { path } => face.create(path, FILE_MODE),
            Change::Mkdir { path } => face.mkdir(path, DIR_MODE),
            Change::Symlink { target, path } => face.symlink(target, path),
            Change::Write {
                path,
                at,
                len,
                fill,
            } => face.write(path, *at as u64, &content(*fill, *len)),
            Change::Append { path, len, fill } => {
                face.append(path, &content(*fill, *len)).map(drop)
            }
            Change::Truncate { path, len } => face.truncate(path, *len as u64),
            Change::Punch { path, at, len } => face.punch(path, *at as u64, *len as u64),
            Change::Rename { from, to } => face.rename(from, to, RenameFlags::empty()),
            Change::Exchange { one, other } => face.rename(one, other, RenameFlags::EXCHANGE),
            Change::Link { from, to } => face.link(from, to),
            Change::Unlink { path } => face.unlink(path),
            Change::Rmdir { path } => face.rmdir(path),
            Change::Chmod { path, mode } => face.chmod(path, *mode),
            Change::SetXattr {
                path,
                name,
                len,
                fill,
            } => face.setxattr(path, name, &content(*fill, *len)),
            Change::RemoveXattr { path, name } => face.removexattr(path, name),
        }
    }

    /// An operation on the worker's own files: none may fail.
    fn call(&mut self, op: &Op) -> Done<()> {
        match *op {
            Op::Own(ref change) => self.change(change),
            Op::Open { ref path } => {
                let handle = self.face.open(path)?;
                self.open.push(handle);
                Ok(())
            }
            Op::Close { open } => {
                let handle = self.open.remove(open);
                self.face.close(handle)
            }
            Op::Read { ref path } => {
                let should = &self.state.own.node(path).content;
                let is = self.face.read(path, 0, should.len() + 1)?;
                self.assert_same(op, &is, should);
                Ok(())
            }
            Op::WriteOpen {
                open,
                at,
                len,
                fill,
            } => (self.face).write_open(self.open[open], at as u64, &content(fill, len)),
            Op::ReadOpen { open } => {
                let own = &self.state.own;
                let should = &own.nodes[&own.open[open].node].content;
                let is = self.face.read_open(self.open[open], 0, should.len() + 1)?;
                self.assert_same(op, &is, should);
                Ok(())
            }
            Op::Dup { open } => {
                let handle = self.face.dup(self.open[open])?;
                self.open.push(handle);
                Ok(())
            }
            Op::Seek { open, to } => self.face.seek(self.open[open], to as u64),
            Op::WriteNext { open, len, fill } => {
                self.face.write_next(self.open[open], &content(fill, len))
            }
            Op::ReadNext { open, len } => {
                let is = self.face.read_next(self.open[open], len)?;
                self.assert_same(op, &is, self.state.own.next_bytes(open, len));
                Ok(())
            }
            _ => unreachable!("{op:?} is not on own files"),
        }
    }

    fn assert_same(&self, op: &Op, is: &[u8], should: &[u8]) {
        let first = is.iter().zip(should).position(|(is, should)| is != should);
        assert!(
            is == should,
            "{}: {op:?}: {} bytes, should be {}; first difference {first:?}",
            self.name(),
            is.len(),
            should.len()
        );
    }

    /// Checks that this worker's names are what the model says.
    fn verify(&self) -> Result<(), String> {
        let mut found = Found::new();
        let worker = self.orders.worker;
        let seen = self
            .observe(&op::home(worker), "", &mut found)
            .and_then(|()| self.observe(MIXED, &op::prefix(worker), &mut found));
        seen.map_err(|errno| format!("reading back: {errno}"))?;
        difference(&self.state.own.view(), &view_of(found)).map_or(Ok(()), Err)
    }

    /// The names below `dir` that begin so, in order.
    fn observe(&self, dir: &str, prefix: &str, found: &mut Found) -> Done<()> {
        let mut names = self.face.list(dir)?;
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            panic!("{}: {dir} lists {} twice", self.name(), twice[0]);
        }
        for name in names.iter().filter(|name| name.starts_with(prefix)) {
            let path = format!("{dir}/{name}");
            let stat = self.face.stat(&path)?;
            let kind = self.face.kind(&path, &stat)?;
            let seen = self.seen(&path, &stat, kind)?;
            let is_dir = seen.node.kind == Kind::Dir;
            found.insert(path.clone(), (seen, stat.ino));
            if is_dir {
                self.observe(&path, "", found)?;
            }
        }
        Ok(())
    }

    fn seen(&self, path: &str, stat: &Stat, kind: Kind) -> Done<Seen> {
        let is_file = kind == Kind::File;
        let node = Node {
            mode: stat.mode & 0o7777,
            xattrs: if is_file {
                self.face.xattrs(path)?
            } else {
                Default::default()
            },
            content: if is_file {
                self.face.read(path, 0, stat.size as usize + 1)?
            } else {
                Vec::new()
            },
            kind,
        };
        Ok(Seen {
            node,
            links: stat.links,
            first: String::new(),
        })
    }

    /// Everything in order; the journal then says all.
    fn finish(&mut self) {
        while let Some(open) = self.state.own.open.len().checked_sub(1) {
            self.run(&Op::Close { open });
        }
        if let Some(lock) = self.state.lock {
            self.run(&Op::Release { lock });
        }
        if self.state.range.is_some() {
            self.run(&Op::GiveRange);
        }
        if let Err(text) = self.verify() {
            panic!("{}: in the end {text}", self.name());
        }
        self.journal.checkpoint(&self.state).expect("checkpoint");
        self.journal.begin(0, op::DETACH).expect("journal");
        match self.face.leave() {
            Ok(()) => {}
            Err(errno) => panic!("{}: leaving: {errno}", self.name()),
        }
    }
}
