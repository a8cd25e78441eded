//! The calls of a history, their answers, and the state that they are on.

use super::super::schedule::Random;
use crate::linear::Model;
use pmlib::containers::{PLog, PMap, PQueue, PString, PTree, PVec};
use pmlib::{Error, Heap, P, Tx};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a log's record of eight bytes takes.
const RECORD_BYTES: u64 = 24;

/// The container of a call with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A map.
    Map,
    /// A tree.
    Tree,
}

/// A call on the heap's containers and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A word is pushed onto the vector.
    Push(u64),
    /// The vector's last word is taken.
    Pop,
    /// A word of the vector becomes another.
    Set(u64, u64),
    /// The whole vector is read.
    Words,
    /// A letter is added to the text.
    AddText(char),
    /// The text is one of so many of a letter.
    SetText(usize, char),
    /// The text is read.
    Text,
    /// A record is added to the log.
    Append(u64),
    /// The log is trimmed to its end.
    TrimAll,
    /// The log's n-th record since its beginning is read.
    ReadLog(u64),
    /// The log's end is asked for.
    LogEnd,
    /// A number is put into the queue.
    Put(u64),
    /// A number is taken from it.
    Take,
    /// The number at its front is looked at.
    Peek,
    /// One is added to two words, in objects of different chunks.
    Bump,
    /// Both words are read, as of one moment.
    Pair,
    /// A key gets a value.
    Insert(On, u64, u64),
    /// A key is taken away.
    Remove(On, u64),
    /// One is added to the value of a key, if it is there.
    Update(On, u64),
    /// The value of a key is read.
    Get(On, u64),
    /// The entries are counted.
    Len(On),
    /// All keys and values are read, in a transaction.
    Entries(On),
    /// The tree's entry with the least key is read.
    First,
    /// The one with the greatest.
    Last,
    /// All entries are taken away.
    Clear(On),
    /// In one transaction: a push, an append, a put, a bump, and an insert into map and tree.
    All(u64),
    /// The same, and it comes to nothing.
    Fails(u64),
    /// Everything is read, by nobody beside.
    Everything,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A position, an index, or a word.
    Number(u64),
    /// An element, a value or a record, if there is one.
    Maybe(Option<u64>),
    /// Words.
    Words(Vec<u64>),
    /// A text.
    Text(String),
    /// No such element or record.
    Nothing,
    /// A circle of waiting transactions: it has not happened.
    Circle,
    /// Everything.
    Everything(Box<Kept>),
}

/// The state of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kept {
    words: Vec<u64>,
    text: String,
    log: VecDeque<u64>,
    log_end: u64,
    jobs: VecDeque<u64>,
    pair: u64,
    map: BTreeMap<u64, u64>,
    tree: BTreeMap<u64, u64>,
}

/// Keys that calls name: few, so that most come again.
const KEYS: u64 = 14;
/// Entries of a tree's node: few, so that few keys make it high.
const SLOTS: usize = 4;

/// Every second key is there from the start.
fn first_keys() -> impl Iterator<Item = (u64, u64)> {
    (0..KEYS).step_by(2).map(|key| (key, 1000 + key))
}

fn flat(entry: (&u64, &u64)) -> [u64; 2] {
    [*entry.0, *entry.1]
}

impl Kept {
    /// The state of a heap that [`Places::make`] has made.
    pub(super) fn begun() -> Kept {
        Kept {
            map: first_keys().collect(),
            tree: first_keys().collect(),
            ..Kept::default()
        }
    }

    fn keyed(&mut self, on: On) -> &mut BTreeMap<u64, u64> {
        match on {
            On::Map => &mut self.map,
            On::Tree => &mut self.tree,
        }
    }

    /// A call with a key.
    fn apply_keyed(&mut self, call: &Call) -> Answer {
        let end = |entry: Option<(&u64, &u64)>| match entry {
            Some(entry) => Answer::Words(flat(entry).to_vec()),
            None => Answer::Nothing,
        };
        match *call {
            Call::Insert(on, key, value) => Answer::Maybe(self.keyed(on).insert(key, value)),
            Call::Remove(on, key) => Answer::Maybe(self.keyed(on).remove(&key)),
            Call::Update(on, key) => Answer::Maybe(self.keyed(on).get_mut(&key).map(|value| {
                *value += 1;
                *value
            })),
            Call::Get(on, key) => Answer::Maybe(self.keyed(on).get(&key).copied()),
            Call::Len(on) => Answer::Number(self.keyed(on).len() as u64),
            Call::Entries(on) => Answer::Words(self.keyed(on).iter().flat_map(flat).collect()),
            Call::First => end(self.tree.first_key_value()),
            Call::Last => end(self.tree.last_key_value()),
            Call::Clear(on) => {
                self.keyed(on).clear();
                Answer::Done
            }
            _ => Answer::Nothing,
        }
    }

