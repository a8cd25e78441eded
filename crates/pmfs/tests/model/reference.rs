//! The reference: a file system in plain maps. It knows what each call answers and does, and
//! nothing of how.
//!
//! For each call there is a verdict (`may_*`: the errno that Linux would give, or none) and an
//! effect (`did_*`), so that an engine which answers "no space" can be followed too. The name's own
//! error (too long, "." and so on) comes first of two.

use crate::acl::Acl;
use crate::content::Content;
use crate::pins::Pins;
use pmfs::types::mode::{S_IFDIR, S_IFLNK, S_IFREG, S_ISGID};
use pmfs::{Attr, Ino, NewNode};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The permitted outcome of a call: nothing is returned, or the errno.
pub type Verdict = Result<(), Errno>;

/// The steps of the clock in which a call ran: a time that it set lies in there.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: i64,
    pub to: i64,
}

impl Span {
    pub fn at(ns: i64) -> Span {
        Span { from: ns, to: ns }
    }

    pub fn holds(self, ns: i64) -> bool {
        (self.from..=self.to).contains(&ns)
    }
}

/// A directory's entry, and the number of the operation that made it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub ino: Ino,
    pub born: u64,
}

#[derive(Clone)]
pub enum Body {
    File(Content),
    Directory {
        entries: BTreeMap<Vec<u8>, Entry>,
        parent: Ino,
        subdirectories: u32,
    },
    Symlink(Vec<u8>),
    Special,
}

#[derive(Clone)]
pub struct Node {
    pub body: Body,
    /// Type and permission bits.
    pub mode: u32,
    /// Names; of a directory 1 while it has one.
    pub names: u32,
    /// Made by O_TMPFILE and without a name yet.
    pub linkable: bool,
    /// Blocks of it may be shared: a change of them takes new ones.
    pub cloned: bool,
    pub generation: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// A read may have set it, or not: any of these.
    pub atime: Vec<Span>,
    pub mtime: Span,
    pub ctime: Span,
    pub crtime: Span,
    /// All attributes; the ACLs among them.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub access_acl: Option<Acl>,
    pub default_acl: Option<Acl>,
}

impl Node {
    pub fn kind(&self) -> u32 {
        self.mode & pmfs::types::mode::S_IFMT
    }

    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory { .. })
    }

    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.size,
            Body::Directory { entries, .. } => entries.len() as u64 * 64,
            Body::Symlink(target) => target.len() as u64,
            Body::Special => 0,
        }
    }

    fn links(&self) -> u32 {
        match self.body {
            Body::Directory { subdirectories, .. } if self.names > 0 => 2 + subdirectories,
            _ => self.names,
        }
    }

    pub fn touch(&mut self, now: Span) {
        self.mtime = now;
        self.ctime = now;
    }
}

/// The whole tree below one directory, with everything that is held open without a name.
#[derive(Clone)]
pub struct Reference {
    pub root: Ino,
    pub nodes: BTreeMap<Ino, Node>,
    /// Holds of each instance of the engine.
    pub holds: Vec<BTreeMap<Ino, u32>>,
    /// The pins of each.
    pub pins: Vec<Pins>,
    /// The nodes that are directories, and those that are regular files.
    pub dirs: BTreeSet<Ino>,
    pub files: BTreeSet<Ino>,
    /// The last node that was made.
    pub newest: Ino,
    /// Last generation of numbers that were given up.
    generations: BTreeMap<Ino, u32>,
    /// Number of the operation.
    pub operation: u64,
}

