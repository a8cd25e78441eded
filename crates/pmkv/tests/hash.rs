//! The hash engine, call by call, and its waits.

use std::collections::BTreeMap;

use pmem::counters;
use pmkv::{Error, Expect, Hash, Shape};
use pmlib::{Heap, Options};

const SMALL: Shape = Shape {
    groups: 1,
    lines: 2,
    stash: 1,
    places_log2: 3,
};

fn heap(bytes: u64) -> Heap {
    let options = Options {
        seed: 7,
        max: 1 << 30,
        ..Options::default()
    };
    Heap::private(bytes, &options).unwrap()
}

#[test]
fn values_come_back() {
    let heap = heap(8 << 20);
    let hash = Hash::open(&heap, "kv").unwrap();
    assert_eq!(hash.get(b"a").unwrap(), None);
    let lens = [
        0,
        1,
        7,
        8,
        63,
        64,
        1000,
        5000,
        65_000,
        65_500,
        70_000,
        1 << 20,
    ];
    for (nth, len) in lens.into_iter().enumerate() {
        let value = vec![nth as u8 + 1; len];
        let key = format!("key {len}");
        hash.put(key.as_bytes(), &value).unwrap();
        assert_eq!(hash.get(key.as_bytes()).unwrap(), Some(value), "{len}");
    }
    for key in [vec![], vec![0], vec![3; 64 << 10]] {
        hash.put(&key, b"of a key").unwrap();
        assert_eq!(hash.get(&key).unwrap().unwrap(), b"of a key");
    }
    let long = hash.put(&vec![3; (64 << 10) + 1], b"");
    assert!(matches!(
        long,
        Err(Error::TooLarge {
            key: 65_537,
            value: 0
        })
    ));
    assert_eq!(hash.count().unwrap(), lens.len() as u64 + 3);
    let keys: Vec<Vec<u8>> = hash.iter().map(|entry| entry.unwrap().0).collect();
    for key in &keys {
        assert!(hash.delete(key).unwrap());
        assert!(!hash.delete(key).unwrap());
        assert_eq!(hash.get(key).unwrap(), None);
    }
    assert_eq!(hash.count().unwrap(), 0);
    heap.check().unwrap();
}

#[test]
fn a_put_may_depend_on_what_is_there() {
    let heap = heap(4 << 20);
    let hash = Hash::open(&heap, "kv").unwrap();
    assert!(!hash.put_if(b"a", Expect::Present, b"1").unwrap());
    assert!(hash.put_if(b"a", Expect::Missing, b"1").unwrap());
    assert!(!hash.put_if(b"a", Expect::Missing, b"2").unwrap());
    assert!(!hash.put_if(b"a", Expect::Value(b"2"), b"3").unwrap());
    assert!(hash.put_if(b"a", Expect::Value(b"1"), b"3").unwrap());
    assert!(hash.put_if(b"a", Expect::Present, b"4").unwrap());
    assert_eq!(hash.get(b"a").unwrap().unwrap(), b"4");
}

/// Goal: a put and a delete wait once. Method: fences are counted, of keys that are new, there, and
/// taken away, once there is a chunk for the records.
#[test]
fn a_put_waits_once() {
    let heap = heap(4 << 20);
    let hash = Hash::open(&heap, "kv").unwrap();
    hash.put(b"first", &[1; 64]).unwrap();
    let waits = |body: &dyn Fn()| {
        let before = counters::snapshot();
        body();
        counters::snapshot().fences - before.fences
    };
    for nth in 0..100u64 {
        let key = nth.to_le_bytes();
        assert_eq!(waits(&|| hash.put(&key, &[1; 64]).unwrap()), 1, "{nth}");
        assert_eq!(waits(&|| hash.put(&key, &[2; 64]).unwrap()), 1, "{nth}");
        assert_eq!(waits(&|| drop(hash.get(&key).unwrap())), 0);
    }
    for nth in 0..100u64 {
        let key = nth.to_le_bytes();
        assert_eq!(waits(&|| assert!(hash.delete(&key).unwrap())), 1);
    }
}

/// Goal: whatever the order of calls, the engine is a map. Method: random calls beside the standard
/// library's map, on small index chunks that are split again and again, opened anew now and then.
#[test]
fn it_is_a_map() {
    let mut state = seed();
    for shape in [SMALL, Shape::default()] {
        let heap = heap(16 << 20);
        let mut map = BTreeMap::new();
        let mut hash = Hash::open_as(&heap, "kv", shape).unwrap();
        for nth in 0..operations() {
            step(&hash, &mut map, &mut state);
            if nth % 1000 == 999 {
                let all: Result<BTreeMap<Vec<u8>, Vec<u8>>, _> = hash.iter().collect();
                assert_eq!(all.unwrap(), map);
                assert_eq!(hash.count().unwrap(), map.len() as u64);
                hash = Hash::open(&heap, "kv").unwrap();
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

fn step(hash: &Hash<'_>, map: &mut BTreeMap<Vec<u8>, Vec<u8>>, state: &mut u64) {
    let key = (chance(state) % 400).to_le_bytes()[..1 + chance(state) as usize % 8].to_vec();
    let len = [0, 8, 40, 100, 1000, 3000][chance(state) as usize % 6];
    let value = vec![chance(state) as u8; len];
    match chance(state) % 10 {
        0..4 => {
            hash.put(&key, &value).unwrap();
            map.insert(key, value);
        }
        4 => {
            let done = hash.put_if(&key, Expect::Missing, &value).unwrap();
            assert_eq!(done, !map.contains_key(&key));
            map.entry(key).or_insert(value);
        }
        5..8 => assert_eq!(hash.get(&key).unwrap().as_ref(), map.get(&key)),
        8 => assert_eq!(hash.delete(&key).unwrap(), map.remove(&key).is_some()),
        _ if chance(state).is_multiple_of(500) => {
            assert_eq!(hash.clear().unwrap(), map.len() as u64);
            map.clear();
        }
        _ => assert_eq!(hash.delete(&key).unwrap(), map.remove(&key).is_some()),
    }
}
