//! Random operations that make sense often enough: most hit what exists, a few hit each error.

use crate::acl::{ACCESS, Acl, DEFAULT, Given};
use crate::apply_inode::SIZE_MAX;
use crate::content::BLOCK;
use crate::operation::{Name, Operation};
use crate::random::Random;
use crate::reference::{Body, Reference};
use pmfs::types::mode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFREG, S_IFSOCK};
use pmfs::{FallocateMode, Ino, NewNode, RenameFlags, SetAttr, SetTime, XattrFlags};
use std::ops::Bound::{Included, Unbounded};

const LARGE: u64 = 2 << 20;
/// Lengths at whose edges things change: a word, a line, a log-worth, a block, a large page.
const EDGES: [u64; 6] = [8, 64, 384, BLOCK, 2 * BLOCK, LARGE];

/// The main work of a stretch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Mixed,
    /// One directory gets many entries,
    Grow,
    /// and loses them.
    Shrink,
    /// Directories in directories.
    Deep,
    /// One file is written to again and again.
    Data,
    /// Room is made.
    Clear,
    /// Many files are held open.
    Hold,
}

/// The use of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Nodes from which on more are removed than made.
    pub nodes_max: usize,
    /// Blocks of data from which on files are cut and removed.
    pub blocks_max: u64,
    /// One write in so many is of megabytes.
    pub large_one_in: u64,
    /// Numbers of inodes that are not in the reference may be used.
    pub strangers: bool,
}

pub struct Generator {
    pub random: Random,
    taste: Taste,
    phase: Phase,
    left: u64,
    focus: Ino,
    files: Vec<Ino>,
    counter: u64,
    /// Set by whoever counts them.
    pub blocks: u64,
}

impl Generator {
    pub fn new(seed: u64, taste: Taste) -> Generator {
        Generator {
            random: Random::new(seed),
            taste,
            phase: Phase::Mixed,
            left: 300,
            focus: 0,
            files: Vec::new(),
            counter: 0,
            blocks: 0,
        }
    }

    /// The next operation, for a reference as it is now.
    pub fn next(&mut self, model: &Reference, instance: usize) -> Operation {
        self.counter += 1;
        if self.left == 0 {
            self.turn(model);
        }
        self.left -= 1;
        let roll = self.random.below(100);
        let crowded = self.blocks > self.taste.blocks_max || self.phase == Phase::Clear;
        let many = model.nodes.len() > self.taste.nodes_max || self.phase == Phase::Clear;
        match self.phase {
            Phase::Grow if roll < 60 && !many => self.make(model),
            Phase::Shrink if roll < 60 => self.remove(model),
            Phase::Deep if roll < 40 && !many => {
                self.focus = *model.dirs.get(&model.newest).unwrap_or(&self.focus);
                Operation::MkDir {
                    dir: self.focus_dir(model),
                    name: self.fresh_name(),
                    node: self.node(),
                }
            }
            Phase::Data if roll < 70 => self.data(model, crowded),
            Phase::Hold if roll < 90 => self.hold(model, instance),
            _ if crowded && roll < 30 => self.make_room(model),
            _ if many && roll < 50 => self.remove(model),
            _ => self.any(model, instance, crowded),
        }
    }

    fn turn(&mut self, model: &Reference) {
        let phases = [
            Phase::Mixed,
            Phase::Mixed,
            Phase::Grow,
            Phase::Shrink,
            Phase::Deep,
            Phase::Data,
            Phase::Clear,
            Phase::Hold,
        ];
        let last = self.phase;
        self.phase = *self.random.pick(&phases);
        self.left = 100 + self.random.below(1500);
        if last == Phase::Grow {
            // A directory that grew shrinks, or stays for a while.
            if self.random.one_in(2) {
                self.phase = Phase::Shrink;
            }
        } else {
            self.focus = self.any_dir(model);
        }
        if self.random.one_in(3) {
            self.files.clear();
        }
    }

