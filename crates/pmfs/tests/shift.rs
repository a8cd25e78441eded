//! Goal: a range is taken out of a file, or put in, without a byte of data moving, at any depth of
//! the tree; and a file whose nodes can't be had is left as it is. Method: contents against a
//! vector, pmem's counters around the call, the engine's own check after it.

use pmem::counters::snapshot;
use pmfs::{Error, FallocateMode, Fs, Ino, NewNode, OpenOptions, ROOT_INO, SetAttr};
use pmfs_admin::{Admin, MkfsOptions};

const NODE: NewNode = NewNode {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
};
const BLOCK: u64 = 4096;
const LARGE: u64 = 2 << 20;

fn pool(bytes: u64) -> Fs {
    // One key, so that directories split, and space is scattered, in the same way each time.
    let options = MkfsOptions {
        hash_key: Some([5, 6]),
        ..MkfsOptions::default()
    };
    let image = pmfs_admin::format_private(pmem::Pmem::private(bytes), &options);
    Fs::open_private(image.expect("mkfs"), &OpenOptions::default()).expect("open")
}

fn file(fs: &Fs, content: &[u8]) -> Ino {
    let ino = fs.create(ROOT_INO, b"file", &NODE).expect("create").ino;
    assert_eq!(fs.write(ino, 0, content).expect("write"), content.len());
    ino
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 512 + at / BLOCK * 7) as u8)
        .collect()
}

