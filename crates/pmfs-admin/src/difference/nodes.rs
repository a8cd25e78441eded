//! The names of a snapshot, in the order of a walk.

use crate::staging::{inside, is};
use pmfs::types::mode;
use pmfs::{Attr, Error, FileExtent, Fs, Ino, Result};

/// A name of a tree.
pub(super) struct Node {
    pub name: Vec<u8>,
    pub attr: Attr,
    /// The number of the first name that is not below it.
    pub end: usize,
}

impl Node {
    pub fn is(&self, kind: u32) -> bool {
        is(&self.attr, kind)
    }
}

/// All names of a tree, each directory before what is in it, by sorted names.
pub(super) fn nodes(fs: &Fs, top: Ino) -> Result<Vec<Node>> {
    let node = |name: Vec<u8>, attr: Attr, end| Node { name, attr, end };
    let mut all = vec![node(Vec::new(), fs.getattr(top)?, 1)];
    let mut open = vec![(0, sorted(fs, top)?)];
    while let Some((dir, left)) = open.last_mut() {
        let dir = *dir;
        let Some(name) = left.pop() else {
            all[dir].end = all.len();
            open.pop();
            continue;
        };
        let attr = fs.lookup(all[dir].attr.ino, &name)?;
        let at = all.len();
        if u32::try_from(at).is_err() {
            return Err(Error::NotSupported(
                &"a snapshot of more than four billion names",
            ));
        }
        all.push(node(name, attr, at + 1));
        if all[at].is(mode::S_IFDIR) {
            open.push((at, sorted(fs, attr.ino)?));
        }
    }
    Ok(all)
}

/// The names of a directory, the last one first.
fn sorted(fs: &Fs, dir: Ino) -> Result<Vec<Vec<u8>>> {
    let mut names = inside(fs, dir)?;
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(names)
}

/// The numbers of the names in a directory.
pub(super) fn children(all: &[Node], dir: usize) -> impl Iterator<Item = usize> {
    let end = all[dir].end;
    let first = (dir + 1 < end).then_some(dir + 1);
    std::iter::successors(first, move |&at| {
        Some(all[at].end).filter(|&next| next < end)
    })
}

/// All extents of a file that hold data.
pub(super) fn extents(fs: &Fs, ino: Ino) -> Result<Vec<FileExtent>> {
    let mut all: Vec<FileExtent> = Vec::new();
    loop {
        let from = all.last().map_or(0, |last| last.at + last.len);
        let (found, is_all) = fs.extents(ino, from, u64::MAX - from, 1024)?;
        let is_none = found.is_empty();
        all.extend(found);
        if is_all || is_none {
            all.retain(|extent| extent.written);
            return Ok(all);
        }
    }
}

/// The extended attributes of an inode, by name.
pub(super) fn attributes(fs: &Fs, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = fs.listxattr(ino)?;
    names.retain(|name| !crate::staging::is_of_snapshots(name));
    names.sort_unstable();
    let value = |name: Vec<u8>| Ok((name.clone(), fs.getxattr(ino, &name)?));
    names.into_iter().map(value).collect()
}
