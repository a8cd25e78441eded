//! Goal: over any history containers hold what a vector, a string, a queue and a tree of the
//! standard library would hold. Method: random calls on two lanes of a heap, alone and in
//! transactions, of which some fail, panic, or are cut off by a kill, and in parts of these, some
//! of which fail; between openings, clean ones and after a kill that loses nothing (yat looks at
//! power loss).
//! One number makes a history again: `PMLIB_MODEL_SEED`; `PMLIB_MODEL_OPS` says how long it is.
#![forbid(unsafe_code)]

#[macro_use]
mod keyed;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use keyed::{Keyed, Random, Wide};
use pmlib::containers::{At, OnLane, PLog, PQueue, PString, PTree, PVec};
use pmlib::{Error, Field, Heap, Options, P, PmSafe, Tx, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Kept {
    words: PVec<u64>,
    bytes: PVec<[u8; 3]>,
    wide: PVec<Wide>,
    text: PString,
    log: PLog,
    jobs: PQueue<u32>,
    keyed: Keyed,
}

/// The same, of the standard library. A copy is made for each transaction, and shares what that
/// does not change.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    words: Rc<Vec<u64>>,
    bytes: Rc<Vec<[u8; 3]>>,
    wide: Rc<Vec<Wide>>,
    text: Rc<String>,
    log: Rc<VecDeque<(u64, Rc<[u8]>)>>,
    end: u64,
    jobs: Rc<VecDeque<u32>>,
    keyed: keyed::Model,
}

/// The calls of a heap on one of its lanes.
struct Lane<'h>(&'h Heap, usize);

impl<'h> Lane<'h> {
    fn at<C>(&self, place: Field<C>) -> At<OnLane<'h>, C> {
        self.0.at_on(self.1, place)
    }
}

/// Lanes of the heap.
const LANES: u64 = 2;
/// Calls between two words of progress.
const TOLD: u64 = 1_000_000;

trait Letters {
    fn letters(&mut self, bound: u64) -> String;
}

