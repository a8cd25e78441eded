//! Room that engines give back to their heap.

use std::sync::atomic::{AtomicBool, Ordering};

use pmkv::Hash;
use pmlib::{Heap, Options};

fn options() -> Options {
    Options {
        seed: 7,
        ..Options::default()
    }
}

/// Goal: a heap whose keys were deleted has room for other objects. Method: a heap that can't grow
/// is filled with keys of several sizes; an object of half of it finds room only after the keys
/// are deleted and the engine has given its chunks back, and the engine goes on.
#[test]
fn deleted_keys_leave_room_for_objects() {
    let heap = Heap::private(8 << 20, &options()).unwrap();
    let hash = Hash::open(&heap, "kv").unwrap();
    let len = |nth: u64| [20, 400, 3000, 20_000, 100_000][nth as usize % 5];
    for round in 0..3 {
        let mut count = 0u64;
        while hash
            .put(&count.to_le_bytes(), &vec![count as u8; len(count)])
            .is_ok()
        {
            count += 1;
        }
        assert!(count > 100, "{count}");
        let object = || heap.tx(|tx| tx.alloc(4 << 20));
        assert!(object().is_err());
        assert_eq!(hash.compact().unwrap(), 0);
        for nth in 1..count {
            assert!(hash.delete(&nth.to_le_bytes()).unwrap());
        }
        let room = heap.stats().unwrap().free_bytes;
        let freed = hash.compact().unwrap();
        assert!(freed > 1 << 20, "{round}: {freed}");
        assert_eq!(heap.stats().unwrap().free_bytes, room + freed);
        let taken = object().unwrap();
        assert_eq!(
            hash.get(&0u64.to_le_bytes()).unwrap().unwrap(),
            vec![0; len(0)]
        );
        hash.put(b"other", &[1; 500]).unwrap();
        heap.check().unwrap();
        heap.tx(|tx| tx.free(taken)).unwrap();
        hash.clear().unwrap();
        hash.compact().unwrap();
        assert_eq!(hash.stats().unwrap().record_runs, 0);
    }
}

/// Goal: chunks are given back while others put and delete, and no key is lost. Method: threads of
/// two attachments put and delete keys of several sizes and read them again, two compact, and one
/// makes objects of its own of chunks, whose bytes stay as they are.
#[test]
fn room_is_given_back_beside_writers() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let first = Heap::create(&path, 16 << 20, &options()).unwrap();
    let second = Heap::open(&path, &options()).unwrap();
    let heaps = [&first, &second];
    drop(Hash::open(&first, "kv").unwrap());
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    let freed = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|nth| scope.spawn(move || put_and_delete(heaps[nth as usize % 2], nth)))
            .collect();
        let objects = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let object = first_object(heaps[0]);
                let mut found = vec![0; 64 << 10];
                heaps[0]
                    .tx(|tx| tx.read_bytes(object, 0, &mut found))
                    .unwrap();
                assert!(
                    found.iter().all(|&byte| byte == 0x40),
                    "an object was changed"
                );
                heaps[0].tx(|tx| tx.free(object)).unwrap();
            }
        });
        let compactors: Vec<_> = heaps
            .into_iter()
            .map(|heap| {
                scope.spawn(move || {
                    let (hash, mut freed) = (Hash::open(heap, "kv").unwrap(), 0);
                    while !is_over.load(Ordering::Relaxed) {
                        freed += hash.compact().unwrap();
                    }
                    freed
                })
            })
            .collect();
        let done: Vec<_> = writers.into_iter().map(|each| each.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        done.into_iter().for_each(|each| each.unwrap());
        objects.join().unwrap();
        compactors
            .into_iter()
            .map(|each| each.join().unwrap())
            .sum::<u64>()
    });
    assert!(freed > 1 << 20, "{freed}");
    let hash = Hash::open(&second, "kv").unwrap();
    assert_eq!(hash.count().unwrap(), 3);
    first.check().unwrap();
}

/// Puts and deletes a writer's own keys, in rounds of several sizes; one of them stays.
fn put_and_delete(heap: &Heap, writer: u64) {
    let hash = Hash::open(heap, "kv").unwrap();
    for round in 0..60u64 {
        let value = |nth: u64| vec![(round + nth) as u8; [50, 700, 9000][round as usize % 3]];
        let key = |nth: u64| (writer << 32 | nth).to_le_bytes();
        for nth in 0..100 {
            hash.put(&key(nth), &value(nth)).unwrap();
        }
        for nth in 0..100 {
            assert_eq!(hash.get(&key(nth)).unwrap().unwrap(), value(nth));
        }
        for nth in 0..99 {
            assert!(hash.delete(&key(nth)).unwrap());
        }
    }
}

/// An object of a chunk's size whose bytes look like free places.
fn first_object(heap: &Heap) -> u64 {
    let made = heap.tx(|tx| {
        let object = tx.alloc(64 << 10)?;
        tx.edit_bytes(object, 0, 64 << 10)?.fill(0x40);
        Ok::<_, pmlib::Error>(object)
    });
    made.unwrap()
}

/// Goal: a later run gives room back as well, whose places are not known then. Method: a heap is
/// opened again between the deletes and the call.
#[test]
fn a_later_run_gives_room_back() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 16 << 20, &options()).unwrap();
    let hash = Hash::open(&heap, "kv").unwrap();
    for nth in 0..3000u64 {
        hash.put(&nth.to_le_bytes(), &[nth as u8; 1000]).unwrap();
    }
    for nth in 1..3000u64 {
        hash.delete(&nth.to_le_bytes()).unwrap();
    }
    drop(hash);
    heap.close().unwrap();
    let heap = Heap::open(&path, &options()).unwrap();
    let hash = Hash::open(&heap, "kv").unwrap();
    let freed = hash.compact().unwrap();
    assert!(freed > 2 << 20, "{freed}");
    assert_eq!(hash.stats().unwrap().record_runs, 1);
    assert_eq!(hash.get(&0u64.to_le_bytes()).unwrap().unwrap(), [0; 1000]);
    heap.check().unwrap();
}
