//! Goal: the words by which processes of a heap tell each other what is in place, what is durable
//! and how far a log is filled say so in every order that the memory allows. Method: models of
//! these words on loom's memory, whose steps are the code's own (`pmlib::protocol`, and the owner
//! word's protocol); for each, the same with one step or one order wrong, which loom has to find.
//! The mapped memory itself can't be loom's: so the order of a commit's and an append's steps in
//! the models is compared with that which the recorder sees of real ones (and `heap_histories.rs`
//! has the real code in many orders).

mod memory;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use memory::{Fault, Memory, Owner, yields};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmlib::containers::PLog;
use pmlib::protocol::{
    LanePlace, LaneState, Words, is_unchanged, look_at_mark, mark_changing, mark_of_holder,
    sequence, store_mark,
};
use pmlib::{Heap, Options, RawP};
use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{OWNER_OFFSET, PENDING_OFFSET, SEQUENCE_OFFSET};
use pmlib_format::container::{LogRaw, SEGMENT_BYTES, SEGMENT_HEAD_BYTES, SegmentRaw};
use pmlib_format::lane::{
    CLOSED_OFFSET, DONE_OFFSET, HEAD_OFFSET, LANE_BYTES, LANE_OWNER_OFFSET, LAST_OFFSET,
    LAST_RECORD_OFFSET, RING_OFFSET, SETTLED_OFFSET,
};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64 as AtomicU64Std;

/// One step of a commit that others see, in lane 0; it changes a word in each of two chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A flush of what the lane's last record has stored.
    FlushOwed,
    /// The record is stored.
    Record,
    Fence,
    /// The lane's words, which one call stores (`LanePlace::fenced`).
    Closed,
    LastRecord,
    Settled,
    Head,
    Done,
    Last,
    /// A chunk's sequence becomes odd, and even again.
    Odd(usize),
    Even(usize),
    /// A word in place.
    Home(usize),
    Pending(usize),
    Unlock(usize),
}

/// A commit from when its chunks are locked, of a lane that has done another one before.
const COMMIT: [Step; 19] = [
    Step::FlushOwed,
    Step::Record,
    Step::Fence,
    Step::Closed,
    Step::LastRecord,
    Step::Settled,
    Step::Head,
    Step::Done,
    Step::Odd(0),
    Step::Odd(1),
    Step::Home(0),
    Step::Home(1),
    Step::Last,
    Step::Even(0),
    Step::Pending(0),
    Step::Even(1),
    Step::Pending(1),
    Step::Unlock(0),
    Step::Unlock(1),
];

/// The same, but for one step that comes right before another one.
fn with(moved: Step, before: Step) -> Vec<Step> {
    let mut steps: Vec<Step> = COMMIT.into_iter().filter(|&step| step != moved).collect();
    let at = steps.iter().position(|&step| step == before);
    steps.insert(at.expect("it is one of them"), moved);
    steps
}

fn without(left_out: Step) -> Vec<Step> {
    COMMIT
        .into_iter()
        .filter(|&step| step != left_out)
        .collect()
}

/// Every order. The thread that is spawned is the one that looks: loom begins with the other one.
fn every_order(model: impl Fn() + Sync + Send + 'static) {
    loom::model::Builder::new().check(model);
}

/// Whether loom finds something wrong.
fn is_found(model: impl Fn() + Sync + Send + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| every_order(model))).is_err()
}

// ---- The steps of the code, as the recorder sees them.

/// One thing that is done to a heap.
#[derive(Clone, Copy)]
enum Done<'a> {
    /// A store at an offset.
    Store(u64, &'a [u8]),
    /// The write-back of a line.
    Flush(u64),
    Fence,
}

/// Notes the steps that have a name.
struct Namer<S> {
    name: Box<dyn Fn(Done<'_>) -> Option<S> + Send + Sync>,
    steps: Mutex<Vec<S>>,
}

impl<S: PartialEq> Namer<S> {
    fn note(&self, done: Done<'_>) {
        let mut steps = self.steps.lock().expect("one thread");
        // Lines of one record, or of one flush, are one step.
        if let Some(step) = (self.name)(done).filter(|step| steps.last() != Some(step)) {
            steps.push(step);
        }
    }
}

impl<S: PartialEq + Send> Observer for Namer<S> {
    fn store(&self, _: &Pmem, off: u64, bytes: &[u8], _: StoreKind, _: At) -> Verdict {
        self.note(Done::Store(off, bytes));
        Verdict::Do
    }

