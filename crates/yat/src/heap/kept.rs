//! Containers of a heap, and its named roots, as a program to check.
//!
//! A heap has a root of each container. Each step is calls on these: one alone, or several in a
//! transaction, on a lane of its choice. The state that is seen is what the containers hold, and
//! how many objects the heap has, so that none is lost.

use super::kill::{APART, APART_BYTES, BESIDE, OnHeap, touch_beside};
use super::{SLOTS, set};
use crate::program::{Moment, Program, accepts_equal};
use pmem::Pmem;
use pmem::record::Observer;
use pmlib::containers::{PBytes, PLog, PQueue, PString, PVec};
use pmlib::{Error, Heap, Options, P, Tx};
use std::fmt;
use std::sync::Arc;

/// Bytes of a heap.
const HEAP_BYTES: u64 = 1 << 20;
/// Bytes that its ring keeps.
const RING_BYTES: u64 = 300;

/// One call on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// So many words are pushed onto the vector.
    Push(usize),
    /// The vector's last word is taken.
    Pop,
    /// A word of the vector becomes another.
    Set(u64),
    /// The vector is cut to so many words.
    Truncate(u64),
    /// The text is one of so many letters.
    Text(usize),
    /// So many letters are added to the text.
    AddText(usize),
    /// A record of so many bytes is added to the log.
    Append(usize),
    /// So many records are dropped from the log.
    Trim(usize),
    /// All records are dropped from the log, and its room is given back.
    ClearLog,
    /// A record of so many bytes is added to the ring.
    AppendRing(usize),
    /// A number is put into the queue.
    Put,
    /// A number is taken from the queue.
    Take,
    /// So many bytes are pushed onto the vector of bytes.
    PushBytes(usize),
    /// The last bytes of that vector are taken.
    PopBytes,
    /// Bytes of that vector become so many others.
    SetBytes(u64, usize),
    /// So many bytes are put into the queue of bytes.
    PutBytes(usize),
    /// Bytes are taken from that queue.
    TakeBytes,
    /// That vector becomes empty.
    ClearBytes,
    /// That queue becomes empty.
    ClearSent,
    /// A root of this number is asked for.
    Root(u64),
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

/// A workload on containers.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The byte that stands wherever nobody has stored. If it is 0, few words of a new segment
    /// differ, and every mixture of old and new can be tried.
    pub unused: u8,
    /// The steps before the first one that is looked at.
    pub prepared: Vec<Step>,
    /// The steps that are done, in order.
    pub steps: Vec<Step>,
}

/// The content of all containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    words: Vec<u64>,
    text: String,
    log: Vec<(u64, Vec<u8>)>,
    ring: Vec<(u64, Vec<u8>)>,
    first_job: Option<u64>,
    jobs: u64,
    kept: Vec<Vec<u8>>,
    first_sent: Option<Vec<u8>>,
    sent: u64,
    objects: u64,
}

/// Where the containers are.
#[derive(Clone, Copy, Debug)]
struct Places {
    words: P<PVec<u64>>,
    text: P<PString>,
    log: P<PLog>,
    ring: P<PLog>,
    jobs: P<PQueue<u64>>,
    kept: P<PVec<PBytes>>,
    sent: P<PQueue<PBytes>>,
}

impl Places {
    /// Finds the roots, which are there.
    fn of(heap: &Heap) -> Result<Places, Error> {
        Ok(Places {
            words: heap.root("words")?,
            text: heap.root("text")?,
            log: heap.root("log")?,
            ring: heap.root("ring")?,
            jobs: heap.root("jobs")?,
            kept: heap.root("kept")?,
            sent: heap.root("sent")?,
        })
    }

    fn make(tx: &mut Tx<'_>) -> Result<(), Error> {
        tx.root::<PVec<u64>>("words")?;
        tx.root::<PString>("text")?;
        tx.root::<PLog>("log")?;
        let ring = tx.root::<PLog>("ring")?;
        tx.write(ring, &PLog::ring(RING_BYTES))?;
        tx.root::<PVec<PBytes>>("kept")?;
        tx.root::<PQueue<PBytes>>("sent")?;
        let jobs = tx.root::<PQueue<u64>>("jobs")?;
        // For whoever attaches: the roots are there.
        tx.set_root(pmlib::RawP::from(jobs).0)
    }
}

fn letters(count: usize, nth: u64) -> String {
    let first = b'a' + (nth % 26) as u8;
    String::from(char::from(first)).repeat(count)
}

