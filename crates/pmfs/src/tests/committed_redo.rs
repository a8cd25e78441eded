//! Committed redo records, as calls on files meet them.

use crate::purpose::{Claim, Lane, Purpose};
use crate::scratch::{NODE, Scratch};
use crate::{Fs, ROOT_INO};
use pm_space::{Class, Zone};
use pmem::counters::snapshot;

/// A file of sevens, by its number.
fn file(fs: &Fs) -> u64 {
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, &[7; 8000]).unwrap();
    ino
}

/// Barriers of a call.
fn barriers(call: impl FnOnce()) -> u64 {
    let before = snapshot().fences;
    call();
    snapshot().fences - before
}

fn committed_redos(fs: &Fs) -> usize {
    let lanes = 0..fs.pool().geometry.lanes;
    lanes
        .filter(|&lane| Lane::at(fs.pool(), lane).scan().is_committed_redo())
        .count()
}

/// Goal: a call that overwrites the words of another's committed redo record waits once, and
/// sees the other's words. Method: two threads of two attachments in turn, in lanes of their
/// own.
#[test]
fn threads_in_turn_wait_once() {
    let scratch = Scratch::new(16 << 20);
    let (one, other) = (scratch.open(), scratch.open());
    let ino = file(&one);
    one.write(ino, 100, &[0; 64]).unwrap();
    for turn in 1..20u8 {
        let overwrite = |fs: &Fs| {
            let mut got = [0; 64];
            let barriers = barriers(|| assert!(fs.write(ino, 100, &[turn; 64]).is_ok()));
            fs.read(ino, 100, &mut got).unwrap();
            assert_eq!((barriers, got), (1, [turn; 64]));
        };
        match turn % 2 {
            0 => overwrite(&one),
            _ => std::thread::scope(|scope| {
                scope
                    .spawn(|| overwrite(&other))
                    .join()
                    .expect("the thread");
            }),
        }
    }
    assert_eq!(committed_redos(&one), 1, "they took over one lane");
    assert!(scratch.is_sound());
}

/// Goal: a call that waits for the lane of a committed redo record may clean up after a thread
/// that died in that lane, which frees blocks. Method: a thread that ends with a lane and a
/// block in question.
#[test]
fn a_waiter_for_a_lane_cleans_up_after_its_dead_holder() {
    let scratch = Scratch::new(16 << 20);
    let fs = scratch.open();
    let ino = file(&fs);
    let die = || {
        fs.write(ino, 100, &[2; 64]).unwrap();
        let _writable = fs.mapping().writable();
        let lane = Claim::new(fs.pool());
        let (pool, zone) = (fs.pool(), Zone::Data);
        pool.alloc(&lane, 1, Class::Ordinary, zone, Purpose::Scratch)
            .unwrap();
        std::mem::forget(lane);
    };
    std::thread::scope(|scope| scope.spawn(die).join().expect("the thread"));
    fs.write(ino, 120, &[3; 64]).unwrap();
    let mut got = [0; 84];
    fs.read(ino, 100, &mut got).unwrap();
    assert_eq!(
        (got[..20].to_vec(), got[20..].to_vec()),
        (vec![2; 20], vec![3; 64])
    );
    assert!(scratch.is_sound());
}

/// Goal: recovery never stores the word of an older record again where a newer one has changed
/// it: others may read it meanwhile. Method: two records of the same words; the test compares
/// what recovery would store.
#[test]
fn an_older_redo_is_not_seen_again() {
    let scratch = Scratch::new(16 << 20);
    let fs = scratch.open();
    let ino = file(&fs);
    for (at, byte) in [(96, 2), (104, 3)] {
        fs.write(ino, at, &[byte; 64]).unwrap();
    }
    let lanes = 0..fs.pool().geometry.lanes;
    let mut scans = lanes.map(|lane| Lane::at(fs.pool(), lane).scan());
    let scan = scans
        .find(pm_journal::scan::Scan::is_committed_redo)
        .unwrap();
    let words = scan.redo_words(fs.pool()).unwrap();
    let is = |&(off, word): &(&u64, &u64)| fs.mapping().load(*off) == *word;
    assert_eq!((words.len(), words.iter().filter(is).count()), (9, 9));
}

/// Goal: a committed redo record is closed before its words change otherwise or get another
/// owner, and when the pool is left.
#[test]
fn a_store_by_another_way_closes_the_record_first() {
    let scratch = Scratch::new(16 << 20);
    let fs = scratch.open();
    let ino = file(&fs);
    let others: [&dyn Fn(); 3] = [
        &|| assert!(fs.write(ino, 0, &[1; 4096]).is_ok()),
        &|| assert!(fs.append(ino, &[1; 10]).is_ok()),
        &|| assert!(fs.unlink(ROOT_INO, b"file").is_ok()),
    ];
    for other in others {
        fs.write(ino, 100, &[2; 64]).unwrap();
        assert_eq!(committed_redos(&fs), 1);
        other();
        assert_eq!(committed_redos(&fs), 0);
    }
    let ino = file(&fs);
    fs.write(ino, 100, &[2; 64]).unwrap();
    fs.write(ino, 104, &[3; 4]).unwrap();
    assert_eq!(
        committed_redos(&fs),
        1,
        "a word is a committed redo record, too, where one is pending"
    );
    fs.close().unwrap();
    assert_eq!(committed_redos(&scratch.open()), 0, "left clean");
}
