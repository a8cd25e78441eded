//! The tree, call by call, and its waits.

use std::collections::BTreeMap;
use std::ops::Bound;

use pmem::counters;
use pmkv::{Error, Expect, Hash, Kind, Tree, TreeShape};
use pmlib::{Heap, Options};

/// Chunks of few leaves with few slots.
const SMALL: TreeShape = TreeShape {
    groups: 2,
    leaves: 2,
    lines: 1,
    places_log2: 3,
};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn heap(bytes: u64) -> Heap {
    let options = Options {
        seed: 7,
        max: 1 << 30,
        ..Options::default()
    };
    Heap::private(bytes, &options).unwrap()
}

#[test]
fn values_come_back_in_order() {
    let heap = heap(8 << 20);
    let tree = Tree::open(&heap, "kv").unwrap();
    assert_eq!(tree.get(b"a").unwrap(), None);
    assert_eq!(tree.iter().count(), 0);
    let lens = [1 << 20, 0, 1, 5000, 8, 63, 65_000, 64, 1000, 70_000];
    let mut keys = Vec::new();
    for (nth, len) in lens.into_iter().enumerate() {
        let key = format!("key {len}").into_bytes();
        let value = vec![nth as u8 + 1; len];
        tree.put(&key, &value).unwrap();
        assert_eq!(tree.get(&key).unwrap(), Some(value), "{len}");
        keys.push(key);
    }
    for key in [vec![], vec![0], vec![3; 64 << 10]] {
        tree.put(&key, b"of a key").unwrap();
        assert_eq!(tree.get(&key).unwrap().unwrap(), b"of a key");
        keys.push(key);
    }
    let long = tree.put(&vec![3; (64 << 10) + 1], b"");
    assert!(matches!(long, Err(Error::TooLarge { key: 65_537, .. })));
    assert!(!tree.put_if(b"key 0", Expect::Missing, b"").unwrap());
    keys.sort();
    let found: Vec<Vec<u8>> = tree.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(found, keys);
    assert_eq!(tree.count().unwrap(), keys.len() as u64);
    for key in &keys {
        assert!(tree.delete(key).unwrap());
        assert!(!tree.delete(key).unwrap());
    }
    assert_eq!(tree.count().unwrap(), 0);
    heap.check().unwrap();
}

/// Goal: an engine is opened as what it is. Method: each kind under the name of the other.
#[test]
fn a_tree_is_no_hash() {
    let heap = heap(4 << 20);
    drop(Hash::open(&heap, "h").unwrap());
    drop(Tree::open(&heap, "t").unwrap());
    let Err(error) = Tree::open(&heap, "h") else {
        panic!("it was opened");
    };
    assert_eq!(error.to_string(), "the engine is a hash: open it as one");
    assert!(matches!(
        Hash::open(&heap, "t").err(),
        Some(Error::Kind { found: Kind::Tree })
    ));
    assert_eq!(Kind::of_engine(&heap, "t").unwrap(), Some(Kind::Tree));
    assert_eq!(Kind::of_engine(&heap, "h").unwrap(), Some(Kind::Hash));
    assert_eq!(Kind::of_engine(&heap, "x").unwrap(), None);
    assert_eq!(Tree::names(&heap).unwrap(), ["t", "h"]);
}

/// Goal: a put and a delete wait once. Method: fences are counted, of keys that are new, there, and
/// taken away, once there is a chunk for the records and while there is room in the leaf.
#[test]
fn a_put_waits_once() {
    let heap = heap(4 << 20);
    let tree = Tree::open(&heap, "kv").unwrap();
    tree.put(b"first", &[1; 64]).unwrap();
    let waits = |body: &dyn Fn()| {
        let before = counters::snapshot();
        body();
        counters::snapshot().fences - before.fences
    };
    for nth in 0..40u64 {
        let key = nth.to_le_bytes();
        assert_eq!(waits(&|| tree.put(&key, &[1; 64]).unwrap()), 1, "{nth}");
        assert_eq!(waits(&|| tree.put(&key, &[2; 64]).unwrap()), 1, "{nth}");
        assert_eq!(waits(&|| drop(tree.get(&key).unwrap())), 0);
        assert_eq!(waits(&|| drop(tree.range(&key[..]..).next())), 0);
    }
    for nth in 0..40u64 {
        let key = nth.to_le_bytes();
        assert_eq!(waits(&|| assert!(tree.delete(&key).unwrap())), 1);
    }
}

