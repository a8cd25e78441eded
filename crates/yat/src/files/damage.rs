//! Damaged pools: a small pool with one of everything, and looking at, using and repairing what is
//! left of it after its bytes were changed. Every call has to end, whatever they are, without a
//! panic.

use super::crafted::{Edits, Places, craft};
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{Fs, Ino, NewNode, OpenOptions, ROOT_INO, SetAttr, XattrFlags};
use pmfs_admin::Admin;
use pmfs_admin::MkfsOptions;
use pmfs_format::SuperblockRaw;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

/// The owner and mode of the files.
pub const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// A file as it is seen, up to its first MiB.
pub type Seen = BTreeMap<Vec<u8>, (u32, u64, Vec<u8>)>;

/// Returns how the pool is made: always the same.
#[must_use]
pub fn mkfs_options() -> MkfsOptions {
    MkfsOptions {
        size: Some(2 << 20),
        uuid: Some([7; 16]),
        hash_key: Some([7, 8]),
        ..MkfsOptions::default()
    }
}

/// Fills a fresh pool with one of everything.
///
/// # Panics
/// If a call fails.
pub fn fill(fs: &Fs) {
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap().ino;
    let below = fs.mkdir(dir, b"below", &NODE).unwrap().ino;
    for n in 0..90 {
        let file = fs
            .create(dir, format!("file-{n}").as_bytes(), &NODE)
            .unwrap()
            .ino;
        fs.write(file, 0, format!("content {n}").as_bytes())
            .unwrap();
    }
    let long = fs.create(below, &[b'n'; 200], &NODE).unwrap().ino;
    fs.write(long, 0, &[1; 40_000]).unwrap();
    fs.setxattr(long, b"user.one", &[2; 300], XattrFlags::empty())
        .unwrap();
    let sparse = fs.create(below, b"sparse", &NODE).unwrap().ino;
    fs.write(sparse, 1 << 30, b"far").unwrap();
    fs.symlink(below, b"short", b"target", &NODE).unwrap();
    fs.symlink(below, b"long", &[b't'; 300], &NODE).unwrap();
    fs.link(long, ROOT_INO, b"linked").unwrap();
    fs.mknod(below, b"device", &NODE, 0o020_000, 0x103).unwrap();
}

/// Reads whatever can be read.
#[must_use]
pub fn inspect(fs: &Fs) -> Seen {
    let mut seen = Seen::new();
    let mut known = HashSet::new();
    let mut next = vec![(ROOT_INO, Vec::new())];
    while let Some((dir, path)) = next.pop() {
        if !known.insert(dir) || known.len() > 1000 {
            continue;
        }
        let mut names = Vec::new();
        let _ = fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            names.len() < 1000
        });
        for name in names.iter().filter(|name| !name.starts_with(b".")) {
            let Ok(attr) = fs.lookup(dir, name) else {
                continue;
            };
            let mut child = path.clone();
            child.push(b'/');
            child.extend_from_slice(name);
            let kind = attr.mode & 0o170_000;
            let data = content(fs, attr.ino, kind, attr.size);
            if kind == 0o040_000 {
                next.push((attr.ino, child.clone()));
            }
            let size = if kind == 0o040_000 { 0 } else { attr.size };
            seen.insert(child, (attr.mode, size, data));
        }
    }
    seen
}

fn content(fs: &Fs, ino: Ino, kind: u32, size: u64) -> Vec<u8> {
    let mut data = Vec::new();
    match kind {
        0o100_000 => {
            data = vec![0; size.min(1 << 20) as usize];
            if fs.read(ino, 0, &mut data).is_err() {
                data.clear();
            }
        }
        0o120_000 => data = fs.readlink(ino).unwrap_or_default(),
        _ => {}
    }
    for name in fs.listxattr(ino).unwrap_or_default() {
        data.extend(fs.getxattr(ino, &name).unwrap_or_default());
    }
    data
}

