//! Goal: over any history maps and trees hold what a tree of the standard library would hold, and
//! give back all room. Method: random calls on a heap, in transactions of which some fail, and in
//! parts of these, between openings after a crash that loses nothing (yat looks at power loss).
//! One number makes a history again: `PMLIB_MODEL_SEED`; `PMLIB_MODEL_OPS` says how long it is.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Bound;

use pmlib::containers::{PMap, PStr, PTree};
use pmlib::{Error, Heap, Options, P, PmSafe, Tx, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

type Wide = [u64; 20];

#[derive(
    PmSafe,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
)]
#[repr(C)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Kept {
    numbers: PMap<u64, u64>,
    names: PMap<PStr, [u8; 3]>,
    bytes: PMap<[u8; 3], Wide>,
    narrow: PTree<u64, u64>,
    texts: PTree<PStr, [u8; 3]>,
    points: PTree<Point, Wide>,
}

/// The same, of the standard library.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    numbers: BTreeMap<u64, u64>,
    names: BTreeMap<String, [u8; 3]>,
    bytes: BTreeMap<[u8; 3], Wide>,
    narrow: BTreeMap<u64, u64>,
    texts: BTreeMap<String, [u8; 3]>,
    points: BTreeMap<Point, Wide>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Few enough that most come again; some are alike for long.
    fn letters(&mut self) -> String {
        let mut text = String::from(["", "a", "ein langer Anfang "][self.below(3) as usize]);
        for _ in 0..self.below(4) {
            text.push(['a', 'z', 'ä', '漢'][self.below(4) as usize]);
        }
        text
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// One call that maps and trees have, by what has these calls.
macro_rules! on_both {
    ($on:expr, $place:expr, $model:expr, $random:expr, $key:expr, $owned:expr, $value:expr) => {{
        let mut at = $on.at($place);
        let shrinks = $random.below(2000) < 1000 + 2 * $model.len().min(300) as u64;
        match $random.below(8) {
            0..=3 if !shrinks => {
                assert_eq!(at.insert($key, $value)?, $model.insert($owned, $value))
            }
            0..=4 => assert_eq!(at.remove($key)?, $model.remove($key)),
            5 => {
                let answer = at.update($key, |value| std::mem::replace(value, $value))?;
                let expected = $model.get_mut($key);
                let expected = expected.map(|value| std::mem::replace(value, $value));
                assert_eq!(answer, expected);
            }
            6 if $random.below(200) == 0 => {
                at.clear()?;
                $model.clear();
            }
            _ => {
                assert_eq!(at.get($key)?, $model.get($key).copied());
                assert_eq!(at.contains($key)?, $model.contains_key($key));
                assert_eq!(at.len()?, $model.len() as u64);
            }
        }
    }};
}

/// One call that trees alone have.
macro_rules! on_tree {
    ($on:expr, $place:expr, $model:expr, $random:expr, $name:ty, $low:expr, $high:expr) => {{
        let entry = |(key, value): (&_, &_)| (Clone::clone(key), *value);
        let first = $on.at($place).first()?;
        assert_eq!(first, $model.first_key_value().map(entry));
        let last = $on.at($place).last()?;
        assert_eq!(last, $model.last_key_value().map(entry));
        let (low, high) = ($low.min($high), $low.max($high));
        let bounds = match $random.below(4) {
            0 => (Bound::Included(low), Bound::Excluded(high)),
            1 => (Bound::Included(low), Bound::Included(high)),
            2 => (Bound::Unbounded, Bound::Included(high)),
            _ => (Bound::Included(low), Bound::Unbounded),
        };
        let mut found = $on.at($place).range(bounds);
        let mut expected = $model.range::<$name, _>(bounds);
        // From both ends, until they meet.
        loop {
            let (one, other) = match $random.below(2) {
                0 => (found.next(), expected.next()),
                _ => (found.next_back(), expected.next_back()),
            };
            let one = one.transpose()?;
            assert_eq!(one, other.map(entry));
            if one.is_none() {
                break;
            }
        }
    }};
}

/// One call on one of the containers, of a heap or of a transaction.
macro_rules! act {
    ($on:expr, $kept:expr, $model:expr, $random:expr) => {{
        let value = $random.below(u64::MAX);
        let number = $random.below(400);
        let small = [value as u8; 3];
        match $random.below(8) {
            0 => {
                let place = field!($kept, Kept, numbers);
                on_both!($on, place, $model.numbers, $random, &number, number, value);
            }
            1 => {
                let (place, name) = (field!($kept, Kept, names), $random.letters());
                let key: &str = &name;
                on_both!($on, place, $model.names, $random, key, name.clone(), small);
            }
            2 => {
                let place = field!($kept, Kept, bytes);
                let key = [number as u8; 3];
                on_both!($on, place, $model.bytes, $random, &key, key, [value; 20]);
            }
            3 => {
                let place = field!($kept, Kept, narrow);
                on_both!($on, place, $model.narrow, $random, &number, number, value);
            }
            4 => {
                let (place, name) = (field!($kept, Kept, texts), $random.letters());
                let key: &str = &name;
                on_both!($on, place, $model.texts, $random, key, name.clone(), small);
            }
            5 => {
                let place = field!($kept, Kept, points);
                let (x, y) = (number as i32 % 20 - 10, number as i32 / 20 - 10);
                let key = Point { x, y };
                on_both!($on, place, $model.points, $random, &key, key, [value; 20]);
            }
            6 => {
                let place = field!($kept, Kept, narrow);
                let other = $random.below(420);
                on_tree!($on, place, $model.narrow, $random, u64, &number, &other);
            }
            _ => {
                let place = field!($kept, Kept, texts);
                let (one, other) = ($random.letters(), $random.letters());
                on_tree!(
                    $on,
                    place,
                    $model.texts,
                    $random,
                    str,
                    one.as_str(),
                    other.as_str()
                );
                let found: Result<Vec<_>, Error> = $on.at(place).prefix(&one).collect();
                let all = $model.texts.iter();
                let expected = all.filter(|(key, _)| key.starts_with(&one));
                let expected = expected.map(|(key, value)| (key.clone(), *value));
                assert_eq!(found?, expected.collect::<Vec<_>>());
            }
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

/// Everything that is there, by iterators, and how much is said to be there.
fn seen(heap: &Heap, kept: P<Kept>) -> Result<Model, Error> {
    macro_rules! all {
        ($field:ident) => {{
            let place = field!(kept, Kept, $field);
            let entries: Vec<_> = heap.at(place).iter().collect::<Result<_, _>>()?;
            assert_eq!(heap.at(place).len()?, entries.len() as u64);
            let count = entries.len();
            let map: BTreeMap<_, _> = entries.into_iter().collect();
            assert_eq!(map.len(), count, "no key twice");
            map
        }};
    }
    Ok(Model {
        numbers: all!(numbers),
        names: all!(names),
        bytes: all!(bytes),
        narrow: all!(narrow),
        texts: all!(texts),
        points: all!(points),
    })
}

#[test]
fn maps_hold_what_those_in_memory_do() {
    let seed = number("PMLIB_MODEL_SEED", std::process::id().into());
    let count = number("PMLIB_MODEL_OPS", 20_000);
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
    let narrow = field!(kept, Kept, narrow);
    heap.tx(|tx| tx.write(narrow, &PTree::with_slots(4)))
        .unwrap();
    let mut model = Model::default();
    for _ in 0..count {
        let mut after = model.clone();
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
    let largest = model.numbers.len().max(model.narrow.len());
    println!("{count} rounds, {largest} entries at the end");
    // All room comes back: the root and its name are left.
    heap.at(field!(kept, Kept, numbers)).clear().unwrap();
    heap.at(field!(kept, Kept, names)).clear().unwrap();
    heap.at(field!(kept, Kept, bytes)).clear().unwrap();
    heap.at(field!(kept, Kept, narrow)).clear().unwrap();
    heap.at(field!(kept, Kept, texts)).clear().unwrap();
    heap.at(field!(kept, Kept, points)).clear().unwrap();
    assert_eq!(heap.check().unwrap().objects, 2);
}

/// Goal: maps and trees of many entries, in several orders, one by one away again; every object is
/// given back on the way but the least.
#[test]
fn many_come_and_go() {
    let heap = Heap::private(32 << 20, &Options::default()).unwrap();
    let map = heap.root::<PMap<u64, u64>>("map").unwrap();
    let tree = heap.root::<PTree<u64, u64>>("tree").unwrap();
    let narrow = heap.tx(|tx| tx.new(PTree::<u64, u64>::with_slots(4)));
    let narrow = narrow.unwrap();
    let objects = heap.check().unwrap().objects;
    const COUNT: u64 = 5000;
    let orders: [fn(u64) -> u64; 3] = [|nth| nth, |nth| COUNT - 1 - nth, |nth| nth * 2741 % COUNT];
    for (nth_order, order) in orders.into_iter().enumerate() {
        for nth in 0..COUNT {
            let key = order(nth);
            assert_eq!(heap.at(map).insert(&key, nth).unwrap(), None);
            assert_eq!(heap.at(tree).insert(&key, nth).unwrap(), None);
            assert_eq!(heap.at(narrow).insert(&key, nth).unwrap(), None);
        }
        assert_eq!(heap.at(map).len().unwrap(), COUNT);
        let keys: Vec<u64> = heap.at(tree).iter().map(|each| each.unwrap().0).collect();
        assert_eq!(keys, (0..COUNT).collect::<Vec<_>>());
        let back = heap.at(narrow).iter().rev().map(|each| each.unwrap().0);
        assert!(back.eq((0..COUNT).rev()));
        let mut keys: Vec<u64> = heap.at(map).iter().map(|each| each.unwrap().0).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..COUNT).collect::<Vec<_>>());
        let away = orders[(nth_order + 1) % 3];
        for nth in 0..COUNT {
            let key = away(nth);
            assert!(heap.at(map).remove(&key).unwrap().is_some());
            assert!(heap.at(tree).remove(&key).unwrap().is_some());
            assert!(heap.at(narrow).remove(&key).unwrap().is_some());
        }
        assert!(heap.at(map).is_empty().unwrap() && heap.at(tree).is_empty().unwrap());
        assert!(heap.at(narrow).is_empty().unwrap());
        // A map keeps its first segment of buckets.
        assert_eq!(heap.check().unwrap().objects, objects + 1);
        heap.at(map).clear().unwrap();
        assert_eq!(heap.check().unwrap().objects, objects);
    }
}
