//! Writing a snapshot by what differs from another one.
//!
//! Two snapshots of one tree have most of their blocks in common. A file with the same attributes
//! and the same blocks as the base's of that path is unchanged, and a directory in which all is.
//! Another file's blocks that some file of the base has, too, are told by their places there, so
//! that a file that was moved costs its name.

use super::nodes::{Node, attributes, children, extents, nodes};
use super::record::{Header, Kept, PIECE, Record, Writer};
use crate::snapshot::Snapshot;
use pmfs::types::mode;
use pmfs::{Error, FileExtent, Fs, Ino, Result};
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// The content of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Names in the snapshot.
    pub names: u64,
    /// Names that are as in the base.
    pub unchanged: u64,
    /// Bytes of content that the stream has.
    pub content: u64,
    /// Bytes of content of changed files that are the base's.
    pub same: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Blocks of the base: where they are in the pool, and of which file.
struct Known {
    off: u64,
    len: u64,
    node: usize,
    at: u64,
}

struct Base {
    nodes: Vec<Node>,
    /// By their places.
    blocks: Vec<Known>,
}

struct Sender<'a> {
    fs: &'a Fs,
    nodes: Vec<Node>,
    base: Option<Base>,
    /// The number of the name of the base at the same path.
    paths: Vec<Option<usize>>,
    is_unchanged: Vec<bool>,
    /// The numbers of files with several names.
    groups: HashMap<Ino, u32>,
    out: Writer<'a>,
    report: SendReport,
}

/// Writes a snapshot; with a base, what differs from it. `watch` gets names done and names in all.
///
/// # Errors
/// [`Error::File`] of `out`; [`Error::Stale`], [`Error::NotFound`]: one of them is being deleted.
pub fn send(
    fs: &Fs,
    snapshot: &Snapshot,
    base: Option<&Snapshot>,
    out: &mut dyn Write,
    watch: &mut dyn FnMut(u64, u64),
) -> Result<SendReport> {
    let mut sender = Sender {
        fs,
        nodes: nodes(fs, snapshot.ino)?,
        base: base.map(|base| Base::of(fs, base)).transpose()?,
        paths: Vec::new(),
        is_unchanged: Vec::new(),
        groups: HashMap::new(),
        out: Writer::new(out),
        report: SendReport::default(),
    };
    sender.compare()?;
    let nodes = sender.nodes.len() as u64;
    sender.out.put(&Record::Header(Header {
        base: base.map(|base| (base.id, base.name.clone())),
        id: snapshot.id,
        name: snapshot.name.clone(),
        origin: snapshot.origin.clone(),
        nodes,
    }))?;
    sender.all(watch)?;
    for one in [Some(snapshot), base].into_iter().flatten() {
        // Its files may have been removed under their numbers.
        if !fs.is_of_snapshot(one.ino)? {
            return Err(Error::Stale);
        }
    }
    sender.out.put(&Record::End(nodes))?;
    let mut report = sender.report;
    report.names = nodes;
    report.bytes = sender.out.end()?;
    Ok(report)
}

impl Base {
    fn of(fs: &Fs, snapshot: &Snapshot) -> Result<Base> {
        let nodes = nodes(fs, snapshot.ino)?;
        let mut blocks = Vec::new();
        let mut seen = HashSet::new();
        for (node, file) in nodes.iter().enumerate() {
            if !file.is(mode::S_IFREG) || file.attr.links > 1 && !seen.insert(file.attr.ino) {
                continue;
            }
            blocks.extend(extents(fs, file.attr.ino)?.iter().map(|extent| Known {
                off: extent.off,
                len: extent.len,
                node,
                at: extent.at,
            }));
        }
        blocks.sort_unstable_by_key(|known| known.off);
        Ok(Base { nodes, blocks })
    }

    /// Blocks of a file of the base that begin a range of the pool: which file, where in it, bytes.
    /// Without some, the bytes before the next ones.
    fn at(&self, off: u64, len: u64) -> (Option<(usize, u64)>, u64) {
        let next = self.blocks.partition_point(|known| known.off <= off);
        if let Some(known) = next.checked_sub(1).map(|at| &self.blocks[at])
            && off < known.off + known.len
        {
            let skipped = off - known.off;
            let place = (known.node, known.at + skipped);
            return (Some(place), len.min(known.len - skipped));
        }
        let free = self.blocks.get(next).map_or(len, |known| known.off - off);
        (None, len.min(free))
    }
}