    fn flush(&self, _: &Pmem, line: u64, _: (u64, u64), _: At) {
        self.note(Done::Flush(line));
    }

    fn fence(&self, _: &Pmem, _: At) {
        self.note(Done::Fence);
    }
}

type At = &'static Location<'static>;

fn heap() -> Heap {
    let options = Options {
        lanes: 2,
        seed: 7,
        ..Options::default()
    };
    Heap::private(1 << 20, &options).expect("a heap")
}

/// The steps of the second time that `work` is done to a heap.
fn steps_of<S: PartialEq + Send + 'static>(
    heap: Heap,
    name: impl Fn(Done<'_>) -> Option<S> + Send + Sync + 'static,
    work: impl Fn(&Heap),
) -> Vec<S> {
    let namer = std::sync::Arc::new(Namer {
        name: Box::new(name),
        steps: Mutex::default(),
    });
    let mut mem = heap.into_memory();
    mem.observe(Some(namer.clone()));
    let heap = Heap::attach(mem).expect("it opens");
    work(&heap);
    namer.steps.lock().expect("one thread").clear();
    work(&heap);
    drop(heap.into_memory());
    std::mem::take(&mut namer.steps.lock().expect("one thread"))
}

#[test]
fn a_commit_does_these_steps() {
    let heap = heap();
    let mut tx = heap.begin_on(0);
    let homes = [64, CHUNK_BYTES].map(|bytes| tx.alloc(bytes).expect("room"));
    heap.commit(tx).expect("it commits");
    let mem = heap.into_memory();
    let [lane, lines, _] = Heap::places(&mem, 0, 0).expect("a heap");
    let mut named = vec![
        (lane + CLOSED_OFFSET, Step::Closed),
        (lines + LAST_RECORD_OFFSET, Step::LastRecord),
        (lines + SETTLED_OFFSET, Step::Settled),
        (lines + HEAD_OFFSET, Step::Head),
        (lines + DONE_OFFSET, Step::Done),
        (lines + LAST_OFFSET, Step::Last),
    ];
    for (nth, home) in homes.into_iter().enumerate() {
        let [.., line] = Heap::places(&mem, 0, home / CHUNK_BYTES).expect("a heap");
        named.push((home, Step::Home(nth)));
        named.push((line + SEQUENCE_OFFSET, Step::Odd(nth)));
        named.push((line + PENDING_OFFSET, Step::Pending(nth)));
        named.push((line + OWNER_OFFSET, Step::Unlock(nth)));
    }
    let ring = lane + RING_OFFSET..lane + LANE_BYTES;
    let name = move |done: Done<'_>| match done {
        Done::Fence => Some(Step::Fence),
        Done::Flush(line) => homes
            .iter()
            .any(|home| home / 64 == line / 64)
            .then_some(Step::FlushOwed),
        Done::Store(off, _) if ring.contains(&off) => Some(Step::Record),
        Done::Store(off, bytes) => {
            let found = named.iter().find(|&&(place, _)| place == off)?;
            match found.1 {
                Step::Odd(nth) if bytes[0] & 1 == 0 => Some(Step::Even(nth)),
                // The owner word is taken before all of these steps.
                Step::Unlock(_) if bytes.iter().any(|&byte| byte != 0) => None,
                step => Some(step),
            }
        }
    };
    let number = AtomicU64Std::new(1);
    let steps = steps_of(Heap::attach(mem).expect("it opens"), name, |heap| {
        let value = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut tx = heap.begin_on(0);
        for home in homes {
            let bytes = tx.edit_bytes(home, 0, 8).expect("it is there");
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        heap.commit(tx).expect("it commits");
    });
    assert_eq!(steps, COMMIT);
}

#[test]
fn an_append_does_these_steps() {
    let heap = heap();
    let log = heap.root::<PLog>("log").expect("a root");
    let mut first = [0; 8];
    heap.at(log).append(b"a segment").expect("it commits");
    let at = std::mem::offset_of!(LogRaw, last) as u64;
    let RawP(head) = log.into();
    heap.read_bytes(head, at, &mut first).expect("a head");
    let segment = u64::from_le_bytes(first);
    let mark = segment + std::mem::offset_of!(SegmentRaw, mark) as u64;
    let records = segment + SEGMENT_HEAD_BYTES..segment + SEGMENT_BYTES[0];
    let name = move |done: Done<'_>| match done {
        Done::Fence => Some(Append::Fence),
        Done::Store(off, bytes) if off == mark => Some(match bytes[0] & 1 {
            0 => Append::Mark,
            _ => Append::Busy,
        }),
        Done::Store(off, _) if records.contains(&off) => Some(Append::Record),
        _ => None,
    };
    let steps = steps_of(heap, name, |heap| {
        heap.at_on(0, log).append(b"eight").expect("it commits");
    });
    assert_eq!(steps, APPEND);
}

