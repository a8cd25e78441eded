//! A key-value engine of a heap as a program to check.
//!
//! The index chunks are small: a hash engine's have one group of few lines, a tree's few leaves.
//! Each step is a call, of one process or of a second one. The state that is seen is each key's
//! value. A key that a walk finds and a look does not, or the other way round, is a violation.

use super::keyed_engine::{Cut, Engine};
use super::kill::{APART, APART_BYTES, BESIDE, OnHeap};
use super::{Act, Attached, HEAP_BYTES, MEMORY_BYTES, SLOTS, Second, do_all, file_for, text};
use crate::program::{Moment, Program, accepts_equal};
use crate::trace::{Place, on_cpu};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmkv::{Change, Expect, Expiry};
use pmlib::{Error, Heap, Options};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Keys that are looked at: 0 up to this.
const KEYS: u64 = 40;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A key gets a value of so many bytes that it has not had yet.
    Put(u64, usize),
    /// The same, if it is missing.
    PutNew(u64, usize),
    /// The same, with a moment at which it expires, in milliseconds since 1970.
    PutUntil(u64, usize, u64),
    /// A key is taken away.
    Delete(u64),
    /// Keys are taken away that have expired: each by itself.
    Purge,
    /// All keys are taken away that are there: each by itself.
    DeleteAll,
    /// Room that is not needed is given back to the heap.
    Compact,
    /// A key is looked at in a session of a reader, without a copy.
    Read(u64),
    /// A call while a session has a key's value, which stays as it is.
    Beside(u64, &'static Call),
    /// A call while a snapshot is open, which stays as it is.
    InSight(&'static Call),
    /// A batch: keys get values of so many bytes, and others are taken away.
    Batch(&'static [(u64, usize)], &'static [u64]),
}

/// One step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call.
    One(Call),
    /// A call of the second process.
    Second(Call),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::One(call) => write!(f, "{call:?}"),
            Step::Second(call) => write!(f, "second process: {call:?}"),
        }
    }
}

/// A workload on an engine.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// The calls before the first step that is looked at.
    pub prepared: Vec<Call>,
    /// The steps that are done, in order.
    pub steps: Vec<Step>,
    /// How the engine is cut.
    pub cut: Cut,
    /// Two processes have the heap.
    pub is_shared: bool,
}

/// Each key's value: the byte that it is made of, its length, and when it expires.
pub type Seen = Vec<Option<(u8, usize, Expiry)>>;

