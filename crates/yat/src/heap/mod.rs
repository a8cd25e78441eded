//! The persistent heap (`pmlib`) as a program to check.
//!
//! A heap has a directory, which is its root: an object of [`SLOTS`] pointers. Each step is a
//! transaction, or two at once, on a lane of its choice. The state that is seen is each object in
//! the directory, word by word; an object that is in no slot, or in two, is a violation.
//!
//! Two processes that share a heap are two attachments to one file, in one thread: each is a CPU of
//! its own.

pub mod histories;
pub mod kept;
mod kept_sets;
pub mod keyed;
pub mod keyed_engine;
mod keyed_sets;
pub mod kill;
pub mod maps;
mod maps_sets;
mod mended;
mod schedule;
mod sets;
pub mod snapshots;
mod tree_sets;

pub use kept_sets::{containers, containers_killed, reopened};
pub use keyed_sets::{keyed, keyed_in_sight, keyed_killed, keyed_read};
pub use keyed_sets::{keyed_recovered, keyed_recovered_slowly};
pub use maps_sets::{mapped, mapped_recovered};
pub use mended::{Repairs, cut, mended};
pub use sets::{killed, recovered, sets, shared, shared_recovered};
pub use tree_sets::{treed, treed_killed, treed_recovered, treed_recovered_slowly};

use crate::program::{Moment, Program, accepts_equal};
use crate::trace::on_cpu;
use pmem::Pmem;
use pmem::record::Observer;
use pmlib::{Error, Heap, Options, Tx};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pointers in the directory.
pub const SLOTS: u64 = 8;
/// Bytes of a heap that has not grown.
const HEAP_BYTES: u64 = 1 << 20;
/// Bytes of its memory: so far it can grow.
const MEMORY_BYTES: u64 = HEAP_BYTES + (8 << 16);

/// Chunks of the shortest hole.
const HOLE_CHUNKS: u64 = 2;

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
    /// One transaction of the second process on a lane.
    Second(usize, Vec<Act>),
    /// A transaction on lane 0, during which one of the second process on lane 1 begins and ends.
    AroundSecond(Vec<Act>, Vec<Act>),
    /// The second process leaves, and comes again.
    Rejoin,
    /// Free runs of two chunks become holes, by the first process or by the second.
    Holes(bool),
    /// A transaction on lane 0, during which the second process makes holes.
    AroundHoles(Vec<Act>),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::One(lane, acts) => write!(f, "lane {lane}: {acts:?}"),
            Step::Around(outer, inner) => write!(f, "lane 0: {outer:?} around lane 1: {inner:?}"),
            Step::Reopen => f.write_str("reopen"),
            Step::Second(lane, acts) => write!(f, "second process, lane {lane}: {acts:?}"),
            Step::AroundSecond(outer, inner) => {
                write!(
                    f,
                    "lane 0: {outer:?} around second process, lane 1: {inner:?}"
                )
            }
            Step::Rejoin => f.write_str("second process leaves and comes"),
            Step::Holes(false) => f.write_str("holes"),
            Step::Holes(true) => f.write_str("second process: holes"),
            Step::AroundHoles(outer) => {
                write!(f, "lane 0: {outer:?} around second process: holes")
            }
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
    /// Two processes have the heap.
    pub is_shared: bool,
}

/// A heap that is attached, by one process or by two.
pub struct Attached {
    heap: Heap,
    second: Option<Second>,
}

/// The second process that has a heap.
struct Second {
    heap: Option<Heap>,
    path: PathBuf,
    observer: Arc<dyn Observer>,
}