// ---- Readers without a lock: sequences of chunks.

struct Chunks(Memory);

impl Chunks {
    const SEQUENCES: [u64; 2] = [0, 8];
    const HOMES: [u64; 2] = [64, 72];

    fn new(fault: Fault) -> Chunks {
        let offsets = Chunks::SEQUENCES.into_iter().chain(Chunks::HOMES);
        Chunks(Memory::new(offsets, fault))
    }

    /// The part of a commit that readers see; it stores a number in both chunks.
    fn commit(&self, steps: &[Step], value: u64) {
        for step in steps {
            match *step {
                Step::Odd(chunk) => mark_changing(&self.0, Chunks::SEQUENCES[chunk], true),
                Step::Even(chunk) => mark_changing(&self.0, Chunks::SEQUENCES[chunk], false),
                Step::Home(chunk) => self.0.store(Chunks::HOMES[chunk], value),
                _ => {}
            }
        }
    }

    /// Words of one moment; `None`: a commit came between.
    fn try_view(&self, looks_again: bool) -> Option<[u64; 2]> {
        let mut noted = Vec::new();
        let mut seen = [0; 2];
        // The first chunk is locked longest.
        for chunk in [1, 0] {
            let at = Chunks::SEQUENCES[chunk];
            let Ok(before) = sequence(&self.0, at, yields);
            noted.push((at, before));
            seen[chunk] = self.0.copy(Chunks::HOMES[chunk]);
        }
        (!looks_again || is_unchanged(&self.0, noted)).then_some(seen)
    }
}

fn readers(steps: Vec<Step>, looks_again: bool, fault: Fault) -> impl Fn() + Sync + Send + 'static {
    move || {
        let chunks = Arc::new(Chunks::new(fault));
        let other = chunks.clone();
        let reader = thread::spawn(move || {
            if let Some([first, second]) = other.try_view(looks_again) {
                assert_eq!(first, second, "two moments");
            }
        });
        chunks.commit(&steps, 1);
        reader.join().unwrap();
        assert_eq!(chunks.try_view(true), Some([1, 1]));
    }
}

#[test]
fn a_view_is_of_one_moment() {
    every_order(readers(COMMIT.to_vec(), true, Fault::None));
}

#[test]
fn a_view_that_does_not_look_again_is_found() {
    assert!(is_found(readers(COMMIT.to_vec(), false, Fault::None)));
}

#[test]
fn a_view_without_its_orders_is_found() {
    for fault in [Fault::NoAcquire, Fault::RelaxedLoads, Fault::RelaxedStores] {
        assert!(is_found(readers(COMMIT.to_vec(), true, fault)), "{fault:?}");
    }
}

#[test]
fn a_sequence_that_is_even_too_soon_is_found() {
    let fault = Fault::None;
    let early = with(Step::Even(1), Step::Home(1));
    assert!(is_found(readers(early, true, fault)));
    let late = with(Step::Home(1), Step::Odd(0));
    assert!(is_found(readers(late, true, fault)));
}

// ---- Hand-over: a record of lane 0 is followed by one of another lane, or of another thread.

/// A value that is durable. No thread learns anything from it: its accesses order nothing, and see
/// the last one.
#[derive(Default)]
struct Durable(AtomicU64);

