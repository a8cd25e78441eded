//! Goal: over any history containers hold what a vector, a string and a queue of the standard
//! library would hold. Method: random calls on a heap, in transactions of which some fail, and in
//! parts of these, between openings after a crash that loses nothing (yat looks at power loss).
//! One number makes a history again: `PMLIB_MODEL_SEED`; `PMLIB_MODEL_OPS` says how long it is.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use pmlib::containers::{PLog, PQueue, PString, PVec};
use pmlib::{Error, Heap, Options, P, PmSafe, Tx, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

type Wide = [u64; 20];

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Kept {
    words: PVec<u64>,
    bytes: PVec<[u8; 3]>,
    wide: PVec<Wide>,
    text: PString,
    log: PLog,
    jobs: PQueue<u32>,
}

/// The same, of the standard library.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    words: Vec<u64>,
    bytes: Vec<[u8; 3]>,
    wide: Vec<Wide>,
    text: String,
    log: VecDeque<(u64, Vec<u8>)>,
    end: u64,
    jobs: VecDeque<u32>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

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
                $model.push($value);
            }
            3 => {
                let values = vec![$value; $random.below(40) as usize];
                assert_eq!(at.extend(&values)?, len);
                $model.extend(values);
            }
            4..=5 => {
                assert_eq!(at.pop()?, $model.pop());
            }
            6 => {
                let keep = $random.below(len + 1);
                at.truncate(keep)?;
                $model.truncate(keep as usize);
            }
            7 if len > 0 => {
                let index = $random.below(len);
                at.set(index, $value)?;
                $model[index as usize] = $value;
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
                $model.log.push_back(($model.end, bytes));
                $model.end += 16 + len.next_multiple_of(8);
            }
            5 => {
                let nth = $random.below($model.log.len() as u64 + 1) as usize;
                let position = $model.log.get(nth).map_or($model.end, |record| record.0);
                at.trim(position)?;
                $model.log.drain(..nth);
            }
            6 => {
                let nth = $random.below($model.log.len() as u64 + 1) as usize;
                let (position, bytes) = match $model.log.get(nth) {
                    Some((position, bytes)) => (*position, Some(bytes.clone())),
                    None => ($model.end, None),
                };
                assert_eq!(at.read(position)?, bytes);
                let wrong = at.read(position + 1);
                assert!(matches!(wrong, Err(Error::NoRecord { .. })), "{wrong:?}");
            }
            _ => {
                if $random.below(10) == 0 {
                    at.clear()?;
                    $model.log.clear();
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
                $model.push_str(&tail);
            }
            3 => {
                let bound = [5, 30, 800][$random.below(3) as usize];
                let text = $random.letters(bound);
                at.set_text(&text)?;
                *$model = text;
            }
            4 => {
                at.clear()?;
                $model.clear();
            }
            _ => assert_eq!(at.get()?, *$model),
        }
    }};
}

macro_rules! on_jobs {
    ($on:expr, $place:expr, $model:expr, $random:expr) => {{
        let mut at = $on.at($place);
        match $random.below(8) {
            0..=3 => {
                let value = $random.below(1 << 32) as u32;
                at.push(value)?;
                $model.push_back(value);
            }
            4..=6 => assert_eq!(at.pop()?, $model.pop_front()),
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
        match $random.below(6) {
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
            3 => on_text!($on, field!($kept, Kept, text), &mut $model.text, $random),
            4 => on_log!($on, field!($kept, Kept, log), $model, $random),
            _ => on_jobs!($on, field!($kept, Kept, jobs), $model.jobs, $random),
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

fn act_on(heap: &Heap, kept: P<Kept>, model: &mut Model, random: &mut Random) -> Result<(), Error> {
    act!(heap, kept, model, random)
}

/// Several calls, one of which may be a part that fails.
fn acts(
    tx: &mut Tx<'_>,
    kept: P<Kept>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    for _ in 0..1 + random.below(5) {
        if random.below(6) == 0 {
            let mut others = model.clone();
            let part: Result<(), Error> = tx.nested(|tx| {
                act_in(tx, kept, &mut others, random)?;
                act_in(tx, kept, &mut others, random)?;
                Err(Error::Deadlock)
            });
            assert!(
                matches!(part, Err(Error::Deadlock | Error::Full { .. })),
                "{part:?}"
            );
        } else {
            act_in(tx, kept, model, random)?;
        }
    }
    Ok(())
}

fn seen(heap: &Heap, kept: P<Kept>) -> Result<Model, Error> {
    let log: Result<VecDeque<_>, Error> = heap.at(field!(kept, Kept, log)).iter().collect();
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
        words: heap
            .at(field!(kept, Kept, words))
            .iter()
            .collect::<Result<_, _>>()?,
        bytes: heap.at(field!(kept, Kept, bytes)).to_vec()?,
        wide: heap
            .at(field!(kept, Kept, wide))
            .iter()
            .collect::<Result<_, _>>()?,
        text: heap.at(field!(kept, Kept, text)).get()?,
        end: heap.at(field!(kept, Kept, log)).end()?,
        log: log?,
        jobs: jobs?,
    })
}

#[test]
fn containers_hold_what_those_in_memory_do() {
    let seed = number("PMLIB_MODEL_SEED", std::process::id().into());
    let count = number("PMLIB_MODEL_OPS", 8000);
    println!("PMLIB_MODEL_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let options = Options {
        lanes: 2,
        lane_bytes: 4096,
        seed: seed | 1,
        ..Options::default()
    };
    let mut heap = Heap::private(4 << 20, &options).unwrap();
    let kept = heap.root::<Kept>("kept").unwrap();
    let mut model = Model::default();
    let mut calls = 0;
    for _ in 0..count {
        let mut after = model.clone();
        calls += 1;
        let done = match random.below(10) {
            0..=5 => act_on(&heap, kept, &mut after, &mut random),
            6..=8 => heap.tx(|tx| acts(tx, kept, &mut after, &mut random)),
            _ => {
                let failed = heap.tx(|tx| {
                    acts(tx, kept, &mut after, &mut random)?;
                    Err(Error::Deadlock)
                });
                after = model.clone();
                match failed {
                    Err(Error::Deadlock) => Ok(()),
                    other => other,
                }
            }
        };
        match done {
            Ok(()) => model = after,
            Err(Error::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if random.below(60) == 0 {
            assert_eq!(seen(&heap, kept).unwrap(), model);
        }
        if random.below(100) == 0 {
            heap = Heap::attach(heap.into_memory()).unwrap();
        }
    }
    assert_eq!(seen(&heap, kept).unwrap(), model);
    println!("{calls} calls on containers");
    // All room comes back: the root and its name are left.
    heap.at(field!(kept, Kept, words)).clear().unwrap();
    heap.at(field!(kept, Kept, bytes)).clear().unwrap();
    heap.at(field!(kept, Kept, wide)).clear().unwrap();
    heap.at(field!(kept, Kept, text)).clear().unwrap();
    heap.at(field!(kept, Kept, log)).clear().unwrap();
    heap.at(field!(kept, Kept, jobs)).clear().unwrap();
    assert_eq!(heap.check().unwrap().objects, 2);
}
