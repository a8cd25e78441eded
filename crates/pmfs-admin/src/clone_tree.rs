//! Cloning a tree: a second name for everything below a directory, as it is at one instant.
//!
//! The copy is made in a staging directory beside its name to be, under every lock of the pool, and
//! then renamed. The files' blocks are shared; names and inodes are new.

use crate::staging::{
    INSIDE, Staging, fix, inside, is, is_home, is_of_snapshots, is_staging, left_over, remove,
};
use pm_journal::locks::AllLocks;
use pmfs::types::{SetAttr, SetTime, XattrFlags, mode};
use pmfs::{Attr, Error, Fs, Ino, NewNode, RenameFlags, Result};
use std::collections::HashMap;

/// Tries until the pages of mounts' kernels that are in the way are back.
const TRIES: u32 = 16;

/// The content of a clone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneReport {
    /// Names of regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, FIFOs, sockets.
    pub others: u64,
    /// Sizes of the regular files, each once.
    pub bytes: u64,
    /// Files that programs had mapped, whose bytes were copied.
    pub copied: u64,
    /// The time for which all changes of the pool waited.
    pub frozen_ns: u64,
}

/// The purpose of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes<'a> {
    /// A tree, at a name that is free.
    Tree,
    /// A tree, in place of the one at a name.
    Successor,
    /// A snapshot, which tells the path of its source.
    Snapshot(&'a [u8]),
}

/// See [`crate::Admin::clone_tree`].
pub(crate) fn clone_tree(
    fs: &Fs,
    source: Ino,
    (dir, name): (Ino, &[u8]),
    becomes: Becomes<'_>,
) -> Result<CloneReport> {
    fs.pool().writable()?;
    match (fs.lookup(dir, name), becomes) {
        (Ok(_), Becomes::Successor) => {}
        (Ok(_), _) => return Err(Error::Exists),
        (Err(Error::NotFound), Becomes::Tree | Becomes::Snapshot(_)) => {}
        (Err(error), _) => return Err(error),
    }
    let mut recovered = false;
    for tried in 0.. {
        let (staging, report) = staged(fs, source, dir, becomes)?;
        let done = report.and_then(|report| {
            in_place(fs, &staging, (dir, name), becomes)?;
            Ok(report)
        });
        staging.end(fs)?;
        match done {
            Err(Error::PagesElsewhere(pages)) if tried < TRIES => have_back(fs, pages.ino)?,
            // Dead processes may hold some.
            Err(error) if error.is_shortage() && !recovered => {
                recovered = true;
                if fs.recover_dead()? == 0 {
                    return Err(error);
                }
            }
            done => return done,
        }
    }
    unreachable!("the last try ends it")
}

/// Gives the copy its name.
fn in_place(
    fs: &Fs,
    staging: &Staging,
    (dir, name): (Ino, &[u8]),
    becomes: Becomes<'_>,
) -> Result<()> {
    let (from, to) = ((staging.ino, INSIDE), (dir, name));
    match becomes {
        Becomes::Tree => fs.rename(from.0, from.1, dir, name, RenameFlags::NOREPLACE),
        Becomes::Successor => fs.rename(from.0, from.1, dir, name, RenameFlags::EXCHANGE),
        Becomes::Snapshot(_) => fs.change(|pool| pool.move_snapshot(from, to)),
    }
}