/// Does one call, by what has the containers' calls.
macro_rules! call {
    ($on:expr, $lane:tt, $places:expr, $call:expr, $nth:expr) => {{
        let (places, nth) = ($places, $nth);
        match $call {
            Call::Push(count) => {
                let values: Vec<u64> = (0..count as u64).map(|at| nth * 100 + at).collect();
                on!($on, $lane, places.words).extend(&values).map(drop)
            }
            Call::Pop => on!($on, $lane, places.words).pop().map(drop),
            Call::Set(index) => on!($on, $lane, places.words).set(index, nth * 100),
            Call::Truncate(len) => on!($on, $lane, places.words).truncate(len),
            Call::Text(count) => on!($on, $lane, places.text).set_text(&letters(count, nth)),
            Call::AddText(count) => on!($on, $lane, places.text).push_str(&letters(count, nth)),
            Call::Append(len) => {
                let bytes = vec![nth as u8; len];
                on!($on, $lane, places.log).append(&bytes).map(drop)
            }
            Call::Trim(count) => {
                let position = on!($on, $lane, places.log).iter().nth(count);
                match position.transpose() {
                    Ok(Some((position, _))) => on!($on, $lane, places.log).trim(position),
                    Ok(None) => {
                        let end = on!($on, $lane, places.log).end();
                        end.and_then(|end| on!($on, $lane, places.log).trim(end))
                    }
                    Err(error) => Err(error),
                }
            }
            Call::ClearLog => on!($on, $lane, places.log).clear(),
            Call::AppendRing(len) => {
                let bytes = vec![nth as u8; len];
                on!($on, $lane, places.ring).append(&bytes).map(drop)
            }
            Call::Put => on!($on, $lane, places.jobs).push(nth),
            Call::Take => on!($on, $lane, places.jobs).pop().map(drop),
            Call::PushBytes(len) => {
                let bytes = vec![nth as u8; len];
                on!($on, $lane, places.kept).push_bytes(&bytes).map(drop)
            }
            Call::PopBytes => on!($on, $lane, places.kept).pop_bytes().map(drop),
            Call::SetBytes(index, len) => {
                let bytes = vec![nth as u8; len];
                on!($on, $lane, places.kept).set_bytes(index, &bytes)
            }
            Call::PutBytes(len) => {
                let bytes = vec![nth as u8; len];
                on!($on, $lane, places.sent).push_bytes(&bytes)
            }
            Call::TakeBytes => on!($on, $lane, places.sent).pop_bytes().map(drop),
            Call::ClearBytes => on!($on, $lane, places.kept).clear_bytes(),
            Call::ClearSent => on!($on, $lane, places.sent).clear_bytes(),
            Call::Root(number) => root!($on, $lane, &format!("root {number}")),
        }
    }};
}

macro_rules! on {
    ($tx:expr, (), $place:expr) => {
        $tx.at($place)
    };
    ($heap:expr, $lane:expr, $place:expr) => {
        $heap.at_on($lane, $place)
    };
}

macro_rules! root {
    ($tx:expr, (), $name:expr) => {
        $tx.root::<u64>($name).map(drop)
    };
    ($heap:expr, $lane:expr, $name:expr) => {{
        let mut tx = $heap.begin_on($lane);
        let made = tx.root::<u64>($name);
        made.and_then(|_| $heap.commit(tx))
    }};
}

fn in_tx(tx: &mut Tx<'_>, places: &Places, calls: &[Call], nth: u64) -> Result<(), Error> {
    let each = calls.iter().enumerate();
    let mut all = each.map(|(at, &call)| call!(tx, (), places, call, nth + 10 * at as u64));
    all.try_for_each(|done| done)
}

impl Kept {
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
            Step::Alone(lane, call) => call!(heap, (*lane), places, *call, nth),
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
                let other = Heap::private(HEAP_BYTES, &Kept::options())?;
                let left = std::mem::replace(heap, other).close()?;
                *heap = Heap::attach(left)?;
                look(heap).map(drop)
            }
        }
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Reads all containers. In a heap that was just opened the logs' ends are found by it.
fn look(heap: &Heap) -> Result<Seen, Error> {
    let places = Places::of(heap)?;
    let mut jobs = heap.at_on(0, places.jobs);
    let mut sent = heap.at_on(0, places.sent);
    let kept = heap.at_on(0, places.kept).len()?;
    let each = (0..kept).map(|index| heap.at_on(0, places.kept).get_bytes(index));
    let kept = each.map(|bytes| Ok(bytes?.unwrap_or_default()));
    Ok(Seen {
        kept: kept.collect::<Result<_, Error>>()?,
        first_sent: sent.peek_bytes()?,
        sent: sent.len()?,
        words: heap.at_on(0, places.words).to_vec()?,
        text: heap.at_on(0, places.text).get()?,
        log: heap.at_on(0, places.log).iter().collect::<Result<_, _>>()?,
        ring: heap
            .at_on(0, places.ring)
            .iter()
            .collect::<Result<_, _>>()?,
        first_job: jobs.peek()?,
        jobs: jobs.len()?,
        objects: heap.check()?.objects,
    })
}

impl Program for Kept {
    type Running = Heap;
    type Visible = Seen;

    fn name(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        format!("containers: {}", steps.join("; "))
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = Pmem::private(HEAP_BYTES);
        // Bytes that nobody has written yet are not zero, so that reading them shows.
        mem.poke(0, &vec![self.unused; HEAP_BYTES as usize]);
        Heap::format(&mem, HEAP_BYTES, &Kept::options()).map_err(text)?;
        Ok(mem)
    }