/// Goal: keys that come in order fill their leaves. Method: so many puts in order, and a look at
/// the slots; the same in any order takes more.
#[test]
fn keys_in_order_fill_leaves() {
    let fill = |multiplier: u64| {
        let heap = heap(64 << 20);
        let tree = Tree::open(&heap, "kv").unwrap();
        for nth in 0..20_000u64 {
            let key = (nth * multiplier % 20_011).to_be_bytes();
            tree.put(&key, b"").unwrap();
        }
        let stats = tree.stats().unwrap();
        assert_eq!(stats.keys, 20_000);
        (stats.keys as f64 / stats.slots as f64, stats.index_chunks)
    };
    let (in_order, in_any) = (fill(1), fill(7919));
    println!("in order {in_order:?}, in any {in_any:?}");
    assert!(
        in_order.0 > 0.85 && in_any.0 > 0.6,
        "{in_order:?} {in_any:?}"
    );
}

/// Goal: leaves with few keys become few leaves, and nothing is lost. Method: most of many keys are
/// taken away, and slots are counted before and after `compact`, by another handle too.
#[test]
fn leaves_are_joined() {
    let heap = heap(64 << 20);
    let tree = Tree::open(&heap, "kv").unwrap();
    let other = Tree::open(&heap, "kv").unwrap();
    let key = |nth: u64| (nth * 7919 % 20_011).to_be_bytes();
    for nth in 0..20_000u64 {
        tree.put(&key(nth), &nth.to_le_bytes()).unwrap();
    }
    for nth in (0..20_000u64).filter(|nth| nth % 16 != 0) {
        assert!(tree.delete(&key(nth)).unwrap());
    }
    let before = other.stats().unwrap();
    tree.compact().unwrap();
    let after = other.stats().unwrap();
    println!("{} slots, then {}", before.slots, after.slots);
    assert_eq!(after.keys, 1250);
    assert!(after.slots * 8 < before.slots);
    for nth in 0..20_000u64 {
        let value = other.get(&key(nth)).unwrap();
        let expected = (nth % 16 == 0).then(|| nth.to_le_bytes().to_vec());
        assert_eq!(value, expected);
    }
    for nth in 0..20_000u64 {
        other.put(&key(nth), b"again").unwrap();
    }
    assert_eq!(tree.iter().filter(Result::is_ok).count(), 20_000);
    heap.check().unwrap();
}

/// Goal: whatever the order of calls, the engine is an ordered map. Method: random calls and ranges
/// from both ends beside the standard library's map, on small chunks that are split again and
/// again, and on those of full size, by two handles by turns; opened anew now and then.
#[test]
fn it_is_an_ordered_map() {
    let mut state = seed();
    for (shape, keys) in [(SMALL, 400), (TreeShape::default(), 20_000)] {
        let heap = heap(16 << 20);
        let mut map = BTreeMap::new();
        let open = || Tree::open_as(&heap, "kv", shape).unwrap();
        let mut trees = [open(), open()];
        for nth in 0..operations() {
            let tree = &trees[chance(&mut state) as usize % 2];
            step(tree, &mut map, &mut state, keys);
            if nth % 700 == 699 {
                tree.compact().unwrap();
            }
            if nth % 500 == 499 {
                range(tree, &map, &mut state, keys);
            }
            if nth % 2000 == 1999 {
                whole(tree, &map);
                trees = [open(), Tree::open(&heap, "kv").unwrap()];
            }
        }
        heap.check().unwrap();
    }
}

fn seed() -> u64 {
    let given = std::env::var("PMKV_MODEL_SEED").ok();
    let seed = given.map_or(1, |seed| seed.parse().expect("a number"));
    println!("PMKV_MODEL_SEED={seed}");
    seed
}

fn operations() -> u64 {
    let given = std::env::var("PMKV_MODEL_OPS").ok();
    given.map_or(20_000, |count| count.parse().expect("a number"))
}

