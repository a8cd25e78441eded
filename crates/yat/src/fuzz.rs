//! Workloads at random, of what bounded sets leave out: sizes and offsets that end nowhere in
//! particular, files held open more than once and without a name, long names, ranges moved and
//! copied, and pools that are nearly full.
//!
//! A [`Picture`] follows roughly what the calls leave, so that most of them succeed. It may be
//! wrong (a call may fail): then later ones fail too, which is allowed. One number makes one
//! workload, always the same.

use crate::files::call::{Call, Held, Name};
use crate::files::pool;
use crate::pairs::Pair;
use pmfs::{DataMode, Fs};
use std::collections::BTreeMap;

/// Most calls of a workload.
pub const CALLS_MAX: u64 = 10;

const BLOCK: u64 = 4096;

/// Names that calls give to what they make, each in each directory: few, so that they meet.
const LAST: [&str; 6] = ["a", "b", "c", "n*200", "m*255", "o*61"];
const DIRS: [&str; 4] = ["D", "E*250", "D/S", "E*250/T*100"];

/// `splitmix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.below(all.len().max(1) as u64);
        all.get(at as usize)
    }

    /// Bytes: a few, about a block's end, or up to five blocks.
    fn len(&mut self) -> u64 {
        match self.below(8) {
            0 => 1 + self.below(8),
            1 | 2 => 1 + self.below(700),
            3 => BLOCK * (1 + self.below(3)),
            4 | 5 => (BLOCK * (1 + self.below(3)) + self.below(40)).saturating_sub(20),
            _ => 1 + self.below(20_000),
        }
    }

    /// An offset in a file of `size` bytes, at its end, or past it.
    fn offset(&mut self, size: u64) -> u64 {
        match self.below(12) {
            0 => 0,
            1 | 2 => size,
            3 => size.saturating_sub(1 + self.below(70)),
            4 => size + 1 + self.below(70),
            5 => size + self.below(20_000),
            6 => self.below(size + 1) / BLOCK * BLOCK,
            // Small leaves need one more level of nodes there.
            7 if self.one_in(6) => (2 << 20) - 1 - self.below(5000),
            _ => self.below(size + 1),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Other,
}

#[derive(Clone, Copy)]
struct Node {
    kind: Kind,
    size: u64,
    attribute: bool,
}

/// The names and nodes that the calls so far should have left.
#[derive(Default)]
struct Picture {
    names: BTreeMap<Name, usize>,
    nodes: Vec<Node>,
    /// Files by descriptor; `None` once closed.
    held: Vec<Option<usize>>,
}

impl Picture {
    fn add(&mut self, name: Option<&Name>, kind: Kind) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node {
            kind,
            size: 0,
            attribute: false,
        });
        if let Some(name) = name {
            self.names.insert(name.clone(), node);
        }
        node
    }

    fn named(&self, kind: Kind) -> Vec<&Name> {
        let is_kind = |&(_, &node): &(&Name, &usize)| self.nodes[node].kind == kind;
        let names = self.names.iter().filter(is_kind);
        names.map(|(name, _)| name).collect()
    }

    /// Directories, the root among them.
    fn dirs(&self) -> Vec<Name> {
        let mut dirs = vec![Name::new()];
        dirs.extend(self.named(Kind::Directory).into_iter().cloned());
        dirs
    }

    fn descriptors(&self) -> Vec<usize> {
        let open = |&at: &usize| self.held[at].is_some();
        (0..self.held.len()).filter(open).collect()
    }

    fn is_empty(&self, dir: &str) -> bool {
        let below = format!("{dir}/");
        !self.names.keys().any(|name| name.starts_with(&below))
    }

    /// Everything below `old` moves with it.
    fn move_name(&mut self, old: &Name, new: &Name) {
        let Some(node) = self.names.remove(old) else {
            return;
        };
        self.names.insert(new.clone(), node);
        let below = format!("{old}/");
        let moved: Vec<Name> = self
            .names
            .keys()
            .filter(|name| name.starts_with(&below))
            .cloned()
            .collect();
        for name in moved {
            let node = self.names.remove(&name).expect("just listed");
            self.names
                .insert(format!("{new}/{}", &name[below.len()..]), node);
        }
    }
}

struct Generator {
    random: Random,
    picture: Picture,
    calls: Vec<Call>,
}

/// A workload, and how many of its first calls only fill the pool: crashes in them are not looked
/// at, since the many blocks of one large allocation have more images than all other calls
/// together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// All calls.
    pub calls: Vec<Call>,
    /// The first one to be crashed.
    pub from: usize,
}

/// Images of one crash point, in an exploration of workloads at random: many workloads tell more
/// than many images.
pub const IMAGES_MAX: u64 = 2048;

