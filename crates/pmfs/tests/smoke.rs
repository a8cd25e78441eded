//! The calls, once each, on a small pool; then closed, opened and checked.

mod scratch;

use pmfs::{
    FallocateMode, Fs, Ino, NewNode, OpenOptions, ROOT_INO, RenameFlags, SetAttr, XattrFlags,
};
use pmfs_admin::Admin;
use scratch::Scratch;

const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 1,
    gid: 2,
};

fn open(pool: &Scratch) -> Fs {
    Fs::open(&pool.path, &OpenOptions::default()).expect("open")
}

fn assert_sound(fs: &Fs) {
    let report = fs.check().expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn names_and_data_survive_a_close() {
    let pool = Scratch::new(32 << 20);
    let fs = open(&pool);
    assert_sound(&fs);
    let file = fs.create(ROOT_INO, b"file", &NODE).expect("create").ino;
    assert_sound(&fs);
    assert_eq!(fs.write(file, 0, b"hello").expect("write"), 5);
    assert_eq!(fs.append(file, b", world").expect("append"), (5, 7));
    let long = vec![7u8; 3 << 20];
    fs.write(file, 100_000, &long).expect("write");
    assert_sound(&fs);
    fs.write(file, 100_001, &long[..5000]).expect("overwrite");
    fs.write(file, 100_003, b"abc").expect("overwrite");
    fs.write(file, 3_000_000, &long[..1 << 20])
        .expect("straddle");
    assert_sound(&fs);
    fs.fallocate(
        file,
        FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE,
        5000,
        200_000,
    )
    .expect("punch");
    assert_sound(&fs);
    let dir = names(&fs, file);
    fs.setxattr(file, b"user.a", &[1; 9000], XattrFlags::empty())
        .expect("setxattr");
    fs.setattr(
        file,
        &SetAttr {
            size: Some(50_000),
            mode: Some(0o600),
            ..SetAttr::default()
        },
    )
    .expect("setattr");
    fs.setattr(
        file,
        &SetAttr {
            size: Some(5_000_000),
            ..SetAttr::default()
        },
    )
    .expect("extend");
    let unlinked = fs.create(ROOT_INO, b"gone", &NODE).expect("create").ino;
    fs.hold(unlinked).expect("hold");
    fs.unlink(ROOT_INO, b"gone").expect("unlink");
    fs.write(unlinked, 0, &long)
        .expect("write to an unlinked file");
    assert_sound(&fs);
    fs.release(unlinked).expect("release");
    assert_sound(&fs);
    fs.close().expect("close");
    reopen(&pool, file, dir);
}

/// A directory of many names, some removed, moved, replaced and exchanged.
fn names(fs: &Fs, file: Ino) -> Ino {
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).expect("mkdir").ino;
    for n in 0..2000 {
        let name = format!("name-{n:05}");
        fs.create(dir, name.as_bytes(), &NODE).expect("create");
    }
    assert_sound(fs);
    for n in (0..2000).step_by(3) {
        fs.unlink(dir, format!("name-{n:05}").as_bytes())
            .expect("unlink");
    }
    fs.rename(ROOT_INO, b"file", dir, b"moved", RenameFlags::empty())
        .expect("rename");
    fs.link(file, ROOT_INO, b"again").expect("link");
    fs.rename(dir, b"moved", dir, b"name-00001", RenameFlags::empty())
        .expect("rename over");
    fs.rename(
        dir,
        b"name-00001",
        dir,
        b"name-00002",
        RenameFlags::EXCHANGE,
    )
    .expect("exchange");
    fs.symlink(ROOT_INO, b"sym", &[b'x'; 200], &NODE)
        .expect("symlink");
    dir
}

/// Checks what a clean close and an unclean end keep.
fn reopen(pool: &Scratch, file: Ino, dir: Ino) {
    let fs = open(pool);
    assert_eq!(fs.recovery().kind, pmfs::RecoveryKind::None);
    assert_sound(&fs);
    let attr = fs.lookup(ROOT_INO, b"again").expect("lookup");
    assert_eq!((attr.ino, attr.size, attr.links), (file, 5_000_000, 2));
    let mut buffer = vec![1; 5_000_000];
    assert_eq!(fs.read(file, 0, &mut buffer).expect("read"), buffer.len());
    assert_eq!(&buffer[..12], b"hello, world");
    assert!(buffer[12..].iter().all(|&byte| byte == 0));
    assert_eq!(fs.getxattr(file, b"user.a").expect("getxattr"), [1; 9000]);
    let mut names = 0;
    fs.readdir(dir, 0, &mut |_| {
        names += 1;
        true
    })
    .expect("readdir");
    assert_eq!(names, 2000 - 667 + 2);
    drop(fs);

    // Dropped without a close: as a killed process leaves it.
    let fs = open(pool);
    assert_eq!(fs.recovery().kind, pmfs::RecoveryKind::Slots);
    assert_sound(&fs);
}