impl Drop for Second {
    fn drop(&mut self) {
        // The directory was made for this heap alone.
        if let Some(dir) = self.path.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

impl Attached {
    /// Does something as the second process, in a thread: what a thread keeps is not another's.
    fn as_second<T: Send>(
        &mut self,
        body: impl FnOnce(&mut Heap) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let second = self.second.as_mut().and_then(|second| second.heap.as_mut());
        let heap = second.ok_or(Error::Broken)?;
        let as_second = || {
            on_cpu(1);
            body(heap)
        };
        let done = std::thread::scope(|scope| scope.spawn(as_second).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// For each slot, the words of its object.
pub type Seen = Vec<Option<Vec<u64>>>;

impl Heaps {
    fn options(&self) -> Options {
        Options {
            lanes: 2,
            lane_bytes: self.lane_bytes,
            seed: 7,
            max: if self.is_shared { MEMORY_BYTES } else { 0 },
            ..Options::default()
        }
    }

    fn open(&self, path: &Path, observer: &Arc<dyn Observer>) -> Result<Heap, Error> {
        Heap::open_observed(path, &self.options(), observer.clone())
    }

    /// Does a step that only two processes can do.
    fn run_second(&self, both: &mut Attached, step: &Step, nth: u64) -> Result<(), Error> {
        let directory = both.heap.root_offset()?;
        match step {
            Step::Second(lane, acts) => both.as_second(|heap| {
                let mut tx = heap.begin_on(*lane);
                do_all(&mut tx, directory, acts, nth)?;
                heap.commit(tx)
            }),
            Step::AroundSecond(outer, inner) => {
                let Attached { heap, second } = both;
                let mut tx = heap.begin_on(0);
                do_all(&mut tx, directory, outer, nth)?;
                let other = second.as_ref().and_then(|second| second.heap.as_ref());
                let other = other.ok_or(Error::Broken)?;
                on_cpu(1);
                let mut inner_tx = other.begin_on(1);
                do_all(&mut inner_tx, directory, inner, nth + 100)?;
                other.commit(inner_tx)?;
                on_cpu(0);
                heap.commit(tx)
            }
            Step::Holes(_) => both.as_second(|heap| heap.punch(HOLE_CHUNKS).map(drop)),
            Step::AroundHoles(outer) => {
                let mut tx = both.heap.begin_on(0);
                do_all(&mut tx, directory, outer, nth)?;
                let other = both.second.as_ref().and_then(|second| second.heap.as_ref());
                let other = other.ok_or(Error::Broken)?;
                on_cpu(1);
                let made = other.punch(HOLE_CHUNKS);
                on_cpu(0);
                made?;
                both.heap.commit(tx)
            }
            _ => {
                let Some(second) = &mut both.second else {
                    return Err(Error::Broken);
                };
                on_cpu(1);
                if let Some(heap) = second.heap.take() {
                    heap.close()?;
                }
                second.heap = Some(self.open(&second.path, &second.observer)?);
                on_cpu(0);
                Ok(())
            }
        }
    }

    fn run(&self, both: &mut Attached, step: &Step, nth: u64) -> Result<(), Error> {
        let heap = &mut both.heap;
        let directory = heap.root_offset()?;
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
            Step::Holes(false) => heap.punch(HOLE_CHUNKS).map(drop),
            step => self.run_second(both, step, nth),
        }
    }
}

/// A heap's file in a directory of its own, with more bytes than the heap has yet.
fn file_for(len: u64) -> Result<Pmem, String> {
    let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
    let path = dir.keep().join("heap");
    let options = pmem::MapOptions::default();
    Pmem::create(&path, len, false, true, &options).map_err(|error| error.to_string())
}

/// The word at `at` of an object, in a transaction.
fn word(tx: &Tx<'_>, object: u64, at: u64) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    tx.read_bytes(object, at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn set(tx: &mut Tx<'_>, object: u64, at: u64, value: u64) -> Result<(), Error> {
    let bytes = tx.edit_bytes(object, at, 8)?;
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

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Program for Heaps {
    type Running = Attached;
    type Visible = Seen;

    fn name(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        format!("heap: {}", steps.join("; "))
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = match self.is_shared {
            false => Pmem::private(MEMORY_BYTES),
            true => file_for(MEMORY_BYTES)?,
        };
        // Bytes that nobody has written yet are not zero, so that reading them shows.
        mem.poke(0, &vec![0xdb; MEMORY_BYTES as usize]);
        Heap::format(&mem, HEAP_BYTES, &self.options()).map_err(text)?;
        Ok(mem)
    }

    fn volatile(&self, mem: &Pmem) -> std::ops::Range<u64> {
        Heap::volatile(mem)
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        let Some(path) = mem.path().map(Path::to_path_buf) else {
            mem.observe(Some(observer));
            let heap = Heap::attach(mem).map_err(text)?;
            return Ok(Attached { heap, second: None });
        };
        drop(mem);
        let heap = self.open(&path, &observer).map_err(text)?;
        on_cpu(1);
        let second = Second {
            heap: Some(self.open(&path, &observer).map_err(text)?),
            path,
            observer,
        };
        on_cpu(0);
        Ok(Attached {
            heap,
            second: Some(second),
        })
    }

    fn prepare(&self, both: &mut Attached) -> Result<(), String> {
        let heap = &mut both.heap;
        let mut tx = heap.begin_on(0);
        let directory = tx.alloc(SLOTS * 8).map_err(text)?;
        tx.set_root(directory).map_err(text)?;
        heap.commit(tx).map_err(text)?;
        for (nth, step) in self.prepared.iter().enumerate() {
            self.run(both, step, 900 + nth as u64).map_err(text)?;
        }
        Ok(())
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn step_name(&self, step: usize) -> String {
        self.steps[step].to_string()
    }

    fn step(&self, both: &mut Attached, step: usize) -> Result<(), String> {
        self.run(both, &self.steps[step], step as u64 + 1)
            .map_err(text)
    }

    fn inspect(&self, both: &mut Attached) -> Result<Seen, String> {
        look(&both.heap).map_err(text)
    }

    fn check(&self, both: &mut Attached) -> Result<(), String> {
        check(&both.heap)
    }

    fn accepts(&self, seen: &Seen, moment: &Moment<'_, Seen>) -> Result<(), String> {
        // The inner one of two transactions in one step commits first.
        if let (Step::Around(_, inner) | Step::AroundSecond(_, inner), false) =
            (&self.steps[moment.step], moment.returned)
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

    fn go_on(&self, both: &mut Attached) -> Result<(), String> {
        let heap = &both.heap;
        let before = look(heap).map_err(text)?;
        let directory = heap.root_offset().map_err(text)?;
        for lane in [1, 0] {
            let mut tx = heap.begin_on(lane);
            use_all(&mut tx, directory).map_err(text)?;
            heap.commit(tx).map_err(text)?;
        }
        check(heap)?;
        let after = look(heap).map_err(text)?;
        let expected: Seen = before
            .into_iter()
            .map(|object| object.map(bumped))
            .collect();
        let same = after == expected;
        same.then_some(())
            .ok_or(format!("{expected:?} was to be, and there is {after:?}"))
    }

    fn detach(&self, both: Attached) -> Option<Pmem> {
        let is_private = both.second.is_none();
        is_private.then(|| both.heap.into_memory())
    }
}

/// Objects are those that can be reached, and every byte is something.
fn check(heap: &Heap) -> Result<(), String> {
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
    let directory = heap.root_offset()?;
    if directory == 0 {
        return Ok(Seen::new());
    }
    let mut slots = [0; SLOTS as usize * 8];
    heap.read_bytes(directory, 0, &mut slots)?;
    let (pointers, _) = slots.as_chunks::<8>();
    let mut seen = Seen::new();
    for pointer in pointers {
        let object = u64::from_le_bytes(*pointer);
        if object == 0 {
            seen.push(None);
            continue;
        }
        let mut bytes = vec![0; heap.size_of(object)?.min(4096) as usize];
        heap.read_bytes(object, 0, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        seen.push(Some(
            words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        ));
    }
    Ok(seen)
}