/// Directories that can be found, and files.
#[must_use]
pub fn inodes(fs: &Fs, seen: &Seen) -> (Vec<Ino>, Vec<Ino>) {
    let mut dirs = vec![ROOT_INO];
    let mut files = Vec::new();
    for (path, (mode, ..)) in seen {
        let mut at = Ok(ROOT_INO);
        for part in path.split(|&byte| byte == b'/').skip(1) {
            at = at.and_then(|dir| fs.lookup(dir, part).map(|attr| attr.ino));
        }
        match (at, mode & 0o170_000) {
            (Ok(ino), 0o040_000) => dirs.push(ino),
            (Ok(ino), _) => files.push(ino),
            _ => {}
        }
    }
    (dirs, files)
}

/// Uses everything that can be found; answers what failed.
#[must_use]
pub fn disturb(fs: &Fs, seen: &Seen) -> Vec<String> {
    let mut failed = Vec::new();
    let mut note = |what: &str, ino: Ino, result: pmfs::Result<()>| {
        if let Err(error) = result {
            failed.push(format!("{what} {ino}: {error}"));
        }
    };
    let (dirs, files) = inodes(fs, seen);
    for &ino in files.iter().step_by(7) {
        let Ok(attr) = fs.getattr(ino) else { continue };
        if attr.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        note("write", ino, fs.write(ino, 10, &[7; 5000]).map(drop));
        note("append", ino, fs.append(ino, b"more").map(drop));
        let shorter = SetAttr {
            size: Some(20),
            ..SetAttr::default()
        };
        note("truncate", ino, fs.setattr(ino, &shorter).map(drop));
        let set = fs.setxattr(ino, b"user.new", b"value", XattrFlags::empty());
        note("setxattr", ino, set);
    }
    for &dir in &dirs {
        let made = fs.create(dir, b"made here", &NODE);
        let Ok(made) = made else {
            note("create", dir, made.map(drop));
            continue;
        };
        note(
            "write",
            made.ino,
            fs.write(made.ino, 0, &[5; 9000]).map(drop),
        );
        note("unlink", dir, fs.unlink(dir, b"made here"));
        let sub = fs.mkdir(dir, b"sub", &NODE).map(drop);
        note("mkdir", dir, sub.and_then(|()| fs.rmdir(dir, b"sub")));
    }
    failed
}

/// The words that were loaded.
#[derive(Default)]
struct Loads(Mutex<BTreeSet<u64>>);

impl Observer for Loads {
    fn load(&self, _mem: &Pmem, off: u64, len: u64) {
        let mut words = self.0.lock().expect("not poisoned");
        words.extend((off / 8..(off + len).div_ceil(8)).map(|word| word * 8));
    }
}

/// Byte offsets of the words that attaching with these options, checking, and looking at inodes
/// load: the file system's own structures, and nothing of files' data.
///
/// # Panics
/// If the pool is not sound.
pub fn words(attach: impl FnOnce(OpenOptions) -> Fs, sound: &Seen) -> Vec<u64> {
    let loads = Arc::new(Loads::default());
    let fs = attach(OpenOptions {
        observer: Some(loads.clone()),
        repair: true,
        ..OpenOptions::default()
    });
    assert!(fs.check().expect("check").is_clean());
    for ino in inodes(&fs, sound).1 {
        let _ = fs.getattr(ino);
        let _ = fs.readlink(ino);
    }
    fs.close().expect("close");
    let words = loads.0.lock().expect("not poisoned");
    words.iter().copied().collect()
}

/// Flags of an input: the superblock's checksum is right.
const SEALED: u8 = 1;
/// A crafted pool is what is edited.
const CRAFTED: u8 = 2;
/// The runtime area is believed, if the pool was left clean.
const BELIEVED: u8 = 4;

/// A pool's memory as it is when it was filled, and what can be damaged in it: what a fuzzer starts
/// from.
pub struct Base {
    image: Vec<u8>,
    words: Vec<u64>,
    places: Places,
}