/// The workload of a number.
#[must_use]
pub fn workload(seed: u64) -> Workload {
    let mut generator = Generator {
        random: Random(seed),
        picture: Picture::default(),
        calls: Vec::new(),
    };
    let count = 3 + generator.random.below(CALLS_MAX - 2);
    if generator.random.one_in(4) {
        generator.fill();
    }
    let from = generator.calls.len();
    while (generator.calls.len() as u64) < count {
        generator.call();
    }
    Workload {
        calls: generator.calls,
        from,
    }
}

/// Schedules of a pair at random.
const SCHEDULES_MAX: u64 = 200;

/// The last two calls of a number's workload at once, in two lanes, on what the others leave. None
/// if they need what a call before them holds open; if one is a copy, which reads and then writes,
/// with others in between; or if the pool is nearly full: what fits is another thing then while
/// both have blocks.
#[must_use]
pub fn pair(seed: u64, mode: DataMode) -> Option<Pair> {
    let Workload { mut calls, from } = workload(seed);
    let second = calls.pop()?;
    let first = calls.pop()?;
    let is_out = |call: &mut Call| {
        let holds = call.names().iter().any(|name| name.starts_with('#'));
        holds || matches!(call, Call::Close(_) | Call::Copy { .. })
    };
    if from > 0 || is_out(&mut first.clone()) || is_out(&mut second.clone()) {
        return None;
    }
    let mut pair = Pair::of_calls(mode, calls, [vec![first], vec![second]]);
    pair.schedules_max = SCHEDULES_MAX;
    pair.images_max = IMAGES_MAX;
    Some(pair)
}

/// Returns how many of a workload's calls succeed, without a crash.
///
/// # Panics
/// If a fresh pool can't be attached to.
#[must_use]
pub fn succeeding(calls: &[Call], mode: DataMode) -> u64 {
    let options = pool::open_options(mode, 1_000_000);
    let fs = Fs::open_private(pool::fresh(pool::POOL_BYTES), &options).expect("a fresh pool");
    let mut held = Held::new();
    calls
        .iter()
        .enumerate()
        .map(|(at, call)| u64::from(call.run(&fs, &mut held, at as u8 + 1).is_ok()))
        .sum()
}

/// Blocks that files of a fresh pool can have.
fn free_blocks() -> u64 {
    static FREE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *FREE.get_or_init(|| {
        let options = pool::open_options(DataMode::Atomic, 1000);
        let fs = Fs::open_private(pool::fresh(pool::POOL_BYTES), &options).expect("a fresh pool");
        fs.statfs().expect("an attached pool").blocks_free
    })
}

impl Generator {
    /// Takes nearly all of the pool.
    fn fill(&mut self) {
        let name = Name::from("full");
        self.calls.push(Call::Create(name.clone()));
        let node = self.picture.add(Some(&name), Kind::File);
        let left = self.random.below(14);
        let len = free_blocks().saturating_sub(left + 1) * BLOCK - self.random.below(BLOCK);
        if self.random.one_in(6) {
            self.picture.nodes[node].size = len;
            let offset = 0;
            self.calls.push(Call::Write { name, offset, len });
        } else {
            let mode = u32::from(!self.random.one_in(6));
            if mode == 0 {
                self.picture.nodes[node].size = len;
            }
            let offset = 0;
            self.calls.push(Call::Fallocate {
                name,
                mode,
                offset,
                len,
            });
        }
    }

    fn call(&mut self) {
        let files = self.picture.named(Kind::File).len() + self.picture.descriptors().len();
        match self.random.below(100) {
            0..10 => self.create(),
            10..15 => self.mkdir(),
            15..20 => self.make_other(),
            20..24 => self.tmpfile(),
            _ if files == 0 => self.create(),
            24..45 => self.write(),
            45..52 => self.append(),
            52..58 => self.truncate(),
            58..65 => self.fallocate(),
            65..69 => self.shift(),
            69..73 => self.copy(),
            73..77 => self.open(),
            77..80 => self.close(),
            80..83 => self.link(),
            83..88 => self.unlink(),
            88..95 => self.rename(),
            _ => self.attributes(),
        }
    }

    /// A name in a directory that is there; most likely one that is not taken.
    fn new_name(&mut self) -> Name {
        let dirs = self.picture.dirs();
        let mut name = Name::new();
        for _ in 0..4 {
            let dir = self.random.of(&dirs).cloned().unwrap_or_default();
            let last = self.random.of(&LAST).expect("a constant");
            name = match dir.as_str() {
                "" => (*last).to_owned(),
                dir => format!("{dir}/{last}"),
            };
            if !self.picture.names.contains_key(&name) {
                break;
            }
        }
        name
    }