    fn append(&mut self, value: u64) -> u64 {
        self.log.push_back(value);
        self.log_end += RECORD_BYTES;
        self.log_end - RECORD_BYTES
    }

    fn push(&mut self, value: u64) -> u64 {
        self.words.push(value);
        self.words.len() as u64 - 1
    }
}

impl Model for Kept {
    type Call = Call;
    type Answer = Answer;

    fn apply(&mut self, call: &Call) -> Answer {
        match *call {
            Call::Push(value) => Answer::Number(self.push(value)),
            Call::Pop => Answer::Maybe(self.words.pop()),
            Call::Set(index, value) => match self.words.get_mut(index as usize) {
                Some(word) => {
                    *word = value;
                    Answer::Done
                }
                None => Answer::Nothing,
            },
            Call::Words => Answer::Words(self.words.clone()),
            Call::AddText(letter) => {
                self.text.push(letter);
                Answer::Done
            }
            Call::SetText(count, letter) => {
                self.text = letter.to_string().repeat(count);
                Answer::Done
            }
            Call::Text => Answer::Text(self.text.clone()),
            Call::Append(value) => Answer::Number(self.append(value)),
            Call::TrimAll => {
                self.log.clear();
                Answer::Number(self.log_end)
            }
            Call::ReadLog(nth) => {
                let first = self.log_end / RECORD_BYTES - self.log.len() as u64;
                match nth.checked_sub(first) {
                    Some(at) if at < self.log.len() as u64 => {
                        Answer::Maybe(Some(self.log[at as usize]))
                    }
                    Some(at) if at == self.log.len() as u64 => Answer::Maybe(None),
                    _ => Answer::Nothing,
                }
            }
            Call::LogEnd => Answer::Number(self.log_end),
            Call::Put(value) => {
                self.jobs.push_back(value);
                Answer::Done
            }
            Call::Take => Answer::Maybe(self.jobs.pop_front()),
            Call::Peek => Answer::Maybe(self.jobs.front().copied()),
            Call::Bump => {
                self.pair += 1;
                Answer::Number(self.pair)
            }
            Call::Pair => Answer::Words(vec![self.pair; 2]),
            Call::All(value) => {
                let index = self.push(value);
                let position = self.append(value);
                self.jobs.push_back(value);
                self.pair += 1;
                self.map.insert(value % KEYS, value);
                self.tree.insert(value % KEYS, value);
                Answer::Words(vec![index, position, self.pair])
            }
            Call::Fails(_) => Answer::Nothing,
            Call::Everything => Answer::Everything(Box::new(self.clone())),
            Call::Insert(..)
            | Call::Remove(..)
            | Call::Update(..)
            | Call::Get(..)
            | Call::Len(_)
            | Call::Entries(_)
            | Call::First
            | Call::Last
            | Call::Clear(_) => self.apply_keyed(call),
        }
    }
}

/// Where things are.
#[derive(Clone, Copy)]
pub(super) struct Places {
    words: P<PVec<u64>>,
    text: P<PString>,
    log: P<PLog>,
    jobs: P<PQueue<u64>>,
    map: P<PMap<u64, u64>>,
    tree: P<PTree<u64, u64>>,
    /// One of them is a chunk's only object.
    pair: [u64; 2],
}

/// Bytes of an object that has a chunk of its own.
const OF_A_CHUNK: u64 = 64 << 10;

impl Places {
    pub(super) fn make(heap: &Heap) -> Result<Places, Error> {
        let mut tx = heap.begin_on(0);
        let places = Places {
            words: tx.root("words")?,
            text: tx.root("text")?,
            log: tx.root("log")?,
            jobs: tx.root("jobs")?,
            map: tx.root("map")?,
            tree: tx.root("tree")?,
            pair: [tx.alloc(64)?, tx.alloc(OF_A_CHUNK)?],
        };
        tx.write(places.tree, &PTree::with_slots(SLOTS))?;
        for (key, value) in first_keys() {
            tx.at(places.map).insert(&key, value)?;
            tx.at(places.tree).insert(&key, value)?;
        }
        heap.commit(tx)?;
        Ok(places)
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap_or([0xee; 8]))
}

