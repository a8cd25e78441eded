//! A tree under damage, and by several at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmkv::{Error, Tree};
use pmlib::{Heap, Options};

fn options() -> Options {
    Options {
        seed: 7,
        ..Options::default()
    }
}

/// Goal: a damaged record is an error of its key, and walks come to all others, also after its leaf
/// was split. Method: one bit of each byte of a record is flipped, and the keys are walked over
/// both ways; then, with the record damaged, its leaf is filled.
#[test]
fn walks_pass_a_damaged_record() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let tree = Tree::open(&heap, "kv").unwrap();
    for nth in 0..200u8 {
        tree.put(&[nth; 9], &[nth ^ 0x55; 50]).unwrap();
    }
    let mem = heap.ground().mem();
    let mut all = vec![0; heap.size() as usize];
    mem.copy_out(0, &mut all).unwrap();
    let wanted = [&[42; 9][..], &[42 ^ 0x55; 50][..]].concat();
    let start = all.windows(59).position(|part| part == wanted).unwrap() as u64 - 24;
    let flip = |byte: u64| {
        let _window = mem.window();
        let at = byte / 8 * 8;
        mem.store(at, mem.load(at) ^ 1 << (byte % 8 * 8 + byte % 7));
    };
    let walk = |entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>| {
        let (mut keys, mut damaged) = (Vec::new(), 0);
        for entry in entries {
            match entry {
                Ok((key, value)) => {
                    assert!(key[0] != 42 && key == [key[0]; 9], "{key:?}");
                    assert_eq!(value, [key[0] ^ 0x55; 50]);
                    keys.push(key[0]);
                }
                Err(Error::Corrupt { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        (keys, damaged)
    };
    let others: Vec<u8> = (0..200).filter(|&nth| nth != 42).collect();
    for byte in start..start + 24 + 59 {
        flip(byte);
        let (keys, damaged) = walk(&mut tree.iter());
        assert_eq!((&keys, damaged), (&others, 1), "byte {}", byte - start);
        let (mut keys, damaged) = walk(&mut tree.iter().rev());
        keys.reverse();
        assert_eq!((&keys, damaged), (&others, 1), "byte {}", byte - start);
        flip(byte);
    }
    assert_eq!(tree.iter().filter(Result::is_ok).count(), 200);
    // The key can't be read any more.
    flip(start + 24);
    for nth in 0..100u8 {
        tree.put(&[42, 42, 41, nth], b"").unwrap();
        tree.put(&[42, 42, 43, nth], b"").unwrap();
    }
    let value = tree.get(&[42; 9]);
    assert!(matches!(value, Err(Error::Corrupt { .. })), "{value:?}");
    flip(start + 24);
    assert_eq!(tree.get(&[42; 9]).unwrap().unwrap(), [42 ^ 0x55; 50]);
}

/// Goal: a walk comes to each key that is there throughout once, in order, whatever is changed in
/// the leaf where it is. Method: in walks from either end a key is put over, taken away or new
/// after each step, in a leaf whose order is known by then.
#[test]
fn walks_see_keys_that_move() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let tree = Tree::open(&heap, "kv").unwrap();
    for nth in 0..40u8 {
        tree.put(&[nth, 0], &[nth]).unwrap();
    }
    assert_eq!(tree.iter().count(), 40);
    for round in 0..40u8 {
        let mut steps = 0u8;
        let mut change = |last: u8| {
            steps += 1;
            let other = last.wrapping_mul(7).wrapping_add(round) % 40;
            match (steps + round) % 3 {
                0 => tree.put(&[other, 0], &[other]).unwrap(),
                1 => tree.put(&[other, 1], b"long by now").unwrap(),
                _ => drop(tree.delete(&[other, 1]).unwrap()),
            }
        };
        for is_front in [true, false] {
            let (mut walk, mut keys) = (tree.iter(), Vec::new());
            loop {
                let next = if is_front {
                    walk.next()
                } else {
                    walk.next_back()
                };
                let Some(entry) = next else { break };
                let (key, value) = entry.unwrap();
                assert!(value == [key[0]] || key[1] == 1, "{key:?}");
                change(key[0]);
                keys.push(key);
            }
            if !is_front {
                keys.reverse();
            }
            assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
            assert_eq!(keys.iter().filter(|key| key[1] == 0).count(), 40);
        }
    }
}

/// Goal: a tree without room says so, loses nothing, and goes on when there is room. Method: a heap
/// that can't grow is filled; keys are taken away, and come back.
#[test]
fn a_full_heap_is_an_error() {
    for len in [10, 900, 100_000] {
        let heap = Heap::private(3 << 20, &options()).unwrap();
        let tree = Tree::open(&heap, "kv").unwrap();
        let mut count = 0u64;
        let key = |nth: u64| (nth * 7919 % 65_537).to_be_bytes();
        let error = loop {
            match tree.put(&key(count), &vec![count as u8; len]) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        let is_full = matches!(error, Error::Heap(pmlib::Error::Full { .. }));
        assert!(is_full, "{len}: {error}");
        assert!(count * len as u64 > 1 << 17, "{count} of {len}");
        for nth in 0..count {
            let value = tree.get(&key(nth)).unwrap();
            assert_eq!(value.unwrap(), vec![nth as u8; len]);
        }
        for round in 0..5u8 {
            assert!(tree.delete(&key(0)).unwrap());
            tree.put(&key(0), &vec![round; len]).unwrap();
        }
        assert_eq!(tree.count().unwrap(), count);
        heap.check().unwrap();
    }
}

/// The writer whose keys stay.
const STAYS: u64 = 9;

/// A writer's key: those of all writers are mixed, and those that stay among them.
fn mixed_key(writer: u64, nth: u64) -> Vec<u8> {
    let mixed = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed.to_be_bytes(), writer.to_be_bytes()].concat()
}

/// The round that a value tells, in each of its words.
fn round_of(value: &[u8]) -> u64 {
    let (words, _) = value.as_chunks::<8>();
    assert!(words.iter().all(|word| *word == words[0]));
    u64::from_le_bytes(words[0])
}

/// Walks over a tree, which has to be in order; answers how many of the keys that stay were met.
fn stayed_in_order(tree: &Tree<'_>, is_backward: bool) -> u64 {
    let mut entries = tree.iter();
    let (mut last, mut stayed) = (Vec::new(), 0);
    let mut step = || match is_backward {
        false => entries.next(),
        true => entries.next_back(),
    };
    while let Some(entry) = step() {
        let (key, _) = entry.unwrap();
        let is_next = match is_backward {
            false => last < key,
            true => last.is_empty() || key < last,
        };
        assert!(is_next, "{last:?} before {key:?}");
        stayed += u64::from(u64::from(key[15]) == STAYS);
        last = key;
    }
    stayed
}

/// Fills leaves and joins them again.
fn joins(heap: &Heap, is_over: &AtomicBool) {
    let tree = Tree::open(heap, "kv").unwrap();
    while !is_over.load(Ordering::Relaxed) {
        (0..3000).for_each(|nth| tree.put(&mixed_key(8, nth), b"").unwrap());
        (0..3000).for_each(|nth| assert!(tree.delete(&mixed_key(8, nth)).unwrap()));
        tree.compact().unwrap();
    }
}

/// Goal: threads of two attachments of one file put, delete, read and walk at once, through splits
/// of leaves and of chunks and joins of leaves: no reader sees a key go back, and each walk comes
/// to all keys that are there throughout, once and in order. Method: some keys are put before, and
/// stay; each writer puts keys of its own between these, whose values count up.
#[test]
fn several_write_read_and_walk_at_once() {
    const STAY: u64 = 2000;
    const KEYS: u64 = 6000;
    const ROUNDS: u64 = 3;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let first = Heap::create(&path, 32 << 20, &options()).unwrap();
    let second = Heap::open(&path, &options()).unwrap();
    let heaps = [&first, &second];
    let stays = |nth: u64| mixed_key(STAYS, nth);
    {
        let tree = Tree::open(&first, "kv").unwrap();
        for nth in 0..STAY {
            tree.put(&stays(nth), &nth.to_le_bytes()).unwrap();
        }
    }
    let (is_over, looks, walks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let write = |writer: u64| {
        let tree = Tree::open(heaps[writer as usize % 2], "kv").unwrap();
        for round in 1..=ROUNDS {
            for nth in 0..KEYS {
                let value = round.to_le_bytes().repeat(1 + (nth % 20) as usize);
                tree.put(&mixed_key(writer, nth), &value).unwrap();
                let gone = mixed_key(writer, nth | 1 << 20);
                tree.put(&gone, b"for a while").unwrap();
                assert!(tree.delete(&gone).unwrap());
            }
        }
    };
    let read = |reader: u64| {
        let tree = Tree::open(heaps[reader as usize % 2], "kv").unwrap();
        let mut seen = vec![0; (2 * KEYS) as usize];
        let mut at = reader;
        while !is_over.load(Ordering::Relaxed) {
            at = (at * 25_214_903_917 + 11) % (2 * KEYS);
            let value = tree.get(&mixed_key(at / KEYS, at % KEYS)).unwrap();
            let round = value.map_or(0, |value| round_of(&value));
            assert!(round >= seen[at as usize], "{at}: {round}");
            seen[at as usize] = round;
            let stay = at % STAY;
            assert_eq!(tree.get(&stays(stay)).unwrap().unwrap(), stay.to_le_bytes());
            looks.fetch_add(1, Ordering::Relaxed);
        }
    };
    let walk = |walker: u64| {
        let tree = Tree::open(heaps[walker as usize % 2], "kv").unwrap();
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(stayed_in_order(&tree, walker % 2 == 1), STAY);
            walks.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (read, write, walk, is_over) = (&read, &write, &walk, &is_over);
    std::thread::scope(|scope| {
        let mut others: Vec<_> = (0..2).map(|nth| scope.spawn(move || read(nth))).collect();
        others.extend((0..2).map(|nth| scope.spawn(move || walk(nth))));
        others.push(scope.spawn(|| joins(&second, is_over)));
        let writers: Vec<_> = (0..2).map(|nth| scope.spawn(move || write(nth))).collect();
        let done: Vec<_> = writers.into_iter().map(|each| each.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        let all = done
            .into_iter()
            .chain(others.into_iter().map(|each| each.join()));
        all.for_each(|each| each.unwrap());
    });
    let tree = Tree::open(&second, "kv").unwrap();
    assert_eq!(tree.count().unwrap(), STAY + 2 * KEYS);
    println!("{looks:?} looks, {walks:?} walks");
    first.check().unwrap();
}