    /// A file, by name or descriptor, and its node; rarely one that is not there.
    fn file(&mut self) -> (Name, Option<usize>) {
        let descriptors = self.picture.descriptors();
        let names = self.picture.named(Kind::File);
        if self.random.one_in(40) {
            return (self.new_name(), None);
        }
        if !descriptors.is_empty() && (names.is_empty() || self.random.one_in(2)) {
            let at = *self.random.of(&descriptors).expect("not empty");
            return (format!("#{at}"), self.picture.held[at]);
        }
        match self.random.of(&names) {
            Some(&name) => (name.clone(), Some(self.picture.names[name])),
            None => (self.new_name(), None),
        }
    }

    fn size(&self, node: Option<usize>) -> u64 {
        node.map_or(0, |node| self.picture.nodes[node].size)
    }

    fn set_size(&mut self, node: Option<usize>, size: u64) {
        if let Some(node) = node {
            self.picture.nodes[node].size = size;
        }
    }

    fn create(&mut self) {
        let name = self.new_name();
        self.picture.add(Some(&name), Kind::File);
        self.calls.push(Call::Create(name));
    }

    fn mkdir(&mut self) {
        let missing = |dir: &&&str| {
            let parent = dir.rsplit_once('/').map(|(parent, _)| parent);
            !self.picture.names.contains_key(**dir)
                && parent.is_none_or(|parent| self.picture.names.contains_key(parent))
        };
        let dirs: Vec<&str> = DIRS.iter().filter(missing).copied().collect();
        let name = (*self.random.of(&dirs).unwrap_or(&DIRS[0])).to_owned();
        self.picture.add(Some(&name), Kind::Directory);
        self.calls.push(Call::Mkdir(name));
    }

    fn make_other(&mut self) {
        let name = self.new_name();
        self.picture.add(Some(&name), Kind::Other);
        self.calls.push(if self.random.one_in(4) {
            Call::Mknod(name)
        } else {
            let len = 1 + self.random.below(700);
            Call::Symlink { len, name }
        });
    }

    fn tmpfile(&mut self) {
        let dirs = self.picture.dirs();
        let dir = self.random.of(&dirs).cloned().unwrap_or_default();
        let node = self.picture.add(None, Kind::File);
        self.picture.held.push(Some(node));
        // The root has no name of its own; a slash alone is it.
        let dir = if dir.is_empty() { "/".into() } else { dir };
        self.calls.push(Call::Tmpfile(dir));
    }

    fn write(&mut self) {
        let (name, node) = self.file();
        let size = self.size(node);
        let (offset, len) = (self.random.offset(size), self.random.len());
        self.set_size(node, size.max(offset + len));
        self.calls.push(Call::Write { name, offset, len });
    }

    fn append(&mut self) {
        let (name, node) = self.file();
        let len = self.random.len();
        self.set_size(node, self.size(node) + len);
        self.calls.push(Call::Append { name, len });
    }

    fn truncate(&mut self) {
        let (name, node) = self.file();
        let size = self.random.offset(self.size(node));
        self.set_size(node, size);
        self.calls.push(Call::Truncate { name, size });
    }

    fn fallocate(&mut self) {
        let (name, node) = self.file();
        let size = self.size(node);
        let (offset, len) = (self.random.offset(size), self.random.len());
        // None, KEEP_SIZE, PUNCH_HOLE with it, ZERO_RANGE without and with it.
        let mode = *self
            .random
            .of(&[0, 1, 3, 3, 0x10, 0x11])
            .expect("a constant");
        if mode & 1 == 0 {
            self.set_size(node, size.max(offset + len));
        }
        self.calls.push(Call::Fallocate {
            name,
            mode,
            offset,
            len,
        });
    }

    /// Collapses or inserts whole blocks; rarely others, which must be refused.
    fn shift(&mut self) {
        let (name, node) = self.file();
        let size = self.size(node);
        let blocks = size / BLOCK;
        let offset = self.random.below(blocks.max(1)) * BLOCK;
        let mut len = BLOCK * (1 + self.random.below((blocks - offset / BLOCK).max(1)));
        if self.random.one_in(12) {
            len += 1;
        }
        if offset + len < size && self.random.one_in(2) {
            self.set_size(node, size - len);
            self.calls.push(Call::Collapse { name, offset, len });
        } else if offset < size {
            self.set_size(node, size + len);
            self.calls.push(Call::Insert { name, offset, len });
        } else {
            // Something to shift, the next time.
            let len = BLOCK + self.random.len();
            self.set_size(node, size + len);
            self.calls.push(Call::Append { name, len });
        }
    }

