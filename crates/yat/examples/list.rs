//! A linked list on persistent memory, for yat: `cargo run --release -p yat --example list`.
//!
//! With `--bug` the list publishes a node before it is durable. `docs/YAT.md` explains this file.

use pmem::Pmem;
use pmem::record::Observer;
use std::process::ExitCode;
use std::sync::Arc;
use yat::explore::{Options, explore};
use yat::program::{Moment, Program, accepts_equal};

/// Bytes of the pool: the head in the first line, a node in each of the others.
const POOL_BYTES: u64 = 4096;
/// The head: where the first node is, 0 for none.
const HEAD: u64 = 0;
/// Bytes from one node to the next: a line each.
const NODE_BYTES: u64 = 64;
/// In a node: its value, then where the next one is.
const NEXT: u64 = 8;

/// A list of numbers. Free nodes are not recorded: they are those that the list does not reach.
pub struct List {
    mem: Pmem,
    /// Publish first, flush later.
    bug: bool,
}

impl List {
    /// Attaches to a pool. There is nothing to recover: each change is one store of eight bytes.
    pub fn open(mem: Pmem, bug: bool) -> Result<List, String> {
        let list = List { mem, bug };
        list.nodes()?;
        Ok(list)
    }

    /// Where the nodes are, first to last.
    fn nodes(&self) -> Result<Vec<u64>, String> {
        let mut nodes = Vec::new();
        let mut at = self.mem.load(HEAD);
        while at != 0 {
            if !at.is_multiple_of(NODE_BYTES) || at >= POOL_BYTES {
                return Err(format!("a link leads to {at:#x}, where no node can be"));
            }
            if nodes.contains(&at) {
                return Err(format!("the node at {at:#x} is in the list twice"));
            }
            nodes.push(at);
            at = self.mem.load(at + NEXT);
        }
        Ok(nodes)
    }

    /// The numbers, first to last.
    pub fn values(&self) -> Result<Vec<u64>, String> {
        let nodes = self.nodes()?;
        Ok(nodes.into_iter().map(|at| self.mem.load(at)).collect())
    }

    /// Adds a number at the end. Durable when it returns.
    pub fn append(&self, value: u64) -> Result<(), String> {
        let nodes = self.nodes()?;
        let free = (NODE_BYTES..POOL_BYTES)
            .step_by(NODE_BYTES as usize)
            .find(|at| !nodes.contains(at))
            .ok_or("the list is full")?;
        let link = nodes.last().map_or(HEAD, |last| last + NEXT);
        self.mem.store(free, value);
        self.mem.store(free + NEXT, 0);
        self.mem.flush(free, NODE_BYTES);
        if !self.bug {
            // A flush guarantees nothing: without this fence the link may be durable before the
            // node.
            self.mem.fence();
        }
        self.publish(link, free);
        Ok(())
    }

    /// Takes the first node with this number out; whether there was one.
    pub fn remove(&self, value: u64) -> Result<bool, String> {
        let mut link = HEAD;
        for at in self.nodes()? {
            if self.mem.load(at) == value {
                self.publish(link, self.mem.load(at + NEXT));
                return Ok(true);
            }
            link = at + NEXT;
        }
        Ok(false)
    }

    /// Sets a link, durably: the one store that makes a change happen.
    fn publish(&self, link: u64, node: u64) {
        self.mem.store(link, node);
        self.mem.flush(link, 8);
        self.mem.fence();
    }
}

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A number is added at the end.
    Append(u64),
    /// A number is taken out, if it is there.
    Remove(u64),
}

/// A list for yat to check, and the steps done to it.
pub struct Lists {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether nodes are published too early.
    pub bug: bool,
}

impl Program for Lists {
    type Running = List;
    type Visible = Vec<u64>;

    fn name(&self) -> String {
        format!("list: {:?}", self.steps)
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = Pmem::private(POOL_BYTES);
        // Memory that nobody has written yet is not zero, so that reading it shows.
        mem.poke(0, &[0xdb; POOL_BYTES as usize]);
        mem.poke(HEAD, &[0; 8]);
        Ok(mem)
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<List, String> {
        mem.observe(Some(observer));
        List::open(mem, self.bug)
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn step_name(&self, step: usize) -> String {
        format!("{:?}", self.steps[step])
    }

    fn step(&self, list: &mut List, step: usize) -> Result<(), String> {
        match self.steps[step] {
            Step::Append(value) => list.append(value),
            Step::Remove(value) => list.remove(value).map(drop),
        }
    }

    fn inspect(&self, list: &mut List) -> Result<Vec<u64>, String> {
        list.values()
    }

    fn accepts(&self, seen: &Vec<u64>, moment: &Moment<'_, Vec<u64>>) -> Result<(), String> {
        accepts_equal(seen, moment)
    }

    fn go_on(&self, list: &mut List) -> Result<(), String> {
        let before = list.values()?;
        list.append(99)?;
        list.remove(99)?;
        let after = list.values()?;
        let same = after == before;
        same.then_some(())
            .ok_or(format!("{before:?} became {after:?}"))
    }

    fn detach(&self, list: List) -> Option<Pmem> {
        Some(list.mem)
    }
}

/// A workload that appends, and removes in the middle, at both ends, and what is not there.
pub fn workload(bug: bool) -> Lists {
    use Step::{Append, Remove};
    let steps = vec![
        Append(1),
        Append(2),
        Append(3),
        Remove(2),
        Append(4),
        Remove(1),
        Remove(4),
        Remove(5),
    ];
    Lists { steps, bug }
}

fn main() -> ExitCode {
    let bug = std::env::args().any(|argument| argument == "--bug");
    match explore(&workload(bug), Options::default()) {
        Ok(Ok(counts)) => {
            println!(
                "{} steps, {} points, {} images judged of {} allowed: nothing is wrong",
                counts.steps, counts.points, counts.images, counts.allowed
            );
            ExitCode::SUCCESS
        }
        Ok(Err(violation)) => {
            println!("{violation}\nthe crash: {}", violation.crash);
            ExitCode::FAILURE
        }
        Err(text) => {
            eprintln!("the workload makes no sense: {text}");
            ExitCode::from(2)
        }
    }
}