fn assert_content(fs: &Fs, ino: Ino, expected: &[u8]) {
    let attr = fs.getattr(ino).expect("getattr");
    assert_eq!(attr.size, expected.len() as u64);
    let mut content = vec![0xee; expected.len()];
    assert_eq!(fs.read(ino, 0, &mut content).expect("read"), expected.len());
    let first = content.iter().zip(expected).position(|(is, be)| is != be);
    assert_eq!(first, None, "of {} bytes", expected.len());
    let report = fs.check().expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn moved_data_is_not_copied() {
    let fs = pool(64 << 20);
    let mut content = pattern(9 * LARGE + 5000);
    let ino = file(&fs, &content);
    for (at, len) in [(3 * BLOCK, 5 * BLOCK), (0, BLOCK), (4 * LARGE, 700 * BLOCK)] {
        let before = snapshot();
        fs.insert_range(ino, at, len).expect("insert");
        let written = (snapshot() - before).nt_bytes;
        assert!(written <= 14 * BLOCK, "{written} bytes written by insert");
        content.splice(at as usize..at as usize, vec![0; len as usize]);
        assert_content(&fs, ino, &content);
    }
    for (at, len) in [
        (0, BLOCK),
        (4 * LARGE - BLOCK, 700 * BLOCK),
        (BLOCK, 7 * LARGE),
    ] {
        let before = snapshot();
        fs.collapse_range(ino, at, len).expect("collapse");
        let written = (snapshot() - before).nt_bytes;
        assert!(written <= 14 * BLOCK, "{written} bytes written by collapse");
        content.drain(at as usize..(at + len) as usize);
        assert_content(&fs, ino, &content);
    }
}

#[test]
fn large_leaves_stay_or_are_split() {
    let fs = pool(64 << 20);
    let ino = fs.create(ROOT_INO, b"file", &NODE).expect("create").ino;
    fs.fallocate(ino, FallocateMode::empty(), 0, 4 * LARGE)
        .expect("fallocate");
    let mut content = pattern(4 * LARGE);
    // The last leaf stays unwritten.
    content[3 * LARGE as usize..].fill(0);
    // A write over several large leaves would replace them by small ones.
    for (at, piece) in (0..).zip(content[..3 * LARGE as usize].chunks(LARGE as usize)) {
        fs.write(ino, at * LARGE, piece).expect("write");
    }
    let before = snapshot();
    fs.insert_range(ino, LARGE, LARGE).expect("insert");
    assert_eq!(
        (snapshot() - before).nt_bytes,
        BLOCK,
        "one node of large leaves"
    );
    content.splice(LARGE as usize..LARGE as usize, vec![0; LARGE as usize]);
    assert_content(&fs, ino, &content);
    fs.collapse_range(ino, BLOCK, 3 * BLOCK).expect("collapse");
    content.drain(BLOCK as usize..4 * BLOCK as usize);
    assert_content(&fs, ino, &content);
    fs.write(ino, 4 * LARGE, b"written").expect("write");
    content[4 * LARGE as usize..][..7].copy_from_slice(b"written");
    assert_content(&fs, ino, &content);
}

#[test]
fn what_is_refused() {
    let fs = pool(8 << 20);
    let ino = file(&fs, &pattern(5 * BLOCK + 1));
    let invalid = |answer| matches!(answer, Err(Error::Invalid(_)));
    assert!(invalid(fs.collapse_range(ino, 1, BLOCK)));
    assert!(invalid(fs.collapse_range(ino, 0, BLOCK + 1)));
    assert!(invalid(fs.collapse_range(ino, BLOCK, 0)));
    assert!(invalid(fs.collapse_range(ino, 3 * BLOCK, 3 * BLOCK)));
    assert!(invalid(fs.insert_range(ino, 8, BLOCK)));
    assert!(invalid(fs.insert_range(ino, 6 * BLOCK, BLOCK)));
    let largest = (1 << 48) - 5 * BLOCK;
    assert!(matches!(
        fs.insert_range(ino, 0, largest),
        Err(Error::FileTooBig)
    ));
    assert!(matches!(
        fs.collapse_range(ino, 0, u64::MAX / BLOCK * BLOCK),
        Err(Error::FileTooBig)
    ));
    assert!(matches!(
        fs.collapse_range(ROOT_INO, 0, BLOCK),
        Err(Error::IsDirectory)
    ));
    fs.collapse_range(ino, 2 * BLOCK, 3 * BLOCK)
        .expect("up to the last block");
    let whole = pattern(5 * BLOCK + 1);
    let mut left = whole[..2 * BLOCK as usize].to_vec();
    left.extend_from_slice(&whole[5 * BLOCK as usize..]);
    assert_content(&fs, ino, &left);
}

/// A small pool's lane has 48 records: 60 nodes in 60 places are more than it can say.
#[test]
fn scattered_space_is_refused_and_changes_nothing() {
    let fs = pool(8 << 20);
    let ino = fs.create(ROOT_INO, b"sparse", &NODE).expect("create").ino;
    for index in 0..60 {
        fs.write(ino, index * LARGE, &[index as u8; 100])
            .expect("write");
    }
    // Two blocks each, and others' between them.
    let pairs: Vec<Ino> = (0..350)
        .map(|n| fs.create(ROOT_INO, format!("pair {n}").as_bytes(), &NODE))
        .map(|made| made.expect("create").ino)
        .collect();
    for two in pairs.chunks(2) {
        for at in [0, BLOCK] {
            for &ino in two {
                fs.write(ino, at, &[1; 4096]).expect("write");
            }
        }
    }
    let mut names = Vec::new();
    loop {
        let name = format!("{}", names.len());
        match fs.create(ROOT_INO, name.as_bytes(), &NODE) {
            Ok(attr) if fs.write(attr.ino, 0, &[1; 4096]).is_ok() => names.push(name),
            _ => break,
        }
    }
    // The reserve, which is in one piece, takes the blocks of files that are written over; single
    // blocks become free.
    for &ino in pairs.iter().step_by(2) {
        fs.write(ino, 0, &[2; 8192]).expect("overwrite");
    }
    for name in names.iter().step_by(2) {
        fs.unlink(ROOT_INO, name.as_bytes()).expect("unlink");
    }
    let before = fs.getattr(ino).expect("getattr");
    let free = fs.info().blocks_free;
    for _ in 0..2 {
        let answer = fs.insert_range(ino, 0, BLOCK);
        assert!(matches!(answer, Err(Error::FileTooBig)), "{answer:?}");
        let answer = fs.collapse_range(ino, 0, BLOCK);
        assert!(matches!(answer, Err(Error::FileTooBig)), "{answer:?}");
    }
    assert_eq!(fs.getattr(ino).expect("getattr"), before);
    assert_eq!(fs.info().blocks_free, free);
    let report = fs.check().expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    // With the space in one piece it goes through.
    for name in names.iter().skip(1).step_by(2) {
        fs.unlink(ROOT_INO, name.as_bytes()).expect("unlink");
    }
    fs.collapse_range(ino, 0, BLOCK).expect("collapse");
    let mut byte = [0];
    fs.read(ino, 59 * LARGE - BLOCK, &mut byte).expect("read");
    assert_eq!(byte, [59]);
    fs.setattr(
        ino,
        &SetAttr {
            size: Some(0),
            ..SetAttr::default()
        },
    )
    .expect("truncate");
}
