//! The persistent heap (`pmlib`) as a program to check.
//!
//! A heap has a directory, which is its root: an object of [`SLOTS`] pointers. Each step is a
//! transaction, or two at once, on a lane of its choice. The state that is seen is each object in
//! the directory, word by word; an object that is in no slot, or in two, is a violation.

mod sets;

pub use sets::{recovered, sets};

use crate::program::{Moment, Program, accepts_equal};
use pmem::Pmem;
use pmem::record::Observer;
use pmlib::{Error, Heap, Options, Tx};
use std::fmt;
use std::sync::Arc;

/// Pointers in the directory.
pub const SLOTS: u64 = 8;
/// Bytes of a heap that has not grown.
const HEAP_BYTES: u64 = 1 << 20;
/// Bytes of its memory: so far it can grow.
const MEMORY_BYTES: u64 = HEAP_BYTES + (8 << 16);

/// One thing that a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// An object of so many bytes is made, filled with a number, and put into a slot.
    Make(u64, u64),
    /// The object of a slot is freed.
    Free(u64),
    /// So many words of a slot's object, 128 bytes apart, become a number.
    Edit(u64, u64),
    /// A part that edits that slot's object, makes one, and fails.
    Fails(u64),
}

impl Act {
    /// The slot that it changes.
    fn slot(&self) -> u64 {
        let (Act::Make(slot, _) | Act::Free(slot) | Act::Edit(slot, _) | Act::Fails(slot)) = *self;
        slot
    }
}

/// One step of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// One transaction on a lane.
    One(usize, Vec<Act>),
    /// A transaction on lane 0, during which one on lane 1 begins and ends.
    Around(Vec<Act>, Vec<Act>),
    /// The heap is left clean and opened again.
    Reopen,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::One(lane, acts) => write!(f, "lane {lane}: {acts:?}"),
            Step::Around(outer, inner) => write!(f, "lane 0: {outer:?} around lane 1: {inner:?}"),
            Step::Reopen => f.write_str("reopen"),
        }
    }
}

/// A workload on a heap.
#[derive(Clone, Debug)]
pub struct Heaps {
    /// The steps before the first one that is looked at.
    pub prepared: Vec<Step>,
    /// The steps that are done, in order.
    pub steps: Vec<Step>,
    /// Bytes of a lane.
    pub lane_bytes: u64,
}

/// For each slot, the words of its object.
pub type Seen = Vec<Option<Vec<u64>>>;

impl Heaps {
    fn options(&self) -> Options {
        Options {
            lanes: 2,
            lane_bytes: self.lane_bytes,
            seed: 7,
            ..Options::default()
        }
    }

    fn run(&self, heap: &mut Heap, step: &Step, nth: u64) -> Result<(), Error> {
        let directory = heap.root()?;
        match step {
            Step::One(lane, acts) => {
                let mut tx = heap.begin_on(*lane);
                do_all(&mut tx, directory, acts, nth)?;
                heap.commit(tx)
            }
            Step::Around(outer, inner) => {
                let mut tx = heap.begin_on(0);
                do_all(&mut tx, directory, outer, nth)?;
                let mut other = heap.begin_on(1);
                do_all(&mut other, directory, inner, nth + 100)?;
                heap.commit(other)?;
                heap.commit(tx)
            }
            Step::Reopen => {
                let other = Heap::private(HEAP_BYTES, &self.options())?;
                let left = std::mem::replace(heap, other).close()?;
                *heap = Heap::attach(left)?;
                Ok(())
            }
        }
    }
}

