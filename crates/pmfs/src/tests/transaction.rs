//! Transactions on a medium that fails.

use crate::Fs;
use crate::purpose::{Claim, Purpose};
use crate::scratch::Scratch;
use pm_journal::Transaction;

/// Two blocks that nobody has; the second is to be bad.
const SOUND: u64 = 8 << 20;
const BAD: u64 = SOUND + 4096;

/// A pool whose two blocks hold sevens.
fn opened() -> (Fs, Scratch) {
    let scratch = Scratch::new(16 << 20);
    let fs = scratch.open();
    let window = fs.mapping().window();
    for off in [SOUND, BAD] {
        fs.mapping().write(off, &[7; 8]);
    }
    drop(window);
    (fs, scratch)
}

fn is_poisoned(fs: &Fs) -> bool {
    let poisoned = fs.mapping().poison(BAD);
    if let Err(error) = &poisoned {
        eprintln!("skipped: no UFFDIO_POISON here: {error}");
    }
    poisoned.is_ok()
}

/// Goal: others in the pool find nothing of a transaction that lost a store after its seal.
#[test]
fn a_transaction_that_lost_a_store_is_undone_at_once() {
    let (fs, scratch) = opened();
    let other = scratch.open();
    let lane = Claim::new(fs.pool());
    let mut tx = Transaction::begin(&lane);
    let ranges = [tx.log(SOUND, 8), tx.log(BAD, 8)];
    let mut tx = tx.seal();
    lane.intend(SOUND, Purpose::Word { off: SOUND }).unwrap();
    if !is_poisoned(&fs) {
        return;
    }
    for range in &ranges {
        tx.set(range, 0, 8);
    }
    assert_eq!(other.mapping().load(SOUND), 8);
    tx.commit();
    drop(lane);
    assert_eq!(other.mapping().load(SOUND), 7);
    // A block is still in question: no other gets the lane until its process is gone; then it
    // is as any other lane.
    let lanes = 0..other.pool().geometry.lanes;
    let held = |fs: &Fs| {
        let pool = fs.pool();
        let lines = lanes.clone().map(|lane| pool.geometry.lane_line(lane));
        lines.filter(|&line| pool.pm.load(line) != 0).count()
    };
    assert_eq!(held(&other), 1);
    fs.close().unwrap();
    other.recover_dead().unwrap();
    assert_eq!((held(&other), other.mapping().load(SOUND)), (0, 7));
    assert!(scratch.is_sound());
}

/// Goal: no undo puts zeros in the place of words that could not be read for the log.
#[test]
fn a_log_without_its_old_bytes_is_none() {
    let (fs, scratch) = opened();
    if !is_poisoned(&fs) {
        return;
    }
    let pool = fs.pool();
    let lane = Claim::new(pool);
    let mut tx = Transaction::begin(&lane);
    let ranges = [tx.log(SOUND, 8), tx.log(BAD, 8)];
    let mut tx = tx.seal();
    for range in &ranges {
        tx.set(range, 0, 8);
    }
    tx.commit();
    assert!(pool.pm.intact().is_err());
    assert_eq!(pool.pm.load(SOUND), 7, "nothing of it is done");
    std::mem::forget(lane);
    drop(fs);
    let fs = scratch.open();
    assert_eq!([SOUND, BAD].map(|off| fs.mapping().load(off)), [7, 7]);
}
