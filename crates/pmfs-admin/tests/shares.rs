//! Goal: a wrong count of shares is found, and a repair counts anew. Method: one more, and one
//! less, for a block that files share, and one for a block that has a single leaf.

use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::{Admin, MkfsOptions};

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};
/// The number of the finding.
const SHARES: u32 = 15;

#[test]
fn wrong_counts_are_found_and_mended() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let size = Some(16 << 20);
    let options = MkfsOptions {
        size,
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &options).unwrap();
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    let [one, other] =
        [&b"one"[..], b"other"].map(|name| fs.create(ROOT_INO, name, &NODE).unwrap().ino);
    fs.write(one, 0, &[7; 9 * 4096]).unwrap();
    fs.clone_range((one, 4096), (other, 0), 8 * 4096).unwrap();
    assert!(fs.check().unwrap().is_clean());
    let shared: Vec<u64> = fs.pool().all_shares().map(|(block, _)| block).collect();
    assert_eq!(shared.len(), 8);
    for (block, by) in [(shared[0], 1), (shared[7], -1), (shared[0] - 1, 1)] {
        add(&fs, block, by);
        let report = fs.check().unwrap();
        let numbers: Vec<u32> = report.findings.iter().map(|found| found.number).collect();
        assert_eq!(numbers, [SHARES], "{block} {by}: {:?}", report.findings);
        let repaired = fs.repair().unwrap();
        assert!(repaired.left.is_clean(), "{:?}", repaired.left.findings);
        assert_eq!(repaired.repaired, report.findings);
        assert!(fs.check().unwrap().is_clean());
    }
}

/// Adds to a block's count.
fn add(fs: &Fs, block: u64, by: i64) {
    fs.change(|pool| {
        let mem = pool.pm.mapping();
        let word = pool.pm.annexes().shares_word(mem, block).unwrap();
        let shift = block % 4 * 16;
        let changed = pool.pm.load(word).wrapping_add_signed(by << shift);
        pool.pm.runtime().store(word, changed);
        Ok(())
    })
    .unwrap();
}