    fn any(&mut self, model: &Reference, instance: usize, crowded: bool) -> Operation {
        match self.random.below(100) {
            0..40 => self.data(model, crowded),
            40..50 => self.make(model),
            50..58 => self.remove(model),
            58..65 => self.rename(model),
            65..70 => {
                let (ino, dir) = (self.ino(model), self.dir(model));
                let name = self.name(model, dir, 8);
                Operation::Link { ino, dir, name }
            }
            70..75 => {
                let dir = self.dir(model);
                let name = self.name(model, dir, 2);
                Operation::Lookup { dir, name }
            }
            75..80 => self.setattr(model),
            80..86 => self.xattr(model),
            86..93 => self.hold(model, instance),
            93..95 => {
                let ino = self.ino(model);
                if self.random.one_in(2) {
                    Operation::GetAttr { ino }
                } else {
                    Operation::ReadLink { ino }
                }
            }
            95..98 => {
                let (dir, batch) = (self.dir(model), 1 + self.random.below(200));
                if self.random.one_in(5) {
                    Operation::ReadDir { dir, batch }
                } else {
                    Operation::ReadOn { dir, batch }
                }
            }
            98 => Operation::StatFs,
            _ => Operation::Fsync {
                ino: self.file(model),
            },
        }
    }

    fn node(&mut self) -> NewNode {
        let set_gid = if self.random.one_in(6) { 0o2000 } else { 0 };
        NewNode {
            umask: *self.random.pick(&[0, 0o22, 0o77, 0o777]),
            mode: self.random.below(0o1000) as u32 | set_gid,
            uid: self.random.below(1 << 32) as u32,
            gid: self.random.below(1000) as u32,
        }
    }

    fn one_of(&mut self, set: &std::collections::BTreeSet<Ino>) -> Option<Ino> {
        let (first, last) = (*set.first()?, *set.last()?);
        let start = first + self.random.below(last - first + 1);
        set.range(start..).next().copied()
    }

    fn any_dir(&mut self, model: &Reference) -> Ino {
        self.one_of(&model.dirs).unwrap_or(model.root)
    }

    fn focus_dir(&mut self, model: &Reference) -> Ino {
        let named = |ino| {
            let node = model.nodes.get(&ino);
            node.is_some_and(|node| node.is_dir() && node.names > 0)
        };
        if !named(self.focus) {
            self.focus = model.root;
        }
        self.focus
    }

    fn dir(&mut self, model: &Reference) -> Ino {
        match self.random.below(60) {
            0 => self.stranger(model),
            1 => self.file(model),
            2..30 => self.focus_dir(model),
            _ => self.any_dir(model),
        }
    }

    /// A number that no node has, if such may be used.
    fn stranger(&mut self, model: &Reference) -> Ino {
        if !self.taste.strangers {
            return self.any_dir(model);
        }
        let last = model.nodes.keys().last().copied().unwrap_or(2);
        let known = |ino: &Ino| model.nodes.contains_key(ino) || *ino == pmfs::ROOT_INO;
        let dead = (3 + self.random.below(last + 9)..).find(|ino| !known(ino));
        *self.random.pick(&[
            dead.unwrap_or(0),
            dead.unwrap_or(0),
            0,
            1,
            1 << 20,
            u64::MAX,
        ])
    }

    /// A regular file, usually one of a few.
    fn file(&mut self, model: &Reference) -> Ino {
        self.files.retain(|ino| model.files.contains(ino));
        if self.files.len() < 4 || self.random.one_in(50) {
            if let Some(ino) = self.one_of(&model.files) {
                self.files.push(ino);
            }
            if self.files.len() > 8 {
                self.files.remove(0);
            }
        }
        match self.random.below(20) {
            0 => self.ino(model),
            1 | 2 => self.one_of(&model.files).unwrap_or(model.root),
            _ if self.files.is_empty() => self.ino(model),
            _ if self.phase == Phase::Data => self.files[0],
            _ => *self.random.pick(&self.files),
        }
    }

    /// Any node, now and then none.
    fn ino(&mut self, model: &Reference) -> Ino {
        if self.random.one_in(12) {
            return self.stranger(model);
        }
        let (first, last) = (2, *model.nodes.keys().last().unwrap_or(&2));
        let start = first + self.random.below(last - first + 1);
        *model.nodes.range(start..).next().expect("up to the last").0
    }