fn of_heap(error: pmkv::Error) -> Error {
    match error {
        pmkv::Error::Heap(error) => error,
        // The kill model knows a heap's errors alone.
        other => panic!("{other}"),
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn call(kv: &Engine<'_>, what: Call, nth: u64) -> Result<(), pmkv::Error> {
    match what {
        Call::Put(number, len) => kv.put(&key(number), &vec![nth as u8; len]),
        Call::PutNew(number, len) => kv
            .put_if(&key(number), Expect::Missing, &vec![nth as u8; len])
            .map(drop),
        Call::PutUntil(number, len, at) => kv.put_until(&key(number), &vec![nth as u8; len], at),
        Call::Purge => kv.purge_expired().map(drop),
        Call::Delete(number) => kv.delete(&key(number)).map(drop),
        Call::DeleteAll => kv.clear().map(drop),
        Call::Compact => kv.compact().map(drop),
        Call::Read(number) => kv.beside(&key(number), || Ok(())),
        Call::Beside(number, inner) => kv.beside(&key(number), || call(kv, *inner, nth)),
        Call::InSight(inner) => kv.in_sight(|| call(kv, *inner, nth)),
        Call::Batch(put, deleted) => {
            let keys: Vec<[u8; 8]> = put.iter().map(|&(number, _)| key(number)).collect();
            let values: Vec<Vec<u8>> = put.iter().map(|&(_, len)| vec![nth as u8; len]).collect();
            let gone: Vec<[u8; 8]> = deleted.iter().map(|&number| key(number)).collect();
            let puts = keys.iter().zip(&values);
            let puts = puts.map(|(key, value)| Change::Put(key, value));
            let deletes = gone.iter().map(|key| Change::Delete(key));
            kv.batch(&puts.chain(deletes).collect::<Vec<_>>())
        }
    }
}

fn look(kv: &Engine<'_>) -> Result<Seen, pmkv::Error> {
    let get = |number| {
        let Some(value) = kv.get(&key(number))? else {
            return Ok(None);
        };
        let expiry = kv.expiry(&key(number))?.unwrap_or(Expiry::Never);
        Ok(Some(match value.first() {
            Some(&first) if value.iter().all(|&byte| byte == first) => (first, value.len(), expiry),
            Some(_) => (0, usize::MAX, expiry),
            None => (0, 0, expiry),
        }))
    };
    (0..KEYS).map(get).collect()
}

/// Whether a snapshot comes first in the look at an image. It must be the same in a replay.
fn is_odd(bytes: &[u8]) -> bool {
    !crc32c::crc32c(bytes).is_multiple_of(2)
}

/// A walk, a snapshot and looks agree. A call of the dead comes to its end when its group is
/// locked: by a snapshot, or by a look, as each has faults that the other mends on its way.
fn check(kv: &Engine<'_>, is_first: bool) -> Result<(), String> {
    let first = is_first.then(|| kv.in_snapshot().map_err(text));
    let counted = kv.count().map_err(text)? as usize;
    let walked = kv.all().map_err(text)?;
    let mut sorted = walked.clone();
    sorted.sort();
    let shown = first.unwrap_or_else(|| kv.in_snapshot().map_err(text))?;
    if shown != sorted {
        return Err(format!("a snapshot has {shown:?}, and there is {sorted:?}"));
    }
    kv.scrub()?;
    let seen = look(kv).map_err(text)?;
    let there = seen.iter().flatten().count();
    let keys: BTreeSet<&[u8]> = walked.iter().map(|(key, _)| &key[..]).collect();
    let counts = [walked.len(), keys.len(), counted];
    if counts != [there; 3] {
        return Err(format!(
            "{there} keys, {counts:?} by walks, which find {walked:?}"
        ));
    }
    match kv.is_order_kept(&walked).map_err(text)? {
        true => Ok(()),
        false => Err(format!("a walk's order is wrong: {walked:?}")),
    }
}

impl Keyed {
    fn options(&self) -> Options {
        Options {
            // A thread may have any of several.
            lanes: if self.is_shared { 2 } else { 1 },
            lane_bytes: 4096,
            seed: 7,
            max: if self.is_shared { MEMORY_BYTES } else { 0 },
            ..Options::default()
        }
    }

    fn open<'h>(&self, heap: &'h Heap) -> Result<Engine<'h>, pmkv::Error> {
        Engine::open(heap, self.cut)
    }

    fn attached(&self, heap: &Heap) -> Result<(), String> {
        if heap.root_offset().map_err(text)? == 0 {
            // It is not prepared yet.
            return Ok(());
        }
        // Groups are settled here, so that crashes of that are seen.
        let kv = self.open(heap).map_err(text)?;
        kv.count().map(drop).map_err(text)
    }

    /// The workload says what comes first: a read of the image would have all of its lines varied.
    fn checked(&self, kv: &Engine<'_>) -> Result<(), String> {
        check(kv, is_odd(self.name().as_bytes()))
    }

    fn run(&self, both: &mut Attached, step: &Step, nth: u64) -> Result<(), String> {
        match *step {
            Step::One(one) => {
                let kv = self.open(&both.heap).map_err(text)?;
                call(&kv, one, nth).map_err(text)
            }
            Step::Second(one) => {
                let cut = self.cut;
                let done = both.as_second(|heap| {
                    let kv = Engine::open(heap, cut).map_err(of_heap)?;
                    call(&kv, one, nth).map_err(of_heap)
                });
                done.map_err(text)
            }
        }
    }
}

impl Program for Keyed {
    type Running = Attached;
    type Visible = Seen;

