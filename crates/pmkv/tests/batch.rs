//! Batches: all or nothing beside a map, their waits, and what they refuse.

use std::collections::BTreeMap;

use pmem::counters;
use pmkv::{BATCH_MAX, Change, Error, Hash, Kind, Shape, Store, Tree, TreeShape};
use pmlib::{Heap, Options};

fn heap(bytes: u64) -> Heap {
    let options = Options {
        seed: 7,
        max: 1 << 30,
        ..Options::default()
    };
    Heap::private(bytes, &options).unwrap()
}

fn waits(body: impl FnOnce()) -> u64 {
    let before = counters::snapshot();
    body();
    counters::snapshot().fences - before.fences
}

fn chance(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// Goal: whatever its changes, a batch is what they are one by one. Method: random batches beside
/// the standard library's map, with keys that come twice, on small index chunks and large ones of
/// both kinds.
#[test]
fn a_batch_is_its_changes() {
    let small = Shape {
        groups: 1,
        lines: 2,
        stash: 1,
        places_log2: 3,
    };
    let leaves = TreeShape {
        groups: 2,
        leaves: 1,
        lines: 1,
        places_log2: 3,
    };
    let mut state = 1;
    for nth in 0..4 {
        let heap = heap(16 << 20);
        let engine: Box<dyn Store> = match nth {
            0 => Box::new(Hash::open_as(&heap, "kv", small).unwrap()),
            1 => Box::new(Hash::open(&heap, "kv").unwrap()),
            2 => Box::new(Tree::open_as(&heap, "kv", leaves).unwrap()),
            _ => Box::new(Tree::open(&heap, "kv").unwrap()),
        };
        let mut map = BTreeMap::new();
        for round in 0..600 {
            let count = chance(&mut state) % 40;
            let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..count)
                .map(|_| {
                    let key = (chance(&mut state) % 300).to_le_bytes().to_vec();
                    let len = [0, 8, 100, 1000, 70_000]
                        [chance(&mut state).trailing_zeros().min(4) as usize];
                    let value = vec![chance(&mut state) as u8; len];
                    (
                        key,
                        (!chance(&mut state).is_multiple_of(3)).then_some(value),
                    )
                })
                .collect();
            let batch: Vec<Change<'_>> = changes
                .iter()
                .map(|(key, value)| match value {
                    Some(value) => Change::Put(key, value),
                    None => Change::Delete(key),
                })
                .collect();
            engine.batch(&batch).unwrap();
            for (key, value) in changes {
                match value {
                    Some(value) => map.insert(key, value),
                    None => map.remove(&key),
                };
            }
            if round % 50 == 0 {
                let all: Result<BTreeMap<Vec<u8>, Vec<u8>>, _> = engine.entries().collect();
                assert_eq!(all.unwrap(), map);
            }
        }
        for (key, value) in &map {
            assert_eq!(engine.get(key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(engine.stats().unwrap().keys, map.len() as u64);
        heap.check().unwrap();
    }
}

/// Goal: a batch waits three times, however many changes it has. Method: fences are counted, once
/// there are chunks for the records and a journal.
#[test]
fn a_batch_waits_three_times() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(three_waits);
}

fn three_waits(kind: Kind) {
    let heap = heap(64 << 20);
    let engine = kind.open(&heap, "kv").unwrap();
    let keys: Vec<[u8; 8]> = (0..4000u64).map(u64::to_le_bytes).collect();
    for nth in 0..3000u64 {
        engine.put(&nth.to_le_bytes(), &[1; 64]).unwrap();
    }
    for nth in 0..2000u64 {
        assert!(engine.delete(&nth.to_le_bytes()).unwrap());
    }
    engine.batch(&[Change::Put(&keys[0], &[2; 64])]).unwrap();
    for count in [1, 16, 300] {
        let puts: Vec<_> = keys[..count]
            .iter()
            .map(|key| Change::Put(key, &[3; 64]))
            .collect();
        assert_eq!(waits(|| engine.batch(&puts).unwrap()), 3, "{count}");
        let deletes: Vec<_> = keys[..count]
            .iter()
            .map(|key| Change::Delete(key))
            .collect();
        assert_eq!(waits(|| engine.batch(&deletes).unwrap()), 3, "{count}");
        // Nothing is to be done.
        assert_eq!(waits(|| engine.batch(&deletes).unwrap()), 0, "{count}");
    }
}

/// Goal: a batch that can't be done changes nothing. Method: too many changes, a key that is too
/// long, a value for which there is no room, a damaged record.
#[test]
fn a_refused_batch_changes_nothing() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(refused);
}

fn refused(kind: Kind) {
    let heap = Heap::private(4 << 20, &Options::default()).unwrap();
    let engine = kind.open(&heap, "kv").unwrap();
    engine.put(b"a", b"one").unwrap();
    let many = vec![Change::Put(b"a", b"two"); BATCH_MAX + 1];
    let refused = engine.batch(&many);
    assert!(matches!(refused, Err(Error::TooMany { count: 65_536 })));
    engine.batch(&[]).unwrap();
    let long = vec![1; 65_537];
    let large = vec![1; 8 << 20];
    for last in [Change::Put(&long, b""), Change::Put(b"b", &large)] {
        let refused = engine.batch(&[Change::Put(b"a", b"two"), Change::Delete(b"c"), last]);
        assert!(matches!(
            refused,
            Err(Error::TooLarge { .. } | Error::Heap(_))
        ));
        assert_eq!(engine.get(b"a").unwrap().unwrap(), b"one");
    }
    assert_eq!(engine.stats().unwrap().keys, 1);
    heap.check().unwrap();
}

/// Goal: the largest batch works, and a heap keeps its room. Method: 65,535 puts, twice over, then
/// as many deletes; the journal becomes longer once.
#[test]
fn the_largest_batch() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(largest_batch);
}

