//! Goal: an engine that has its heap outlives every other handle of both, and a walk every other
//! handle of the engine. Method: handles are dropped in each order, and the heap is used after;
//! the kinds answer alike where a face does not know which it has.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use pmkv::{Change, Error, Kind, Owned, Result};
use pmlib::{Heap, Options};

fn engine(kind: Kind) -> Owned {
    let heap = Arc::new(Heap::private(4 << 20, &Options::default()).unwrap());
    let owned = Owned::open(heap, kind, "kv").unwrap();
    for key in 0..200u32 {
        let key = key.to_be_bytes();
        owned.store().put(&key, &key).unwrap();
    }
    owned
}

#[test]
fn a_walk_outlives_its_engine() {
    for kind in [Kind::Hash, Kind::Tree] {
        let owned = Arc::new(engine(kind));
        let mut walk = owned.walk(Included(vec![0, 0, 0, 10]), Unbounded);
        walk.next().unwrap().unwrap();
        let heap = Arc::downgrade(owned.heap());
        drop(owned);
        assert!(heap.upgrade().is_some());
        assert_eq!(walk.map(Result::unwrap).count(), 189);
        assert!(heap.upgrade().is_none());
    }
}

#[test]
fn the_heap_comes_back() {
    let heap = engine(Kind::Tree).into_heap();
    let again = Owned::open(heap.clone(), Kind::Tree, "kv").unwrap();
    assert_eq!(again.store().stats().unwrap().keys, 200);
    let wrong = Owned::open(heap.clone(), Kind::Hash, "kv");
    assert!(matches!(wrong, Err(Error::Kind { found: Kind::Tree })));
    drop(again);
    Arc::into_inner(heap).unwrap().close().unwrap();
}

#[test]
fn kinds_answer_alike() {
    for kind in [Kind::Hash, Kind::Tree] {
        let owned = engine(kind);
        let store = owned.store();
        let key = |number: u32| number.to_be_bytes().to_vec();
        let bounds = [
            (Unbounded, Unbounded, Some(199)),
            (Unbounded, Excluded(key(100)), Some(99)),
            (Unbounded, Included(key(100)), Some(100)),
            (Excluded(key(199)), Unbounded, None),
            (Included(key(199)), Unbounded, Some(199)),
            (Excluded(key(7)), Excluded(key(8)), None),
            (Included(key(9)), Included(key(3)), None),
        ];
        for (start, end, last) in bounds {
            let found = store.last(start, end).unwrap();
            assert_eq!(found.map(|entry| entry.0), last.map(key), "{kind}");
        }
        let mut between = store.between(Excluded(key(5)), Excluded(key(9)));
        let mut keys: Vec<_> = between.by_ref().map(|entry| entry.unwrap().0).collect();
        keys.sort();
        assert_eq!(keys, [key(6), key(7), key(8)], "{kind}");
    }
}

#[test]
fn a_hash_has_batches() {
    let hash = engine(Kind::Hash);
    hash.store().batch(&[Change::Put(b"a", b"1")]).unwrap();
    assert_eq!(hash.store().get(b"a").unwrap().unwrap(), b"1");
}