    fn name(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        let before = self.prepared.len();
        format!("{} after {before}: {}", self.cut, steps.join("; "))
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = match self.is_shared {
            false => Pmem::private(MEMORY_BYTES),
            true => file_for(MEMORY_BYTES)?,
        };
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
            self.attached(&heap)?;
            return Ok(Attached { heap, second: None });
        };
        drop(mem);
        let open = || Heap::open_observed(&path, &self.options(), observer.clone());
        let heap = open().map_err(text)?;
        self.attached(&heap)?;
        on_cpu(1);
        let second = Second {
            heap: Some(open().map_err(text)?),
            path: path.clone(),
            observer: observer.clone(),
        };
        on_cpu(0);
        Ok(Attached {
            heap,
            second: Some(second),
        })
    }

    fn prepare(&self, both: &mut Attached) -> Result<(), String> {
        let heap = &both.heap;
        let mut tx = heap.begin_on(0);
        let directory = tx.alloc(SLOTS * 8).map_err(text)?;
        tx.set_root(directory).map_err(text)?;
        heap.commit(tx).map_err(text)?;
        let kv = self.open(heap).map_err(text)?;
        for (nth, &one) in self.prepared.iter().enumerate() {
            call(&kv, one, 100 + nth as u64).map_err(text)?;
        }
        Ok(())
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn step_name(&self, step: usize) -> String {
        // The last crash is at the end of all.
        let named = self.steps.get(step).map(Step::to_string);
        named.unwrap_or_else(|| "the end".into())
    }

    fn step(&self, both: &mut Attached, step: usize) -> Result<(), String> {
        self.run(both, &self.steps[step], step as u64 + 1)
    }

    fn inspect(&self, both: &mut Attached) -> Result<Seen, String> {
        let kv = self.open(&both.heap).map_err(text)?;
        look(&kv).map_err(text)
    }

    fn check(&self, both: &mut Attached) -> Result<(), String> {
        both.heap.check().map_err(text)?;
        self.checked(&self.open(&both.heap).map_err(text)?)
    }

    fn accepts(&self, seen: &Seen, moment: &Moment<'_, Seen>) -> Result<(), String> {
        // Each key's end is a call by itself.
        if let (Step::One(Call::DeleteAll), false) = (self.steps[moment.step], moment.returned)
            && let [before, after] = moment.allowed()
        {
            let mut keys = seen.iter().zip(before.iter().zip(after));
            if keys.all(|(seen, (before, after))| seen == before || seen == after) {
                return Ok(());
            }
        }
        accepts_equal(seen, moment)
    }

    fn go_on(&self, both: &mut Attached) -> Result<(), String> {
        let kv = self.open(&both.heap).map_err(text)?;
        let before = look(&kv).map_err(text)?;
        // Places that are free by now are used again; none of them is another key's.
        let mut expected = before.clone();
        for round in 0..3u8 {
            for number in [0, KEYS - 1, 1] {
                let len = 140 + usize::from(round);
                let value = vec![200 + round; len];
                kv.put(&key(number), &value).map_err(text)?;
                expected[number as usize] = Some((200 + round, len, Expiry::Never));
            }
            kv.delete(&key(1)).map_err(text)?;
            expected[1] = None;
            let after = look(&kv).map_err(text)?;
            if after != expected {
                return Err(format!("{expected:?} was to be, and there is {after:?}"));
            }
        }
        self.checked(&kv)
    }

    fn detach(&self, both: Attached) -> Option<Pmem> {
        let is_private = both.second.is_none();
        is_private.then(|| both.heap.into_memory())
    }
}

impl OnHeap for Keyed {
    fn options(&self) -> Options {
        Keyed::options(self)
    }

    fn running(heap: Heap) -> Attached {
        Attached { heap, second: None }
    }

    fn heap(running: &Attached) -> &Heap {
        &running.heap
    }

    fn into_heap(running: Attached) -> Heap {
        running.heap
    }

    fn make_beside(&self, running: &mut Attached) -> Result<(), Error> {
        let heap = &running.heap;
        let directory = heap.root_offset()?;
        let acts = [Act::Make(APART, APART_BYTES), Act::Make(BESIDE, 64)];
        let mut tx = heap.begin_on(0);
        do_all(&mut tx, directory, &acts, 0)?;
        heap.commit(tx)
    }

