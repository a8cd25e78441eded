//! Defragmenting: small leaves become large ones, sparse regions become whole, and nothing that is
//! seen changes; also while others write.

#[path = "../../pmfs/tests/scratch/mod.rs"]
mod scratch;

use pmfs::{DataMode, FallocateMode, Fs, Ino, OpenOptions, ROOT_INO};
use pmfs_admin::{Admin, DefragReport, Merged};
use scratch::{NODE, Scratch};
use std::sync::atomic::{AtomicBool, Ordering};

const LARGE: u64 = 2 << 20;

fn pool(mib: u64, data: DataMode) -> (Fs, tempfile::TempDir) {
    let Scratch { dir, path } = Scratch::new(mib << 20);
    let options = OpenOptions {
        data,
        ..OpenOptions::default()
    };
    (Fs::open(&path, &options).unwrap(), dir)
}

fn create(fs: &Fs, name: &str) -> Ino {
    fs.create(ROOT_INO, name.as_bytes(), &NODE).unwrap().ino
}

fn pattern(len: u64, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 8) as u8 ^ salt).collect()
}

fn content(fs: &Fs, ino: Ino) -> Vec<u8> {
    let size = fs.getattr(ino).unwrap().size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap() as u64, size);
    bytes
}

fn sound(fs: &Fs) {
    let report = fs.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn run(fs: &Fs) -> DefragReport {
    fs.defrag(false, &mut |_, _| {}).unwrap()
}

/// Two files written in turn, a block each: every other block is the other's.
fn two_in_turn(fs: &Fs, len: u64) -> (Ino, Ino) {
    let (one, other) = (create(fs, "one"), create(fs, "other"));
    for at in (0..len).step_by(4096) {
        for (ino, salt) in [(one, 1), (other, 2)] {
            let bytes = pattern(len, salt);
            fs.write(ino, at, &bytes[at as usize..at as usize + 4096])
                .unwrap();
        }
    }
    (one, other)
}

#[test]
fn small_leaves_become_large_ones() {
    for mode in [DataMode::Atomic, DataMode::Ordered] {
        let (fs, _dir) = pool(64, mode);
        let (one, other) = two_in_turn(&fs, 2 * LARGE + 4096);
        let times = |ino| {
            let attr = fs.getattr(ino).unwrap();
            (attr.size, attr.mtime_ns, attr.ctime_ns)
        };
        let before = times(one);
        assert_eq!(fs.defrag_file(one, true).unwrap().merged, 2);
        assert_eq!(fs.merge(one, LARGE + 5).unwrap(), Merged::Merged);
        assert_eq!(fs.merge(one, LARGE).unwrap(), Merged::Nothing);
        assert_eq!(fs.defrag_file(one, false).unwrap().merged, 1);
        assert_eq!(fs.defrag_file(other, false).unwrap().merged, 2);
        assert_eq!(times(one), before);
        for (ino, salt) in [(one, 1), (other, 2)] {
            let mut should = pattern(2 * LARGE + 4096, salt);
            assert!(content(&fs, ino) == should);
            // A part of one is written over as of any.
            fs.write(ino, LARGE - 1000, &[7; 9000]).unwrap();
            should[LARGE as usize - 1000..LARGE as usize + 8000].fill(7);
            assert!(content(&fs, ino) == should);
        }
        sound(&fs);
    }
}

#[test]
fn unwritten_leaves_and_holes() {
    let (fs, _dir) = pool(64, DataMode::Atomic);
    let ino = create(&fs, "file");
    // Blocks one by one: the file's first 2 MiB are asked for in two parts.
    for part in [0, LARGE / 2] {
        fs.fallocate(ino, FallocateMode::empty(), part, LARGE / 2)
            .unwrap();
    }
    fs.write(ino, 70_000, b"some").unwrap();
    let should = content(&fs, ino);
    assert_eq!(fs.merge(ino, 0).unwrap(), Merged::Merged);
    assert!(content(&fs, ino) == should);
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    fs.fallocate(ino, punch, 8192, 4096).unwrap();
    assert_eq!(fs.merge(ino, 0).unwrap(), Merged::Nothing);
    assert!(content(&fs, ino) == should);
    sound(&fs);
}

#[test]
fn who_has_it_mapped_is_not_disturbed() {
    let (fs, _dir) = pool(64, DataMode::Atomic);
    let (one, other) = two_in_turn(&fs, LARGE);
    fs.hold(one).unwrap();
    fs.pin(one, true).unwrap();
    let before = fs.blocks(one, 0, LARGE, 0).unwrap();
    assert_eq!(fs.merge(one, 0).unwrap(), Merged::Busy);
    // Once as a file to be merged, and once more if it has blocks in a region that is to be
    // emptied.
    assert!((1..=2).contains(&run(&fs).busy));
    assert_eq!(fs.blocks(one, 0, LARGE, 0).unwrap(), before);
    fs.unpin(one).unwrap();
    assert_eq!(fs.merge(one, 0).unwrap(), Merged::Merged);
    assert_eq!(fs.merge(other, 0).unwrap(), Merged::Nothing, "before");
    sound(&fs);
}

/// Many small files, most of which go: what is left is packed.
#[test]
fn sparse_regions_become_whole() {
    let (fs, _dir) = pool(64, DataMode::Atomic);
    let bytes = |name: usize| pattern(12_000, name as u8);
    for name in 0..3000 {
        let ino = create(&fs, &format!("{name}"));
        fs.write(ino, 0, &bytes(name)).unwrap();
    }
    let stays = |name: &usize| name.is_multiple_of(10);
    for name in (0..3000).filter(|name| !stays(name)) {
        fs.unlink(ROOT_INO, format!("{name}").as_bytes()).unwrap();
    }
    let before = fs.details().free;
    let would = fs.defrag(true, &mut |_, _| {}).unwrap();
    assert_eq!(fs.details().free, before, "a dry run");
    let report = run(&fs);
    assert_eq!(report.regions, would.regions);
    let after = fs.details().free;
    assert_eq!(after.small, before.small);
    // The number of them depends on where directories and the inode table have blocks, which stay.
    assert!(
        after.large >= before.large + report.regions && report.regions >= 3,
        "{before:?} {report:?} {after:?}"
    );
    for name in (0..3000).filter(stays) {
        let ino = fs
            .lookup(ROOT_INO, format!("{name}").as_bytes())
            .unwrap()
            .ino;
        assert!(content(&fs, ino) == bytes(name), "{name}");
    }
    sound(&fs);
}

/// One thread writes, one reads, one defragments.
#[test]
fn others_go_on_meanwhile() {
    let (fs, _dir) = pool(64, DataMode::Atomic);
    let (one, other) = two_in_turn(&fs, 2 * LARGE);
    let (done, some) = (AtomicBool::new(false), AtomicBool::new(false));
    let should = pattern(2 * LARGE, 2);
    let merged = std::thread::scope(|scope| {
        scope.spawn(|| {
            // On a busy machine until the others have had their turn.
            for round in 0..50_000u64 {
                if round >= 500 && some.load(Ordering::Relaxed) {
                    break;
                }
                let at = round * 7919 % (2 * LARGE - 8192);
                fs.write(one, at, &[round as u8; 5000]).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(content(&fs, other) == should);
            }
        });
        let mut merged = 0;
        while !done.load(Ordering::Relaxed) {
            merged += run(&fs).merged;
            some.store(merged > 0, Ordering::Relaxed);
        }
        merged
    });
    assert!(merged > 0);
    assert!(content(&fs, other) == should);
    sound(&fs);
}
