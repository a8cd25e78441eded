//! Maps and trees of a heap as a program to check.
//!
//! A heap has a root of each kind, of numbers and of bytes. Each step is calls on these: one alone,
//! or several in a transaction, on a lane of its choice. The state that is seen is what they hold,
//! how much they say they hold, and how many objects the heap has, so that none is lost. An entry
//! that one way of looking finds and another does not is a violation.

use crate::program::{Moment, Program, accepts_equal};
use pmem::Pmem;
use pmem::record::Observer;
use pmlib::containers::{PBytes, PMap, PStr, PTree};
use pmlib::{Error, Heap, Options, P, Tx};
use std::fmt;
use std::sync::Arc;

/// Bytes of a heap.
const HEAP_BYTES: u64 = 1 << 20;
/// Entries that a node of the tree has room for: few, so that few splits make it high.
const SLOTS: usize = 4;

/// The container of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A map of numbers.
    Map,
    /// A map of names, each of which has an object.
    Names,
    /// A tree of numbers.
    Tree,
    /// A map of bytes to bytes.
    Bytes,
    /// A tree of bytes to bytes.
    BytesTree,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A key gets a value that it has not had yet.
    Insert(On, u64),
    /// A key's value becomes another, if it is there.
    Update(On, u64),
    /// A key is taken away.
    Remove(On, u64),
    /// All are.
    Clear(On),
}

/// One step of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// One call on a lane, a transaction of its own.
    Alone(usize, Call),
    /// Calls that are one transaction on a lane.
    Tx(usize, Vec<Call>),
    /// Calls that come to nothing: a transaction that is dropped.
    Dropped(usize, Vec<Call>),
    /// The heap is left clean and opened again.
    Reopen,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Alone(lane, call) => write!(f, "lane {lane}: {call:?}"),
            Step::Tx(lane, calls) => write!(f, "lane {lane}: {calls:?}"),
            Step::Dropped(lane, calls) => write!(f, "lane {lane}: {calls:?}, dropped"),
            Step::Reopen => f.write_str("reopen"),
        }
    }
}

/// A workload on maps and trees.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// The steps before the first one that is looked at.
    pub prepared: Vec<Step>,
    /// The steps that are done, in order.
    pub steps: Vec<Step>,
}

/// The content of all containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    map: Vec<(u64, u64)>,
    names: Vec<(String, u64)>,
    tree: Vec<(u64, u64)>,
    bytes: Vec<(Vec<u8>, Vec<u8>)>,
    bytes_tree: Vec<(Vec<u8>, Vec<u8>)>,
    objects: u64,
}

/// Where the containers are.
#[derive(Clone, Copy, Debug)]
struct Places {
    map: P<PMap<u64, u64>>,
    names: P<PMap<PStr, u64>>,
    tree: P<PTree<u64, u64>>,
    bytes: P<PMap<PBytes, PBytes>>,
    bytes_tree: P<PTree<PBytes, PBytes>>,
}

impl Places {
    /// Finds the roots, which are there.
    fn of(heap: &Heap) -> Result<Places, Error> {
        Ok(Places {
            map: heap.root("map")?,
            names: heap.root("names")?,
            tree: heap.root("tree")?,
            bytes: heap.root("bytes")?,
            bytes_tree: heap.root("bytes tree")?,
        })
    }

    fn make(tx: &mut Tx<'_>) -> Result<(), Error> {
        let map = tx.root::<PMap<u64, u64>>("map")?;
        tx.root::<PMap<PStr, u64>>("names")?;
        let tree = tx.root::<PTree<u64, u64>>("tree")?;
        tx.write(tree, &PTree::with_slots(SLOTS))?;
        tx.root::<PMap<PBytes, PBytes>>("bytes")?;
        let bytes_tree = tx.root::<PTree<PBytes, PBytes>>("bytes tree")?;
        tx.write(bytes_tree, &PTree::with_slots(SLOTS))?;
        // For whoever attaches: the roots are there.
        tx.set_root(pmlib::RawP::from(map).0)
    }
}

fn name(key: u64) -> String {
    format!("one whose number is {key}")
}

/// Does one call on one container.
macro_rules! on_one {
    ($at:expr, $call:expr, $key:expr, $value:expr) => {
        match $call {
            Call::Insert(..) => $at.insert($key, $value).map(drop),
            Call::Update(..) => $at.update($key, |value| *value = $value).map(drop),
            Call::Remove(..) => $at.remove($key).map(drop),
            Call::Clear(_) => $at.clear(),
        }
    };
}