fn bump(tx: &mut Tx<'_>, places: &Places) -> Result<u64, Error> {
    tx.lock(places.pair[0])?;
    let mut seen = [0; 2];
    for (object, seen) in places.pair.into_iter().zip(&mut seen) {
        let bytes = tx.edit_bytes(object, 0, 8)?;
        *seen = word(bytes) + 1;
        bytes.copy_from_slice(&seen.to_le_bytes());
    }
    // Words that differ are told as a number that no word is.
    Ok(if seen[0] == seen[1] {
        seen[0]
    } else {
        u64::MAX
    })
}

fn all(tx: &mut Tx<'_>, places: &Places, value: u64) -> Result<Vec<u64>, Error> {
    let index = tx.at(places.words).push(value)?;
    let position = tx.at(places.log).append(&value.to_le_bytes())?;
    tx.at(places.jobs).push(value)?;
    tx.at(places.map).insert(&(value % KEYS), value)?;
    tx.at(places.tree).insert(&(value % KEYS), value)?;
    Ok(vec![index, position, bump(tx, places)?])
}

/// Entries, as many as the container says that it has; a count that is wrong is told as a key.
fn whole(
    entries: Result<BTreeMap<u64, u64>, Error>,
    count: u64,
) -> Result<BTreeMap<u64, u64>, Error> {
    let mut entries = entries?;
    if entries.len() as u64 != count {
        entries.insert(u64::MAX, count);
    }
    Ok(entries)
}

fn everything(heap: &Heap, lane: usize, places: &Places) -> Result<Kept, Error> {
    let mut tx = heap.begin_on(lane);
    let log: Result<VecDeque<u64>, Error> = tx
        .at(places.log)
        .iter()
        .map(|record| record.map(|(_, bytes)| word(&bytes)))
        .collect();
    let mut kept = Kept {
        words: tx.at(places.words).to_vec()?,
        text: tx.at(places.text).get()?,
        log: log?,
        log_end: tx.at(places.log).end()?,
        pair: bump(&mut tx, places)?.wrapping_sub(1),
        map: whole(tx.at(places.map).iter().collect(), tx.at(places.map).len()?)?,
        tree: whole(
            tx.at(places.tree).iter().collect(),
            tx.at(places.tree).len()?,
        )?,
        jobs: VecDeque::new(),
    };
    while let Some(value) = tx.at(places.jobs).pop()? {
        kept.jobs.push_back(value);
    }
    // The transaction is dropped: nothing of it has happened.
    Ok(kept)
}

/// A call on a map or a tree, which have the same calls.
macro_rules! keyed {
    ($heap:expr, $lane:expr, $place:expr, $in_tx:expr, $call:expr) => {{
        let mut at = $heap.at_on($lane, $place);
        match $call {
            Call::Insert(_, key, value) => at.insert(&key, value).map(Answer::Maybe),
            Call::Remove(_, key) => at.remove(&key).map(Answer::Maybe),
            Call::Update(_, key) => {
                let one_more = |value: &mut u64| {
                    *value += 1;
                    *value
                };
                at.update(&key, one_more).map(Answer::Maybe)
            }
            Call::Get(_, key) => at.get(&key).map(Answer::Maybe),
            Call::Len(_) => at.len().map(Answer::Number),
            Call::Entries(_) => $in_tx(&|tx| {
                let entries: Result<BTreeMap<u64, u64>, Error> = tx.at($place).iter().collect();
                let words = entries?.iter().flat_map(flat).collect();
                Ok(Answer::Words(words))
            }),
            _ => at.clear().map(|()| Answer::Done),
        }
    }};
}

fn end(entry: Option<(u64, u64)>) -> Answer {
    match entry {
        Some((key, value)) => Answer::Words(vec![key, value]),
        None => Answer::Nothing,
    }
}

