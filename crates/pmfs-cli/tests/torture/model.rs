//! The model of files that one writer has alone: what they are, what changes make of
//! them, and how what is found in a pool differs. `kills` and `torture` judge by it.

#![allow(dead_code, reason = "one of the tests has no handles")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// A call that changes a file by its name.
#[derive(Clone, Debug)]
pub enum Change {
    Create {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Write {
        path: String,
        at: usize,
        len: usize,
        fill: u64,
    },
    Append {
        path: String,
        len: usize,
        fill: u64,
    },
    Truncate {
        path: String,
        len: usize,
    },
    Punch {
        path: String,
        at: usize,
        len: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        one: String,
        other: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    SetXattr {
        path: String,
        name: String,
        len: usize,
        fill: u64,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
}

/// The bytes that a fill stands for; no other operation writes them.
pub fn content(fill: u64, len: usize) -> Vec<u8> {
    let mut stream = Random::new(fill);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(stream.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The thing that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Dir,
    File,
    Symlink(String),
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: Kind,
    pub mode: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    #[serde(skip)]
    pub content: Vec<u8>,
}

/// A writer's files: names to numbers, numbers to nodes (two names may have one), and
/// which it has open.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Model {
    pub names: BTreeMap<String, u64>,
    pub nodes: BTreeMap<u64, Node>,
    /// The files that this incarnation has open, oldest first.
    pub open: Vec<Opened>,
    /// Open files and their offsets.
    files: BTreeMap<u64, usize>,
    next: u64,
}

/// A handle.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Opened {
    /// Number of its node.
    pub node: u64,
    /// Number of its open file, which duplicates share.
    file: u64,
}

/// A name as it is seen: its node, how many names that has, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub node: Node,
    pub links: u64,
    pub first: String,
}

/// All of a writer's names.
pub type View = BTreeMap<String, Seen>;

/// Names as they are found, with the numbers of their inodes.
pub type Found = BTreeMap<String, (Seen, u64)>;

/// Fills in which of its names is each inode's first.
pub fn view_of(found: Found) -> View {
    let mut first = BTreeMap::new();
    let with_first = |(path, (mut seen, ino)): (String, (Seen, u64))| {
        seen.first = first.entry(ino).or_insert_with(|| path.clone()).clone();
        (path, seen)
    };
    found.into_iter().map(with_first).collect()
}

pub const FILE_MODE: u32 = 0o644;
pub const DIR_MODE: u32 = 0o755;

impl Model {
    pub fn node(&self, path: &str) -> &Node {
        &self.nodes[&self.names[path]]
    }

    fn node_mut(&mut self, path: &str) -> &mut Node {
        let number = self.names[path];
        self.nodes.get_mut(&number).expect("a name has a node")
    }

    fn add(&mut self, path: &str, kind: Kind, mode: u32) {
        self.next += 1;
        let node = Node {
            kind,
            mode,
            xattrs: BTreeMap::new(),
            content: Vec::new(),
        };
        self.nodes.insert(self.next, node);
        self.names.insert(path.to_owned(), self.next);
    }

    /// Drops a node that no name leads to and nobody has open.
    fn sweep(&mut self, number: u64) {
        let named = self.names.values().any(|&other| other == number);
        if !named && !self.open.iter().any(|open| open.node == number) {
            self.nodes.remove(&number);
        }
    }

    fn remove(&mut self, path: &str) {
        let number = self.names.remove(path).expect("the model has the name");
        self.sweep(number);
    }

    /// The process died: nothing is open any more.
    pub fn close_all(&mut self) {
        self.files.clear();
        for open in std::mem::take(&mut self.open) {
            self.sweep(open.node);
        }
    }

    /// Returns where the next read or write by a handle begins.
    pub fn offset(&self, open: usize) -> usize {
        self.files[&self.open[open].file]
    }

    /// Returns what is read next by a handle.
    pub fn next_bytes(&self, open: usize, len: usize) -> &[u8] {
        let content = &self.nodes[&self.open[open].node].content;
        let at = self.offset(open).min(content.len());
        &content[at..(at + len).min(content.len())]
    }

    pub fn move_by(&mut self, open: usize, by: usize) {
        let file = self.open[open].file;
        *self.files.get_mut(&file).expect("open") += by;
    }

    pub fn write_open(&mut self, open: usize, at: usize, bytes: &[u8]) {
        let node = self.open[open].node;
        let node = self.nodes.get_mut(&node).expect("open");
        write(&mut node.content, at, bytes);
    }

    pub fn open(&mut self, path: &str) {
        self.next += 1;
        self.files.insert(self.next, 0);
        self.open.push(Opened {
            node: self.names[path],
            file: self.next,
        });
    }

    /// One more handle of an open file.
    pub fn dup(&mut self, open: usize) {
        self.open.push(self.open[open]);
    }