    fn look(heap: &Heap) -> Result<Seen, Error> {
        let kv = Engine::existing(heap).map_err(of_heap)?;
        // A call of the dead comes to its end when its group is locked.
        kv.count().map_err(of_heap)?;
        look(&kv).map_err(of_heap)
    }

    fn check_all(heap: &Heap) -> Result<(), String> {
        heap.check().map_err(text)?;
        let ground = heap.ground();
        let window = ground.mem().window();
        if !ground.advance_era().is_off() {
            return Err("a session is open that nobody has".into());
        }
        drop(window);
        let mut image = vec![0; HEAP_BYTES as usize];
        let copied = heap.ground().mem().copy_out(0, &mut image);
        copied.map_err(|fault| format!("{fault:?}"))?;
        check(&Engine::existing(heap).map_err(text)?, is_odd(&image))
    }

    fn is_same(seen: &Seen, expected: &Seen, _touched: bool) -> bool {
        seen == expected
    }
}

/// Looks at all keys before each store and flush of a call up to its first fence, by another
/// attachment, as a reader does.
struct Watcher {
    reader: Mutex<Option<(Heap, Seen)>>,
    is_on: AtomicBool,
    looks: AtomicU64,
    early: Mutex<Option<String>>,
}

impl Watcher {
    fn look(&self) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let reader = self.reader.lock().expect("one thread");
        let Some((heap, before)) = &*reader else {
            return;
        };
        let seen = Engine::existing(heap).and_then(|kv| look(&kv));
        self.looks.fetch_add(1, Ordering::Relaxed);
        if seen.as_ref().ok() != Some(before) {
            let text = format!("seen before its fence: {seen:?}, and there was {before:?}");
            *self.early.lock().expect("one thread") = Some(text);
        }
    }
}

impl Observer for Watcher {
    fn store(&self, _: &Pmem, _: u64, _: &[u8], _: StoreKind, _: Place) -> Verdict {
        self.look();
        Verdict::Do
    }

    fn flush(&self, _: &Pmem, _: u64, _: (u64, u64), _: Place) {
        self.look();
    }

    fn fence(&self, _: &Pmem, _: Place) {
        self.look();
        self.is_on.store(false, Ordering::Relaxed);
    }
}

/// Whether readers see something of a workload's steps before it is durable; how often they
/// looked.
///
/// # Errors
/// The first violation.
pub fn seen_early(workload: &Keyed) -> Result<u64, String> {
    let mem = workload.setup()?;
    let path = mem.path().ok_or("it is not in a file")?.to_path_buf();
    drop(mem);
    let watcher = Arc::new(Watcher {
        reader: Mutex::new(None),
        is_on: AtomicBool::new(false),
        looks: AtomicU64::new(0),
        early: Mutex::new(None),
    });
    let open = || Heap::open_observed(&path, &workload.options(), watcher.clone());
    let heap = open().map_err(text)?;
    let mut both = Attached { heap, second: None };
    workload.prepare(&mut both)?;
    for (nth, step) in workload.steps.iter().enumerate() {
        let reader = Heap::open(&path, &workload.options()).map_err(text)?;
        let before = Engine::existing(&reader).and_then(|kv| look(&kv));
        *watcher.reader.lock().expect("one thread") = Some((reader, before.map_err(text)?));
        watcher.is_on.store(true, Ordering::Relaxed);
        workload.run(&mut both, step, nth as u64 + 1)?;
        watcher.is_on.store(false, Ordering::Relaxed);
        watcher.reader.lock().expect("one thread").take();
    }
    drop(both);
    if let Some(dir) = path.parent() {
        let _ = std::fs::remove_dir_all(dir);
    }
    match watcher.early.lock().expect("one thread").take() {
        Some(early) => Err(format!("{}: {early}", workload.name())),
        None => Ok(watcher.looks.load(Ordering::Relaxed)),
    }
}
