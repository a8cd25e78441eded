//! Goal: a heap does what its documentation says. Method: heaps in private memory and in files,
//! through the public face.

use pmem::Pmem;
use pmem::counters;
use pmlib::{Error, Heap, Options, RawP};

fn options() -> Options {
    Options {
        lanes: 2,
        lane_bytes: 4096,
        seed: 7,
        ..Options::default()
    }
}

fn heap() -> Heap {
    Heap::private(1 << 20, &options()).unwrap()
}

fn word(heap: &Heap, object: u64, at: u64) -> u64 {
    let mut bytes = [0; 8];
    heap.read_bytes(object, at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

fn set(tx: &mut pmlib::Tx<'_>, object: u64, at: u64, value: u64) -> Result<(), Error> {
    tx.edit_bytes(object, at, 8)?
        .copy_from_slice(&value.to_le_bytes());
    Ok(())
}

/// The heap after a crash of which nothing was lost, and after one that is a clean end.
fn reopened(heap: Heap) -> Heap {
    Heap::attach(heap.into_memory()).unwrap()
}

#[test]
fn what_a_transaction_did_is_there() {
    let heap = heap();
    let object = heap
        .tx(|tx| {
            let object = tx.alloc(100)?;
            set(tx, object, 8, 5)?;
            tx.set_root(object)?;
            Ok::<_, Error>(object)
        })
        .unwrap();
    assert_eq!(heap.root_offset().unwrap(), object);
    assert_eq!(heap.size_of(object).unwrap(), 112);
    assert_eq!((word(&heap, object, 8), word(&heap, object, 0)), (5, 0));
    heap.tx(|tx| {
        set(tx, object, 8, 6)?;
        let mut seen = [0; 8];
        tx.read_bytes(object, 8, &mut seen)?;
        assert_eq!(seen, 6u64.to_le_bytes());
        Ok::<_, Error>(())
    })
    .unwrap();
    let heap = reopened(heap);
    assert_eq!(word(&heap, heap.root_offset().unwrap(), 8), 6);
}

#[test]
fn an_error_and_a_panic_undo_everything() {
    let heap = heap();
    let kept = heap.tx(|tx| tx.alloc(64)).unwrap();
    let failed: Result<(), Error> = heap.tx(|tx| {
        set(tx, kept, 0, 1)?;
        tx.alloc(64)?;
        tx.alloc(100_000)?;
        tx.free(kept)?;
        Err(Error::Deadlock)
    });
    assert!(matches!(failed, Err(Error::Deadlock)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        heap.tx(|tx| {
            set(tx, kept, 0, 2)?;
            tx.alloc(64)?;
            if kept != 0 {
                panic!("of the program");
            }
            Ok::<_, Error>(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(word(&heap, kept, 0), 0);
    // The same places are there for others.
    let next = heap.tx(|tx| tx.alloc(64)).unwrap();
    assert_eq!(next, kept + 64);
}

#[test]
fn a_nested_part_fails_alone() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(64)).unwrap();
    let (mine, its) = heap
        .tx(|tx| {
            set(tx, object, 0, 1)?;
            let mine = tx.alloc(32)?;
            let mut its = 0;
            let part: Result<(), Error> = tx.nested(|tx| {
                set(tx, object, 0, 2)?;
                set(tx, object, 16, 2)?;
                its = tx.alloc(32)?;
                tx.free(mine)?;
                Err(Error::Deadlock)
            });
            assert!(part.is_err());
            tx.nested(|tx| set(tx, object, 24, 3))?;
            Ok::<_, Error>((mine, its))
        })
        .unwrap();
    let words = [0, 16, 24].map(|at| word(&heap, object, at));
    assert_eq!(words, [1, 0, 3]);
    assert_eq!(heap.size_of(mine).unwrap(), 32);
    assert!(matches!(heap.size_of(its), Err(Error::NoObject { .. })));
}

/// One wait a transaction, whatever it does, once the lanes have their chunks.
#[test]
fn a_transaction_waits_once() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(8192)).unwrap();
    let mut old = heap.tx(|tx| tx.alloc(64)).unwrap();
    let fences = |body: &mut dyn FnMut(&mut pmlib::Tx<'_>) -> Result<(), Error>| {
        let before = counters::snapshot();
        heap.tx(|tx| body(tx)).unwrap();
        (counters::snapshot() - before).fences
    };
    for round in 0..100u64 {
        for ranges in [1, 2, 10] {
            let mut edit = |tx: &mut pmlib::Tx<'_>| {
                (0..ranges).try_for_each(|at| set(tx, object, at * 128, round + 1))
            };
            assert_eq!(fences(&mut edit), 1, "{ranges} ranges");
        }
        let mut new = 0;
        let mut publish = |tx: &mut pmlib::Tx<'_>| {
            new = tx.alloc(64)?;
            set(tx, new, 0, round)?;
            set(tx, object, 0, new)
        };
        assert_eq!(fences(&mut publish), 1, "alloc and publish");
        let mut free = |tx: &mut pmlib::Tx<'_>| tx.free(old);
        assert_eq!(fences(&mut free), 1, "free");
        old = new;
    }
    let before = counters::snapshot();
    heap.tx(|tx| tx.lock(object)).unwrap();
    assert_eq!(
        (counters::snapshot() - before).fences,
        0,
        "nothing to wait for"
    );
}

#[test]
fn room_comes_back_when_it_is_freed() {
    let heap = heap();
    for round in 0..20 {
        let mut made = Vec::new();
        for size in [64, 8000, 16, 70_000, 3000, 200_000].into_iter().cycle() {
            match heap.tx(|tx| tx.alloc(size)) {
                Ok(object) => made.push(object),
                Err(Error::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(made.len() >= 10, "round {round}: {}", made.len());
        for object in made {
            heap.tx(|tx| tx.free(object)).unwrap();
        }
    }
    // A heap that was filled with small objects takes a large one.
    let mut small = Vec::new();
    while let Ok(object) = heap.tx(|tx| tx.alloc(512)) {
        small.push(object);
    }
    for object in small {
        heap.tx(|tx| tx.free(object)).unwrap();
    }
    heap.tx(|tx| tx.alloc(500_000)).unwrap();
}

#[test]
fn a_long_record_goes_beside_the_ring() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(100_000)).unwrap();
    for round in 1..6u8 {
        heap.tx(|tx| {
            tx.edit_bytes(object, 8, 99_000)?.fill(round);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
    let heap = reopened(heap);
    let mut bytes = vec![0; 100_000];
    heap.read_bytes(object, 0, &mut bytes).unwrap();
    assert!(bytes[8..99_008].iter().all(|&byte| byte == 5));
    assert!(
        bytes[..8]
            .iter()
            .chain(&bytes[99_008..])
            .all(|&byte| byte == 0)
    );
}

#[test]
fn mistakes_have_their_errors() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(64)).unwrap();
    let no_object = |result: Result<(), Error>| matches!(result, Err(Error::NoObject { .. }));
    for offset in [
        0,
        1,
        object + 8,
        object + 64,
        object + (1 << 16),
        1 << 40,
        u64::MAX,
    ] {
        assert!(no_object(heap.size_of(offset).map(drop)), "{offset:#x}");
        assert!(no_object(heap.tx(|tx| tx.free(offset))), "{offset:#x}");
        assert!(
            no_object(heap.read_bytes(offset, 0, &mut [0; 8])),
            "{offset:#x}"
        );
        assert!(no_object(
            heap.tx(|tx| tx.edit_bytes(offset, 0, 8).map(drop))
        ));
    }
    assert!(no_object(heap.tx(|tx| {
        tx.free(object)?;
        tx.free(object)
    })));
    for (start, len) in [(60, 8), (0, 65), (u64::MAX, 8), (8, u64::MAX)] {
        let range = heap.tx(|tx| tx.edit_bytes(object, start, len).map(drop));
        assert!(matches!(range, Err(Error::Range { .. })), "{start} {len}");
    }
    let sizes = [0, 1 << 20 | 1, u64::MAX];
    for size in sizes {
        let result = heap.tx(|tx| tx.alloc(size));
        assert!(matches!(result, Err(Error::Size { .. })), "{size}");
    }
    let nested = heap.tx(|_| heap.tx(|tx| tx.alloc(64)));
    assert!(matches!(nested, Err(Error::Nested)));
    // Two that free the same: the second one finds nothing.
    let mut first = heap.begin_on(0);
    let mut second = heap.begin_on(1);
    first.free(object).unwrap();
    second.free(object).unwrap();
    heap.commit(first).unwrap();
    assert!(no_object(heap.commit(second)));
    heap.tx(|tx| tx.alloc(64)).unwrap();
}

/// Two lanes change one chunk by turns: the words of both are there, also after a crash.
#[test]
fn lanes_hand_a_chunk_over() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(8192)).unwrap();
    for round in 0..200u64 {
        let lane = (round % 3 / 2) as usize;
        let mut tx = heap.begin_on(lane);
        set(&mut tx, object, round % 7 * 8, round).unwrap();
        heap.commit(tx).unwrap();
    }
    let heap = reopened(heap);
    let words: Vec<u64> = (0..7).map(|at| word(&heap, object, at * 8)).collect();
    let mut sorted = words.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (193..200).collect::<Vec<u64>>());
}