    /// A name that is hardly there yet, of 1 to 255 bytes.
    fn fresh_name(&mut self) -> Name {
        let letter = |random: &mut Random| b'a' + random.below(26) as u8;
        let mut name = vec![letter(&mut self.random), letter(&mut self.random)];
        match self.random.below(12) {
            0 => name.truncate(1),
            1 => {}
            2 => name.resize(200 + self.random.below(56) as usize, b'x'),
            3 => name.resize(40 + self.random.below(20) as usize, b'y'),
            4 => name.push(128 + self.random.below(128) as u8),
            _ => name.extend_from_slice(format!("-{}", self.counter).as_bytes()),
        }
        Name(name)
    }

    /// A name of the directory, but a fresh one once in `fresh_in`; now and then an impossible one.
    fn name(&mut self, model: &Reference, dir: Ino, fresh_in: u64) -> Name {
        if self.random.one_in(60) {
            let odd: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"a\0b", &[b'z'; 256]];
            return Name(self.random.pick(&odd).to_vec());
        }
        if self.random.one_in(fresh_in) {
            return self.fresh_name();
        }
        let start = vec![
            b'a' + self.random.below(26) as u8,
            b'a' + self.random.below(26) as u8,
        ];
        let there = model.entries(dir).ok().and_then(|entries| {
            let after = entries.range((Included(start), Unbounded)).next();
            after.or_else(|| entries.iter().next())
        });
        match there {
            Some((name, _)) => Name(name.clone()),
            None => self.fresh_name(),
        }
    }

    fn make(&mut self, model: &Reference) -> Operation {
        let dir = self.dir(model);
        let old = self.random.one_in(10);
        let name = self.name(model, dir, if old { 8 } else { 1 });
        let node = self.node();
        match self.random.below(20) {
            0..3 => Operation::MkDir { dir, name, node },
            3 => {
                let kinds = [S_IFREG, S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR, S_IFDIR, 0];
                Operation::MkNod {
                    dir,
                    name,
                    node,
                    kind: *self.random.pick(&kinds),
                    rdev: self.random.next() as u32,
                }
            }
            4..6 => Operation::Symlink {
                dir,
                name,
                target_len: *self
                    .random
                    .pick(&[0, 1, 20, 39, 40, 41, 100, 4094, 4095, 4096]),
                seed: self.random.next(),
                node,
            },
            6 => Operation::TmpFile { dir, node },
            _ => Operation::Create { dir, name, node },
        }
    }

    fn remove(&mut self, model: &Reference) -> Operation {
        let dir = self.dir(model);
        let name = self.name(model, dir, 20);
        let is_dir = model
            .find(dir, &name.0)
            .is_some_and(|ino| model.dirs.contains(&ino));
        if is_dir != self.random.one_in(15) {
            Operation::RmDir { dir, name }
        } else {
            Operation::Unlink { dir, name }
        }
    }

    fn rename(&mut self, model: &Reference) -> Operation {
        let dir = self.dir(model);
        let new_dir = match self.random.below(3) {
            0 => dir,
            _ => self.dir(model),
        };
        let flags = match self.random.below(8) {
            0 => RenameFlags::NOREPLACE,
            1 | 2 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let name = self.name(model, dir, 20);
        // Above the source, now and then: what a directory must not become.
        if self.random.one_in(20)
            && let Ok(Body::Directory { parent, .. }) = model.live(dir).map(|node| &node.body)
            && let Ok(entries) = model.entries(*parent)
            && let Some((above, _)) = entries.iter().find(|(_, entry)| entry.ino == dir)
        {
            return Operation::Rename {
                dir,
                name,
                new_dir: *parent,
                new_name: Name(above.clone()),
                flags,
            };
        }
        let mut flags = flags;
        if self.random.one_in(10) {
            flags |= RenameFlags::WHITEOUT;
        }
        if self.random.one_in(100) {
            flags = RenameFlags::all();
        }
        let fresh_in = *self.random.pick(&[1, 2, 20]);
        Operation::Rename {
            dir,
            name,
            new_dir,
            new_name: self.name(model, new_dir, fresh_in),
            flags,
        }
    }

    fn setattr(&mut self, model: &Reference) -> Operation {
        let ino = self.ino(model);
        let mut set = SetAttr::default();
        let bits = self.random.next();
        let time = |random: &mut Random| match random.below(6) {
            0 | 1 => SetTime::Now,
            2 => SetTime::At(*random.pick(&[0, -1, i64::MIN, i64::MAX])),
            _ => SetTime::At(random.below(1 << 60) as i64),
        };
        if bits & 1 != 0 {
            set.mode = Some(self.random.below(0o10000) as u32);
        }
        if bits & 2 != 0 {
            set.uid = Some(self.random.next() as u32);
        }
        if bits & 4 != 0 {
            set.gid = Some(self.random.next() as u32);
        }
        if bits & 8 != 0 {
            set.atime_ns = Some(time(&mut self.random));
        }
        if bits & 16 != 0 {
            set.mtime_ns = Some(time(&mut self.random));
        }
        if bits & 0xe0 == 0 {
            let any = self.random.below(1 << 60) as i64;
            set.ctime_ns = Some(*self.random.pick(&[any, any, i64::MIN, i64::MAX, 0]));
        }
        if bits & 0x300 == 0 {
            set.size = Some(self.offset(model, ino));
        }
        Operation::SetAttr { ino, set }
    }

    fn xattr(&mut self, model: &Reference) -> Operation {
        let ino = match self.random.below(3) {
            0 => self.ino(model),
            _ => self.file(model),
        };
        if self.random.one_in(4) {
            return self.acl(model, ino);
        }
        let name = match self.random.below(40) {
            0 => vec![],
            1 => vec![b'u'; 256],
            2 => vec![b'u'; 255],
            3 => [&b"user."[..], &[b'u'; 250]].concat(),
            4 => b"trusted.".to_vec(),
            5..8 => b"trusted.t".to_vec(),
            8 => b"security.s".to_vec(),
            _ => format!("user.{}", self.random.below(6)).into_bytes(),
        };
        let name = Name(name);
        match self.random.below(8) {
            0 | 1 => Operation::GetXattr { ino, name },
            2 => Operation::ListXattr { ino },
            3 => Operation::RemoveXattr { ino, name },
            _ => Operation::SetXattr {
                ino,
                name,
                len: match self.random.below(30) {
                    0 => *self.random.pick(&[65536, 65537, 40000, 60000]),
                    1..4 => 4000 + self.random.below(9000) as usize,
                    _ => self.random.below(60) as usize,
                },
                seed: self.random.next(),
                flags: match self.random.below(8) {
                    0 => XattrFlags::CREATE,
                    1 => XattrFlags::REPLACE,
                    2 => XattrFlags::CREATE | XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                },
            },
        }
    }

    fn acl(&mut self, model: &Reference, ino: Ino) -> Operation {
        let default = self.random.one_in(2);
        // A default ACL is a directory's.
        let ino = match default && !self.random.one_in(8) {
            true => self.dir(model),
            false => ino,
        };
        let acl = Acl::random(&mut self.random);
        let given = match self.random.below(16) {
            0..3 => Given::Removal,
            3 => Given::Nothing(4 * self.random.below(2) as usize),
            4 => {
                let len = 5 + self.random.below(acl.bytes().len() as u64 - 5) as usize;
                Given::Cut(acl, len)
            }
            5 => Given::Maskless,
            _ => Given::Acl(acl),
        };
        Operation::SetAcl {
            ino,
            name: Name(if default { DEFAULT } else { ACCESS }.to_vec()),
            given,
            kill: self.random.one_in(6),
        }
    }

    fn hold(&mut self, model: &Reference, instance: usize) -> Operation {
        let held = &model.holds[instance];
        let least = if self.phase == Phase::Hold { 40 } else { 3 };
        let many = held.len() > 40 && self.phase != Phase::Hold && !self.random.one_in(3);
        if many || self.random.one_in(least) {
            let last = held.keys().last().copied().unwrap_or(2);
            let start = self.random.below(last + 1);
            if let Some((&ino, _)) = held.range(start..).next() {
                return Operation::Release { ino };
            }
            return Operation::Release {
                ino: self.ino(model),
            };
        }
        if self.random.one_in(30) {
            let dir = self.dir(model);
            let node = self.node();
            return Operation::TmpFile { dir, node };
        }
        let ino = if self.random.one_in(3) {
            self.file(model)
        } else {
            self.ino(model)
        };
        match self.random.below(16) {
            0 | 1 => Operation::Pin {
                ino: self.file(model),
            },
            2 | 3 => self.hand_over(model),
            4 | 5 => self.defragment(model),
            _ => Operation::Hold { ino },
        }
    }

    fn defragment(&mut self, model: &Reference) -> Operation {
        if self.random.one_in(20) {
            return Operation::Defrag;
        }
        // The largest of some is taken: few have 2 MiB.
        let size = |ino| model.live(ino).map_or(0, |node| node.size());
        let some = (0..8).map(|_| self.file(model));
        let ino = some.max_by_key(|&ino| size(ino)).expect("eight of them");
        let at = self.random.below(size(ino).clamp(1, 8 * LARGE));
        Operation::Merge { ino, at }
    }

    /// Some blocks in a row, or here and there.
    fn hand_over(&mut self, model: &Reference) -> Operation {
        let ino = self.file(model);
        let blocks = model.live(ino).map_or(0, |node| node.size()) / BLOCK + 1;
        Operation::HandOver {
            ino,
            first: self.random.below(blocks),
            step: 1 + self.random.below(4) * self.random.below(400),
            count: self.random.below(24),
            seed: self.random.next(),
        }
    }

    fn make_room(&mut self, model: &Reference) -> Operation {
        let ino = self.one_of(&model.files).unwrap_or(model.root);
        if self.random.one_in(4) {
            return self.remove(model);
        }
        let size = if self.random.one_in(2) {
            0
        } else {
            self.random.below(3 * BLOCK)
        };
        Operation::SetAttr {
            ino,
            set: SetAttr {
                size: Some(size),
                ..SetAttr::default()
            },
        }
    }

    /// A length around an edge, or any small one.
    fn len(&mut self) -> u64 {
        if self.random.one_in(self.taste.large_one_in) {
            return match self.random.below(4) {
                0 => LARGE * (1 + self.random.below(2)) + self.random.below(9000),
                1 => self.random.below(3 * LARGE),
                _ => LARGE + self.random.below(3) - 1,
            };
        }
        match self.random.below(10) {
            0..4 => {
                let edge = EDGES[self.random.below(5) as usize];
                edge + self.random.below(3) - 1
            }
            4..8 => self.random.below(600),
            8 => self.random.below(3 * BLOCK),
            _ => self.random.below(20 * BLOCK),
        }
    }

    /// An offset: inside the file, at its end, past it, at the edge of a tree, or out of bounds.
    fn offset(&mut self, model: &Reference, ino: Ino) -> u64 {
        let size = model.live(ino).map_or(0, |node| node.size());
        let near = size.min(6 * LARGE);
        let jitter = |random: &mut Random| *random.pick(&[0, 1, 2, 7, 8, 63, 64, 500]);
        match self.random.below(40) {
            0..6 => size,
            6..8 => size + self.random.below(3 * BLOCK),
            8..14 => self.random.below(near / BLOCK + 1) * BLOCK,
            14 => size.saturating_sub(self.random.below(3 * BLOCK)),
            15 => {
                let edge = BLOCK << (9 * self.random.below(5));
                edge.min(SIZE_MAX) - jitter(&mut self.random)
            }
            16 if self.random.one_in(2) => {
                let edge = BLOCK << (9 * self.random.below(4));
                edge * (1 + self.random.below(3)) + jitter(&mut self.random)
            }
            17 if self.random.one_in(3) => {
                *self
                    .random
                    .pick(&[SIZE_MAX - 1, SIZE_MAX, SIZE_MAX + 1, u64::MAX])
            }
            18 => LARGE * self.random.below(3) + self.random.below(BLOCK),
            19 => near / 8 * 8,
            20..26 => self.random.below(near / 8 + 1) * 8,
            _ => self.random.below(near + 1),
        }
    }

    fn data(&mut self, model: &Reference, crowded: bool) -> Operation {
        let ino = self.file(model);
        let (at, len) = (self.offset(model, ino), self.len());
        let seed = self.random.next();
        match self.random.below(100) {
            0..45 if !crowded => Operation::Write {
                ino,
                at,
                len: len as usize,
                seed,
            },
            45..57 if !crowded => Operation::Append {
                ino,
                len: len as usize,
                seed,
            },
            57..75 => Operation::Read {
                ino,
                at,
                len: len as usize,
            },
            75..80 => {
                let size = Some(at);
                Operation::SetAttr {
                    ino,
                    set: SetAttr {
                        size,
                        ..SetAttr::default()
                    },
                }
            }
            80..87 => self.fallocate(ino, at, len),
            87 => self.shift(model, ino, at, len),
            88..90 => Operation::SeekData { ino, at },
            90..92 => Operation::SeekHole { ino, at },
            92..95 if !crowded => self.clone_range(model, ino, at, len),
            _ if !crowded => {
                let to = match self.random.below(3) {
                    0 => ino,
                    _ => self.file(model),
                };
                Operation::CopyRange {
                    from: ino,
                    from_at: at,
                    to,
                    to_at: self.offset(model, to),
                    len,
                }
            }
            _ => self.fallocate(ino, at, len),
        }
    }

    /// Mostly a whole file, or whole blocks inside of it.
    fn clone_range(&mut self, model: &Reference, from: Ino, at: u64, len: u64) -> Operation {
        let to = match self.random.below(6) {
            0 => from,
            _ => self.file(model),
        };
        let size = |ino| model.live(ino).map_or(0, |node| node.size());
        let theirs = self.offset(model, to);
        let ours = size(from).min(6 * LARGE);
        let (from_at, to_at, len) = match self.random.below(8) {
            0..4 => (0, 0, 0),
            4 => (0, size(to).next_multiple_of(BLOCK), 0),
            5 | 6 if ours >= BLOCK => {
                let from_at = self.random.below(ours / BLOCK) * BLOCK;
                let most = (ours - from_at) / BLOCK;
                let len = (1 + self.random.below(most.min(1200))) * BLOCK;
                (from_at, theirs / BLOCK * BLOCK, len)
            }
            _ => (at, theirs, len),
        };
        Operation::CloneRange {
            from,
            from_at,
            to,
            to_at,
            len,
        }
    }

    /// Mostly whole blocks, now and then whole large pages.
    fn shift(&mut self, model: &Reference, ino: Ino, at: u64, len: u64) -> Operation {
        let size = model.live(ino).map_or(0, |node| node.size());
        if self.random.one_in(2) && size > 2 * BLOCK {
            let at = self.random.below(size.min(6 * LARGE) / BLOCK - 1) * BLOCK;
            let most = (size - at) / BLOCK;
            return Operation::Shift {
                ino,
                insert: self.random.one_in(4),
                at,
                len: (1 + self.random.below(most.min(600))) * BLOCK,
            };
        }
        let unit = *self.random.pick(&[BLOCK, BLOCK, BLOCK, BLOCK, LARGE, 1]);
        let len = match self.random.below(8) {
            0 => 0,
            1 => BLOCK << self.random.below(30),
            _ => len.next_multiple_of(unit),
        };
        Operation::Shift {
            ino,
            insert: self.random.one_in(2),
            at: at / unit * unit,
            len,
        }
    }

    fn fallocate(&mut self, ino: Ino, at: u64, len: u64) -> Operation {
        let (keep, punch, zero) = (
            FallocateMode::KEEP_SIZE,
            FallocateMode::PUNCH_HOLE,
            FallocateMode::ZERO_RANGE,
        );
        let mode = match self.random.below(20) {
            0..8 => punch | keep,
            8..10 => zero,
            10..12 => zero | keep,
            12..15 => FallocateMode::empty(),
            15..18 => keep,
            18 => punch,
            _ => FallocateMode::all(),
        };
        let len = match self.random.below(4) {
            0 => len * BLOCK % (3 * LARGE),
            1 => len.next_multiple_of(BLOCK),
            _ => len,
        };
        let at = if self.random.one_in(2) {
            at / BLOCK * BLOCK
        } else {
            at
        };
        Operation::Fallocate { ino, mode, at, len }
    }
}