impl Sender<'_> {
    /// Finds what is unchanged: from the leaves up.
    fn compare(&mut self) -> Result<()> {
        let count = self.nodes.len();
        self.is_unchanged = vec![false; count];
        self.paths = vec![None; count];
        let Some(base) = &self.base else {
            return Ok(());
        };
        self.paths[0] = Some(0);
        for dir in 0..count {
            let Some(there) = self.paths[dir] else {
                continue;
            };
            let mut others = children(&base.nodes, there).peekable();
            for at in children(&self.nodes, dir) {
                let name = &self.nodes[at].name;
                while others
                    .next_if(|&other| base.nodes[other].name < *name)
                    .is_some()
                {}
                self.paths[at] = others.next_if(|&other| base.nodes[other].name == *name);
            }
        }
        for at in (0..count).rev() {
            self.is_unchanged[at] = match self.paths[at] {
                Some(there) => self.is_alike(at, base, there)?,
                None => false,
            };
        }
        Ok(())
    }

    fn is_alike(&self, at: usize, base: &Base, there: usize) -> Result<bool> {
        let (new, old) = (&self.nodes[at], &base.nodes[there]);
        let seen = |node: &Node| {
            let attr = &node.attr;
            let times = (attr.atime_ns, attr.mtime_ns);
            (attr.mode, attr.uid, attr.gid, attr.rdev, attr.size, times)
        };
        let is_dir = new.is(mode::S_IFDIR);
        let has_names = !is_dir && (new.attr.links > 1 || old.attr.links > 1);
        if seen(new) != seen(old) || has_names {
            return Ok(false);
        }
        let (new_ino, old_ino) = (new.attr.ino, old.attr.ino);
        if attributes(self.fs, new_ino)? != attributes(self.fs, old_ino)? {
            return Ok(false);
        }
        match new.attr.mode & mode::S_IFMT {
            mode::S_IFDIR => {
                let mut inside = children(&self.nodes, at);
                let count = children(&base.nodes, there).count();
                Ok(children(&self.nodes, at).count() == count
                    && inside.all(|child| self.is_unchanged[child]))
            }
            mode::S_IFLNK => Ok(self.fs.readlink(new_ino)? == self.fs.readlink(old_ino)?),
            mode::S_IFREG => {
                let [new, old] = [extents(self.fs, new_ino)?, extents(self.fs, old_ino)?];
                // Blocks that two files have stay where they are.
                Ok(new == old && new.iter().all(|extent| extent.shared))
            }
            _ => Ok(true),
        }
    }

    fn all(&mut self, watch: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let mut open: Vec<usize> = Vec::new();
        let mut at = 0;
        while at < self.nodes.len() {
            while open.pop_if(|end| *end <= at).is_some() {
                self.out.put(&Record::Up)?;
            }
            watch(at as u64, self.nodes.len() as u64);
            let end = self.nodes[at].end;
            if let Some(there) = self.paths[at].filter(|_| self.is_unchanged[at]) {
                self.out.put(&Record::Unchanged(there as u32))?;
                self.report.unchanged += (end - at) as u64;
                at = end;
                continue;
            }
            self.one(at)?;
            if self.nodes[at].is(mode::S_IFDIR) {
                open.push(end);
            }
            at += 1;
        }
        open.iter().try_for_each(|_| self.out.put(&Record::Up))
    }

    fn one(&mut self, at: usize) -> Result<()> {
        let node = &self.nodes[at];
        let (name, attr) = (node.name.clone(), node.attr);
        if let Some(&group) = self.groups.get(&attr.ino) {
            return self.out.put(&Record::Link(name, group));
        }
        let kept = Kept::of(&attr, attributes(self.fs, attr.ino)?);
        let record = match attr.mode & mode::S_IFMT {
            mode::S_IFDIR => Record::Directory(name, kept),
            mode::S_IFREG => {
                let mut group = 0;
                if attr.links > 1 {
                    group = self.groups.len() as u32 + 1;
                    self.groups.insert(attr.ino, group);
                }
                let file = Record::File(name, kept, attr.size, group);
                self.out.put(&file)?;
                return self.content(attr.ino, attr.size);
            }
            mode::S_IFLNK => Record::Symlink(name, kept, self.fs.readlink(attr.ino)?),
            _ => Record::Special(name, kept, attr.rdev),
        };
        self.out.put(&record)
    }

    fn content(&mut self, ino: Ino, size: u64) -> Result<()> {
        for FileExtent { at, off, len, .. } in extents(self.fs, ino)? {
            let len = len.min(size.saturating_sub(at));
            let mut done = 0;
            while done < len {
                let left = len - done;
                let (known, len) = match &self.base {
                    Some(base) => base.at(off + done, left),
                    None => (None, left),
                };
                match known {
                    Some((node, from)) => self.same(ino, at + done, (node, from), len)?,
                    None => self.data(ino, at + done, len)?,
                }
                done += len;
            }
        }
        Ok(())
    }

    /// Content that the base has, if it is that: blocks that one file has alone may have moved
    /// since their places were noted.
    fn same(&mut self, ino: Ino, at: u64, (node, from): (usize, u64), len: u64) -> Result<()> {
        let base = self.base.as_ref().expect("it has the blocks");
        let there = &base.nodes[node].attr;
        let is_there = from + len <= there.size;
        if is_there && self.is_equal((ino, at), (there.ino, from), len)? {
            self.report.same += len;
            return self.out.put(&Record::Same(node as u32, from, at, len));
        }
        self.data(ino, at, len)
    }

    fn is_equal(&self, new: (Ino, u64), old: (Ino, u64), len: u64) -> Result<bool> {
        let mut both = [vec![0; PIECE], vec![0; PIECE]];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(PIECE as u64) as usize;
            for ((ino, at), bytes) in [new, old].into_iter().zip(&mut both) {
                if self.fs.read(ino, at + done, &mut bytes[..piece])? != piece {
                    return Ok(false);
                }
            }
            if both[0][..piece] != both[1][..piece] {
                return Ok(false);
            }
            done += piece as u64;
        }
        Ok(true)
    }

    fn data(&mut self, ino: Ino, at: u64, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let mut bytes = vec![0; (len - done).min(PIECE as u64) as usize];
            let read = self.fs.read(ino, at + done, &mut bytes)?;
            if read != bytes.len() {
                return Err(Error::Stale);
            }
            self.out.put(&Record::Data(at + done, bytes))?;
            self.report.content += read as u64;
            done += read as u64;
        }
        Ok(())
    }
}
