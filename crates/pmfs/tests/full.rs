//! A full pool: no space, no loss, and every call that makes room succeeds. Emptied, it is as it
//! was.

mod scratch;

use pmfs::{
    Error, FallocateMode, Fs, Ino, OpenOptions, ROOT_INO, RenameFlags, SetAttr, XattrFlags,
};
use pmfs_admin::{Admin, MkfsOptions};
use scratch::{NODE, Scratch};

fn pool(size: u64, inodes: Option<u64>) -> (Fs, tempfile::TempDir) {
    let Scratch { dir, path } = Scratch::with(MkfsOptions {
        size: Some(size),
        inodes,
        ..MkfsOptions::default()
    });
    (Fs::open(&path, &OpenOptions::default()).unwrap(), dir)
}

/// Writes to one file until nothing more goes in, in ever smaller pieces. Answers its length.
fn fill(fs: &Fs, ino: Ino) -> u64 {
    let mut len = fs.getattr(ino).unwrap().size;
    let mut piece = vec![0x5a; 1 << 20];
    while !piece.is_empty() {
        match fs.write(ino, len, &piece) {
            Ok(n) if n > 0 => len += n as u64,
            Ok(_) => panic!("a write that writes nothing says why"),
            Err(Error::NoSpace) => piece.truncate(piece.len() / 2),
            Err(error) => panic!("{error}"),
        }
    }
    len
}

