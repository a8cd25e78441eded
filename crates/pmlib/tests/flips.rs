//! Goal: a damaged heap ends with an answer: an error, or a heap that works. Method: each byte of a
//! heap's own parts is changed, each in a heap of its own, which is opened, looked at and used.
//! Volatile bytes must not matter at all.

use pmem::Pmem;
use pmlib::{Error, Heap, Options};
use std::os::unix::fs::FileExt;

const BYTES: u64 = 1 << 20;

fn options() -> Options {
    Options {
        lanes: 2,
        lane_bytes: 1024,
        seed: 7,
        ..Options::default()
    }
}

/// A heap with objects of several kinds, left by a crash or clean.
fn made(clean: bool) -> (Vec<u8>, u64) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, BYTES, &options()).unwrap();
    let root = heap
        .tx(|tx| {
            let root = tx.alloc(64)?;
            tx.set_root(root)?;
            tx.alloc(100_000)?;
            tx.alloc(500)?;
            Ok::<_, Error>(root)
        })
        .unwrap();
    for value in 0..5 {
        heap.tx(|tx| {
            tx.edit_bytes(root, 0, 8)?.fill(value);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
    if clean {
        drop(heap);
        return (std::fs::read(&path).unwrap(), root);
    }
    let memory = heap.into_memory();
    let mut bytes = vec![0; BYTES as usize];
    memory.copy_out(0, &mut bytes).unwrap();
    (bytes, root)
}

/// Opens a heap and does with it what a program does.
fn used(bytes: &[u8]) -> Result<(), Error> {
    let mem = Pmem::private(BYTES);
    mem.write_nt(0, bytes).unwrap();
    let heap = Heap::attach(mem)?;
    heap.check()?;
    let root = heap.root_offset()?;
    let mut seen = [0; 8];
    heap.read_bytes(root, 0, &mut seen)?;
    assert_eq!(seen, [4; 8], "a wrong answer");
    let objects: Result<Vec<u64>, Error> = [64, 64, 500, 2000, 70_000]
        .into_iter()
        .map(|size| heap.tx(|tx| tx.alloc(size)))
        .collect();
    for object in objects? {
        heap.tx(|tx| tx.free(object))?;
    }
    heap.tx(|tx| {
        tx.edit_bytes(root, 0, 8)?.fill(9);
        Ok(())
    })
}

#[test]
fn every_damaged_byte_ends_with_an_answer() {
    for clean in [true, false] {
        let (good, root) = made(clean);
        used(&good).unwrap();
        let mem = Pmem::private(BYTES);
        mem.write_nt(0, &good).unwrap();
        let volatile = Heap::volatile(&mem);
        // Up to the first chunk of objects, and its bitmaps.
        let end = root / 64 * 64;
        assert!(volatile.end <= root && end > 65_536);
        let (mut refused, mut worked) = (0, 0);
        for at in 0..end {
            // A part of the volatile bytes and of long stretches of zeros will do.
            let dull = good[at as usize] == 0 && (at > 8192 || at % 4096 > 1100);
            if (dull || volatile.contains(&at)) && at % 29 != 0 {
                continue;
            }
            let mut bad = good.clone();
            bad[at as usize] ^= 1 << (at % 8);
            match used(&bad) {
                Ok(()) => worked += 1,
                Err(error) => {
                    assert!(!volatile.contains(&at), "volatile byte {at:#x}: {error}");
                    let by_cause = matches!(
                        error,
                        Error::Damaged { .. } | Error::NoObject { .. } | Error::Full { .. }
                    );
                    assert!(by_cause, "byte {at:#x}: {error}");
                    refused += 1;
                }
            }
        }
        println!("clean {clean}: {refused} refused, {worked} worked");
        assert!(refused > 50 && worked > 500);
    }
}

/// The same of a heap that is only read, in a file. The reader is right, or refused.
#[test]
fn every_damaged_byte_ends_with_an_answer_to_readers() {
    let (good, root) = made(true);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    std::fs::write(&path, &good).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let seen = || -> Result<(), Error> {
        let heap = Heap::open(&path, &Options::read_only())?;
        heap.stats()?;
        heap.check()?;
        let found = heap.root_offset()?;
        let mut seen = [0; 8];
        heap.read_bytes(found, 0, &mut seen)?;
        assert_eq!(seen, [4; 8], "a wrong answer");
        Ok(())
    };
    seen().unwrap();
    let mem = Pmem::private(BYTES);
    mem.write_nt(0, &good).unwrap();
    let volatile = Heap::volatile(&mem);
    let (mut refused, mut worked) = (0, 0);
    for at in 0..root / 64 * 64 {
        let dull = good[at as usize] == 0 && (at > 8192 || at % 4096 > 1100);
        if (dull || volatile.contains(&at)) && at % 29 != 0 {
            continue;
        }
        let bad = good[at as usize] ^ 1 << (at % 8);
        file.write_all_at(&[bad], at).unwrap();
        match seen() {
            Ok(()) => worked += 1,
            Err(error) => {
                assert!(!volatile.contains(&at), "volatile byte {at:#x}: {error}");
                let by_cause = matches!(
                    error,
                    Error::Damaged { .. } | Error::NoObject { .. } | Error::NeedsRecovery { .. }
                );
                assert!(by_cause, "byte {at:#x}: {error}");
                refused += 1;
            }
        }
        file.write_all_at(&good[at as usize..][..1], at).unwrap();
    }
    println!("{refused} refused, {worked} worked");
    assert!(refused > 50 && worked > 500);
}
