//! Damaged records: all of them are found, and their keys can be used again.

use pmkv::{Change, Error, Expect, Kind, OnDamage, Scrubbed, Store, Tree, TreeShape};
use pmlib::{Heap, Options};

/// Bytes of a record before its value, with a key of 8 bytes.
const HEAD_AND_KEY: u64 = 32;

fn options() -> Options {
    Options {
        seed: 7,
        ..Options::default()
    }
}

/// Where each record is, by its key: a walk over the heap's bytes.
fn offsets(heap: &Heap, keys: u64, value: impl Fn(u64) -> Vec<u8>) -> Vec<u64> {
    let mut all = vec![0; heap.size() as usize];
    heap.ground().mem().copy_out(0, &mut all).unwrap();
    let mut found = vec![0; keys as usize];
    for at in (0..all.len() - 64).step_by(16) {
        let nth = u64::from_le_bytes(all[at + 24..at + 32].try_into().unwrap());
        if nth < keys {
            let value = value(nth);
            if all[at + 32..].starts_with(&value) {
                found[nth as usize] = at as u64;
            }
        }
    }
    found
}

fn flip(heap: &Heap, byte: u64, bit: u64) {
    let mem = heap.ground().mem();
    let _window = mem.window();
    let at = byte / 8 * 8;
    mem.store(at, mem.load(at) ^ 1 << (byte % 8 * 8 + bit));
}

/// All steps of a scrub in one.
fn scrubbed(engine: &dyn Store, on_damage: OnDamage) -> Scrubbed {
    let mut all = Scrubbed::default();
    for step in engine.scrub(on_damage) {
        let step = step.unwrap();
        assert!(step.per_mille >= all.per_mille && step.per_mille <= 1000);
        all.records += step.records;
        all.bytes += step.bytes;
        all.damaged.extend(step.damaged);
        all.per_mille = step.per_mille;
    }
    assert_eq!(all.per_mille, 1000);
    all
}

/// Goal: a scrub finds every damaged record, and no other. Method: a bit is flipped in each of
/// 10,000 records of 30,000, somewhere in the head, the key or the value.
#[test]
fn a_scrub_finds_every_flipped_bit() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(flipped_bits);
}

fn flipped_bits(kind: Kind) {
    const KEYS: u64 = 30_000;
    let heap = Heap::private(32 << 20, &options()).unwrap();
    let engine = kind.open(&heap, "kv").unwrap();
    let value = |nth: u64| vec![nth as u8 | 1; 20 + nth as usize % 100];
    for nth in 0..KEYS {
        engine.put(&nth.to_le_bytes(), &value(nth)).unwrap();
    }
    let places = offsets(&heap, KEYS, value);
    assert!(!places.contains(&0));
    let whole = scrubbed(&*engine, OnDamage::Keep);
    assert_eq!((whole.records, whole.damaged.len()), (KEYS, 0));
    let bytes: usize = (0..KEYS).map(|nth| 32 + value(nth).len()).sum();
    assert_eq!(whole.bytes, bytes as u64);

    let mut flipped: Vec<u64> = Vec::new();
    for nth in (0..KEYS).step_by(3) {
        let place = places[nth as usize];
        let len = 32 + value(nth).len() as u64;
        flip(&heap, place + nth * 7 % len, nth % 8);
        flipped.push(place);
    }
    assert_eq!(flipped.len(), 10_000);
    flipped.sort_unstable();
    for on_damage in [OnDamage::Keep, OnDamage::Drop] {
        let found = scrubbed(&*engine, on_damage);
        let mut offsets: Vec<u64> = found.damaged.iter().map(|damage| damage.offset).collect();
        offsets.sort_unstable();
        assert!(offsets == flipped, "{} of 10,000", offsets.len());
        let is_dropped = on_damage == OnDamage::Drop;
        assert!(
            found
                .damaged
                .iter()
                .all(|damage| damage.is_dropped == is_dropped)
        );
        let told = found
            .damaged
            .iter()
            .filter_map(|damage| damage.key.as_ref());
        let mut keys = 0;
        for key in told {
            let nth = u64::from_le_bytes(key[..].try_into().unwrap());
            assert_eq!(nth % 3, 0);
            keys += 1;
        }
        assert!(keys > 5000, "{keys}");
    }
    let left = scrubbed(&*engine, OnDamage::Keep);
    assert_eq!((left.records, left.damaged.len()), (20_000, 0));
    for nth in 0..KEYS {
        let found = engine.get(&nth.to_le_bytes()).unwrap();
        assert_eq!(found, (nth % 3 != 0).then(|| value(nth)), "{nth}");
        engine.put(&nth.to_le_bytes(), b"again").unwrap();
    }
    assert_eq!(engine.stats().unwrap().keys, KEYS);
    heap.check().unwrap();
}

