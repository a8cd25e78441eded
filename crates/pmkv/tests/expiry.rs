//! Keys that expire, by a clock that the tests set.

use std::cell::Cell;
use std::time::Duration;

use pmkv::{Change, Expect, Expiry, Hash, Tree};
use pmlib::{Heap, Options};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1_000_000) };
}

fn now() -> u64 {
    NOW.get()
}

fn heap() -> Heap {
    let options = Options {
        seed: 7,
        ..Options::default()
    };
    Heap::private(16 << 20, &options).unwrap()
}

fn opened(heap: &Heap) -> Hash<'_> {
    Hash::open(heap, "kv").unwrap().with_clock(now)
}

/// Goal: an expired key is missing for every call. Method: each call looks at one right before and
/// right at its moment.
#[test]
fn an_expired_key_is_missing() {
    let heap = heap();
    let hash = opened(&heap);
    hash.put(b"stays", b"0").unwrap();
    let set = || {
        NOW.set(1_000_000);
        hash.put_ttl(b"a", b"1", Duration::from_millis(50)).unwrap();
        assert_eq!(hash.expiry(b"a").unwrap(), Some(Expiry::At(1_000_050)));
    };
    for (time, is_there) in [(1_000_049, true), (1_000_050, false), (u64::MAX, false)] {
        set();
        NOW.set(time);
        let value = is_there.then(|| b"1".to_vec());
        assert_eq!(hash.get(b"a").unwrap(), value);
        let mut into = b"before".to_vec();
        assert_eq!(hash.get_into(b"a", &mut into).unwrap(), is_there);
        assert_eq!(into, value.clone().unwrap_or_default());
        assert_eq!(hash.expiry(b"a").unwrap().is_some(), is_there);
        assert_eq!(hash.count().unwrap(), 1 + u64::from(is_there));
        assert_eq!(hash.iter().count(), 1 + usize::from(is_there));
        assert!(!hash.put_if(b"a", Expect::Value(b"2"), b"3").unwrap());
        assert_eq!(hash.put_if(b"a", Expect::Missing, b"2").unwrap(), !is_there);
        set();
        NOW.set(time);
        assert_eq!(hash.put_if(b"a", Expect::Present, b"2").unwrap(), is_there);
        set();
        NOW.set(time);
        assert_eq!(hash.delete(b"a").unwrap(), is_there);
        assert!(!hash.delete(b"a").unwrap());
    }
    NOW.set(1_000_000);
    // A later put has it stay.
    set();
    hash.put(b"a", b"2").unwrap();
    NOW.set(u64::MAX);
    assert_eq!(hash.get(b"a").unwrap().unwrap(), b"2");
    assert_eq!(hash.expiry(b"a").unwrap(), Some(Expiry::Never));
    assert_eq!(hash.expiry(b"none").unwrap(), None);
    heap.check().unwrap();
}

/// Goal: the ends of the range: a time to live of nothing, and one that no clock comes to.
#[test]
fn the_ends_of_time() {
    let heap = heap();
    let hash = opened(&heap);
    hash.put_ttl(b"a", b"1", Duration::ZERO).unwrap();
    assert_eq!(hash.get(b"a").unwrap(), None);
    hash.put_ttl(b"a", b"1", Duration::MAX).unwrap();
    assert_eq!(hash.expiry(b"a").unwrap(), Some(Expiry::At(u64::MAX)));
    hash.put_until(b"b", b"1", 0).unwrap();
    assert_eq!(hash.get(b"b").unwrap(), None);
    hash.put_until(b"c", &[7; 70_000], 2_000_000).unwrap();
    assert_eq!(hash.get(b"c").unwrap().unwrap(), [7; 70_000]);
}

/// Goal: a clock that is set forward has keys expire early, and one that is set back has them come
/// again, unless they were purged. Method: both, with a purge between.
#[test]
fn a_clock_that_jumps() {
    let heap = heap();
    let hash = opened(&heap);
    NOW.set(1_000_000);
    for nth in 0..100u64 {
        hash.put_until(&nth.to_le_bytes(), b"1", 1_000_000 + nth * 10)
            .unwrap();
    }
    let there = |time| {
        NOW.set(time);
        let count = hash.count().unwrap();
        assert_eq!(hash.iter().count() as u64, count);
        count
    };
    assert_eq!(there(1_000_500), 49);
    assert_eq!(there(999_000), 100);
    NOW.set(1_000_500);
    assert_eq!(hash.purge_expired().unwrap(), 51);
    assert_eq!(hash.purge_expired().unwrap(), 0);
    assert_eq!(there(999_000), 49);
    assert_eq!(there(2_000_000), 0);
    heap.check().unwrap();
}

/// Goal: purged places are used again. Method: keys that expire are put and purged for longer than
/// the heap has room.
#[test]
fn purged_room_is_used_again() {
    let heap = Heap::private(4 << 20, &Options::default()).unwrap();
    let hash = opened(&heap);
    for round in 0..40u64 {
        NOW.set(1_000_000 + round * 1000);
        for nth in 0..20u64 {
            let key = (round << 32 | nth).to_le_bytes();
            let len = if nth == 0 { 100_000 } else { 10_000 };
            hash.put_ttl(&key, &vec![1; len], Duration::from_millis(999))
                .unwrap();
        }
        NOW.set(1_000_000 + round * 1000 + 999);
        assert_eq!(hash.purge_expired().unwrap(), 20, "{round}");
    }
    heap.check().unwrap();
}

/// Goal: a batch may have keys that expire beside others.
#[test]
fn a_batch_with_keys_that_expire() {
    let heap = heap();
    let hash = opened(&heap);
    NOW.set(1_000_000);
    let batch = [
        Change::PutUntil(b"a", b"1", 1_000_010),
        Change::Put(b"b", b"2"),
    ];
    hash.batch(&batch).unwrap();
    assert_eq!(hash.expiry(b"a").unwrap(), Some(Expiry::At(1_000_010)));
    assert_eq!(hash.count().unwrap(), 2);
    NOW.set(1_000_010);
    assert_eq!(hash.count().unwrap(), 1);
    assert_eq!(hash.get(b"a").unwrap(), None);
}

/// Goal: walks and ranges of a tree leave an expired key out, in both directions.
#[test]
fn a_range_leaves_expired_keys_out() {
    let heap = heap();
    NOW.set(1_000_000);
    let tree = Tree::open(&heap, "tree").unwrap().with_clock(now);
    for key in [b"a", b"b", b"c"] {
        tree.put(key, b"1").unwrap();
    }
    tree.put_until(b"b", b"2", 1_000_050).unwrap();
    for (time, there) in [(1_000_049, "abc"), (1_000_050, "ac")] {
        NOW.set(time);
        let keys = |entries: Vec<pmkv::Result<(Vec<u8>, Vec<u8>)>>| {
            let keys = entries.into_iter().flat_map(|entry| entry.unwrap().0);
            String::from_utf8(keys.collect()).unwrap()
        };
        assert_eq!(keys(tree.iter().collect()), there);
        assert_eq!(keys(tree.range("a"..="c").collect()), there);
        let back: String = there.chars().rev().collect();
        assert_eq!(keys(tree.iter().rev().collect()), back);
        assert_eq!(tree.count().unwrap(), there.len() as u64);
    }
    assert_eq!(tree.purge_expired().unwrap(), 1);
}
