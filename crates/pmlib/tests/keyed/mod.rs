//! Maps and trees beside the standard library's tree: random calls on six of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use pmlib::containers::{PMap, PStr, PTree};
use pmlib::{Error, Field, Heap, PmSafe, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub type Wide = [u64; 20];

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
pub struct Point {
    pub x: i32,
    pub y: i32,
}

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Keyed {
    pub numbers: PMap<u64, u64>,
    pub names: PMap<PStr, [u8; 3]>,
    pub bytes: PMap<[u8; 3], Wide>,
    pub narrow: PTree<u64, u64>,
    pub texts: PTree<PStr, [u8; 3]>,
    pub points: PTree<Point, Wide>,
}

/// The same, of the standard library. A copy shares what is not changed.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Model {
    pub numbers: Rc<BTreeMap<u64, u64>>,
    pub names: Rc<BTreeMap<String, [u8; 3]>>,
    pub bytes: Rc<BTreeMap<[u8; 3], Wide>>,
    pub narrow: Rc<BTreeMap<u64, u64>>,
    pub texts: Rc<BTreeMap<String, [u8; 3]>>,
    pub points: Rc<BTreeMap<Point, Wide>>,
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Few enough that most come again; some are alike for long.
    pub fn name(&mut self) -> String {
        let mut text = String::from(["", "a", "ein langer Anfang "][self.below(3) as usize]);
        for _ in 0..self.below(4) {
            text.push(['a', 'z', 'ä', '漢'][self.below(4) as usize]);
        }
        text
    }
}

/// One call that maps and trees have, by what has these calls.
macro_rules! on_both {
    ($on:expr, $place:expr, $model:expr, $random:expr, $key:expr, $owned:expr, $value:expr) => {{
        let mut at = $on.at($place);
        let shrinks = $random.below(2000) < 1000 + 2 * $model.len().min(300) as u64;
        match $random.below(8) {
            0..=3 if !shrinks => {
                assert_eq!(
                    at.insert($key, $value)?,
                    Rc::make_mut(&mut $model).insert($owned, $value)
                )
            }
            0..=4 => assert_eq!(at.remove($key)?, Rc::make_mut(&mut $model).remove($key)),
            5 => {
                let answer = at.update($key, |value| std::mem::replace(value, $value))?;
                let expected = Rc::make_mut(&mut $model).get_mut($key);
                let expected = expected.map(|value| std::mem::replace(value, $value));
                assert_eq!(answer, expected);
            }
            6 if $random.below(200) == 0 => {
                at.clear()?;
                $model = Rc::default();
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
macro_rules! on_keyed {
    ($on:expr, $kept:expr, $model:expr, $random:expr) => {{
        use keyed::{Keyed, Point};
        use std::ops::Bound;
        use std::rc::Rc;
        let value = $random.below(u64::MAX);
        let number = $random.below(400);
        let small = [value as u8; 3];
        match $random.below(8) {
            0 => {
                let place = field!($kept, Keyed, numbers);
                on_both!($on, place, $model.numbers, $random, &number, number, value);
            }
            1 => {
                let (place, name) = (field!($kept, Keyed, names), $random.name());
                let key: &str = &name;
                on_both!($on, place, $model.names, $random, key, name.clone(), small);
            }
            2 => {
                let place = field!($kept, Keyed, bytes);
                let key = [number as u8; 3];
                on_both!($on, place, $model.bytes, $random, &key, key, [value; 20]);
            }
            3 => {
                let place = field!($kept, Keyed, narrow);
                on_both!($on, place, $model.narrow, $random, &number, number, value);
            }
            4 => {
                let (place, name) = (field!($kept, Keyed, texts), $random.name());
                let key: &str = &name;
                on_both!($on, place, $model.texts, $random, key, name.clone(), small);
            }
            5 => {
                let place = field!($kept, Keyed, points);
                let (x, y) = (number as i32 % 20 - 10, number as i32 / 20 - 10);
                let key = Point { x, y };
                on_both!($on, place, $model.points, $random, &key, key, [value; 20]);
            }
            6 => {
                let place = field!($kept, Keyed, narrow);
                let other = $random.below(420);
                on_tree!($on, place, $model.narrow, $random, u64, &number, &other);
            }
            _ => {
                let place = field!($kept, Keyed, texts);
                let (one, other) = ($random.name(), $random.name());
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
    }};
}

/// Everything that is there, by iterators, and how much is said to be there.
pub fn seen(heap: &Heap, kept: impl Into<Field<Keyed>>) -> Result<Model, Error> {
    let kept = kept.into();
    macro_rules! all {
        ($field:ident) => {{
            let place = field!(kept, Keyed, $field);
            let entries: Vec<_> = heap.at(place).iter().collect::<Result<_, _>>()?;
            assert_eq!(heap.at(place).len()?, entries.len() as u64);
            let count = entries.len();
            let map: BTreeMap<_, _> = entries.into_iter().collect();
            assert_eq!(map.len(), count, "no key twice");
            Rc::new(map)
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

/// All room comes back.
pub fn clear(heap: &Heap, kept: impl Into<Field<Keyed>>) {
    let kept = kept.into();
    heap.at(field!(kept, Keyed, numbers)).clear().unwrap();
    heap.at(field!(kept, Keyed, names)).clear().unwrap();
    heap.at(field!(kept, Keyed, bytes)).clear().unwrap();
    heap.at(field!(kept, Keyed, narrow)).clear().unwrap();
    heap.at(field!(kept, Keyed, texts)).clear().unwrap();
    heap.at(field!(kept, Keyed, points)).clear().unwrap();
}