/// The word at `at` of an object, in a transaction.
fn word(tx: &Tx<'_>, object: u64, at: u64) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    tx.read(object, at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn set(tx: &mut Tx<'_>, object: u64, at: u64, value: u64) -> Result<(), Error> {
    let bytes = tx.edit(object, at, 8)?;
    bytes.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

fn do_all(tx: &mut Tx<'_>, directory: u64, acts: &[Act], nth: u64) -> Result<(), Error> {
    for (at, &act) in acts.iter().enumerate() {
        let value = 1000 * nth + at as u64;
        match act {
            Act::Make(slot, size) => {
                let object = tx.alloc(size)?;
                let len = tx.size_of(object)?.min(512);
                for at in (0..len).step_by(8) {
                    set(tx, object, at, value)?;
                }
                set(tx, directory, slot * 8, object)?;
            }
            Act::Free(slot) => {
                let object = word(tx, directory, slot * 8)?;
                tx.free(object)?;
                set(tx, directory, slot * 8, 0)?;
            }
            Act::Edit(slot, words) => {
                let object = word(tx, directory, slot * 8)?;
                for at in 0..words {
                    set(tx, object, at * 128, value)?;
                }
            }
            Act::Fails(slot) => {
                let part: Result<(), Error> = tx.nested(|tx| {
                    let object = word(tx, directory, slot * 8)?;
                    set(tx, object, 0, 0xbad)?;
                    let made = tx.alloc(64)?;
                    set(tx, directory, slot * 8, made)?;
                    Err(Error::Deadlock)
                });
                assert!(part.is_err(), "it fails");
            }
        }
    }
    Ok(())
}

fn text(error: Error) -> String {
    error.to_string()
}

impl Program for Heaps {
    type Running = Heap;
    type Visible = Seen;

    fn name(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        format!("heap: {}", steps.join("; "))
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = Pmem::private(MEMORY_BYTES);
        // Bytes that nobody has written yet are not zero, so that reading them shows.
        mem.poke(0, &vec![0xdb; MEMORY_BYTES as usize]);
        Heap::format(&mem, HEAP_BYTES, &self.options()).map_err(text)?;
        Ok(mem)
    }

    fn volatile(&self, mem: &Pmem) -> std::ops::Range<u64> {
        Heap::volatile(mem)
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Heap, String> {
        mem.observe(Some(observer));
        Heap::attach(mem).map_err(text)
    }

    fn prepare(&self, heap: &mut Heap) -> Result<(), String> {
        let mut tx = heap.begin_on(0);
        let directory = tx.alloc(SLOTS * 8).map_err(text)?;
        tx.set_root(directory).map_err(text)?;
        heap.commit(tx).map_err(text)?;
        for (nth, step) in self.prepared.iter().enumerate() {
            self.run(heap, step, 900 + nth as u64).map_err(text)?;
        }
        Ok(())
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn step_name(&self, step: usize) -> String {
        self.steps[step].to_string()
    }

    fn step(&self, heap: &mut Heap, step: usize) -> Result<(), String> {
        self.run(heap, &self.steps[step], step as u64 + 1)
            .map_err(text)
    }

    fn inspect(&self, heap: &mut Heap) -> Result<Seen, String> {
        look(heap).map_err(text)
    }

    fn check(&self, heap: &mut Heap) -> Result<(), String> {
        let census = heap.check().map_err(text)?;
        let seen = look(heap).map_err(text)?;
        let objects = 1 + seen.iter().flatten().count() as u64;
        if census.objects != objects {
            return Err(format!(
                "{} objects are allocated, and {objects} can be reached",
                census.objects
            ));
        }
        let bytes = census.own_bytes + census.free_bytes + census.object_bytes;
        let runs = heap.size() - census.spare_bytes - bytes;
        if runs != 0 {
            return Err(format!("{runs} bytes are nothing"));
        }
        Ok(())
    }

    fn accepts(&self, seen: &Seen, moment: &Moment<'_, Seen>) -> Result<(), String> {
        // The inner one of two transactions in one step commits first.
        if let (Step::Around(_, inner), false) = (&self.steps[moment.step], moment.returned)
            && let [before, after] = moment.allowed()
        {
            let mut between = before.clone();
            for slot in inner.iter().map(Act::slot) {
                between[slot as usize].clone_from(&after[slot as usize]);
            }
            if *seen == between {
                return Ok(());
            }
        }
        accepts_equal(seen, moment)
    }

    fn go_on(&self, heap: &mut Heap) -> Result<(), String> {
        let before = look(heap).map_err(text)?;
        let directory = heap.root().map_err(text)?;
        for lane in [1, 0] {
            let mut tx = heap.begin_on(lane);
            use_all(&mut tx, directory).map_err(text)?;
            heap.commit(tx).map_err(text)?;
        }
        self.check(heap)?;
        let after = look(heap).map_err(text)?;
        let expected: Seen = before
            .into_iter()
            .map(|object| object.map(bumped))
            .collect();
        let same = after == expected;
        same.then_some(())
            .ok_or(format!("{expected:?} was to be, and there is {after:?}"))
    }

    fn detach(&self, heap: Heap) -> Option<Pmem> {
        Some(heap.into_memory())
    }
}

/// An object's words after `use_all`, twice.
fn bumped(mut words: Vec<u64>) -> Vec<u64> {
    words[0] = words[0].wrapping_add(2);
    words
}

/// Adds one to each object's first word, and makes and frees one of another.
fn use_all(tx: &mut Tx<'_>, directory: u64) -> Result<(), Error> {
    for slot in 0..SLOTS {
        let object = word(tx, directory, slot * 8)?;
        if object != 0 {
            let value = word(tx, object, 0)?;
            set(tx, object, 0, value.wrapping_add(1))?;
        }
    }
    let other = tx.alloc(64)?;
    tx.free(other)
}

fn look(heap: &Heap) -> Result<Seen, Error> {
    let directory = heap.root()?;
    if directory == 0 {
        return Ok(Seen::new());
    }
    let mut slots = [0; SLOTS as usize * 8];
    heap.read(directory, 0, &mut slots)?;
    let (pointers, _) = slots.as_chunks::<8>();
    let mut seen = Seen::new();
    for pointer in pointers {
        let object = u64::from_le_bytes(*pointer);
        if object == 0 {
            seen.push(None);
            continue;
        }
        let mut bytes = vec![0; heap.size_of(object)?.min(4096) as usize];
        heap.read(object, 0, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        seen.push(Some(
            words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        ));
    }
    Ok(seen)
}