/// Goal: a key whose record is damaged can be dropped by its name, whichever byte is damaged, and
/// no other key. Method: a bit of each byte of a record is flipped, one after the other.
#[test]
fn a_damaged_key_can_be_dropped() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(dropped_key);
}

fn dropped_key(kind: Kind) {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let engine = kind.open(&heap, "kv").unwrap();
    let value = |nth: u64| vec![nth as u8 ^ 0x55; 50];
    let key = 42u64.to_le_bytes();
    for nth in 0..100u64 {
        engine.put(&nth.to_le_bytes(), &value(nth)).unwrap();
    }
    for byte in 0..32 + 50 {
        let place = offsets(&heap, 100, value)[42];
        flip(&heap, place + byte, byte % 8);
        let right = value(42);
        for _ in 0..2 {
            let mut refused = vec![
                engine.get(&key).map(drop),
                engine.put_if(&key, Expect::Value(&right), b"new").map(drop),
            ];
            if byte < HEAD_AND_KEY {
                refused.extend([engine.put(&key, b"new"), engine.delete(&key).map(drop)]);
                refused.push(engine.put_if(&key, Expect::Missing, b"new").map(drop));
            } else {
                // Its value is not asked for.
                assert!(!engine.put_if(&key, Expect::Missing, b"new").unwrap());
            }
            for refused in refused {
                assert!(matches!(refused, Err(Error::Corrupt { offset }) if offset == place));
            }
        }
        for other in (0..100u64).filter(|&nth| nth != 42) {
            assert!(!engine.drop_damaged(&other.to_le_bytes()).unwrap());
        }
        assert!(engine.drop_damaged(&key).unwrap(), "{byte}");
        assert!(!engine.drop_damaged(&key).unwrap(), "{byte}");
        assert_eq!(engine.get(&key).unwrap(), None);
        assert_eq!(engine.stats().unwrap().keys, 99);
        engine.put(&key, &value(42)).unwrap();
    }
    for nth in 0..100u64 {
        assert_eq!(engine.get(&nth.to_le_bytes()).unwrap().unwrap(), value(nth));
    }
    let large = vec![3; 100_000];
    engine.put(&key, &large).unwrap();
    let free = heap.stats().unwrap().free_bytes;
    let mut all = vec![0; heap.size() as usize];
    heap.ground().mem().copy_out(0, &mut all).unwrap();
    let place = all
        .windows(5000)
        .position(|part| part == &large[..5000])
        .unwrap();
    flip(&heap, place as u64 + 70_000, 3);
    assert!(matches!(engine.get(&key), Err(Error::Corrupt { .. })));
    assert!(engine.drop_damaged(&key).unwrap());
    assert!(heap.stats().unwrap().free_bytes > free + 100_000);
    heap.check().unwrap();
}

/// Goal: a key whose value is damaged is put over and deleted as any, whatever the value's size,
/// and stays an error of those who read it. Method: a bit of the value is flipped before each call.
#[test]
fn a_damaged_value_is_no_error_of_puts_and_deletes() {
    [Kind::Hash, Kind::Tree].into_iter().for_each(damaged_value);
}

fn damaged_value(kind: Kind) {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let engine = kind.open(&heap, "kv").unwrap();
    let key = 42u64.to_le_bytes();
    for len in [20, 500, 5000, 100_000] {
        let damaged = |fill: u8| {
            let value = vec![fill; len];
            engine.put(&key, &value).unwrap();
            let place = offsets(&heap, 43, |_| value.clone())[42];
            flip(&heap, place + HEAD_AND_KEY + len as u64 * 2 / 3, 3);
            assert!(matches!(engine.get(&key), Err(Error::Corrupt { .. })));
            assert_eq!(scrubbed(&*engine, OnDamage::Keep).damaged.len(), 1);
        };
        damaged(1);
        engine.put(&key, b"new").unwrap();
        assert_eq!(engine.get(&key).unwrap().unwrap(), b"new");
        damaged(2);
        assert!(engine.put_if(&key, Expect::Present, b"newer").unwrap());
        assert_eq!(engine.get(&key).unwrap().unwrap(), b"newer");
        damaged(3);
        engine.batch(&[Change::Put(&key, b"newest")]).unwrap();
        assert_eq!(engine.get(&key).unwrap().unwrap(), b"newest");
        damaged(4);
        assert!(engine.delete(&key).unwrap());
        assert_eq!(engine.get(&key).unwrap(), None);
        assert_eq!(engine.stats().unwrap().keys, 0);
        assert_eq!(scrubbed(&*engine, OnDamage::Keep).damaged, []);
    }
    heap.check().unwrap();
}

