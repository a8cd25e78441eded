//! Trees of files, made and looked at.
#![allow(dead_code)]

use crate::scratch::{NODE, Scratch};
use pmfs::types::mode;
use pmfs::{AtimeMode, Attr, Fs, Ino, NewNode, OpenOptions};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// An attachment whose reads leave times alone.
pub fn open(scratch: &Scratch) -> Fs {
    let options = OpenOptions {
        atime: AtimeMode::Noatime,
        ..OpenOptions::default()
    };
    Fs::open(&scratch.path, &options).unwrap()
}

pub fn file(fs: &Fs, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
    let ino = fs.create(dir, name.as_bytes(), &NODE).unwrap().ino;
    assert_eq!(fs.write(ino, 0, bytes).unwrap(), bytes.len());
    ino
}

pub fn dir(fs: &Fs, parent: Ino, name: &str, bits: u32) -> Ino {
    let node = NewNode { mode: bits, ..NODE };
    fs.mkdir(parent, name.as_bytes(), &node).unwrap().ino
}

/// All that is seen of a name: attributes, content, extended attributes.
#[derive(Debug, PartialEq)]
pub struct Seen {
    attr: (u32, u32, u32, u32, u64),
    times: (i64, i64),
    /// A hash of it.
    content: u64,
    pub attributes: BTreeMap<String, u64>,
    links: u32,
}

pub fn seen(fs: &Fs, attr: &Attr) -> Seen {
    let content = match attr.mode & mode::S_IFMT {
        mode::S_IFREG => {
            let mut bytes = vec![0; attr.size as usize];
            assert_eq!(fs.read(attr.ino, 0, &mut bytes).unwrap(), bytes.len());
            bytes
        }
        mode::S_IFLNK => fs.readlink(attr.ino).unwrap(),
        _ => Vec::new(),
    };
    let names = fs.listxattr(attr.ino).unwrap();
    let value = |name: Vec<u8>| {
        let value = fs.getxattr(attr.ino, &name).unwrap();
        (String::from_utf8(name).unwrap(), hash(&value))
    };
    Seen {
        attr: (attr.mode, attr.uid, attr.gid, attr.rdev, attr.size),
        times: (attr.atime_ns, attr.mtime_ns),
        content: hash(&content),
        attributes: names.into_iter().map(value).collect(),
        links: attr.links,
    }
}

pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

pub fn tree(fs: &Fs, dir: Ino) -> BTreeMap<String, Seen> {
    let mut all = BTreeMap::new();
    let mut left = vec![(dir, String::new())];
    while let Some((dir, path)) = left.pop() {
        all.insert(path.clone(), seen(fs, &fs.getattr(dir).unwrap()));
        for name in names(fs, dir) {
            let attr = fs.lookup(dir, name.as_bytes()).unwrap();
            let path = format!("{path}/{name}");
            match attr.mode & mode::S_IFMT {
                mode::S_IFDIR => left.push((attr.ino, path)),
                _ => drop(all.insert(path, seen(fs, &attr))),
            }
        }
    }
    all
}

pub fn names(fs: &Fs, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir_for(dir, 0, false, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
        }
        true
    })
    .unwrap();
    names
}