fn sound(fs: &Fs) {
    let report = fs.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// A full pool: the root's files, one of them big, which fills it up.
struct Full {
    fs: Fs,
    big: Ino,
    len: u64,
    small: Ino,
    _dir: tempfile::TempDir,
}

fn full() -> Full {
    let (fs, dir) = pool(16 << 20, None);
    let small = fs.create(ROOT_INO, b"small", &NODE).unwrap().ino;
    fs.write(small, 0, &[1; 100_000]).unwrap();
    fs.setxattr(small, b"user.x", &[2; 9000], XattrFlags::empty())
        .unwrap();
    fs.create(ROOT_INO, b"other", &NODE).unwrap();
    fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap();
    let sub = fs.mkdir(ROOT_INO, b"sub", &NODE).unwrap().ino;
    for n in 0..100 {
        fs.create(sub, format!("name-{n}").as_bytes(), &NODE)
            .unwrap();
    }
    let big = fs.create(ROOT_INO, b"big", &NODE).unwrap().ino;
    let len = fill(&fs, big);
    assert_eq!(
        fs.statfs().unwrap().blocks_free,
        0,
        "what statfs says is free can be had"
    );
    Full {
        fs,
        big,
        len,
        small,
        _dir: dir,
    }
}

fn size(ino_size: u64) -> SetAttr {
    SetAttr {
        size: Some(ino_size),
        ..SetAttr::default()
    }
}

/// The name of a call, and the call on a full pool.
type Shrinking = (&'static str, fn(&Full) -> pmfs::Result<()>);

const SHRINKING: &[Shrinking] = &[
    ("unlink", |full| full.fs.unlink(ROOT_INO, b"big")),
    ("unlink of a small file", |full| {
        full.fs.unlink(ROOT_INO, b"small")
    }),
    ("rmdir", |full| full.fs.rmdir(ROOT_INO, b"dir")),
    ("truncate to nothing", |full| {
        full.fs.setattr(full.big, &size(0)).map(drop)
    }),
    ("truncate within a block", |full| {
        full.fs
            .setattr(full.big, &size(full.len / 2 + 77))
            .map(drop)
    }),
    ("truncate to a block", |full| {
        full.fs.setattr(full.big, &size(1 << 20)).map(drop)
    }),
    ("punch", |full| {
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        full.fs.fallocate(full.big, mode, 4096 * 100, 4096 * 50)
    }),
    ("punch within blocks", |full| {
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        full.fs.fallocate(full.big, mode, 1000, 100_000)
    }),
    ("rename over", |full| {
        full.fs
            .rename(ROOT_INO, b"other", ROOT_INO, b"big", RenameFlags::empty())
    }),
    ("rename to a new name", |full| {
        full.fs.rename(
            ROOT_INO,
            b"other",
            ROOT_INO,
            b"another",
            RenameFlags::empty(),
        )
    }),
    ("removexattr", |full| {
        full.fs.removexattr(full.small, b"user.x")
    }),
    ("overwrite", |full| {
        full.fs.write(full.big, 5000, &[3; 20_000]).map(drop)
    }),
    ("chmod", |full| {
        let mode = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        full.fs.setattr(full.big, &mode).map(drop)
    }),
];

#[test]
fn every_call_that_makes_room_succeeds() {
    for (name, call) in SHRINKING {
        let full = full();
        if let Err(error) = call(&full) {
            panic!("{name} on a full pool: {error}");
        }
        sound(&full.fs);
        full.fs.close().unwrap();
    }
}

#[test]
fn nothing_is_lost_when_there_is_no_space() {
    let full = full();
    let fs = &full.fs;
    let mut before = vec![0; full.len as usize];
    fs.read(full.big, 0, &mut before).unwrap();
    assert!(matches!(
        fs.append(full.big, &[1; 5000]),
        Err(Error::NoSpace)
    ));
    assert!(matches!(
        fs.write(full.big, 1 << 40, b"far"),
        Err(Error::NoSpace)
    ));
    let set = fs.setxattr(full.big, b"user.big", &[1; 60_000], XattrFlags::empty());
    assert!(set.is_err());
    let mut refused = 0;
    for n in 0..200_000 {
        match fs.mkdir(ROOT_INO, format!("d{n}").as_bytes(), &NODE) {
            Ok(_) => {}
            Err(Error::NoSpace | Error::NoInodes) => {
                refused += 1;
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 1, "names take space too");
    let mut after = vec![0; full.len as usize];
    fs.read(full.big, 0, &mut after).unwrap();
    assert!(before == after);
    assert_eq!(fs.getattr(full.big).unwrap().size, full.len);
    sound(fs);
}

#[test]
fn filled_and_emptied_again_and_again_nothing_leaks() {
    let (fs, _dir) = pool(16 << 20, None);
    let empty = fs.statfs().unwrap();
    let mut lengths = Vec::new();
    for _ in 0..5 {
        let big = fs.create(ROOT_INO, b"big", &NODE).unwrap().ino;
        lengths.push(fill(&fs, big));
        fs.unlink(ROOT_INO, b"big").unwrap();
    }
    assert!(
        lengths.windows(2).all(|two| two[0] == two[1]),
        "{lengths:?}"
    );
    let again = fs.statfs().unwrap();
    assert!(
        empty.blocks_free - again.blocks_free <= 2,
        "{empty:?} {again:?}"
    );
    assert_eq!(empty.inodes_free, again.inodes_free);
    sound(&fs);
}

#[test]
fn out_of_inodes_and_back() {
    let (fs, _dir) = pool(4 << 20, Some(64));
    for round in 0..3 {
        let mut names = Vec::new();
        loop {
            let name = format!("f{}", names.len());
            match fs.create(ROOT_INO, name.as_bytes(), &NODE) {
                Ok(_) => names.push(name),
                Err(Error::NoInodes) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(names.len() > 50, "round {round}: {}", names.len());
        assert!(matches!(
            fs.mkdir(ROOT_INO, b"d", &NODE),
            Err(Error::NoInodes)
        ));
        assert!(matches!(
            fs.symlink(ROOT_INO, b"s", b"t", &NODE),
            Err(Error::NoInodes)
        ));
        // Names cost none.
        let first = fs.lookup(ROOT_INO, b"f0").unwrap().ino;
        fs.link(first, ROOT_INO, b"link").unwrap();
        fs.unlink(ROOT_INO, b"link").unwrap();
        for name in &names {
            fs.unlink(ROOT_INO, name.as_bytes()).unwrap();
        }
    }
    sound(&fs);
}

/// Goal: there can be as many open files and file locks as mkfs was told.
#[test]
fn tables_as_large_as_they_are_wanted() {
    let wanted = 20_000;
    let scratch = Scratch::with(MkfsOptions {
        size: Some(64 << 20),
        open_files: Some(wanted),
        ..MkfsOptions::default()
    });
    let fs = scratch.open();
    let info = fs.info();
    assert!(info.open_files >= wanted && info.file_locks >= wanted / 2);
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let files: Vec<_> = (0..wanted).map(|_| fs.open_file(ino, 0)).collect();
    for file in files {
        fs.close_file(file.unwrap()).unwrap();
    }
    fs.close().unwrap();
    assert!(scratch.open().check().unwrap().is_clean());
    let small = scratch.dir.path().join("small");
    let options = MkfsOptions {
        size: Some(1 << 20),
        open_files: Some(1 << 40),
        ..MkfsOptions::default()
    };
    assert!(matches!(
        pmfs_admin::mkfs(&small, &options),
        Err(Error::Geometry(_))
    ));
}