    fn volatile(&self, mem: &Pmem) -> std::ops::Range<u64> {
        Heap::volatile(mem)
    }

    /// The logs' ends are found here, so that crashes of that are looked at too.
    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Heap, String> {
        mem.observe(Some(observer));
        let heap = Heap::attach(mem).map_err(text)?;
        if heap.root_offset().map_err(text)? != 0 {
            look(&heap).map_err(text)?;
        }
        Ok(heap)
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
        look(heap).map_err(text)
    }

    fn accepts(&self, seen: &Seen, moment: &Moment<'_, Seen>) -> Result<(), String> {
        accepts_equal(seen, moment)
    }

    /// Each container takes something more, on both lanes, alone and in a transaction.
    fn go_on(&self, heap: &mut Heap) -> Result<(), String> {
        let before = look(heap).map_err(text)?;
        let more = [Call::Push(1), Call::AddText(1), Call::Append(8), Call::Put];
        for call in more {
            self.run(heap, &Step::Alone(1, call), 7).map_err(text)?;
        }
        self.run(heap, &Step::Tx(0, more.to_vec()), 7)
            .map_err(text)?;
        let after = look(heap).map_err(text)?;
        let mut expected = before.clone();
        expected.words.extend([700, 700]);
        expected.text.push_str(&(letters(1, 7) + &letters(1, 17)));
        let log: Vec<&Vec<u8>> = after.log.iter().map(|(_, bytes)| bytes).collect();
        let mut expected_log: Vec<&Vec<u8>> = before.log.iter().map(|(_, bytes)| bytes).collect();
        let (first, second) = (vec![7; 8], vec![27; 8]);
        expected_log.extend([&first, &second]);
        let same = after.words == expected.words
            && after.text == expected.text
            && log == expected_log
            && after.ring == before.ring
            && after.jobs == before.jobs + 2
            && (&after.kept, &after.first_sent, after.sent)
                == (&before.kept, &before.first_sent, before.sent)
            && after.first_job == before.first_job.or(Some(7));
        same.then_some(())
            .ok_or(format!("{before:?} was there, and then there is {after:?}"))
    }

    fn detach(&self, heap: Heap) -> Option<Pmem> {
        Some(heap.into_memory())
    }
}

/// The number of what the survivor of a kill adds.
const TOUCHED: u64 = 9;

impl OnHeap for Kept {
    fn options(&self) -> Options {
        Options {
            max: HEAP_BYTES,
            ..Kept::options()
        }
    }

    fn running(heap: Heap) -> Heap {
        heap
    }

    fn heap(running: &Heap) -> &Heap {
        running
    }

    fn into_heap(running: Heap) -> Heap {
        running
    }

    fn make_beside(&self, heap: &mut Heap) -> Result<(), Error> {
        let mut tx = heap.begin_on(0);
        let directory = tx.alloc(SLOTS * 8)?;
        for (slot, bytes) in [(APART, APART_BYTES), (BESIDE, 64)] {
            let object = tx.alloc(bytes)?;
            set(&mut tx, directory, slot * 8, object)?;
        }
        tx.set_root(directory)?;
        heap.commit(tx)
    }

    fn look(heap: &Heap) -> Result<Seen, Error> {
        look(heap)
    }

    fn check_all(heap: &Heap) -> Result<(), String> {
        let census = heap.check().map_err(text)?;
        let all = census.own_bytes + census.free_bytes + census.object_bytes + census.spare_bytes;
        let rest = heap.size() - all;
        if rest != 0 {
            return Err(format!("{rest} bytes are nothing"));
        }
        Ok(())
    }

    /// Each container takes something more, and the vector in a transaction with another object.
    fn touch(heap: &Heap) -> Result<(), Error> {
        let places = Places::of(heap)?;
        heap.at(places.log).append(&[TOUCHED as u8; 8])?;
        heap.at(places.jobs).push(TOUCHED)?;
        heap.at(places.text).push_str("t")?;
        heap.at(places.words).push(TOUCHED)?;
        touch_beside(heap)
    }

    fn is_same(seen: &Seen, expected: &Seen, touched: bool) -> bool {
        if !touched {
            return seen == expected;
        }
        let mut expected = expected.clone();
        expected.words.extend([TOUCHED; 2]);
        expected.text.push_str("tt");
        expected.first_job.get_or_insert(TOUCHED);
        expected.jobs += 2;
        let last = seen.log.len().saturating_sub(2);
        let (old, new) = seen.log.split_at(last);
        let added = new.iter().all(|(_, bytes)| **bytes == [TOUCHED as u8; 8]);
        let is_log = old == expected.log && added && new.len() == 2;
        // Segments that it has made are objects.
        let is_kept = (&seen.kept, &seen.first_sent, seen.sent)
            == (&expected.kept, &expected.first_sent, expected.sent);
        (
            &seen.words,
            &seen.text,
            &seen.ring,
            seen.first_job,
            seen.jobs,
        ) == (
            &expected.words,
            &expected.text,
            &expected.ring,
            expected.first_job,
            expected.jobs,
        ) && is_log
            && is_kept
    }
}