#[test]
fn files_are_opened_and_refused_by_cause() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 1 << 20, &options()).unwrap();
    let object = heap.tx(|tx| tx.alloc(64)).unwrap();
    heap.tx(|tx| set(tx, object, 0, 42)).unwrap();
    let exists = Heap::create(&path, 1 << 20, &options()).map(drop);
    assert!(matches!(
        exists,
        Err(Error::Medium(pmem::Error::Exists { .. }))
    ));
    drop(heap);
    let heap = Heap::open(&path, &options()).unwrap();
    assert_eq!(word(&heap, object, 0), 42);
    drop(heap);

    let good = std::fs::read(&path).unwrap();
    let opened = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        Heap::open(&path, &options()).map(drop)
    };
    assert!(matches!(
        opened(&|bytes| bytes.fill(0)),
        Err(Error::Foreign { .. })
    ));
    // With the right checks, as a later build would have it, and an earlier one had it.
    for version in [3, 1] {
        let other = opened(&|bytes| {
            for page in [0, 4096] {
                bytes[page + 8] = version;
                let crc = crc32c::crc32c(&bytes[page..page + 124]);
                bytes[page + 124..page + 128].copy_from_slice(&crc.to_le_bytes());
            }
        });
        let refused =
            matches!(other, Err(Error::Version { found, known: 2 }) if found == version.into());
        assert!(refused, "{version}");
    }
    assert!(matches!(
        opened(&|bytes| bytes.truncate(1 << 19)),
        Err(Error::TooSmall { .. })
    ));
    assert!(matches!(
        opened(&|bytes| bytes[8256] ^= 1),
        Err(Error::Damaged { .. })
    ));
    // One header is enough.
    opened(&|bytes| bytes[..512].fill(0xff)).unwrap();
    opened(&|bytes| bytes[4096..8192].fill(0xff)).unwrap();
    let small = Heap::create(&dir.path().join("small"), 1 << 16, &options()).map(drop);
    assert!(matches!(small, Err(Error::TooSmall { .. })));
}