impl Base {
    /// Makes and fills a pool in memory: the same bytes each time, but for times.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn new() -> Base {
        let options = mkfs_options();
        let mem = Pmem::private(options.size.expect("it has one"));
        let mem = pmfs_admin::format_private(mem, &options).expect("mkfs");
        let fs = Fs::open_private(mem, &OpenOptions::default()).expect("open");
        fill(&fs);
        let sound = inspect(&fs);
        let image = fs.mapping().snapshot_image();
        let words = words(
            |options| Fs::open_private(load(&image), &options).expect("open"),
            &sound,
        );
        let places = Places::of(&image);
        Base {
            image,
            words,
            places,
        }
    }

    /// The sound pool's bytes.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns where things are in it.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The image with the edits that `input` says: a byte of flags, with one of them the number of
    /// a crafted pool, then edits, each of a place (two bytes, one of the words that are read), a
    /// kind, and what it takes.
    fn edited(&self, input: &[u8]) -> Vec<u8> {
        let mut image = self.image.clone();
        let (&flags, mut rest) = input.split_first().unwrap_or((&0, &[]));
        if let Some((number, tail)) = rest.split_first_chunk::<8>()
            && flags & CRAFTED != 0
        {
            let number = u64::from_le_bytes(*number);
            (image, _) = craft(&image, &self.places, Edits::All, number);
            rest = tail;
        }
        while let Some((head, tail)) = rest.split_at_checked(3) {
            let place = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let at = self.words[place % self.words.len()] as usize;
            let old = u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
            let takes = [8, 1, 2, 1, 0][usize::from(head[2] % 5)];
            let Some((with, tail)) = tail.split_at_checked(takes) else {
                break;
            };
            rest = tail;
            let new = match head[2] % 5 {
                0 => u64::from_le_bytes(with.try_into().expect("eight bytes")),
                1 => old ^ 1 << (with[0] % 64),
                2 => {
                    let from = usize::from(u16::from_le_bytes([with[0], with[1]]));
                    let from = self.words[from % self.words.len()] as usize;
                    u64::from_le_bytes(image[from..from + 8].try_into().expect("eight bytes"))
                }
                3 => old.wrapping_add_signed(i64::from(with[0] as i8)),
                _ => 0,
            };
            image[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
        if flags & SEALED != 0 {
            seal(&mut image);
        }
        image
    }

    /// Edits the pool, attaches to it, uses and checks it, and repairs it. The outcome, whatever it
    /// is, must come without a panic.
    pub fn try_input(&self, input: &[u8]) {
        let image = self.edited(input);
        let believing = OpenOptions {
            rebooted: input.first().is_some_and(|flags| flags & BELIEVED != 0),
            ..OpenOptions::default()
        };
        if let Ok(fs) = Fs::open_private(load(&image), &believing) {
            let seen = inspect(&fs);
            let _ = disturb(&fs, &seen);
            let _ = fs.check();
            let _ = fs.close();
        }
        let options = OpenOptions {
            repair: true,
            ..OpenOptions::default()
        };
        if let Ok(fs) = Fs::open_private(load(&image), &options) {
            let _ = fs.repair();
            let seen = inspect(&fs);
            let _ = disturb(&fs, &seen);
            let _ = fs.close();
        }
    }
}

impl Default for Base {
    fn default() -> Base {
        Base::new()
    }
}

/// Makes the first superblock's checksum right, whatever it says.
fn seal(image: &mut [u8]) {
    let size = SuperblockRaw::SIZE as usize;
    let crc = crc32c::crc32c(&image[..size - 4]);
    image[size - 4..size].copy_from_slice(&crc.to_le_bytes());
}

/// A private mapping of these bytes.
#[must_use]
pub fn load(image: &[u8]) -> Pmem {
    let mem = Pmem::private(image.len() as u64);
    mem.poke(0, image);
    mem
}
