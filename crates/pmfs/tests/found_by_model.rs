//! The faults that the reference model found in the engine, each as the fewest calls that showed
//! it.

mod scratch;

use pmfs::{
    DataMode, FallocateMode, Fs, Ino, NewNode, OpenOptions, ROOT_INO, RenameFlags, SetAttr,
};
use pmfs_admin::Admin;
use scratch::Scratch;

const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 1,
    gid: 2,
};

/// Calls `work` on a file in a new pool, which is sound afterwards.
fn with_file(bytes: u64, data: DataMode, work: impl FnOnce(&Fs, Ino)) {
    let Scratch { dir: _dir, path } = Scratch::new(bytes);
    let options = OpenOptions {
        data,
        ..OpenOptions::default()
    };
    let fs = Fs::open(&path, &options).expect("open");
    let file = fs.create(ROOT_INO, b"file", &NODE).expect("create").ino;
    work(&fs, file);
    let report = fs.check().expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn assert_holds(fs: &Fs, file: Ino, at: u64, data: &[u8]) {
    let mut buffer = vec![0; data.len()];
    assert_eq!(fs.read(file, at, &mut buffer).expect("read"), data.len());
    assert!(buffer == data, "other bytes than were written");
}

/// The root word was not read again after its leaf had been marked written: the first block was
/// lost.
#[test]
fn an_append_fills_an_allocated_block_and_goes_on() {
    with_file(16 << 20, DataMode::Atomic, |fs, file| {
        fs.fallocate(file, FallocateMode::KEEP_SIZE, 0, 4096)
            .expect("fallocate");
        fs.append(file, &[7; 9740]).expect("append");
        assert_holds(fs, file, 0, &[7; 9740]);
    });
}

/// The fault is as above, in place: the old block, already freed, came back into the tree, and the
/// new one leaked.
#[test]
fn an_ordered_overwrite_fills_the_only_block_and_goes_on() {
    with_file(16 << 20, DataMode::Ordered, |fs, file| {
        fs.fallocate(file, FallocateMode::empty(), 0, 100)
            .expect("fallocate");
        let set = SetAttr {
            size: Some(12173),
            ..SetAttr::default()
        };
        fs.setattr(file, &set).expect("setattr");
        fs.write(file, 3910, &[9; 8193]).expect("write");
        assert_holds(fs, file, 3910, &[9; 8193]);
    });
}

/// Each block took a record of the lane, which has 48 in a small pool.
#[test]
fn a_small_pool_zeroes_and_allocates_a_megabyte() {
    with_file(16 << 20, DataMode::Atomic, |fs, file| {
        fs.fallocate(file, FallocateMode::ZERO_RANGE, 0, 1 << 20)
            .expect("zero");
        fs.fallocate(file, FallocateMode::empty(), 1 << 20, 1 << 20)
            .expect("allocate");
    });
}

/// A lookup that found the old inode just before a rename took its name answered that there was
/// none.
#[test]
fn a_name_that_is_renamed_over_is_never_missing() {
    const TIMES: u32 = 20_000;
    with_file(16 << 20, DataMode::Atomic, |fs, _| {
        let replace = || {
            for _ in 0..TIMES {
                fs.create(ROOT_INO, b"new", &NODE).expect("create");
                fs.rename(ROOT_INO, b"new", ROOT_INO, b"file", RenameFlags::empty())
                    .expect("rename");
            }
        };
        std::thread::scope(|scope| {
            let writer = scope.spawn(replace);
            while !writer.is_finished() {
                fs.lookup(ROOT_INO, b"file").expect("lookup");
            }
        });
    });
}

/// The bytes past the largest size were not copied, but counted when the ranges were compared.
#[test]
fn a_copy_to_the_largest_offsets_is_cut_before_ranges_are_compared() {
    const SIZE_MAX: u64 = 1 << 48;
    with_file(16 << 20, DataMode::Atomic, |fs, file| {
        let set = SetAttr {
            size: Some(SIZE_MAX),
            ..SetAttr::default()
        };
        fs.setattr(file, &set).expect("setattr");
        fs.write(file, 0, b"here").expect("write");
        let copied = fs.copy_range(file, 0, file, SIZE_MAX - 4, SIZE_MAX);
        assert_eq!(copied.expect("copy_range"), 4);
        assert_holds(fs, file, SIZE_MAX - 4, b"here");
    });
}
