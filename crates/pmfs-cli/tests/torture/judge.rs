//! The end: what is in the pool, and that nothing is once it was deleted.

use std::path::Path;

use pmfs::{Fs, RecoveryKind};
use pmfs_admin::Admin;

use crate::face::{Face, Library};
use crate::model::Kind;
use crate::op::{COUNTERS, PLACES, RECORD_BYTES, STAMPS, State, TOKENS};
use crate::shared;

/// Inodes in a block of the inode table.
const INODES_A_BLOCK: u64 = 32;

/// fsck finds nothing.
pub fn assert_sound(fs: &Fs, when: &str) {
    let report = fs.check().expect("check");
    assert!(report.is_clean(), "{when}: {:#?}", report.findings);
}

/// Judges what all left together; `used` blocks were in use in the empty pool. Answers
/// what there was.
pub fn judge(pool: &Path, states: &[State], used: u64) -> String {
    let face = Library::attach(pool).expect("attach");
    let recovery = face.fs().recovery();
    assert_eq!(
        recovery.kind,
        RecoveryKind::None,
        "all had left in order: {recovery}"
    );
    assert_sound(face.fs(), "in the end");
    let records = judge_logs(&face, states);
    for lock in 0..COUNTERS {
        let is = shared::read_counter(&face, lock).expect("a counter");
        let should: Vec<u64> = states.iter().map(|state| state.counted[lock]).collect();
        assert_eq!(is[..], should, "counter {lock}");
    }
    for range in 0..STAMPS.len() {
        shared::read_stamp(&face, range).expect("a range");
    }
    assert_eq!(
        face.list("locks").expect("list"),
        [""; 0],
        "names that one could have"
    );
    for token in 0..TOKENS {
        let is_there = |place: &usize| face.stat(&shared::token_path(*place, token)).is_ok();
        let places: Vec<usize> = (0..PLACES.len()).filter(is_there).collect();
        assert_eq!(places.len(), 1, "token {token} is in {places:?}");
    }
    let report = face.fs().check().expect("check");
    delete_below(&face, "");
    let more = assert_empty(face.fs(), used);
    face.leave().expect("detach");
    let counted: u64 = states.iter().flat_map(|state| state.counted).sum();
    format!(
        "{records:?} records, {counted} counts, {} inodes and {} blocks in the end, {more} blocks of inode table",
        report.inodes, report.blocks
    )
}

/// All logs; how many records there are in each.
pub fn judge_logs(face: &dyn Face, states: &[State]) -> Vec<u64> {
    let logs = 0..RECORD_BYTES.len();
    logs.map(|log| judge_log(face, log, states)).collect()
}

/// All records, whole and in order; how many.
fn judge_log(face: &dyn Face, log: usize, states: &[State]) -> u64 {
    let (path, len) = (shared::log_path(log), RECORD_BYTES[log]);
    let size = face.stat(&path).expect("stat").size;
    assert_eq!(size % len as u64, 0, "{path}: {size} bytes");
    let mut next: Vec<u64> = states.iter().map(|state| state.logs[log].first).collect();
    let skip = |worker: usize, mut number: u64| {
        while states[worker].logs[log].lost.contains(&number) {
            number += 1;
        }
        number
    };
    let part = (4 << 20) / len * len;
    for at in (0..size).step_by(part) {
        let bytes = face.read(&path, at, part).expect("read");
        for (place, record) in bytes.chunks(len).enumerate() {
            let place = at / len as u64 + place as u64;
            let (worker, number) = shared::whose(record)
                .unwrap_or_else(|text| panic!("{path}: record {place}: {text}"));
            let should = skip(worker, next[worker]);
            assert_eq!(number, should, "{path}: record {place}, worker {worker}'s");
            next[worker] = number + 1;
        }
    }
    for (worker, state) in states.iter().enumerate() {
        let is = skip(worker, next[worker]);
        assert_eq!(
            is, state.logs[log].next,
            "{path}: worker {worker}'s records"
        );
    }
    size / len as u64
}

fn delete_below(face: &dyn Face, dir: &str) {
    for name in face.list(dir).expect("list") {
        let path = if dir.is_empty() {
            name
        } else {
            format!("{dir}/{name}")
        };
        let stat = face.stat(&path).expect("stat");
        if face.kind(&path, &stat).expect("kind") == Kind::Dir {
            delete_below(face, &path);
            face.rmdir(&path).expect("rmdir");
        } else {
            face.unlink(&path).expect("unlink");
        }
    }
}

/// Nothing is left but the root directory and what the inode table has grown by, in blocks.
fn assert_empty(fs: &Fs, used: u64) -> u64 {
    assert_sound(fs, "all deleted");
    let report = fs.check().expect("check");
    assert_eq!((report.inodes, report.directories), (1, 1), "all deleted");
    let info = fs.info();
    assert_eq!(
        info.inodes - info.inodes_free,
        made_inodes(),
        "inodes in use"
    );
    let now = info.blocks - info.blocks_free;
    assert_eq!(now, report.blocks, "blocks in use");
    let table = now.saturating_sub(used);
    // The leaves and nodes of the file, and the root directory's buckets.
    assert!(
        table <= info.inodes / INODES_A_BLOCK + 64,
        "{table} blocks are still in use"
    );
    table
}

/// Numbers that are never given out: 0, the table's own, and the root directory's.
fn made_inodes() -> u64 {
    3
}