impl Durable {
    fn set(&self, value: u64) {
        self.0.swap(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.fetch_add(0, Ordering::Relaxed)
    }
}

/// Lane 0 and two chunks.
struct Lanes {
    memory: Memory,
    durable: [Durable; 2],
}

/// The lane's own words.
const LANE: LanePlace = LanePlace {
    closed: 1024,
    line: 2048,
};
const LANE_OWNER: u64 = LANE.line + LANE_OWNER_OFFSET;
/// Two records' places in the ring; each is a word, the stamp above the chunk that it changes.
const RING: [u64; 2] = [1088, 1152];
const OWNERS: [u64; 2] = [3072, 3200];
const PENDING: [u64; 2] = [3080, 3208];
const HOMES: [u64; 2] = [4096, 8192];

/// The lane as its thread knows it.
#[derive(Default)]
struct Lane {
    state: LaneState,
    /// Flushed, and durable with the next fence: a home and its value.
    flushed: Vec<(usize, u64)>,
}

impl Lanes {
    fn new(fault: Fault) -> Lanes {
        let line = (0..5).map(|word| LANE.line + 8 * word);
        let pairs = [RING, OWNERS, PENDING, HOMES].into_iter().flatten();
        let offsets = line.chain(pairs).chain([LANE.closed, LANE_OWNER]);
        Lanes {
            memory: Memory::new(offsets, fault),
            durable: Default::default(),
        }
    }

    fn flush(&self, chunk: usize, flushed: &mut Vec<(usize, u64)>) {
        flushed.push((chunk, self.memory.load(HOMES[chunk])));
    }

    fn fence(&self, flushed: &mut Vec<(usize, u64)>) {
        for (chunk, value) in flushed.drain(..) {
            if self.durable[chunk].get() < value {
                self.durable[chunk].set(value);
            }
        }
    }

    /// A thread has the lane, does one commit and gives the lane back.
    fn lease(&self, steps: &[Step], chunk: usize) {
        let owner = Owner(&self.memory, LANE_OWNER);
        owner.take();
        let mut lane = Lane {
            state: LANE.state(&self.memory),
            ..Lane::default()
        };
        self.commit(&mut lane, steps, chunk);
        owner.open();
    }

    /// A commit of lane 0 that stores its stamp in one chunk.
    fn commit(&self, lane: &mut Lane, steps: &[Step], chunk: usize) {
        let memory = &self.memory;
        let stamp = lane.state.last + 1;
        let place = stamp % 2;
        let owner = Owner(memory, OWNERS[chunk]);
        owner.take();
        for step in steps {
            match *step {
                Step::FlushOwed if lane.state.settled != lane.state.last => {
                    // `Core::flush_owed`, of a record that another thread may have made.
                    let record = memory.copy(RING[lane.state.last_record as usize - 1]);
                    assert_eq!(record >> 1, lane.state.last, "not the lane's last record");
                    self.flush(record as usize & 1, &mut lane.flushed);
                }
                Step::Record => memory.store(RING[place as usize], stamp << 1 | chunk as u64),
                Step::Fence => self.fence(&mut lane.flushed),
                Step::Closed => LANE.fenced(memory, &mut lane.state, place + 1),
                Step::Home(0) => memory.store(HOMES[chunk], stamp),
                Step::Last => LANE.in_place(memory, &mut lane.state, stamp),
                Step::Pending(0) => memory.store(PENDING[chunk], stamp),
                Step::Unlock(0) => owner.open(),
                _ => {}
            }
        }
    }

    /// `Core::follow` and the fence of another lane's commit in a chunk: the record that it follows
    /// is durable in place then.
    fn follow(&self, chunk: usize, flushes: bool) {
        let memory = &self.memory;
        let owner = Owner(memory, OWNERS[chunk]);
        owner.take();
        let stamp = memory.load(PENDING[chunk]);
        let mut flushed = Vec::new();
        let is_closing = LANE.is_settled(memory, stamp)
            || LANE.closed(memory).is_some_and(|closed| closed >= stamp);
        if stamp > 0 && !is_closing && flushes {
            let read = |record: u64| Ok(Some(memory.copy(RING[record as usize - 1]) >> 1));
            let is_last: Result<bool, Infallible> = LANE.is_last(memory, stamp, read);
            if is_last == Ok(true) {
                self.flush(chunk, &mut flushed);
            }
        }
        self.fence(&mut flushed);
        let durable = self.durable[chunk].get();
        assert!(durable >= stamp, "{stamp} is closed, and not durable");
        owner.open();
    }
}

fn hand_over(steps: Vec<Step>, flushes: bool, fault: Fault) -> impl Fn() + Sync + Send + 'static {
    move || {
        let lanes = Arc::new(Lanes::new(fault));
        let other = lanes.clone();
        let follower = thread::spawn(move || other.follow(0, flushes));
        let mut lane = Lane::default();
        for chunk in [0, 1] {
            lanes.commit(&mut lane, &steps, chunk);
        }
        follower.join().unwrap();
        lanes.follow(1, flushes);
    }
}

#[test]
fn a_record_that_is_followed_is_durable_in_place() {
    every_order(hand_over(COMMIT.to_vec(), true, Fault::None));
}