    fn copy(&mut self) {
        let ((from, source), (to, target)) = (self.file(), self.file());
        let (from_size, size) = (self.size(source), self.size(target));
        let (at, offset) = (self.random.below(from_size + 1), self.random.offset(size));
        let len = self.random.len();
        if source == target && at < offset + len && offset < at + len {
            return self.write();
        }
        self.set_size(target, size.max(offset + len.min(from_size - at)));
        self.calls.push(Call::Copy {
            from,
            at,
            to,
            offset,
            len,
        });
    }

    fn open(&mut self) {
        let (name, node) = self.file();
        if node.is_some() {
            self.picture.held.push(node);
        }
        self.calls.push(Call::Open(name));
    }

    fn close(&mut self) {
        let descriptors = self.picture.descriptors();
        let Some(&at) = self.random.of(&descriptors) else {
            return self.open();
        };
        self.picture.held[at] = None;
        self.calls.push(Call::Close(at));
    }

    fn link(&mut self) {
        let (old, node) = self.file();
        let new = self.new_name();
        if let Some(node) = node {
            self.picture.names.entry(new.clone()).or_insert(node);
        }
        self.calls.push(Call::Link { old, new });
    }

    fn unlink(&mut self) {
        let removable: Vec<Name> = self.picture.names.keys().cloned().collect();
        let Some(name) = self.random.of(&removable).cloned() else {
            return self.create();
        };
        let node = self.picture.names[&name];
        if self.picture.nodes[node].kind != Kind::Directory {
            self.picture.names.remove(&name);
            self.calls.push(Call::Unlink(name));
        } else {
            if self.picture.is_empty(&name) {
                self.picture.names.remove(&name);
            }
            self.calls.push(Call::Rmdir(name));
        }
    }

    fn rename(&mut self) {
        let names: Vec<Name> = self.picture.names.keys().cloned().collect();
        let Some(old) = self.random.of(&names).cloned() else {
            return self.create();
        };
        let kind = self.picture.nodes[self.picture.names[&old]].kind;
        let same_kind: Vec<Name> = self.picture.named(kind).into_iter().cloned().collect();
        // Over another one, or to a name that is free.
        let over = self
            .random
            .of(&same_kind)
            .filter(|&other| *other != old)
            .cloned();
        let (new, flags) = match over {
            Some(other) if self.random.one_in(2) => (other, 2 * u32::from(self.random.one_in(3))),
            _ => {
                let whiteout = 4 * u32::from(self.random.one_in(6));
                (self.new_name(), whiteout)
            }
        };
        let below = |dir: &Name, name: &Name| name.starts_with(&format!("{dir}/"));
        let possible = !below(&old, &new)
            && !below(&new, &old)
            && (kind != Kind::Directory || flags == 2 || self.picture.is_empty(&new));
        match flags {
            _ if !possible => {}
            2 => {
                let spare = Name::from("/");
                self.picture.move_name(&old, &spare);
                self.picture.move_name(&new, &old);
                self.picture.move_name(&spare, &new);
            }
            // Two names of one file: nothing happens.
            0 if self.picture.names.get(&old) == self.picture.names.get(&new) => {}
            _ => {
                self.picture.move_name(&old, &new);
                if flags == 4 {
                    self.picture.add(Some(&old), Kind::Other);
                }
            }
        }
        self.calls.push(Call::Rename { old, new, flags });
    }

    fn attributes(&mut self) {
        let (name, node) = self.file();
        let has = node.is_some_and(|node| self.picture.nodes[node].attribute);
        let which = self.random.below(7);
        let set = |picture: &mut Picture, to: bool| {
            if let Some(node) = node {
                picture.nodes[node].attribute = to;
            }
        };
        self.calls.push(match which {
            0 => Call::Chmod {
                name,
                mode: 0o400 + self.random.below(0o400) as u32,
            },
            1 => Call::Chown {
                name,
                uid: self.random.below(1000) as u32,
            },
            2 => Call::Utimens(name),
            3 if has => {
                set(&mut self.picture, false);
                Call::Removexattr(name)
            }
            _ => {
                set(&mut self.picture, true);
                let len = self.random.len();
                Call::Setxattr { name, len }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{succeeding, workload};
    use crate::files::call::{parse, text};
    use pmfs::DataMode;

    /// Goal: a number is enough to have a workload again, and most calls do something. Method:
    /// 2,000 of them.
    #[test]
    fn most_calls_succeed() {
        let (mut all, mut succeeded) = (0, 0);
        for seed in 0..2000 {
            let calls = workload(seed).calls;
            assert_eq!(calls, workload(seed).calls);
            assert_eq!(parse(&text(&calls)).unwrap(), calls, "as a report gives it");
            all += calls.len() as u64;
            succeeded += succeeding(&calls, DataMode::Atomic);
        }
        println!("{succeeded} of {all} calls succeed");
        assert!(succeeded * 100 > all * 80, "{succeeded} of {all}");
        assert!(succeeded < all, "some are to meet a full pool");
    }
}