fn largest_batch(kind: Kind) {
    let heap = heap(32 << 20);
    let engine = kind.open(&heap, "kv").unwrap();
    let keys: Vec<[u8; 8]> = (0..BATCH_MAX as u64).map(u64::to_le_bytes).collect();
    engine.batch(&[Change::Put(b"first", b"")]).unwrap();
    for round in [b"1", b"2"] {
        let puts: Vec<_> = keys.iter().map(|key| Change::Put(key, round)).collect();
        engine.batch(&puts).unwrap();
        assert_eq!(engine.stats().unwrap().keys, BATCH_MAX as u64 + 1);
        assert!(
            keys.iter()
                .all(|key| engine.get(key).unwrap().unwrap() == round)
        );
    }
    let deletes: Vec<_> = keys.iter().map(|key| Change::Delete(key)).collect();
    engine.batch(&deletes).unwrap();
    assert_eq!(engine.stats().unwrap().keys, 1);
    heap.check().unwrap();
}

/// Goal: batches of several threads neither lose changes nor wait for each other for ever. Method:
/// each thread moves amounts between keys that all of them have, in batches of its own keys and
/// puts beside them; sums of its own keys stay.
#[test]
fn batches_at_once() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(at_once);
}

fn at_once(kind: Kind) {
    let heap = heap(16 << 20);
    let engine = kind.open(&heap, "kv").unwrap();
    let key = |writer: u64, nth: u64| (writer << 32 | nth).to_le_bytes();
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let (heap, key) = (&heap, &key);
            scope.spawn(move || {
                let engine = kind.open(heap, "kv").unwrap();
                for round in 0..200u64 {
                    let keys: Vec<[u8; 8]> = (0..20).map(|nth| key(writer, nth)).collect();
                    let value = round.to_le_bytes();
                    let puts: Vec<_> = keys.iter().map(|key| Change::Put(key, &value)).collect();
                    engine.batch(&puts).unwrap();
                    engine.put(&key(writer, 100 + round), &value).unwrap();
                    for key in &keys {
                        assert_eq!(engine.get(key).unwrap().unwrap(), value);
                    }
                }
            });
        }
    });
    assert_eq!(engine.stats().unwrap().keys, 4 * 220);
    heap.check().unwrap();
}