#[test]
fn a_forked_child_is_refused() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(64)).unwrap();
    let status = heap
        .tx(|tx| {
            let mine = tx.alloc(64)?;
            let status = pmem::life::in_child(|| {
                let refused = |result: Result<(), Error>| matches!(result, Err(Error::Forked));
                let all = [
                    refused(tx.edit_bytes(mine, 0, 8).map(drop)),
                    refused(heap.read_bytes(object, 0, &mut [0; 8])),
                    refused(heap.tx(|tx| tx.alloc(8)).map(drop)),
                ];
                u8::from(all != [true; 3])
            });
            Ok::<_, Error>(status)
        })
        .unwrap();
    assert_eq!(status, 0);
    heap.tx(|tx| tx.free(object)).unwrap();
}

/// Threads that move units between objects, each pair under its locks: the sum stays.
#[test]
fn threads_are_apart_and_go_on_at_once() {
    const OBJECTS: usize = 16;
    let options = Options {
        lanes: 4,
        ..options()
    };
    let heap = Heap::private(4 << 20, &options).unwrap();
    let objects: Vec<u64> = (0..OBJECTS)
        .map(|_| heap.tx(|tx| tx.alloc(64)).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for seed in 1..5u64 {
            let (heap, objects) = (&heap, &objects);
            scope.spawn(move || {
                let mut random = seed;
                for _ in 0..2000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(seed);
                    let from = objects[(random >> 33) as usize % OBJECTS];
                    let to = objects[(random >> 43) as usize % OBJECTS];
                    let done: Result<(), Error> = heap.tx(|tx| {
                        // In no order: circles are found.
                        tx.lock(from)?;
                        tx.lock(to)?;
                        for (object, more) in [(from, u64::MAX), (to, 1)] {
                            let bytes = tx.edit_bytes(object, 0, 8)?;
                            let value = u64::from_le_bytes(bytes.try_into().unwrap());
                            bytes.copy_from_slice(&value.wrapping_add(more).to_le_bytes());
                        }
                        Ok(())
                    });
                    match done {
                        Ok(()) | Err(Error::Deadlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let sum = |heap: &Heap| {
        let words = objects.iter().map(|&object| word(heap, object, 0));
        words.fold(0, u64::wrapping_add)
    };
    assert_eq!(sum(&heap), 0);
    assert_eq!(sum(&reopened(heap)), 0);
}

#[test]
fn a_circle_of_locks_is_an_error() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let [a, b] = [64, 4096];
    let (here, there) = (
        std::sync::Barrier::new(2),
        std::sync::atomic::AtomicU32::new(0),
    );
    std::thread::scope(|scope| {
        for (first, second) in [(a, b), (b, a)] {
            let (heap, here, there) = (&heap, &here, &there);
            scope.spawn(move || {
                let ended: Result<(), Error> = heap.tx(|tx| {
                    tx.lock(first)?;
                    here.wait();
                    tx.lock(second)
                });
                if matches!(ended, Err(Error::Deadlock)) {
                    there.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                } else {
                    ended.unwrap();
                }
            });
        }
    });
    let deadlocks = there.into_inner();
    assert!((1..=2).contains(&deadlocks), "{deadlocks}");
    assert!(
        heap.tx(|tx| Ok::<_, Error>(tx.try_lock(a)? && tx.try_lock(a)?))
            .unwrap()
    );
}

/// A thread that takes a lane over flushes what the one before it left.
#[test]
fn a_lane_is_taken_over_with_its_last_record() {
    let heap = heap();
    let object = heap.tx(|tx| tx.alloc(8192)).unwrap();
    let lines = || {
        let before = counters::snapshot();
        let mut tx = heap.begin_on(0);
        set(&mut tx, object, 0, 1).unwrap();
        heap.commit(tx).unwrap();
        (counters::snapshot() - before).lines_flushed
    };
    lines();
    let mut tx = heap.begin_on(0);
    (0..10).for_each(|at| set(&mut tx, object, 128 * at, 7).unwrap());
    heap.commit(tx).unwrap();
    let alone = std::thread::scope(|scope| scope.spawn(lines).join().unwrap());
    assert!(alone >= 10, "{alone} lines");
}

/// A heap that is full becomes longer: in a file, in memory kept for it, and not past its bound.
#[test]
fn a_heap_grows_by_itself() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let options = Options {
        max: 8 << 20,
        ..options()
    };
    let heap = Heap::create(&path, 1 << 20, &options).unwrap();
    let mut made = Vec::new();
    let full = loop {
        match heap.tx(|tx| {
            let object = tx.alloc(50_000)?;
            set(tx, object, 49_000, made.len() as u64)?;
            Ok(object)
        }) {
            Ok(object) => made.push(object),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { wanted: 50_000 }), "{full}");
    assert_eq!((heap.size(), heap.stats().unwrap().spans), (8 << 20, 2));
    assert!(made.len() > 115, "{}", made.len());
    drop(heap);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    // By a process that lets it grow further.
    let further = Options {
        max: 16 << 20,
        ..options
    };
    let heap = Heap::open(&path, &further).unwrap();
    for (nth, &object) in made.iter().enumerate() {
        assert_eq!(word(&heap, object, 49_000), nth as u64);
    }
    heap.tx(|tx| tx.alloc(5 << 20)).unwrap();
    assert_eq!(heap.check().unwrap().objects, made.len() as u64 + 1);
    assert_eq!(heap.size(), 16 << 20);
    let private = Heap::private(1 << 20, &options).unwrap();
    private.tx(|tx| tx.alloc(5 << 20)).unwrap();
}

/// Goal: an object has room in what another has added, also one that is longer than this opening
/// may make the heap. Method: the first to look is the call that needs it.
#[test]
fn a_large_object_lies_in_what_another_has_added() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let short = Options {
        max: 8 << 20,
        ..options()
    };
    let heap = Heap::create(&path, 8 << 20, &short).unwrap();
    let error = heap.tx(|tx| tx.alloc(20 << 20)).unwrap_err();
    assert!(matches!(error, Error::Size { .. }), "{error}");
    let other = Heap::open(&path, &options()).unwrap();
    assert!(other.grow(64 << 20).unwrap() >= 64 << 20);
    let object = heap.tx(|tx| tx.alloc(20 << 20)).unwrap();
    assert_eq!(other.size_of(object).unwrap(), 20 << 20);
    for size in [1 << 40, u64::MAX] {
        let error = heap.tx(|tx| tx.alloc(size)).unwrap_err();
        assert!(matches!(error, Error::Size { .. }), "{error}");
    }
}

#[test]
fn a_heap_is_private_memory_too() {
    let mem = Pmem::private(1 << 20);
    Heap::format(&mem, 1 << 20, &options()).unwrap();
    let heap = Heap::attach(mem).unwrap();
    assert_eq!((heap.size(), heap.root_offset().unwrap()), (1 << 20, 0));
}

/// A process that grows a heap may be killed when its file is longer and has no space yet.
#[test]
fn a_file_that_was_left_longer_has_space_once_the_heap_has() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let options = Options {
        max: 8 << 20,
        ..options()
    };
    let heap = Heap::create(&path, 4 << 20, &options).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    heap.tx(|tx| tx.alloc(3 << 20)).unwrap();
    heap.tx(|tx| tx.alloc(3 << 20)).unwrap();
    assert_eq!(heap.size(), 8 << 20);
    assert!(file.metadata().unwrap().blocks() * 512 >= 8 << 20);
}

/// Goal: large objects share chunks, waste a quarter at most, and give all chunks back. Method: as
/// many of each size as fill some chunks, written to their ends, in a heap with room; half of them
/// freed and made again; then in one whose free chunks are not in a row.
#[test]
fn large_objects_share_chunks() {
    let heap = Heap::private(16 << 20, &Options::default()).unwrap();
    let free_bytes = heap.stats().unwrap().free_bytes;
    for size in [
        8193, 9000, 20_000, 30_000, 40_000, 50_000, 60_000, 80_000, 100_000, 160_000,
    ] {
        let make = || {
            let object = heap.tx(|tx| {
                let object = tx.alloc(size)?;
                let given = tx.size_of(object)?;
                assert!(
                    size <= given && (given - size) * 4 <= given,
                    "{size}: {given}"
                );
                tx.edit_bytes(object, 0, given)?.fill(object as u8);
                Ok::<_, Error>(object)
            });
            object.unwrap()
        };
        let holds = |object: u64| {
            let mut bytes = vec![0; size as usize];
            heap.read_bytes(object, 0, &mut bytes).unwrap();
            bytes.iter().all(|&byte| byte == object as u8)
        };
        let mut all: Vec<u64> = (0..30).map(|_| make()).collect();
        let census = heap.check().unwrap();
        assert_eq!(census.objects, 30);
        // Up to a few places of the last chunks.
        assert!(
            census.spare_bytes <= 30 * size / 8 + (512 << 10),
            "{size}: {census:?}"
        );
        for _ in 0..3 {
            for at in (0..30).step_by(2) {
                heap.tx(|tx| tx.free(all[at])).unwrap();
                let freed = heap.read_bytes(all[at], 0, &mut [0]);
                assert!(matches!(freed, Err(Error::NoObject { .. })), "{freed:?}");
            }
            for at in (0..30).step_by(2) {
                all[at] = make();
            }
            assert!(all.iter().all(|&object| holds(object)), "{size}");
        }
        for object in all {
            heap.tx(|tx| tx.free(object)).unwrap();
        }
        heap.free_chunks().unwrap();
        assert_eq!(heap.stats().unwrap().free_bytes, free_bytes, "{size}");
    }
    // Single chunks: each other one is free.
    let heap = Heap::private(4 << 20, &Options::default()).unwrap();
    let mut all = Vec::new();
    while let Ok(object) = heap.tx(|tx| tx.alloc(65_536)) {
        all.push(object);
    }
    for object in all.iter().step_by(2) {
        heap.tx(|tx| tx.free(*object)).unwrap();
    }
    let object = heap.tx(|tx| tx.alloc(30_000)).unwrap();
    assert_eq!(
        heap.view(|view| view.size_of(RawP(object))).unwrap(),
        65_536
    );
    let typed = heap.tx(|tx| tx.new([7u64; 3750])).unwrap();
    assert!(
        heap.read(typed).unwrap() == [7; 3750],
        "of another size, and of its type"
    );
}

/// Goal: a root that can't be made leaves nothing behind, also if its error is dropped. Method: a
/// heap with room for the object, and none for its name.
#[test]
fn a_root_without_room_for_its_name_leaves_nothing() {
    let heap = Heap::private(1 << 20, &Options::default()).unwrap();
    heap.tx(|tx| tx.alloc(32)).unwrap();
    while heap.tx(|tx| tx.alloc(65_536)).is_ok() {}
    let before = heap.check().unwrap();
    heap.tx(|tx| {
        let made = tx.root::<[u64; 4]>("a name of another class");
        assert!(matches!(made, Err(Error::Full { .. })), "{made:?}");
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(heap.check().unwrap(), before);
}

/// Goal: a process may have as many heaps as it likes. Method: more than its addresses have room
/// for at 1 TiB each, and then some memory.
#[test]
fn a_process_has_many_heaps() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let heap = |nth: u64| {
        let heap = Heap::create(
            &dir.path().join(nth.to_string()),
            1 << 20,
            &Options::default(),
        );
        heap.unwrap_or_else(|error| panic!("{nth}: {error}"))
    };
    let heaps: Vec<Heap> = (0..200).map(heap).collect();
    for heap in [&heaps[0], &heaps[199]] {
        heap.grow(2 << 20).unwrap();
        heap.tx(|tx| tx.alloc(1 << 20)).unwrap();
    }
    let memory = vec![1u8; 64 << 20];
    assert!(memory.iter().all(|&byte| byte == 1));
}