impl Reference {
    /// Knows an empty directory.
    pub fn new(root: &Attr, parent: Ino, instances: usize) -> Reference {
        let node = Node {
            body: Body::Directory {
                entries: BTreeMap::new(),
                parent,
                subdirectories: 0,
            },
            mode: root.mode,
            names: 1,
            linkable: false,
            cloned: false,
            generation: root.generation,
            uid: root.uid,
            gid: root.gid,
            rdev: 0,
            atime: vec![Span::at(root.atime_ns)],
            mtime: Span::at(root.mtime_ns),
            ctime: Span::at(root.ctime_ns),
            crtime: Span::at(root.crtime_ns),
            xattrs: BTreeMap::new(),
            access_acl: None,
            default_acl: None,
        };
        Reference {
            root: root.ino,
            nodes: BTreeMap::from([(root.ino, node)]),
            holds: vec![BTreeMap::new(); instances],
            pins: vec![BTreeMap::new(); instances],
            dirs: BTreeSet::from([root.ino]),
            files: BTreeSet::new(),
            newest: root.ino,
            generations: BTreeMap::new(),
            operation: 0,
        }
    }

    pub fn live(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::STALE)
    }

    pub fn node(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("the verdict said it lives")
    }

    pub fn entries(&self, dir: Ino) -> Result<&BTreeMap<Vec<u8>, Entry>, Errno> {
        match &self.live(dir)?.body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub fn file(&self, ino: Ino) -> Result<&Content, Errno> {
        match &self.live(ino)?.body {
            Body::File(content) => Ok(content),
            Body::Directory { .. } => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub fn content(&mut self, ino: Ino) -> &mut Content {
        match &mut self.node(ino).body {
            Body::File(content) => content,
            _ => panic!("the verdict said it is a file"),
        }
    }

    pub fn find(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        Some(self.entries(dir).ok()?.get(name)?.ino)
    }

    pub fn is_held(&self, ino: Ino) -> bool {
        self.holds.iter().any(|holds| holds.contains_key(&ino))
    }

    /// Blocks of data in all files.
    pub fn blocks(&self) -> u64 {
        let blocks = |node: &Node| match &node.body {
            Body::File(content) => content.blocks.len() as u64,
            _ => 0,
        };
        self.nodes.values().map(blocks).sum()
    }

    /// Files that live by a hold alone.
    pub fn orphans(&self) -> Vec<Ino> {
        let nameless = self.nodes.iter().filter(|(_, node)| node.names == 0);
        nameless.map(|(&ino, _)| ino).collect()
    }

    /// A nameless node goes with its last holder.
    pub fn reap(&mut self, ino: Ino) {
        let nameless = self.nodes.get(&ino).is_some_and(|node| node.names == 0);
        if nameless && !self.is_held(ino) {
            let node = self.nodes.remove(&ino).expect("it was there");
            self.dirs.remove(&ino);
            self.files.remove(&ino);
            self.generations.insert(ino, node.generation);
        }
    }

    pub fn is_pinned(&self, ino: Ino) -> bool {
        self.pins.iter().any(|pins| pins.contains_key(&ino))
    }

    pub fn is_pinned_by(&self, instance: usize, ino: Ino) -> bool {
        self.pins[instance].contains_key(&ino)
    }

    /// An instance is gone, and with it what it held.
    pub fn forget_holds(&mut self, instance: usize) {
        let inos: Vec<Ino> = self.holds[instance].keys().copied().collect();
        self.holds[instance].clear();
        self.pins[instance].clear();
        for ino in inos {
            self.reap(ino);
        }
    }

    /// Takes over the inode that a call just made, as the engine answered it.
    pub fn adopt(
        &mut self,
        dir: Ino,
        kind: u32,
        body: Body,
        node: &NewNode,
        rdev: u32,
        (attr, now): (&Attr, Span),
    ) -> Result<(), String> {
        let parent = self.live(dir).expect("the verdict said it lives");
        let mut bits = kind | node.mode & 0o7777;
        let mut gid = node.gid;
        if parent.mode & S_ISGID != 0 {
            gid = parent.gid;
            if kind == S_IFDIR {
                bits |= S_ISGID;
            }
        }
        let device = kind == pmfs::types::mode::S_IFBLK || kind == pmfs::types::mode::S_IFCHR;
        let mut made = Node {
            body,
            mode: bits,
            names: 0,
            linkable: false,
            cloned: false,
            generation: attr.generation,
            uid: node.uid,
            gid,
            rdev: if device { rdev } else { 0 },
            atime: vec![now],
            mtime: now,
            ctime: now,
            crtime: now,
            xattrs: BTreeMap::new(),
            access_acl: None,
            default_acl: None,
        };
        made.inherit(parent, node.umask);
        if let Some(last) = self.generations.get(&attr.ino)
            && *last == attr.generation
        {
            return Err(format!("inode {} has its old generation", attr.ino));
        }
        match kind {
            S_IFDIR => self.dirs.insert(attr.ino),
            S_IFREG => self.files.insert(attr.ino),
            _ => false,
        };
        self.newest = attr.ino;
        if self.nodes.insert(attr.ino, made).is_some() {
            return Err(format!("inode number {} was in use", attr.ino));
        }
        Ok(())
    }

    /// A new name, in a directory that may have one.
    pub fn enter(&mut self, dir: Ino, name: &[u8], ino: Ino, now: Span) {
        let born = self.operation;
        let is_dir = self.node(ino).is_dir();
        self.node(ino).names += 1;
        self.node(ino).linkable = false;
        let parent = self.node(dir);
        parent.touch(now);
        if let Body::Directory {
            entries,
            subdirectories,
            ..
        } = &mut parent.body
        {
            entries.insert(name.to_vec(), Entry { ino, born });
            *subdirectories += u32::from(is_dir);
        }
    }

    /// A name less.
    pub fn strike(&mut self, dir: Ino, name: &[u8], now: Span) -> Ino {
        let ino = self.find(dir, name).expect("the verdict said it is there");
        let is_dir = self.node(ino).is_dir();
        let node = self.node(ino);
        node.names -= 1;
        node.ctime = now;
        let parent = self.node(dir);
        parent.touch(now);
        if let Body::Directory {
            entries,
            subdirectories,
            ..
        } = &mut parent.body
        {
            entries.remove(name);
            *subdirectories -= u32::from(is_dir);
        }
        ino
    }

    /// Compares an engine's attributes with what is known, and notes times that were only known
    /// roughly.
    pub fn compare(&mut self, attr: &Attr) -> Result<(), String> {
        let node = self
            .nodes
            .get_mut(&attr.ino)
            .ok_or(format!("inode {} should not live", attr.ino))?;
        let mut wrong = String::new();
        let mut check = |what: &str, is: u64, should: u64| {
            if is != should {
                wrong += &format!(" {what} is {is:#o} ({is}), not {should:#o} ({should});");
            }
        };
        check("mode", attr.mode.into(), node.mode.into());
        check("links", attr.links.into(), node.links().into());
        check("uid", attr.uid.into(), node.uid.into());
        check("gid", attr.gid.into(), node.gid.into());
        check("rdev", attr.rdev.into(), node.rdev.into());
        check("size", attr.size, node.size());
        check("generation", attr.generation.into(), node.generation.into());
        let mut time = |what: &str, is: i64, spans: &[Span]| {
            if !spans.iter().any(|span| span.holds(is)) {
                wrong += &format!(" {what} is {is}, not within {spans:?};");
            }
        };
        time("atime", attr.atime_ns, &node.atime);
        time("mtime", attr.mtime_ns, &[node.mtime]);
        time("ctime", attr.ctime_ns, &[node.ctime]);
        time("crtime", attr.crtime_ns, &[node.crtime]);
        if !wrong.is_empty() {
            return Err(format!("attributes of inode {}:{wrong}", attr.ino));
        }
        node.atime = vec![Span::at(attr.atime_ns)];
        node.mtime = Span::at(attr.mtime_ns);
        node.ctime = Span::at(attr.ctime_ns);
        node.crtime = Span::at(attr.crtime_ns);
        Ok(())
    }
}

/// The body of a new node of a type.
pub fn body(kind: u32, parent: Ino, target: &[u8]) -> Body {
    match kind {
        S_IFREG => Body::File(Content::default()),
        S_IFDIR => Body::Directory {
            entries: BTreeMap::new(),
            parent,
            subdirectories: 0,
        },
        S_IFLNK => Body::Symlink(target.to_vec()),
        _ => Body::Special,
    }
}
