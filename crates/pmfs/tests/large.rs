//! The cases in which files have pages of 2 MiB: by option, by fallocate, by truncate, by growth.

mod scratch;

use pmfs::{DataMode, FallocateMode, Fs, Ino, LargePages, OpenOptions, ROOT_INO, SetAttr};
use pmfs_admin::{Admin, FilePages};
use scratch::{NODE, Scratch};

const LARGE: u64 = 2 << 20;

fn with_file(large: LargePages, data: DataMode, body: impl FnOnce(&Fs, Ino)) {
    let Scratch { dir: _dir, path } = Scratch::new(64 << 20);
    let options = OpenOptions {
        data,
        large,
        ..OpenOptions::default()
    };
    let fs = Fs::open(&path, &options).unwrap();
    body(&fs, fs.create(ROOT_INO, b"file", &NODE).unwrap().ino);
    let report = fs.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn pages(small: u64, large: u64) -> FilePages {
    FilePages {
        small,
        large,
        huge: 0,
    }
}

/// 20 MiB in pieces of 64 KiB.
fn grown(large: LargePages, data: DataMode) -> FilePages {
    let mut found = FilePages::default();
    with_file(large, data, |fs, ino| {
        for _ in 0..20 * 16 {
            fs.append(ino, &[1; 64 << 10]).unwrap();
        }
        found = fs.pages(ino).unwrap();
    });
    found
}

#[test]
fn by_growth() {
    for data in [DataMode::Atomic, DataMode::Ordered] {
        assert_eq!(grown(LargePages::Never, data), pages(5120, 0));
        assert_eq!(grown(LargePages::Grow, data), pages(4096, 2));
        assert_eq!(grown(LargePages::Always, data), pages(512, 9));
    }
}

#[test]
fn by_writes_of_2_mib() {
    for data in [DataMode::Atomic, DataMode::Ordered] {
        for (large, should) in [
            (LargePages::Never, pages(1024, 0)),
            (LargePages::Grow, pages(0, 2)),
            (LargePages::Always, pages(0, 2)),
        ] {
            with_file(large, data, |fs, ino| {
                fs.write(ino, 0, &vec![1; 2 * LARGE as usize]).unwrap();
                assert_eq!(fs.pages(ino).unwrap(), should, "{large:?} {data:?}");
            });
        }
    }
}

#[test]
fn by_fallocate_whatever_the_option() {
    for large in [LargePages::Never, LargePages::Grow, LargePages::Always] {
        with_file(large, DataMode::Atomic, |fs, ino| {
            fs.fallocate(ino, FallocateMode::empty(), 0, 3 * LARGE + 8192)
                .unwrap();
            assert_eq!(fs.pages(ino).unwrap(), pages(2, 3));
        });
    }
}

/// Made longer by truncate: large pages come when they are touched, and only whole ones.
#[test]
fn by_truncate_when_touched() {
    for data in [DataMode::Atomic, DataMode::Ordered] {
        for (large, should) in [
            (LargePages::Grow, pages(2, 0)),
            (LargePages::Always, pages(1, 1)),
        ] {
            with_file(large, data, |fs, ino| {
                let size = 3 * LARGE + 8192;
                let set = SetAttr {
                    size: Some(size),
                    ..SetAttr::default()
                };
                fs.setattr(ino, &set).unwrap();
                assert_eq!(fs.pages(ino).unwrap(), pages(0, 0));
                fs.write(ino, LARGE + 5000, b"touched").unwrap();
                fs.write(ino, 3 * LARGE, b"the end").unwrap();
                assert_eq!(fs.pages(ino).unwrap(), should, "{large:?} {data:?}");
                let mut should = vec![0; size as usize];
                should[LARGE as usize + 5000..][..7].copy_from_slice(b"touched");
                should[3 * LARGE as usize..][..7].copy_from_slice(b"the end");
                let mut bytes = vec![1; size as usize];
                fs.read(ino, 0, &mut bytes).unwrap();
                assert!(bytes == should);
            });
        }
    }
}