#[test]
fn a_record_that_is_not_flushed_is_found() {
    let fault = Fault::None;
    assert!(is_found(hand_over(COMMIT.to_vec(), false, fault)));
    let owes = without(Step::FlushOwed);
    assert!(is_found(hand_over(owes, true, fault)));
}

#[test]
fn a_lane_that_closes_before_its_fence_is_found() {
    let steps = with(Step::Closed, Step::Fence);
    assert!(is_found(hand_over(steps, true, Fault::None)));
}

/// A lane that goes from one thread to another: the second makes durable what the first has stored.
fn lane_goes_on(steps: Vec<Step>, fault: Fault) -> impl Fn() + Sync + Send + 'static {
    move || {
        let lanes = Arc::new(Lanes::new(fault));
        let (other, steps_of) = (lanes.clone(), steps.clone());
        let second = thread::spawn(move || other.lease(&steps_of, 1));
        lanes.lease(&steps, 0);
        second.join().unwrap();
        let last = LANE.state(&lanes.memory).last;
        assert_eq!(last, 2, "one of two commits is gone");
        lanes.follow(0, true);
        lanes.follow(1, true);
    }
}

#[test]
fn a_lane_goes_from_thread_to_thread() {
    every_order(lane_goes_on(COMMIT.to_vec(), Fault::None));
}

#[test]
fn a_lane_that_owes_its_last_thread_is_found() {
    let owes = without(Step::FlushOwed);
    assert!(is_found(lane_goes_on(owes, Fault::None)));
}

#[test]
fn a_lane_that_is_opened_without_order_is_found() {
    assert!(is_found(lane_goes_on(
        COMMIT.to_vec(),
        Fault::RelaxedRelease
    )));
}

// ---- The mark of a log's segment, which is busy while a record is added.

/// One step of an append that is alone in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Append {
    Busy,
    Record,
    Fence,
    Mark,
}

const APPEND: [Append; 4] = [Append::Busy, Append::Record, Append::Fence, Append::Mark];

/// Records of a segment, one a word, and its mark: how many there are, above whether it is busy.
struct Segment {
    memory: Memory,
    era: u64,
    durable: [Durable; 3],
}

const LOCK: u64 = 0;
const MARK: u64 = 16;
const ERA: u64 = 24;
const RECORDS: [u64; 3] = [64, 72, 80];

fn mark_word(count: usize, is_busy: bool) -> u64 {
    (count as u64) << 2 | u64::from(is_busy) << 1 | 1
}

fn mark_of(word: u64) -> Option<(u64, bool)> {
    (word != 0).then_some((word >> 2, word & 2 != 0))
}

impl Segment {
    /// An empty one in its first era, whose end is known.
    fn new(fault: Fault) -> Segment {
        let offsets = [LOCK, MARK, ERA].into_iter().chain(RECORDS);
        let memory = Memory::new(offsets, fault);
        memory.store(MARK, mark_word(0, false));
        Segment {
            memory,
            era: 0,
            durable: Default::default(),
        }
    }

    /// One in its second era, with a record that its mark does not know of.
    fn in_next_era(fault: Fault) -> Segment {
        let segment = Segment {
            era: 1,
            ..Segment::new(fault)
        };
        segment.memory.store(RECORDS[0], 9);
        segment.durable[0].set(9);
        segment
    }

