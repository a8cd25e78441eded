//! Several threads on the same directories: storms of every call that changes names, and readers
//! who may neither miss what stands nor see it twice.

use crate::crew::{Crew, Job, NODE, race};
use crate::random::Random;
use pmfs::DataMode::{self, Atomic, Ordered};
use pmfs::types::mode::{S_IFDIR, S_IFMT};
use pmfs::{Attr, Error, Fs, Ino, ROOT_INO, RenameFlags};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// Names of one kind in a directory.
const NAMES: u64 = 24;
/// Inodes in use in a pool where nothing was made: numbers 0 and 1, the root.
const INODES_AT_FIRST: u64 = 3;

/// Two directories, and what is known of them while they change.
struct Storm {
    dirs: [Ino; 2],
    /// Counted names there are: made and linked, less those removed.
    counted: AtomicI64,
    /// In both directories, exchanged all the time.
    exchanged: [Ino; 2],
}

/// Names that start with 'c' are counted: they are never replaced. Others may be.
fn counted_name(random: &mut Random) -> Vec<u8> {
    format!("c{}", random.below(NAMES)).into_bytes()
}

/// Lengths of one, two and four lines of a bucket.
fn any_name(random: &mut Random) -> Vec<u8> {
    let len = *random.pick(&[3, 60, 200]);
    format!("r{:0len$}", random.below(NAMES)).into_bytes()
}

/// Does what [`race`] does, for calls that may meet a directory where a file was, and the other way
/// round.
fn race_of_kinds<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Err(Error::IsDirectory | Error::NotDirectory | Error::NotEmpty) => None,
        // Into its own subdirectory.
        Err(Error::Invalid(_)) => None,
        Err(Error::NotPermitted(_)) => None,
        answer => race(answer),
    }
}

impl Storm {
    fn step(&self, fs: &Fs, random: &mut Random) {
        let (dir, other) = (*random.pick(&self.dirs), *random.pick(&self.dirs));
        match random.below(10) {
            0..4 => self.counted(fs, random, dir, other),
            4 => {
                // A file that takes the place of another in one step.
                let name = format!("new-{}", random.next());
                let made = fs.create(dir, name.as_bytes(), &NODE).expect("create");
                let from = (dir, name.as_bytes());
                let to = (self.dirs[0], &b"replaced"[..]);
                rename(fs, random, from, to, RenameFlags::empty()).expect("rename over");
                assert_eq!(made.links, 1);
            }
            5 => {
                let [from, to] = self.dirs.map(|dir| (dir, &b"exchanged"[..]));
                rename(fs, random, from, to, RenameFlags::EXCHANGE).expect("exchange");
            }
            _ => replacing(fs, random, dir, other),
        }
    }

    fn counted(&self, fs: &Fs, random: &mut Random, dir: Ino, other: Ino) {
        let (name, new_name) = (counted_name(random), counted_name(random));
        let change = match random.below(6) {
            0 => race(fs.create(dir, &name, &NODE)).map_or(0, |_| 1),
            1 => race(fs.lookup(dir, &name))
                .and_then(|attr| race(fs.link(attr.ino, other, &new_name)))
                .map_or(0, |_| 1),
            2 => race(fs.unlink(dir, &name)).map_or(0, |()| -1),
            3 => race(fs.lookup(dir, &name))
                .and_then(|attr| race(fs.unlink_seen(dir, &name, attr.ino)))
                .map_or(0, |()| -1),
            4 => {
                let flags = RenameFlags::NOREPLACE;
                race(rename(fs, random, (dir, &name), (other, &new_name), flags));
                0
            }
            _ => {
                let flags = RenameFlags::EXCHANGE;
                race(rename(fs, random, (dir, &name), (other, &new_name), flags));
                0
            }
        };
        self.counted.fetch_add(change, SeqCst);
    }

    /// Checks what must be there at any time.
    fn read(&self, fs: &Fs) {
        let replaced = fs.lookup(self.dirs[0], b"replaced");
        let attr = replaced.expect("a name that is only ever replaced");
        assert_eq!(attr.mode & S_IFMT, pmfs::types::mode::S_IFREG);
        for dir in self.dirs {
            let exchanged = fs.lookup(dir, b"exchanged");
            let ino = exchanged.expect("a name that is only ever exchanged").ino;
            assert!(self.exchanged.contains(&ino), "inode {ino} instead");
        }
    }
}

/// By who has looked, or has not; others may have been faster.
fn rename(
    fs: &Fs,
    random: &mut Random,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    flags: RenameFlags,
) -> Result<(), Error> {
    let look = |(dir, name)| fs.lookup(dir, name).ok().map(|attr| attr.ino);
    let looked = random.below(2) == 0;
    let source = looked.then(|| look(from)).flatten();
    let seen = source.map(|source| (source, look(to)));
    fs.rename_by(from, to, flags, (0, 0), seen)
}

