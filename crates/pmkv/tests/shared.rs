//! The hash engine under damage, without room, and by several at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmkv::{Error, Hash};
use pmlib::{Heap, Options};

fn options() -> Options {
    Options {
        seed: 7,
        ..Options::default()
    }
}

/// Goal: a flipped bit in a record is an error of its key alone, and never another value. Method:
/// one bit of each byte of a record is flipped, one after the other; all keys are read.
#[test]
fn a_flipped_bit_is_an_error_of_its_key() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let hash = Hash::open(&heap, "kv").unwrap();
    let key = |nth: u8| [nth; 9];
    for nth in 0..100 {
        hash.put(&key(nth), &[nth ^ 0x55; 50]).unwrap();
    }
    let mem = heap.ground().mem();
    let mut all = vec![0; heap.size() as usize];
    mem.copy_out(0, &mut all).unwrap();
    let mut parts = all.windows(59);
    let wanted = [&key(42)[..], &[42 ^ 0x55; 50][..]].concat();
    let start = parts.position(|part| part == wanted).unwrap() as u64 - 24;
    for byte in start..start + 24 + 59 {
        let flip = || {
            let _window = mem.window();
            let at = byte / 8 * 8;
            mem.store(at, mem.load(at) ^ 1 << (byte % 8 * 8 + byte % 7));
        };
        flip();
        for nth in 0..100 {
            let value = hash.get(&key(nth));
            match nth {
                42 => assert!(
                    matches!(value, Err(Error::Corrupt { .. })),
                    "{byte}: {value:?}"
                ),
                _ => assert_eq!(value.unwrap().unwrap(), [nth ^ 0x55; 50]),
            }
        }
        flip();
    }
    assert_eq!(hash.get(&key(42)).unwrap().unwrap(), [42 ^ 0x55; 50]);
}

/// Goal: a walk tells a damaged record, and comes to all other keys. Method: one bit of each byte
/// of a record that shares its group with others is flipped, and all keys are walked over.
#[test]
fn a_walk_passes_a_damaged_record() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let hash = Hash::open(&heap, "kv").unwrap();
    for nth in 0..200u8 {
        hash.put(&[nth; 9], &[nth ^ 0x55; 50]).unwrap();
    }
    let mem = heap.ground().mem();
    let mut all = vec![0; heap.size() as usize];
    mem.copy_out(0, &mut all).unwrap();
    let wanted = [&[42; 9][..], &[42 ^ 0x55; 50][..]].concat();
    let start = all.windows(59).position(|part| part == wanted).unwrap() as u64 - 24;
    for byte in start..start + 24 + 59 {
        let flip = || {
            let _window = mem.window();
            let at = byte / 8 * 8;
            mem.store(at, mem.load(at) ^ 1 << (byte % 8 * 8 + byte % 7));
        };
        flip();
        let (mut found, mut damaged) = (0, 0);
        for entry in hash.iter() {
            match entry {
                Ok((key, value)) => {
                    assert!(key[0] != 42 && key == [key[0]; 9], "{byte}: {key:?}");
                    assert_eq!(value, [key[0] ^ 0x55; 50]);
                    found += 1;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Corrupt { .. }), "{byte}: {error}");
                    damaged += 1;
                }
            }
        }
        assert_eq!((found, damaged), (199, 1), "byte {}", byte - start);
        flip();
    }
    assert_eq!(hash.iter().filter(Result::is_ok).count(), 200);
}

/// Goal: a look for an engine makes none. Method: a missing one, and one that was made.
#[test]
fn a_look_for_an_engine_makes_none() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    assert!(Hash::existing(&heap, "kv").unwrap().is_none());
    assert_eq!(Hash::names(&heap).unwrap(), Vec::<String>::new());
    let hash = Hash::open(&heap, "kv").unwrap();
    hash.put(b"key", b"value").unwrap();
    let found = Hash::existing(&heap, "kv").unwrap().unwrap();
    assert_eq!(found.get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(Hash::names(&heap).unwrap(), ["kv"]);
}