impl Letters for Random {
    fn letters(&mut self, bound: u64) -> String {
        let len = self.below(bound);
        (0..len)
            .map(|_| ['a', 'z', 'ä', '漢'][self.below(4) as usize])
            .collect()
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// One call on a vector, by what has the vector's calls.
macro_rules! on_vec {
    ($on:expr, $place:expr, $model:expr, $random:expr, $value:expr) => {{
        let (mut at, len) = ($on.at($place), $model.len() as u64);
        match $random.below(9) {
            0..=2 => {
                assert_eq!(at.push($value)?, len);
                Rc::make_mut(&mut $model).push($value);
            }
            3 => {
                let values = vec![$value; $random.below(40) as usize];
                assert_eq!(at.extend(&values)?, len);
                Rc::make_mut(&mut $model).extend(values);
            }
            4..=5 => {
                assert_eq!(at.pop()?, Rc::make_mut(&mut $model).pop());
            }
            6 => {
                let keep = $random.below(len + 1);
                at.truncate(keep)?;
                Rc::make_mut(&mut $model).truncate(keep as usize);
            }
            7 if len > 0 => {
                let index = $random.below(len);
                at.set(index, $value)?;
                Rc::make_mut(&mut $model)[index as usize] = $value;
            }
            _ => {
                let index = $random.below(len + 2);
                assert_eq!(at.get(index)?, $model.get(index as usize).copied());
                assert_eq!(at.len()?, len);
                let wrong = at.set(len, $value);
                assert!(matches!(wrong, Err(Error::Index { .. })));
            }
        }
    }};
}

/// One call on the log.
macro_rules! on_log {
    ($on:expr, $place:expr, $model:expr, $random:expr) => {{
        let mut at = $on.at($place);
        match $random.below(8) {
            0..=4 => {
                // Seldom a long one, which has a segment of its own.
                let kind = $random.below(60).min(4) as usize;
                let most = [100, 20, 3000, 30_000, 20][kind];
                let len = $random.below(most);
                let bytes = vec![$random.below(256) as u8; len as usize];
                assert_eq!(at.append(&bytes)?, $model.end);
                Rc::make_mut(&mut $model.log).push_back(($model.end, bytes.into()));
                $model.end += 16 + len.next_multiple_of(8);
            }
            5 => {
                let nth = $random.below($model.log.len() as u64 + 1) as usize;
                let position = $model.log.get(nth).map_or($model.end, |record| record.0);
                at.trim(position)?;
                Rc::make_mut(&mut $model.log).drain(..nth);
            }
            6 => {
                let nth = $random.below($model.log.len() as u64 + 1) as usize;
                let (position, bytes) = match $model.log.get(nth) {
                    Some((position, bytes)) => (*position, Some(bytes.to_vec())),
                    None => ($model.end, None),
                };
                assert_eq!(at.read(position)?, bytes);
                let wrong = at.read(position + 1);
                assert!(matches!(wrong, Err(Error::NoRecord { .. })), "{wrong:?}");
            }
            _ => {
                if $random.below(10) == 0 {
                    at.clear()?;
                    Rc::make_mut(&mut $model.log).clear();
                }
            }
        }
    }};
}

macro_rules! on_text {
    ($on:expr, $place:expr, $model:expr, $random:expr) => {{
        let mut at = $on.at($place);
        match $random.below(6) {
            0..=2 => {
                let tail = $random.letters(12);
                at.push_str(&tail)?;
                Rc::make_mut(&mut $model).push_str(&tail);
            }
            3 => {
                let bound = [5, 30, 800][$random.below(3) as usize];
                let text = $random.letters(bound);
                at.set_text(&text)?;
                $model = Rc::new(text);
            }
            4 => {
                at.clear()?;
                $model = Rc::default();
            }
            _ => assert_eq!(at.get()?, *$model),
        }
    }};
}

macro_rules! on_jobs {
    ($on:expr, $place:expr, $model:expr, $random:expr) => {{
        let mut at = $on.at($place);
        match ($random.below(10), $random.below(20)) {
            (0..=3, _) => {
                let value = $random.below(1 << 32) as u32;
                at.push(value)?;
                Rc::make_mut(&mut $model).push_back(value);
            }
            (4..=7, _) => {
                assert_eq!(at.pop()?, Rc::make_mut(&mut $model).pop_front());
            }
            // Seldom many, or none: else a queue becomes longer and longer, or has one segment.
            (8, 0) => {
                for value in 0..$random.below(100) as u32 {
                    at.push(value)?;
                    Rc::make_mut(&mut $model).push_back(value);
                }
            }
            (8, 1..=3) => {
                at.clear()?;
                $model = Rc::default();
            }
            _ => {
                assert_eq!(at.peek()?, $model.front().copied());
                assert_eq!(at.len()?, $model.len() as u64);
            }
        }
    }};
}

/// One call on one of the containers, of a heap or of a transaction.
macro_rules! act {
    ($on:expr, $kept:expr, $model:expr, $random:expr) => {{
        let value = $random.below(u64::MAX);
        match $random.below(12) {
            0 => on_vec!(
                $on,
                field!($kept, Kept, words),
                $model.words,
                $random,
                value
            ),
            1 => {
                let value = [value as u8; 3];
                on_vec!(
                    $on,
                    field!($kept, Kept, bytes),
                    $model.bytes,
                    $random,
                    value
                );
            }
            2 => on_vec!(
                $on,
                field!($kept, Kept, wide),
                $model.wide,
                $random,
                [value; 20]
            ),
            3 => on_text!($on, field!($kept, Kept, text), $model.text, $random),
            4 => on_log!($on, field!($kept, Kept, log), $model, $random),
            5 => on_jobs!($on, field!($kept, Kept, jobs), $model.jobs, $random),
            _ => on_keyed!($on, field!($kept, Kept, keyed), $model.keyed, $random),
        }
        Ok(())
    }};
}

fn act_in(
    tx: &mut Tx<'_>,
    kept: P<Kept>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    act!(tx, kept, model, random)
}

fn act_on(
    heap: Lane<'_>,
    kept: P<Kept>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    act!(heap, kept, model, random)
}

/// Several calls, some of which may be parts, of which some fail.
fn acts(
    tx: &mut Tx<'_>,
    kept: P<Kept>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    for _ in 0..1 + random.below(5) {
        if random.below(6) > 0 {
            act_in(tx, kept, model, random)?;
            continue;
        }
        let (mut others, fails) = (model.clone(), random.below(3) > 0);
        let part: Result<(), Error> = tx.nested(|tx| {
            act_in(tx, kept, &mut others, random)?;
            act_in(tx, kept, &mut others, random)?;
            if fails { Err(Error::Deadlock) } else { Ok(()) }
        });
        match part {
            Ok(()) => *model = others,
            Err(Error::Full { .. }) => {}
            Err(error) => assert!(fails && matches!(error, Error::Deadlock), "{error:?}"),
        }
    }
    Ok(())
}

fn seen(heap: &Heap, kept: P<Kept>) -> Result<Model, Error> {
    let log: Result<VecDeque<_>, Error> = heap
        .at(field!(kept, Kept, log))
        .iter()
        .map(|record| record.map(|(position, bytes)| (position, bytes.into())))
        .collect();
    let jobs: Result<VecDeque<_>, Error> = {
        // A look that takes nothing: the queue is a log of its values.
        let mut values = VecDeque::new();
        let taken: Result<(), Error> = heap.tx(|tx| {
            while let Some(value) = tx.at(field!(kept, Kept, jobs)).pop()? {
                values.push_back(value);
            }
            Err(Error::Deadlock)
        });
        match taken {
            Err(Error::Deadlock) => Ok(values),
            other => other.map(|()| values),
        }
    };
    Ok(Model {
        words: Rc::new(
            heap.at(field!(kept, Kept, words))
                .iter()
                .collect::<Result<_, _>>()?,
        ),
        bytes: Rc::new(heap.at(field!(kept, Kept, bytes)).to_vec()?),
        wide: Rc::new(
            heap.at(field!(kept, Kept, wide))
                .iter()
                .collect::<Result<_, _>>()?,
        ),
        text: Rc::new(heap.at(field!(kept, Kept, text)).get()?),
        end: heap.at(field!(kept, Kept, log)).end()?,
        log: Rc::new(log?),
        jobs: Rc::new(jobs?),
        keyed: keyed::seen(heap, field!(kept, Kept, keyed))?,
    })
}

/// The payload of a panic that the test makes.
struct Thrown;

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Commits,
    Fails,
    Panics,
    /// A kill in the middle of it: nothing of it is given back.
    IsKilled,
}

/// A transaction of several calls, and the end that it came to.
fn transaction(
    heap: &Heap,
    kept: P<Kept>,
    after: &mut Model,
    random: &mut Random,
) -> Result<End, Error> {
    let end = match random.below(40) {
        0..=29 => End::Commits,
        30..=35 => End::Fails,
        36..=38 => End::Panics,
        _ => End::IsKilled,
    };
    // On a lane of its choice, or the way that programs go.
    let lane = random.below(LANES * 2) as usize;
    let body = || {
        if lane >= LANES as usize && end != End::IsKilled {
            return heap.tx(|tx| {
                acts(tx, kept, after, random)?;
                match end {
                    End::Panics => resume_unwind(Box::new(Thrown)),
                    End::Fails => Err(Error::Deadlock),
                    _ => Ok(end),
                }
            });
        }
        let mut tx = heap.begin_on(lane % LANES as usize);
        acts(&mut tx, kept, after, random)?;
        match end {
            End::Commits => heap.commit(tx).map(|()| end),
            End::Fails => Ok(end),
            End::Panics => resume_unwind(Box::new(Thrown)),
            End::IsKilled => {
                std::mem::forget(tx);
                Ok(end)
            }
        }
    };
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Err(Error::Deadlock)) => Ok(End::Fails),
        Ok(ended) => ended,
        Err(payload) if payload.is::<Thrown>() => Ok(End::Panics),
        Err(payload) => resume_unwind(payload),
    }
}