/// Directories too, and names that go with what they are replaced by.
fn replacing(fs: &Fs, random: &mut Random, dir: Ino, other: Ino) {
    let (name, new_name) = (any_name(random), any_name(random));
    match random.below(12) {
        0 | 1 => {
            race(fs.create(dir, &name, &NODE));
        }
        2 => {
            race(fs.mkdir(dir, &name, &NODE));
        }
        3 => {
            race(fs.symlink(dir, &name, &[b's'; 100], &NODE));
        }
        4 => {
            race_of_kinds(fs.rmdir(dir, &name));
        }
        5 => {
            race_of_kinds(fs.unlink(dir, &name));
        }
        // In and out of subdirectories.
        6 => {
            let below = race(fs.lookup(other, &new_name)).map(|attr| attr.ino);
            let below = below.unwrap_or(other);
            race_of_kinds(fs.rename(dir, &name, below, b"inside", RenameFlags::empty()));
        }
        7 => {
            let above = race(fs.lookup(dir, &name)).map(|attr| attr.ino);
            let above = above.unwrap_or(dir);
            race_of_kinds(fs.rename(above, b"inside", other, &new_name, RenameFlags::empty()));
        }
        8 => {
            if let Some(attr) = race(fs.lookup(dir, &name)) {
                race_of_kinds(fs.link(attr.ino, other, &new_name));
            }
        }
        9 => {
            // Held open across its end.
            if let Some(attr) = race(fs.lookup(dir, &name))
                && race(fs.hold(attr.ino)).is_some()
            {
                race_of_kinds(fs.unlink(dir, &name));
                fs.getattr(attr.ino).expect("it is held");
                fs.release(attr.ino).expect("release");
            }
        }
        flags => {
            let flags = match flags {
                10 => RenameFlags::EXCHANGE,
                _ => RenameFlags::empty(),
            };
            race_of_kinds(fs.rename(dir, &name, other, &new_name, flags));
        }
    }
}

/// Every entry of a directory at rest, without the dots.
fn entries(fs: &Fs, dir: Ino) -> BTreeMap<Vec<u8>, (Ino, u32)> {
    let mut entries = BTreeMap::new();
    fs.readdir(dir, 0, &mut |entry| {
        let before = entries.insert(entry.name.to_vec(), (entry.ino, entry.kind));
        assert!(before.is_none(), "{} twice", entry.name.escape_ascii());
        true
    })
    .expect("readdir");
    let dot = entries.remove(b".".as_slice()).expect("'.'");
    assert_eq!(dot, (dir, S_IFDIR));
    entries.remove(b"..".as_slice()).expect("'..'");
    entries
}

/// Walks everything: each name names a live inode of its kind, and all counts are right. Answers
/// how many counted names there are.
fn assert_counts(fs: &Fs) -> i64 {
    let mut dirs = vec![ROOT_INO];
    let mut links: BTreeMap<Ino, (u32, Attr)> = BTreeMap::new();
    let mut counted = 0;
    let mut at = 0;
    while at < dirs.len() {
        let dir = dirs[at];
        at += 1;
        let entries = entries(fs, dir);
        let mut subdirectories = 0;
        for (name, (ino, kind)) in &entries {
            let text = name.escape_ascii();
            let attr = fs.lookup(dir, name).expect("what is listed is there");
            assert_eq!((attr.ino, attr.mode & S_IFMT), (*ino, *kind), "'{text}'");
            links.entry(*ino).or_insert((0, attr)).0 += 1;
            counted += i64::from(name[0] == b'c');
            if *kind == S_IFDIR {
                subdirectories += 1;
                dirs.push(*ino);
                assert_eq!(fs.lookup(*ino, b"..").expect("'..'").ino, dir);
            }
        }
        let attr = fs.getattr(dir).expect("getattr");
        assert_eq!(attr.links, 2 + subdirectories, "links of directory {dir}");
        assert_eq!(attr.size, entries.len() as u64 * 64, "of directory {dir}");
    }
    for (ino, (names, attr)) in &links {
        if attr.mode & S_IFMT == S_IFDIR {
            assert_eq!(*names, 1, "names of directory {ino}");
        } else {
            assert_eq!(attr.links, *names, "links of inode {ino}");
        }
    }
    let room = fs.statfs().expect("statfs");
    let used = room.inodes - room.inodes_free;
    assert_eq!(used, INODES_AT_FIRST + links.len() as u64, "inodes in use");
    counted
}