/// Goal: an engine without room says so, loses nothing, and goes on when there is room. Method: a
/// heap that can't grow is filled with values of several sizes; some are taken away, and come back.
#[test]
fn a_full_heap_is_an_error() {
    for len in [10, 900, 20_000, 100_000] {
        let heap = Heap::private(3 << 20, &options()).unwrap();
        let hash = Hash::open(&heap, "kv").unwrap();
        let mut count = 0u64;
        let error = loop {
            match hash.put(&count.to_le_bytes(), &vec![count as u8; len]) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        let is_full = matches!(error, Error::Heap(pmlib::Error::Full { .. }));
        assert!(is_full, "{len}: {error}");
        assert!(count * len as u64 > 1 << 17, "{count} of {len}");
        for nth in 0..count {
            let value = hash.get(&nth.to_le_bytes()).unwrap();
            assert_eq!(value.unwrap(), vec![nth as u8; len]);
        }
        for round in 0..5u8 {
            assert!(hash.delete(&0u64.to_le_bytes()).unwrap());
            hash.put(&0u64.to_le_bytes(), &vec![round; len]).unwrap();
        }
        assert_eq!(hash.count().unwrap(), count);
        heap.check().unwrap();
    }
}

/// Goal: threads of two attachments of one file put, read and delete at once, through splits, and
/// no reader ever sees a key go back. Method: each writer has keys of its own, whose values count
/// up; readers compare what they see with what they saw.
#[test]
fn several_write_and_read_at_once() {
    const KEYS: u64 = 3000;
    const ROUNDS: u64 = 4;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let first = Heap::create(&path, 32 << 20, &options()).unwrap();
    let second = Heap::open(&path, &options()).unwrap();
    let heaps = [&first, &second];
    drop(Hash::open(&first, "kv").unwrap());
    let (is_over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let key = |writer: u64, nth: u64| (writer << 32 | nth).to_le_bytes();
    let write = |writer: u64| {
        let hash = Hash::open(heaps[writer as usize % 2], "kv").unwrap();
        for round in 1..=ROUNDS {
            for nth in 0..KEYS {
                let value = round.to_le_bytes().repeat(1 + (nth % 20) as usize);
                hash.put(&key(writer, nth), &value).unwrap();
                let gone = nth | 1 << 20;
                hash.put(&key(writer, gone), b"for a while").unwrap();
                assert!(hash.delete(&key(writer, gone)).unwrap());
            }
        }
    };
    let read = |reader: u64| {
        let hash = Hash::open(heaps[reader as usize % 2], "kv").unwrap();
        let mut seen = vec![0; (3 * KEYS) as usize];
        let mut at = reader;
        while !is_over.load(Ordering::Relaxed) {
            at = (at * 25_214_903_917 + 11) % (3 * KEYS);
            let value = hash.get(&key(at / KEYS, at % KEYS)).unwrap();
            let round = value.map_or(0, |value| {
                let (words, _) = value.as_chunks::<8>();
                assert!(words.iter().all(|word| *word == words[0]));
                u64::from_le_bytes(words[0])
            });
            assert!(round >= seen[at as usize], "{at}: {round}");
            seen[at as usize] = round;
            looks.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (read, write, is_over) = (&read, &write, &is_over);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|nth| scope.spawn(move || read(nth))).collect();
        let writers: Vec<_> = (0..3).map(|nth| scope.spawn(move || write(nth))).collect();
        let done: Vec<_> = writers.into_iter().map(|each| each.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        for each in done
            .into_iter()
            .chain(readers.into_iter().map(|each| each.join()))
        {
            each.unwrap();
        }
    });
    let hash = Hash::open(&second, "kv").unwrap();
    assert_eq!(hash.count().unwrap(), 3 * KEYS);
    for writer in 0..3 {
        for nth in 0..KEYS {
            let value = hash.get(&key(writer, nth)).unwrap().unwrap();
            assert_eq!(value[..8], ROUNDS.to_le_bytes());
        }
    }
    println!("{looks:?} looks");
    first.check().unwrap();
}