/// A history of so many calls and transactions; answers what is left.
fn history(mut heap: Heap, kept: P<Kept>, count: u64, random: &mut Random) -> (Heap, Model) {
    let mut model = Model::default();
    let mut ends = [0u64; 4];
    for nth in 1..=count {
        let mut after = model.clone();
        let lane = random.below(LANES) as usize;
        let done = match random.below(10) {
            0..=5 => act_on(Lane(&heap, lane), kept, &mut after, random).map(|()| End::Commits),
            _ => transaction(&heap, kept, &mut after, random),
        };
        match done {
            Ok(end) => {
                ends[end as usize] += 1;
                if end == End::Commits {
                    model = after;
                }
                if end == End::IsKilled {
                    heap = Heap::attach(heap.into_memory()).unwrap();
                }
            }
            Err(Error::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        match random.below(300) {
            0..5 => assert_eq!(seen(&heap, kept).unwrap(), model),
            5..8 => heap = Heap::attach(heap.into_memory()).unwrap(),
            8 => heap = Heap::attach(heap.close().unwrap()).unwrap(),
            _ => {}
        }
        if nth.is_multiple_of(TOLD) {
            println!("{nth} of {count} calls and transactions");
        }
    }
    let [commits, fails, panics, kills] = ends;
    println!(
        "{count} calls on containers: {commits} committed, {fails} failed, {panics} panicked, \
         {kills} were killed"
    );
    (heap, model)
}

#[test]
fn containers_hold_what_those_in_memory_do() {
    let seed = number("PMLIB_MODEL_SEED", std::process::id().into());
    let count = number("PMLIB_MODEL_OPS", 8000);
    println!("PMLIB_MODEL_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let options = Options {
        lanes: LANES as u32,
        lane_bytes: 4096,
        seed: seed | 1,
        ..Options::default()
    };
    let heap = Heap::private(4 << 20, &options).unwrap();
    let kept = heap.root::<Kept>("kept").unwrap();
    let narrow = field!(field!(kept, Kept, keyed), Keyed, narrow);
    heap.tx(|tx| tx.write(narrow, &PTree::with_slots(4)))
        .unwrap();
    let (heap, model) = history(heap, kept, count, &mut random);
    assert_eq!(seen(&heap, kept).unwrap(), model);
    // All room comes back: the root and its name are left.
    heap.at(field!(kept, Kept, words)).clear().unwrap();
    heap.at(field!(kept, Kept, bytes)).clear().unwrap();
    heap.at(field!(kept, Kept, wide)).clear().unwrap();
    heap.at(field!(kept, Kept, text)).clear().unwrap();
    heap.at(field!(kept, Kept, log)).clear().unwrap();
    heap.at(field!(kept, Kept, jobs)).clear().unwrap();
    keyed::clear(&heap, field!(kept, Kept, keyed));
    assert_eq!(heap.check().unwrap().objects, 2);
}