fn storms(modes: &[DataMode], dirs: usize) {
    let crew = Crew::new(64 << 20, modes);
    let first = crew.dir("first");
    let second = if dirs == 2 { crew.dir("second") } else { first };
    let fs = crew.fs();
    fs.create(first, b"replaced", &NODE).expect("create");
    let in_first = fs.create(first, b"exchanged", &NODE).expect("create").ino;
    let in_second = if dirs == 2 {
        fs.create(second, b"exchanged", &NODE).expect("create").ino
    } else {
        in_first
    };
    let storm = Storm {
        dirs: [first, second],
        counted: AtomicI64::new(0),
        exchanged: [in_first, in_second],
    };
    let storm = &storm;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for thread in 0..4 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(thread);
            while going.on() {
                storm.step(fs, &mut random);
            }
        }));
    }
    for _ in 0..2 {
        jobs.push(Box::new(move |fs, going| {
            while going.on() {
                storm.read(fs);
            }
        }));
    }
    crew.run(jobs);
    for fs in &crew.instances {
        assert_eq!(assert_counts(fs), storm.counted.load(SeqCst));
    }
}

/// Names that stand while others come and go around them.
const STANDING: u64 = 60;
/// Names that come and go, of each thread.
const COMING: u64 = 400;

/// Batches of which a listing has far fewer.
const BATCHES_MAX: u64 = 10_000;

fn standing(number: u64) -> Vec<u8> {
    let len = 2 + (number % 4 * 40) as usize;
    format!("stands-{number:0len$}").into_bytes()
}

/// Reads the directory in batches: what stands is shown once, and found.
fn assert_stands(fs: &Fs, dir: Ino, inos: &[Ino], random: &mut Random) {
    let batch = 1 + random.below(40);
    let mut seen: BTreeMap<Vec<u8>, (Ino, u32)> = BTreeMap::new();
    let (mut cookie, mut batches) = (0, 0);
    loop {
        let mut left = batch;
        fs.readdir(dir, cookie, &mut |entry| {
            if left == 0 {
                return false;
            }
            left -= 1;
            cookie = entry.cookie;
            if entry.name.starts_with(b"stands") {
                seen.entry(entry.name.to_vec()).or_insert((entry.ino, 0)).1 += 1;
            }
            true
        })
        .expect("readdir");
        if left == batch {
            break;
        }
        batches += 1;
        assert!(batches < BATCHES_MAX, "the listing does not end");
    }
    for (number, &ino) in (0..).zip(inos) {
        let is = seen.get(&standing(number)).copied();
        assert_eq!(is, Some((ino, 1)), "name {number}: inode, times seen");
        let found = fs.lookup(dir, &standing(number));
        assert_eq!(found.expect("it stands").ino, ino);
    }
    assert_eq!(seen.len(), inos.len());
}

fn churn(modes: &[DataMode]) {
    let crew = Crew::new(64 << 20, modes);
    // Buckets only ever split: several directories, one after the other.
    let dirs: Vec<(Ino, Vec<Ino>)> = (0..12)
        .map(|number| {
            let dir = crew.dir(&format!("dir-{number}"));
            let made = |number| crew.fs().create(dir, &standing(number), &NODE);
            let inos = (0..STANDING).map(|number| made(number).expect("create").ino);
            (dir, inos.collect())
        })
        .collect();
    let dirs = &dirs;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for thread in 0..2 {
        jobs.push(Box::new(move |fs, going| {
            let name = |number: u64| {
                let len = (number % 3 * 90) as usize;
                format!("comes-{thread}-{number:0len$}").into_bytes()
            };
            while going.on() {
                for (dir, _) in dirs {
                    for number in 0..COMING {
                        fs.create(*dir, &name(number), &NODE).expect("create");
                    }
                    for number in 0..COMING {
                        fs.unlink(*dir, &name(number)).expect("unlink");
                    }
                }
            }
        }));
    }
    for reader in 0..2 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(reader);
            while going.on() {
                for (dir, inos) in dirs {
                    assert_stands(fs, *dir, inos, &mut random);
                }
            }
        }));
    }
    crew.run(jobs);
    for fs in &crew.instances {
        assert_eq!(assert_counts(fs), 0);
    }
}

#[test]
fn a_storm_in_one_directory() {
    storms(&[Atomic], 1);
}

#[test]
fn a_storm_across_two_directories() {
    storms(&[Atomic], 2);
}

#[test]
fn two_instances_storm_across_two_directories() {
    storms(&[Atomic, Ordered], 2);
}

#[test]
fn what_stands_is_listed_once_while_others_come_and_go() {
    churn(&[Atomic]);
}

#[test]
fn what_stands_is_listed_once_while_two_instances_work() {
    churn(&[Ordered, Atomic]);
}
