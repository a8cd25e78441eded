//! Goal: a wrong count of shares is found, and a repair counts anew. Method: one more, and one
//! less, for a block that files share, and one for a block that has a single leaf.
//!
//! Goal: a lost mark of a leaf or of a root word costs no file its content. Method: each mark of
//! three files is taken away, alone, and the pool is repaired.
//!
//! Goal: a file whose word names the shared blocks of others, by a damaged address, is cut there
//! and shows nothing of theirs. Method: such a word in a file before and behind the sharers.

use pmfs::parts::inode::Inode;
use pmfs::parts::tree::visit::{Piece, Visitor};
use pmfs::{Fs, Ino, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::{Admin, Finding, MkfsOptions};

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};
/// The number of the finding.
const SHARES: u32 = 15;

fn pool() -> (tempfile::TempDir, Fs) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let size = Some(16 << 20);
    let options = MkfsOptions {
        size,
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &options).unwrap();
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    (dir, fs)
}

#[test]
fn wrong_counts_are_found_and_mended() {
    let (_dir, fs) = pool();
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

/// The places of the words of files that have a mark.
#[derive(Default)]
struct Marks(Vec<u64>);

impl Visitor for Marks {
    fn piece(&mut self, piece: Piece) -> bool {
        if piece.shared {
            self.0.push(piece.slot);
        }
        // The leaves of a shared node belong to all of its files.
        piece.level == 0 || !piece.shared
    }

    fn damage(&mut self, error: pmfs::Error) {
        panic!("{error}");
    }
}

/// Has repair mend what check finds; answers that.
fn mended(fs: &Fs) -> Vec<Finding> {
    let found = fs.check().unwrap().findings;
    assert!(!found.is_empty());
    let repaired = fs.repair().unwrap();
    assert!(
        repaired.left.is_clean(),
        "{found:?}: {:?}",
        repaired.left.findings
    );
    found
}

/// Takes each mark of these files away, alone; answers how many there were.
fn lose_marks(fs: &Fs, inos: &[Ino], content: &[u8]) -> usize {
    let mut marks = Marks::default();
    for &ino in inos {
        let inode = Inode::load(fs.pool(), ino).unwrap();
        inode.tree().visit(fs.pool(), &mut marks);
    }
    for &slot in &marks.0 {
        fs.change(|pool| {
            let _window = pool.pm.mapping().window();
            let word = pool.pm.load(slot) & !pmfs_format::tree::SHARED;
            pool.pm.mapping().store(slot, word);
            Ok(())
        })
        .unwrap();
        let found = mended(fs);
        for &ino in inos {
            let mut bytes = vec![0; content.len()];
            assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), content.len());
            assert!(bytes == content, "inode {ino}: {found:?}");
        }
    }
    marks.0.len()
}

#[test]
fn lost_marks_are_set_again() {
    let content: Vec<u8> = (0..9 * 4096_u32).map(|at| (at / 4096) as u8 + 1).collect();
    let len = content.len() as u64;
    for (first, expected) in [(4096, 27), (len, 3)] {
        let (_dir, fs) = pool();
        let inos = [&b"one"[..], b"two", b"three"]
            .map(|name| fs.create(ROOT_INO, name, &NODE).unwrap().ino);
        fs.write(inos[0], 0, &content).unwrap();
        for ino in &inos[1..] {
            // A part shares leaves, and a whole file its node.
            fs.clone_range((inos[0], 0), (*ino, 0), first).unwrap();
            if first < len {
                let rest = len - first;
                fs.clone_range((inos[0], first), (*ino, first), rest)
                    .unwrap();
            }
        }
        assert_eq!(lose_marks(&fs, &inos, &content), expected);
        assert!(fs.check().unwrap().is_clean());
    }
}

/// The only word of a small file.
fn word_of(fs: &Fs, ino: Ino) -> (u64, u64) {
    let inode = Inode::load(fs.pool(), ino).unwrap();
    let tree = inode.tree();
    (tree.slot, tree.root.0)
}

#[test]
fn a_stray_address_is_no_lost_mark() {
    for (before, sharers) in [(true, 2), (false, 2), (true, 3), (false, 3)] {
        let (_dir, fs) = pool();
        let create = |name: String| fs.create(ROOT_INO, name.as_bytes(), &NODE).unwrap().ino;
        let mut stray = before.then(|| create("stray".into()));
        let inos: Vec<Ino> = (0..sharers).map(|at| create(format!("{at}"))).collect();
        let stray = *stray.get_or_insert_with(|| create("stray".into()));
        fs.write(stray, 0, &[1; 4096]).unwrap();
        fs.write(inos[0], 0, &[2; 4096]).unwrap();
        for &ino in &inos[1..] {
            fs.clone_range((inos[0], 0), (ino, 0), 0).unwrap();
        }
        let shared = word_of(&fs, inos[1]).1 & !pmfs_format::tree::SHARED;
        let slot = word_of(&fs, stray).0;
        fs.change(|pool| {
            let _window = pool.pm.mapping().window();
            pool.pm.mapping().store(slot, shared);
            Ok(())
        })
        .unwrap();
        let found = mended(&fs);
        let mut bytes = [9; 4096];
        fs.read(stray, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4096], "{before} {sharers}: {found:?}");
        for &ino in &inos {
            fs.read(ino, 0, &mut bytes).unwrap();
            assert_eq!(bytes, [2; 4096], "{before} {sharers}: {found:?}");
        }
    }
}