/// Has the mount that has a file's pages write them back.
fn have_back(fs: &Fs, ino: Ino) -> Result<()> {
    match fs.read(ino, 0, &mut [0]) {
        // It is gone, or was replaced.
        Err(Error::NotFound | Error::Stale | Error::IsDirectory) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the copy in a staging directory, at one instant.
///
/// # Errors
/// There is no staging directory. Inner: there is, and it lacks something.
fn staged(
    fs: &Fs,
    source: Ino,
    dir: Ino,
    becomes: Becomes<'_>,
) -> Result<(Staging, Result<CloneReport>)> {
    let pool = fs.pool();
    let was_snapshot = fs.is_of_snapshot(source)?;
    let _writable = pool.pm.mapping().writable();
    let locks = AllLocks::take(pool);
    let began = pool.clock.now_ns();
    let staging = Staging::make(fs, dir)?;
    let left = left_over(fs, dir);
    let mut copy = Copy::new(fs, &staging, becomes);
    let copied = copy.tree(source, was_snapshot);
    drop(locks);
    copy.report.frozen_ns = pool.clock.now_ns().abs_diff(began);
    let report = copy.report;
    for left in left.unwrap_or_default() {
        // A failure leaves it to the next clone, as one of this clone's own would.
        let _ = remove(fs, dir, &left);
    }
    Ok((staging, copied.map(|()| report)))
}

/// A directory to be filled: one of the source, and its copy, whose attributes come last.
struct Directory {
    from: Attr,
    to: Ino,
}

struct Copy<'a> {
    fs: &'a Fs,
    staging: &'a Staging,
    becomes: Becomes<'a>,
    /// The copies of files with several names.
    linked: HashMap<Ino, Ino>,
    /// In the order in which they were met, each behind the one that has it.
    directories: Vec<Directory>,
    /// All else, each once.
    made: Vec<Ino>,
    report: CloneReport,
}

/// Copies a name of a snapshot, with all below it, to a place in a staging directory; answers all
/// inodes, each before the directory that has it.
pub(crate) fn clone_below(
    fs: &Fs,
    staging: &Staging,
    from: &Attr,
    (dir, name): (Ino, &[u8]),
) -> Result<Vec<Ino>> {
    let mut copy = Copy::new(fs, staging, Becomes::Tree);
    copy.below(from, dir, name)?;
    Ok(copy.made)
}

impl<'a> Copy<'a> {
    fn new(fs: &'a Fs, staging: &'a Staging, becomes: Becomes<'a>) -> Copy<'a> {
        Copy {
            fs,
            staging,
            becomes,
            linked: HashMap::new(),
            directories: Vec::new(),
            made: Vec::new(),
            report: CloneReport::default(),
        }
    }

    fn tree(&mut self, source: Ino, was_snapshot: bool) -> Result<()> {
        self.staging.mark(self.fs)?;
        let attr = self.fs.getattr(source)?;
        if self.fs.is_of_snapshot(source)? != was_snapshot {
            // It is being deleted, and may lack some of its names.
            return Err(Error::Stale);
        }
        self.below(&attr, self.staging.ino, INSIDE)?;
        match self.becomes {
            Becomes::Snapshot(path) => fix(self.fs, &self.made, path, crate::mkfs::random()),
            Becomes::Tree | Becomes::Successor => Ok(()),
        }
    }

    /// Copies what a name leads to, with all below it.
    fn below(&mut self, from: &Attr, dir: Ino, name: &[u8]) -> Result<()> {
        self.node(from, dir, name)?;
        let mut filled = 0;
        while filled < self.directories.len() {
            let Directory { from, to } = self.directories[filled];
            self.fill(from.ino, to)?;
            filled += 1;
        }
        for directory in std::mem::take(&mut self.directories).iter().rev() {
            self.attributes(&directory.from, directory.to)?;
            self.made.push(directory.to);
        }
        Ok(())
    }

    fn fill(&mut self, from: Ino, to: Ino) -> Result<()> {
        for name in inside(self.fs, from)? {
            let attr = self.fs.lookup(from, &name)?;
            // Snapshots are no part of a tree, nor are staging directories: this clone's, and those
            // of others that have begun or were killed.
            let is_left_out =
                is_staging(self.fs, attr.ino, &name) || is_home(self.fs, from, attr.ino, &name);
            if !is_left_out {
                self.node(&attr, to, &name)?;
            }
        }
        Ok(())
    }

    fn node(&mut self, from: &Attr, dir: Ino, name: &[u8]) -> Result<()> {
        let fs = self.fs;
        if let Some(&made) = self.linked.get(&from.ino) {
            fs.link(made, dir, name)?;
            self.report.files += u64::from(is(from, mode::S_IFREG));
            return Ok(());
        }
        let mut node = NewNode {
            mode: from.mode & 0o7777,
            uid: from.uid,
            gid: from.gid,
            umask: 0,
        };
        let made = match from.mode & mode::S_IFMT {
            mode::S_IFDIR => {
                // Its own set-gid bit and ACL come when it has its files.
                node.mode = 0o700;
                let made = fs.mkdir(dir, name, &node)?.ino;
                self.report.directories += 1;
                self.directories.push(Directory {
                    from: *from,
                    to: made,
                });
                return Ok(());
            }
            mode::S_IFREG => {
                let made = fs.create(dir, name, &node)?.ino;
                self.content(from, made)?;
                self.report.files += 1;
                made
            }
            mode::S_IFLNK => {
                self.report.symlinks += 1;
                fs.symlink(dir, name, &fs.readlink(from.ino)?, &node)?.ino
            }
            kind => {
                self.report.others += 1;
                fs.mknod(dir, name, &node, kind, from.rdev)?.ino
            }
        };
        if from.links > 1 {
            self.linked.insert(from.ino, made);
        }
        self.made.push(made);
        self.attributes(from, made)
    }

    fn content(&mut self, from: &Attr, to: Ino) -> Result<()> {
        self.report.bytes += from.size;
        match self.fs.clone_range((from.ino, 0), (to, 0), 0) {
            Err(Error::Mapped) => {}
            done => return done,
        }
        self.report.copied += 1;
        let size = SetAttr {
            size: Some(from.size),
            ..SetAttr::default()
        };
        self.fs.setattr(to, &size)?;
        let mut at = 0;
        while at < from.size {
            at = match self.fs.seek_data(from.ino, at) {
                Ok(data) => data,
                Err(Error::NoSuchOffset) => break,
                Err(error) => return Err(error),
            };
            let end = self.fs.seek_hole(from.ino, at)?;
            let copied = self.fs.copy_range(from.ino, at, to, at, end - at)?;
            if copied == 0 {
                return Err(Error::NoSpace);
            }
            at += copied;
        }
        Ok(())
    }

    /// Extended attributes first: an ACL changes the mode, and the times come last.
    fn attributes(&self, from: &Attr, to: Ino) -> Result<()> {
        for name in self.fs.listxattr(from.ino)? {
            if is_of_snapshots(&name) {
                continue;
            }
            let value = self.fs.getxattr(from.ino, &name)?;
            self.fs.setxattr(to, &name, &value, XattrFlags::empty())?;
        }
        let set = SetAttr {
            mode: (!is(from, mode::S_IFLNK)).then_some(from.mode & 0o7777),
            uid: Some(from.uid),
            gid: Some(from.gid),
            atime_ns: Some(SetTime::At(from.atime_ns)),
            mtime_ns: Some(SetTime::At(from.mtime_ns)),
            ..SetAttr::default()
        };
        self.fs.setattr(to, &set).map(drop)
    }
}