/// A key of bytes, which has an object.
fn byte_key(key: u64) -> Vec<u8> {
    format!("{key:016}").into_bytes()
}

/// The bytes of a value: in its entry, or of an object of their own.
fn bytes_of(key: u64, value: u64) -> Vec<u8> {
    let len = if key.is_multiple_of(2) { 12 } else { 16 };
    vec![(value / 1000) as u8; len]
}

/// Does one call on one container of bytes.
macro_rules! on_bytes {
    ($at:expr, $call:expr, $key:expr, $value:expr) => {{
        let (key, value) = (byte_key($key), bytes_of($key, $value));
        match $call {
            Call::Insert(..) => $at.set_bytes(&key, &value).map(drop),
            Call::Update(..) => match $at.contains(&key) {
                Ok(true) => $at.set_bytes(&key, &value).map(drop),
                other => other.map(drop),
            },
            Call::Remove(..) => $at.remove_bytes(&key).map(drop),
            Call::Clear(_) => $at.clear_bytes(),
        }
    }};
}

/// Does one call, by what has the containers' calls.
macro_rules! call {
    ($at:ident, $places:expr, $call:expr, $nth:expr) => {{
        let (places, call, value) = ($places, $call, $nth * 1000);
        let (on, key) = match call {
            Call::Insert(on, key) | Call::Update(on, key) | Call::Remove(on, key) => (on, key),
            Call::Clear(on) => (on, 0),
        };
        match on {
            On::Map => on_one!($at!(places.map), call, &key, value),
            On::Names => on_one!($at!(places.names), call, &name(key), value),
            On::Tree => on_one!($at!(places.tree), call, &key, value),
            On::Bytes => on_bytes!($at!(places.bytes), call, key, value),
            On::BytesTree => on_bytes!($at!(places.bytes_tree), call, key, value),
        }
    }};
}

fn in_tx(tx: &mut Tx<'_>, places: &Places, calls: &[Call], nth: u64) -> Result<(), Error> {
    macro_rules! at {
        ($place:expr) => {
            tx.at($place)
        };
    }
    let mut each = calls.iter().enumerate();
    each.try_for_each(|(at, &call)| call!(at, places, call, nth + 10 * at as u64))
}

fn alone(heap: &Heap, lane: usize, places: &Places, call: Call, nth: u64) -> Result<(), Error> {
    macro_rules! at {
        ($place:expr) => {
            heap.at_on(lane, $place)
        };
    }
    call!(at, places, call, nth)
}

impl Mapped {
    fn options() -> Options {
        Options {
            lanes: 2,
            lane_bytes: 4096,
            seed: 7,
            ..Options::default()
        }
    }