    fn lock(&self) -> Owner<'_> {
        let lock = Owner(&self.memory, LOCK);
        lock.take();
        lock
    }

    fn mark(&self, count: usize, is_busy: bool) {
        store_mark(&self.memory, MARK, self.era, mark_word(count, is_busy));
    }

    fn all_durable(&self, count: usize) {
        for (&record, durable) in RECORDS.iter().zip(&self.durable).take(count) {
            durable.set(self.memory.load(record));
        }
    }

    /// `log::settle`, with the lock: the mark says what is there, once that is durable.
    fn settle(&self) -> usize {
        let is_there = |&&record: &&u64| self.memory.load(record) != 0;
        let count = RECORDS.iter().take_while(is_there).count();
        self.all_durable(count);
        self.mark(count, false);
        count
    }

    /// An append; its process dies before the step `dies`, and is cleaned up after: its lock opens.
    fn append(&self, steps: &[Append], value: u64, dies: usize) {
        let lock = self.lock();
        // `Tx::mark`, as the holder of the lock sees it.
        let filled = match mark_of(mark_of_holder(&self.memory, MARK, self.era)) {
            Some((filled, false)) => filled as usize,
            _ => self.settle(),
        };
        let was = self.memory.load(RECORDS[filled]);
        assert_eq!(was, 0, "a record over another one");
        for (at, step) in steps.iter().enumerate() {
            if at == dies {
                break;
            }
            match step {
                Append::Busy => self.mark(filled, true),
                Append::Record => self.memory.store(RECORDS[filled], value),
                Append::Fence => self.all_durable(filled + 1),
                Append::Mark => self.mark(filled + 1, false),
            }
        }
        lock.open();
    }

    /// `View::mark` of a reader without the lock; all that it sees is durable.
    fn read(&self) -> usize {
        let is_locked = || self.memory.load(LOCK) != 0;
        let filled = match look_at_mark(&self.memory, MARK, self.era, mark_of, is_locked) {
            Some((filled, _)) => filled as usize,
            None => {
                let lock = self.lock();
                let filled = self.settle();
                lock.open();
                filled
            }
        };
        for (&record, durable) in RECORDS.iter().zip(&self.durable).take(filled) {
            let (seen, durable) = (self.memory.copy(record), durable.get());
            assert!(
                seen != 0 && seen == durable,
                "one of {filled}: {seen}, {durable}"
            );
        }
        filled
    }
}

/// Two appends, the first of which may be cut off, beside two reads.
fn appends(
    steps: Vec<Append>,
    dies: usize,
    is_reader_spawned: bool,
    segment: impl Fn() -> Segment + Sync + Send + 'static,
) -> impl Fn() + Sync + Send + 'static {
    move || {
        let segment = Arc::new(segment());
        let (other, steps_of) = (segment.clone(), steps.clone());
        let write = move |segment: &Segment| {
            segment.append(&steps_of, 1, dies);
            segment.append(&steps_of, 2, usize::MAX);
        };
        let read = |segment: &Segment| {
            let before = segment.read();
            let after = segment.read();
            assert!(before <= after, "what was seen is gone");
        };
        let spawned = if is_reader_spawned {
            let reader = thread::spawn(move || read(&other));
            write(&segment);
            reader
        } else {
            let writer = thread::spawn(move || write(&other));
            read(&segment);
            writer
        };
        spawned.join().unwrap();
        let is_alive = dies >= steps.len();
        assert!(
            segment.read() > usize::from(is_alive),
            "an append that returned"
        );
    }
}

#[test]
fn what_a_mark_says_is_durable() {
    for dies in 0..=APPEND.len() {
        every_order(appends(APPEND.to_vec(), dies, true, segment));
        every_order(appends(APPEND.to_vec(), dies, false, segment));
    }
}

#[test]
fn a_mark_before_its_fence_is_found() {
    let steps = vec![Append::Busy, Append::Record, Append::Mark, Append::Fence];
    assert!(is_found(appends(steps, usize::MAX, true, segment)));
}

/// A record that a dead process has left behind a mark that is not busy is written over.
#[test]
fn a_mark_that_is_not_busy_is_found() {
    let steps = vec![Append::Record, Append::Fence, Append::Mark];
    assert!((0..=3).any(|dies| is_found(appends(steps.clone(), dies, false, segment))));
}

fn segment() -> Segment {
    Segment::new(Fault::None)
}

/// A mark that a run of the same number has left, an era before.
#[test]
fn a_mark_of_an_earlier_era_is_not_believed() {
    // One append and one read: they find the mark unknown, and both look for the end.
    every_order(|| {
        let segment = Arc::new(Segment::in_next_era(Fault::None));
        let other = segment.clone();
        let reader = thread::spawn(move || assert!(other.read() > 0, "a record is passed over"));
        segment.append(&APPEND, 1, usize::MAX);
        reader.join().unwrap();
        assert_eq!(segment.read(), 2);
    });
}

#[test]
fn a_mark_without_its_orders_is_found() {
    let segment = || Segment::new(Fault::RelaxedStores);
    let dies = usize::MAX;
    assert!(is_found(appends(APPEND.to_vec(), dies, true, segment)));
}

#[test]
fn an_era_that_is_not_looked_at_is_found() {
    let dies = usize::MAX;
    let model = appends(APPEND.to_vec(), dies, false, || Segment {
        era: 0,
        ..Segment::in_next_era(Fault::None)
    });
    assert!(is_found(model));
}