fn chance(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// Keys with much in common and with little, short and long, some of which begin others.
fn key(state: &mut u64, keys: u64) -> Vec<u8> {
    let number = chance(state) % keys;
    let bytes = number.to_be_bytes();
    match number % 5 {
        0 => format!("a long beginning, the same for all of them, {number}").into_bytes(),
        1 => vec![0; number as usize % 40],
        2 => bytes[8 - 1 - number as usize % 3..].to_vec(),
        3 => [&[255; 9][..], &bytes[6..]].concat(),
        _ => bytes.to_vec(),
    }
}

fn step(tree: &Tree<'_>, map: &mut BTreeMap<Vec<u8>, Vec<u8>>, state: &mut u64, keys: u64) {
    let key = key(state, keys);
    let len = [0, 8, 40, 100, 1000, 3000][chance(state) as usize % 6];
    let value = vec![chance(state) as u8; len];
    match chance(state) % 10 {
        0..4 => {
            tree.put(&key, &value).unwrap();
            map.insert(key, value);
        }
        4 => {
            let done = tree.put_if(&key, Expect::Missing, &value).unwrap();
            assert_eq!(done, !map.contains_key(&key));
            map.entry(key).or_insert(value);
        }
        5..8 => assert_eq!(tree.get(&key).unwrap().as_ref(), map.get(&key)),
        8 => assert_eq!(tree.delete(&key).unwrap(), map.remove(&key).is_some()),
        _ if chance(state).is_multiple_of(500) => {
            assert_eq!(tree.clear().unwrap(), map.len() as u64);
            map.clear();
        }
        _ => assert_eq!(tree.delete(&key).unwrap(), map.remove(&key).is_some()),
    }
}

fn whole(tree: &Tree<'_>, map: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let all: Result<Entries, Error> = tree.iter().collect();
    assert!(all.unwrap().iter().map(|(key, value)| (key, value)).eq(map));
    let all: Result<Entries, Error> = tree.iter().rev().collect();
    assert!(
        all.unwrap()
            .iter()
            .map(|(key, value)| (key, value))
            .eq(map.iter().rev())
    );
    assert_eq!(tree.count().unwrap(), map.len() as u64);
}

/// A range with bounds of any kind, from the front, from behind, and from both by turns.
fn range(tree: &Tree<'_>, map: &BTreeMap<Vec<u8>, Vec<u8>>, state: &mut u64, keys: u64) {
    let mut bound = || {
        let key = key(state, keys);
        match chance(state) % 4 {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    };
    let bounds = (bound(), bound());
    let is_in = |key: &[u8]| {
        let is_after = match &bounds.0 {
            Bound::Included(start) => key >= &start[..],
            Bound::Excluded(start) => key > &start[..],
            Bound::Unbounded => true,
        };
        is_after
            && match &bounds.1 {
                Bound::Included(end) => key <= &end[..],
                Bound::Excluded(end) => key < &end[..],
                Bound::Unbounded => true,
            }
    };
    let expected: Vec<(&Vec<u8>, &Vec<u8>)> = map.iter().filter(|(key, _)| is_in(key)).collect();
    let found: Result<Entries, Error> = tree.range(bounds.clone()).collect();
    let found = found.unwrap();
    assert!(
        found
            .iter()
            .map(|(key, value)| (key, value))
            .eq(expected.iter().copied()),
        "{bounds:?}"
    );
    let back: Result<Entries, Error> = tree.range(bounds.clone()).rev().collect();
    assert!(back.unwrap().iter().rev().eq(&found), "{bounds:?}");
    let mut both = tree.range(bounds.clone());
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while let Some(entry) = match chance(state) % 2 {
        0 => both.next().map(|entry| (true, entry)),
        _ => both.next_back().map(|entry| (false, entry)),
    } {
        let side = if entry.0 { &mut front } else { &mut back };
        side.push(entry.1.unwrap());
    }
    front.extend(back.into_iter().rev());
    assert_eq!(front, found, "{bounds:?}");
    let prefix = key(state, keys);
    let prefix = &prefix[..prefix.len().min(chance(state) as usize % 12)];
    let found: Result<Entries, Error> = tree.prefix(prefix).collect();
    let expected = map.iter().filter(|(key, _)| key.starts_with(prefix));
    assert!(
        found
            .unwrap()
            .iter()
            .map(|(key, value)| (key, value))
            .eq(expected)
    );
}