    fn run(&self, heap: &mut Heap, step: &Step, nth: u64) -> Result<(), Error> {
        let places = Places::of(heap)?;
        match step {
            Step::Alone(lane, call) => alone(heap, *lane, &places, *call, nth),
            Step::Tx(lane, calls) => {
                let mut tx = heap.begin_on(*lane);
                in_tx(&mut tx, &places, calls, nth)?;
                heap.commit(tx)
            }
            Step::Dropped(lane, calls) => {
                let mut tx = heap.begin_on(*lane);
                in_tx(&mut tx, &places, calls, nth)
            }
            Step::Reopen => {
                let other = Heap::private(HEAP_BYTES, &Mapped::options())?;
                let left = std::mem::replace(heap, other).close()?;
                *heap = Heap::attach(left)?;
                Ok(())
            }
        }
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Reads all containers, in each way.
fn look(heap: &Heap) -> Result<Seen, String> {
    let places = Places::of(heap).map_err(text)?;
    macro_rules! all {
        ($field:ident) => {{
            let entries = heap.at_on(0, places.$field).iter();
            let mut entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(text)?;
            let mut at = heap.at_on(0, places.$field);
            let len = at.len().map_err(text)?;
            if len != entries.len() as u64 {
                return Err(format!("{len} entries are said to be there: {entries:?}"));
            }
            for (key, value) in &entries {
                let found = at.get(key).map_err(text)?;
                if found != Some(*value) {
                    return Err(format!("{key:?} has the value {value}, and {found:?}"));
                }
            }
            entries.sort_unstable();
            entries
        }};
    }
    macro_rules! all_bytes {
        ($field:ident) => {{
            let entries = heap.at_on(0, places.$field).iter();
            let entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(text)?;
            let mut at = heap.at_on(0, places.$field);
            let mut all = Vec::new();
            for (key, value) in entries {
                let bytes = heap.bytes_of(value).map_err(text)?;
                let found = at.get_bytes(&key).map_err(text)?;
                if found.as_ref() != Some(&bytes) {
                    return Err(format!("{key:?} has {bytes:?}, and {found:?}"));
                }
                all.push((key, bytes));
            }
            let len = at.len().map_err(text)?;
            if len != all.len() as u64 {
                return Err(format!("{len} entries are said to be there: {all:?}"));
            }
            all.sort_unstable();
            all
        }};
    }
    let tree = heap.at_on(0, places.tree).iter();
    let tree: Vec<(u64, u64)> = tree.collect::<Result<_, _>>().map_err(text)?;
    let mut back = heap.at_on(0, places.tree).iter().rev();
    for entry in tree.iter().rev() {
        let found = back.next().transpose().map_err(text)?;
        if found != Some(*entry) {
            return Err(format!(
                "{entry:?} is there, and from the other end {found:?}"
            ));
        }
    }
    Ok(Seen {
        map: all!(map),
        names: all!(names),
        tree: all!(tree),
        bytes: all_bytes!(bytes),
        bytes_tree: all_bytes!(bytes_tree),
        objects: heap.check().map_err(text)?.objects,
    })
}

impl Program for Mapped {
    type Running = Heap;
    type Visible = Seen;

    fn name(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        format!("maps: {}", steps.join("; "))
    }

    /// Bytes that nobody has written yet are 0: few words of a new object differ, and every mixture
    /// of old and new can be tried.
    fn setup(&self) -> Result<Pmem, String> {
        let mem = Pmem::private(HEAP_BYTES);
        Heap::format(&mem, HEAP_BYTES, &Mapped::options()).map_err(text)?;
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
        Places::make(&mut tx).map_err(text)?;
        heap.commit(tx).map_err(text)?;
        for (nth, step) in self.prepared.iter().enumerate() {
            self.run(heap, step, 100 + nth as u64).map_err(text)?;
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
        look(heap)
    }

    fn accepts(&self, seen: &Seen, moment: &Moment<'_, Seen>) -> Result<(), String> {
        accepts_equal(seen, moment)
    }

    /// Each container takes a key more, alone, and another one in a transaction; the first goes
    /// again.
    fn go_on(&self, heap: &mut Heap) -> Result<(), String> {
        let mut expected = look(heap)?;
        // They are there if the pool was used before.
        expected.map.retain(|&(key, _)| key < 900);
        expected
            .names
            .retain(|(key, _)| ![name(900), name(901)].contains(key));
        expected.tree.retain(|&(key, _)| key < 900);
        for bytes in [&mut expected.bytes, &mut expected.bytes_tree] {
            bytes.retain(|(key, _)| ![byte_key(900), byte_key(901)].contains(key));
        }
        let all = [On::Map, On::Names, On::Tree, On::Bytes, On::BytesTree];
        for on in all {
            let call = Call::Insert(on, 901);
            self.run(heap, &Step::Alone(1, call), 7).map_err(text)?;
        }
        let calls = all.map(|on| [Call::Insert(on, 900), Call::Remove(on, 901)]);
        self.run(heap, &Step::Tx(0, calls.concat()), 7)
            .map_err(text)?;
        let after = look(heap)?;
        expected.map.push((900, 7_000));
        expected.names.push((name(900), 27_000));
        expected.tree.push((900, 47_000));
        let value = |value| (byte_key(900), bytes_of(900, value));
        expected.bytes.push(value(67_000));
        expected.bytes_tree.push(value(87_000));
        expected.bytes.sort_unstable();
        expected.bytes_tree.sort_unstable();
        expected.names.sort_unstable();
        expected.map.sort_unstable();
        let same = after.map == expected.map
            && after.names == expected.names
            && after.tree == expected.tree
            && after.bytes == expected.bytes
            && after.bytes_tree == expected.bytes_tree;
        same.then_some(())
            .ok_or(format!("{expected:?} was expected, and there is {after:?}"))
    }

    fn detach(&self, heap: Heap) -> Option<Pmem> {
        Some(heap.into_memory())
    }
}