    pub fn close(&mut self, open: usize) {
        let Opened { node, file } = self.open.remove(open);
        if self.open.iter().all(|other| other.file != file) {
            self.files.remove(&file);
        }
        self.sweep(node);
    }

    pub fn seek(&mut self, open: usize, to: usize) {
        self.files.insert(self.open[open].file, to);
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { path } => self.add(path, Kind::File, FILE_MODE),
            Change::Mkdir { path } => self.add(path, Kind::Dir, DIR_MODE),
            Change::Symlink { target, path } => {
                self.add(path, Kind::Symlink(target.clone()), 0o777)
            }
            Change::Write {
                path,
                at,
                len,
                fill,
            } => {
                write(&mut self.node_mut(path).content, *at, &content(*fill, *len));
            }
            Change::Append { path, len, fill } => {
                self.node_mut(path).content.extend(content(*fill, *len));
            }
            Change::Truncate { path, len } => self.node_mut(path).content.resize(*len, 0),
            Change::Punch { path, at, len } => {
                let content = &mut self.node_mut(path).content;
                let end = (at + len).min(content.len());
                content[(*at).min(end)..end].fill(0);
            }
            Change::Rename { from, to } => self.rename(from, to),
            Change::Exchange { one, other } => {
                let (first, second) = (self.names[one], self.names[other]);
                self.names.insert(one.clone(), second);
                self.names.insert(other.clone(), first);
            }
            Change::Link { from, to } => {
                self.names.insert(to.clone(), self.names[from]);
            }
            Change::Unlink { path } | Change::Rmdir { path } => self.remove(path),
            Change::Chmod { path, mode } => self.node_mut(path).mode = *mode,
            Change::SetXattr {
                path,
                name,
                len,
                fill,
            } => {
                let value = content(*fill, *len);
                self.node_mut(path).xattrs.insert(name.clone(), value);
            }
            Change::RemoveXattr { path, name } => {
                self.node_mut(path).xattrs.remove(name);
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let number = self.names[from];
        if self.names.get(to) == Some(&number) {
            // Two names of one file: POSIX says that nothing happens.
            return;
        }
        self.names.remove(from);
        if let Some(replaced) = self.names.insert(to.to_owned(), number) {
            self.sweep(replaced);
        }
    }

    /// Returns the view that a file system would show.
    pub fn view(&self) -> View {
        let mut first: BTreeMap<u64, &str> = BTreeMap::new();
        let mut links: BTreeMap<u64, u64> = BTreeMap::new();
        for (path, number) in &self.names {
            first.entry(*number).or_insert(path);
            *links.entry(*number).or_default() += 1;
        }
        let seen = |(path, number): (&String, &u64)| {
            let node = self.nodes[number].clone();
            let links = match node.kind {
                Kind::Dir => 2 + self.directories_in(path),
                _ => links[number],
            };
            let first = first[number].to_owned();
            (path.clone(), Seen { node, links, first })
        };
        self.names.iter().map(seen).collect()
    }

    fn directories_in(&self, path: &str) -> u64 {
        let below = format!("{path}/");
        let child = |(name, number): &(&String, &u64)| {
            let rest = name.strip_prefix(&below);
            rest.is_some_and(|rest| !rest.contains('/')) && self.nodes[*number].kind == Kind::Dir
        };
        self.names.iter().filter(child).count() as u64
    }
}

fn write(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    content.resize(content.len().max(end), 0);
    content[at..end].copy_from_slice(bytes);
}

/// Returns what is found that should not be, or not found that should; `None` if the views are the
/// same.
pub fn difference(should: &View, is: &View) -> Option<String> {
    for (path, seen) in should {
        match is.get(path) {
            None => return Some(format!("{path} is missing")),
            Some(found) if found != seen => return Some(format!("{path}: {}", told(seen, found))),
            Some(_) => {}
        }
    }
    let extra = is.keys().find(|path| !should.contains_key(*path))?;
    Some(format!("{extra} should not be there"))
}

fn told(should: &Seen, is: &Seen) -> String {
    let (one, other) = (&should.node.content, &is.node.content);
    if one != other {
        let at = one.iter().zip(other).position(|(one, other)| one != other);
        let at = at.unwrap_or(one.len().min(other.len()));
        let wrong = one.iter().zip(other).filter(|(one, other)| one != other);
        return format!(
            "content: {} bytes, should be {}; {} are wrong; first difference at {at}",
            other.len(),
            one.len(),
            wrong.count()
        );
    }
    let brief = |seen: &Seen| {
        let Node {
            kind, mode, xattrs, ..
        } = &seen.node;
        let xattrs: Vec<_> = xattrs
            .iter()
            .map(|(name, value)| (name, value.len()))
            .collect();
        format!(
            "{kind:?} {mode:o}, {} links, first {}, {xattrs:?}",
            seen.links, seen.first
        )
    };
    format!("{}, should be {}", brief(is), brief(should))
}
