//! Goal: a dump shows damage and never panics, and never goes on without end. Method: bytes of a
//! small pool's used blocks are overwritten at random, in structures more than in data, and
//! everything is dumped.

use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::dump::{Dumped, Part, Value, dump_superblocks};
use pmfs_admin::{Inspector, MkfsOptions};
use std::path::Path;

const ROUNDS: u64 = 400;
const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

fn pool(path: &Path) {
    let options = MkfsOptions {
        size: Some(1 << 20),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(path, &options).unwrap();
    let fs = Fs::open(path, &OpenOptions::default()).unwrap();
    for number in 0..100u8 {
        let name = format!("file-{number}");
        let file = fs.create(ROOT_INO, name.as_bytes(), &NODE).unwrap();
        if number % 10 == 0 {
            let offset = u64::from(number) << 16;
            fs.write(file.ino, offset, b"content").unwrap();
        }
    }
    let link = fs.symlink(ROOT_INO, b"link", b"target", &NODE).unwrap();
    let flags = pmfs::XattrFlags::empty();
    fs.setxattr(link.ino, b"trusted.a", b"value", flags)
        .unwrap();
    fs.close().unwrap();
}

fn count(dumped: &Dumped) -> usize {
    let of = |value: &Value| match value {
        Value::List(list) => list.iter().map(count).sum(),
        _ => 1,
    };
    dumped.0.iter().map(|(_, value)| of(value)).sum()
}

fn dump_all(path: &Path) -> (usize, usize) {
    let (mut shown, mut refused) = (count(&dump_superblocks(path).unwrap()), 0);
    let look = Inspector::open(path).unwrap();
    let numbers = 1..=110;
    let parts = numbers
        .flat_map(|n| [Part::Inode(n), Part::Directory(n), Part::Tree(n)])
        .chain([Part::Lane(None), Part::Lane(Some(0)), Part::Slots]);
    for part in parts {
        match look.dump(part) {
            Ok(dumped) => shown += count(&dumped),
            Err(_) => refused += 1,
        }
    }
    let _ = (look.info(), look.details());
    (shown, refused)
}

#[test]
fn random_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    pool(&path);
    let whole = std::fs::read(&path).unwrap();
    let sound = dump_all(&path);
    let words: Vec<usize> = (4096 / 8..whole.len() / 8)
        .filter(|word| whole[word * 8..word * 8 + 8] != [0; 8])
        .collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut differed = 0;
    for _ in 0..ROUNDS {
        let mut hurt = whole.clone();
        for _ in 0..1 + random() % 20 {
            let at = words[random() as usize % words.len()] * 8;
            let value = match random() % 4 {
                0 => random(),
                1 => u64::MAX,
                // Another word of the pool, as a pointer astray has it.
                2 => {
                    let from = words[random() as usize % words.len()] * 8;
                    u64::from_le_bytes(whole[from..from + 8].try_into().unwrap())
                }
                _ => {
                    u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) ^ 1 << (random() % 64)
                }
            };
            hurt[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        std::fs::write(&path, &hurt).unwrap();
        differed += u64::from(dump_all(&path) != sound);
        assert!(
            std::fs::read(&path).unwrap() == hurt,
            "a dump changed the pool"
        );
    }
    assert!(
        differed > ROUNDS / 10,
        "the damage was seen {differed} times"
    );
}
