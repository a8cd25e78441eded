//! Files mapped by a program that uses the library.

mod scratch;

use pmfs::{Error, Fs, MapMode, ROOT_INO, SetAttr};
use pmfs_admin::Admin;
use scratch::{NODE, Scratch};
use std::io::ErrorKind;

const BLOCK: u64 = 4096;

fn file(fs: &Fs, bytes: usize) -> u64 {
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, &vec![1; bytes]).unwrap();
    ino
}

fn byte(fs: &Fs, ino: u64, at: u64) -> u8 {
    let mut got = [0];
    assert_eq!(fs.read(ino, at, &mut got).unwrap(), 1);
    got[0]
}

#[test]
fn all_see_what_is_stored_to_a_shared_mapping() {
    let pool = Scratch::new(32 << 20);
    let (fs, other) = (pool.open(), pool.open());
    let ino = file(&fs, 10 * BLOCK as usize);
    fs.setattr(
        ino,
        &SetAttr {
            size: Some(20 * BLOCK),
            ..SetAttr::default()
        },
    )
    .unwrap();
    let map = fs.map(ino, BLOCK, 19 * BLOCK, MapMode::Shared).unwrap();
    assert_eq!((map.len(), map.as_ptr().is_null()), (19 * BLOCK, false));
    map.write(5, b"stored").unwrap();
    map.write(18 * BLOCK, b"in what was a hole").unwrap();
    assert_eq!(byte(&other, ino, BLOCK + 5), b's');
    other.write(ino, BLOCK, b"written").unwrap();
    let mut got = [0; 11];
    map.read(0, &mut got).unwrap();
    assert_eq!(&got, b"writtenored");
    let again = fs.map(ino, 0, 2 * BLOCK, MapMode::Read).unwrap();
    again.read(BLOCK, &mut got).unwrap();
    assert_eq!(&got, b"writtenored");
    assert_eq!(
        again.write(0, b"x").unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(
        map.read(19 * BLOCK - 1, &mut got).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    // The file and its blocks stay as long as it is mapped.
    fs.unlink(ROOT_INO, b"file").unwrap();
    drop(again);
    map.read(18 * BLOCK, &mut got).unwrap();
    assert_eq!(&got, b"in what was");
    map.sync().unwrap();
    drop(map);
    assert!(matches!(
        fs.getattr(ino),
        Err(Error::Stale | Error::NotFound)
    ));
    other.close().unwrap();
    fs.close().unwrap();
}

#[test]
fn ranges_that_can_not_be_mapped() {
    let pool = Scratch::new(32 << 20);
    let fs = pool.open();
    let ino = file(&fs, 100);
    for (at, len) in [(0, 101), (1, 10), (0, 0), (!4095, 4096), (4096, 1)] {
        let refused = fs.map(ino, at, len, MapMode::Read).err();
        assert!(
            matches!(refused, Some(Error::Invalid(_))),
            "{at} {len}: {refused:?}"
        );
    }
    assert!(fs.map(ROOT_INO, 0, 1, MapMode::Read).is_err());
    let map = fs.map(ino, 0, 100, MapMode::Read).unwrap();
    assert_eq!(map.len(), BLOCK);
    drop(map);
    fs.close().unwrap();
}

#[test]
fn an_atomic_mapping_is_as_of_its_last_sync() {
    let pool = Scratch::new(32 << 20);
    let (fs, other) = (pool.open(), pool.open());
    let ino = file(&fs, 600 * BLOCK as usize);
    let map = fs.map(ino, 0, 600 * BLOCK, MapMode::Atomic).unwrap();
    let all = |value: u8| {
        for page in (0..600).step_by(7) {
            map.write(page * BLOCK + page, &[value]).unwrap();
        }
    };
    all(2);
    assert_eq!(byte(&other, ino, 0), 1, "not yet");
    map.sync().unwrap();
    assert_eq!(
        (byte(&other, ino, 0), byte(&other, ino, 595 * BLOCK + 595)),
        (2, 2)
    );
    all(3);
    // One copy of a page, and one process.
    assert!(matches!(
        fs.map(ino, 0, BLOCK, MapMode::Atomic),
        Err(Error::Mapped)
    ));
    assert!(matches!(
        fs.map(ino, 0, BLOCK, MapMode::Read),
        Err(Error::Mapped)
    ));
    assert!(matches!(
        other.map(ino, 0, BLOCK, MapMode::Read),
        Err(Error::Mapped)
    ));
    // The mapping stays as if the process had been killed.
    std::mem::forget(map);
    drop(fs);
    other.recover_dead().unwrap();
    for page in (0..600).step_by(7) {
        assert_eq!(byte(&other, ino, page * BLOCK + page), 2);
    }
    let map = other.map(ino, 0, BLOCK, MapMode::Atomic).unwrap();
    map.write(1, &[4]).unwrap();
    drop(map);
    assert_eq!(byte(&other, ino, 1), 4, "the end of a mapping is a sync");
    assert!(other.check().unwrap().is_clean());
}