/// Goal: damage of a least key in a tree's directory changes nothing: the chunk has it too. Method:
/// each bit of the keys in the entries is flipped, and the tree opened again.
#[test]
fn a_damaged_least_key_is_read_elsewhere() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let shape = TreeShape {
        groups: 1,
        leaves: 2,
        lines: 1,
        places_log2: 6,
    };
    let key = |nth: u64| [&[b'k'; 40][..], &(nth * 37 % 101).to_be_bytes()].concat();
    let tree = Tree::open_as(&heap, "kv", shape).unwrap();
    for nth in 0..60 {
        tree.put(&key(nth), &nth.to_le_bytes()).unwrap();
    }
    let fingerprint = u64::from_le_bytes(*b"PMKVHEAD");
    let head = heap.find_root_of("kv", fingerprint, 64).unwrap().unwrap();
    let word = heap.ground().mem().load(head);
    let (directory, depth) = ((word & ((1 << 42) - 1)) * 16, word >> 42 & 0x3f);
    assert!(depth >= 3, "{depth}");
    for byte in (0..64u64 << depth).filter(|byte| byte % 64 >= 8) {
        for bit in 0..8 {
            flip(&heap, directory + byte, bit);
            let again = Tree::open_as(&heap, "kv", shape).unwrap();
            for nth in 0..60 {
                let found = again.get(&key(nth)).unwrap();
                assert_eq!(
                    found.as_deref(),
                    Some(&nth.to_le_bytes()[..]),
                    "{byte} {bit}"
                );
            }
            assert_eq!(again.iter().count(), 60);
            flip(&heap, directory + byte, bit);
        }
    }
}

/// Goal: a scrub beside writers finds no damage, and each key that is there throughout. Method: a
/// thread puts and deletes while another scrubs.
#[test]
fn a_scrub_beside_writers_finds_no_damage() {
    [Kind::Hash, Kind::Tree]
        .into_iter()
        .for_each(beside_writers);
}

fn beside_writers(kind: Kind) {
    let heap = Heap::private(32 << 20, &options()).unwrap();
    let engine = kind.open(&heap, "kv").unwrap();
    for nth in 0..2000u64 {
        engine.put(&nth.to_le_bytes(), &[1; 64]).unwrap();
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let engine = kind.open(&heap, "kv").unwrap();
            for nth in 2000..20_000u64 {
                engine.put(&nth.to_le_bytes(), &[2; 64]).unwrap();
                engine.put(&(nth % 2000).to_le_bytes(), &[3; 64]).unwrap();
                engine.delete(&nth.to_le_bytes()).unwrap();
            }
        });
        while !writer.is_finished() {
            let found = scrubbed(&*engine, OnDamage::Drop);
            assert!(found.records >= 2000, "{found:?}");
            assert_eq!(found.damaged, []);
        }
        writer.join().unwrap();
    });
    assert_eq!(engine.stats().unwrap().keys, 2000);
}

/// Goal: a damaged record can be overwritten by name, whichever byte is damaged, and a whole one
/// as well. Method: a bit of each byte of a record is flipped, one after the other.
#[test]
fn a_damaged_key_can_be_overwritten() {
    [Kind::Hash, Kind::Tree]
        .into_iter()
        .for_each(overwritten_key);
}

fn overwritten_key(kind: Kind) {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let engine = kind.open(&heap, "kv").unwrap();
    let value = |nth: u64| vec![nth as u8 ^ 0x55; 50];
    let key = 42u64.to_le_bytes();
    for nth in 0..100u64 {
        engine.put(&nth.to_le_bytes(), &value(nth)).unwrap();
    }
    for byte in 0..32 + 50 {
        let place = offsets(&heap, 100, value)[42];
        flip(&heap, place + byte, byte % 8);
        if byte < HEAD_AND_KEY {
            let refused = engine.put(&key, b"new");
            assert!(matches!(refused, Err(Error::Corrupt { .. })));
        }
        engine.overwrite(&key, b"new").unwrap();
        assert_eq!(engine.get(&key).unwrap().unwrap(), b"new", "{byte}");
        assert_eq!(engine.stats().unwrap().keys, 100);
        engine.overwrite(&key, &value(42)).unwrap();
    }
    assert_eq!(scrubbed(&*engine, OnDamage::Keep).damaged, []);
    for nth in 0..100u64 {
        assert_eq!(engine.get(&nth.to_le_bytes()).unwrap().unwrap(), value(nth));
    }
}