/// Does a call as the user of this lane.
pub(super) fn act(heap: &Heap, lane: usize, places: &Places, call: &Call) -> Result<Answer, Error> {
    let in_tx = |body: &dyn Fn(&mut Tx<'_>) -> Result<Answer, Error>| {
        let mut tx = heap.begin_on(lane);
        let answer = body(&mut tx)?;
        heap.commit(tx)?;
        Ok(answer)
    };
    let mut words = heap.at_on(lane, places.words);
    let mut text = heap.at_on(lane, places.text);
    let mut log = heap.at_on(lane, places.log);
    let mut jobs = heap.at_on(lane, places.jobs);
    let done = match *call {
        Call::Push(value) => words.push(value).map(Answer::Number),
        Call::Pop => words.pop().map(Answer::Maybe),
        Call::Set(index, value) => words.set(index, value).map(|()| Answer::Done),
        Call::Words => words.to_vec().map(Answer::Words),
        Call::AddText(letter) => text.push_str(&letter.to_string()).map(|()| Answer::Done),
        Call::SetText(count, letter) => text
            .set_text(&letter.to_string().repeat(count))
            .map(|()| Answer::Done),
        Call::Text => text.get().map(Answer::Text),
        Call::Append(value) => log.append(&value.to_le_bytes()).map(Answer::Number),
        Call::TrimAll => in_tx(&|tx| {
            let end = tx.at(places.log).end()?;
            tx.at(places.log).trim(end)?;
            Ok(Answer::Number(end))
        }),
        Call::ReadLog(nth) => log
            .read(nth * RECORD_BYTES)
            .map(|bytes| Answer::Maybe(bytes.map(|bytes| word(&bytes)))),
        Call::LogEnd => log.end().map(Answer::Number),
        Call::Put(value) => jobs.push(value).map(|()| Answer::Done),
        Call::Take => jobs.pop().map(Answer::Maybe),
        Call::Peek => jobs.peek().map(Answer::Maybe),
        Call::Bump => in_tx(&|tx| bump(tx, places).map(Answer::Number)),
        Call::Pair => pair(heap, places).map(Answer::Words),
        Call::All(value) => in_tx(&|tx| all(tx, places, value).map(Answer::Words)),
        Call::Fails(value) => {
            let mut tx = heap.begin_on(lane);
            all(&mut tx, places, value).map(|_| Answer::Nothing)
        }
        Call::First => Ok(end(heap.at_on(lane, places.tree).first()?)),
        Call::Last => Ok(end(heap.at_on(lane, places.tree).last()?)),
        Call::Insert(on, ..)
        | Call::Remove(on, _)
        | Call::Update(on, _)
        | Call::Get(on, _)
        | Call::Len(on)
        | Call::Entries(on)
        | Call::Clear(on) => match on {
            On::Map => keyed!(heap, lane, places.map, in_tx, *call),
            On::Tree => keyed!(heap, lane, places.tree, in_tx, *call),
        },
        Call::Everything => {
            everything(heap, lane, places).map(|kept| Answer::Everything(Box::new(kept)))
        }
    };
    match done {
        Err(Error::Index { .. } | Error::NoRecord { .. }) => Ok(Answer::Nothing),
        Err(Error::Deadlock) => Ok(Answer::Circle),
        done => done,
    }
}

/// Both objects of the pair, as of one moment.
fn pair(heap: &Heap, places: &Places) -> Result<Vec<u64>, Error> {
    heap.view(|view| {
        let mut seen = vec![0; 2];
        for (object, seen) in places.pair.into_iter().zip(&mut seen) {
            let mut bytes = [0; 8];
            view.read_bytes(object, 0, &mut bytes)?;
            *seen = word(&bytes);
        }
        Ok(seen)
    })
}

pub(super) fn any_call(random: &mut Random, value: u64) -> Call {
    let letter = char::from(b'a' + (value % 26) as u8);
    match random.below(40) {
        24..40 => any_keyed(random, value),
        0..=2 => Call::Push(value),
        3 => Call::Pop,
        4 => Call::Set(random.below(6), value),
        5 => Call::Words,
        6 => Call::AddText(letter),
        7 => Call::SetText([3, 14, 15, 16, 40][random.below(5) as usize], letter),
        8 => Call::Text,
        9..=11 => Call::Append(value),
        12 => Call::TrimAll,
        13 => Call::ReadLog(random.below(12)),
        14 => Call::LogEnd,
        15..=16 => Call::Put(value),
        17..=18 => Call::Take,
        19 => Call::Peek,
        20 => Call::Bump,
        21 => Call::Pair,
        22 => Call::All(value),
        _ => Call::Fails(value),
    }
}

fn any_keyed(random: &mut Random, value: u64) -> Call {
    let on = [On::Map, On::Tree][random.below(2) as usize];
    let key = random.below(KEYS);
    match random.below(32) {
        0..=10 => Call::Insert(on, key, value),
        11..=17 => Call::Remove(on, key),
        18..=20 => Call::Update(on, key),
        21..=24 => Call::Get(on, key),
        25..=26 => Call::Len(on),
        27..=28 => Call::Entries(on),
        29 => Call::First,
        30 => Call::Last,
        _ => Call::Clear(on),
    }
}
