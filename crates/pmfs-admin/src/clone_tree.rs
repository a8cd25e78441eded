//! Cloning a tree: a second name for everything below a directory, as it is at one instant.
//!
//! The copy is made in a staging directory beside its name to be, under every lock of the pool, and
//! then renamed. The files' blocks are shared; names and inodes are new. A process that is killed
//! meanwhile leaves the staging directory, which the next clone beside it removes.

use pm_journal::locks::AllLocks;
use pmfs::types::{SetAttr, SetTime, XattrFlags, mode};
use pmfs::{Attr, Error, Fs, Ino, NewNode, RenameFlags, Result};
use std::collections::HashMap;

/// Staging directories are named so, with the number of their process and another behind it.
const STAGING: &[u8] = b".pmfs-clone-";
/// The one name in a staging directory.
const INSIDE: &[u8] = b"tree";
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

/// See [`crate::Admin::clone_tree`].
pub(crate) fn clone_tree(fs: &Fs, source: Ino, dir: Ino, name: &[u8]) -> Result<CloneReport> {
    fs.pool().writable()?;
    match fs.lookup(dir, name) {
        Ok(_) => return Err(Error::Exists),
        Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    for tried in 0.. {
        let (staging, report) = staged(fs, source, dir)?;
        let held = staging.ino;
        let done = report.and_then(|report| {
            fs.rename(held, INSIDE, dir, name, RenameFlags::NOREPLACE)?;
            Ok(report)
        });
        let removed = remove(fs, dir, &staging.name);
        fs.release(held)?;
        match done {
            Err(Error::PagesElsewhere(pages)) if tried < TRIES => have_back(fs, pages.ino)?,
            done => return done.and_then(|report| removed.map(|()| report)),
        }
    }
    unreachable!("the last try ends it")
}

/// Has the mount that has a file's pages write them back.
fn have_back(fs: &Fs, ino: Ino) -> Result<()> {
    match fs.read(ino, 0, &mut [0]) {
        // It is gone, or was replaced.
        Err(Error::NotFound | Error::Stale | Error::IsDirectory) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A staging directory, held by this process.
struct Staging {
    ino: Ino,
    name: Vec<u8>,
}

impl Staging {
    /// Makes one. A process with the same number, in another container or killed, may have left
    /// another.
    fn make(fs: &Fs, dir: Ino) -> Result<Staging> {
        let node = NewNode {
            mode: 0o700,
            uid: 0,
            gid: 0,
            umask: 0,
        };
        for number in 0u64.. {
            let behind = format!("{}-{number}", std::process::id());
            let name = [STAGING, behind.as_bytes()].concat();
            let ino = match fs.mkdir(dir, &name, &node) {
                Err(Error::Exists) => continue,
                made => made?.ino,
            };
            if let Err(error) = fs.hold(ino) {
                fs.rmdir(dir, &name)?;
                return Err(error);
            }
            return Ok(Staging { ino, name });
        }
        unreachable!("no directory has so many names")
    }
}

/// Makes the copy in a staging directory, at one instant.
///
/// # Errors
/// There is no staging directory. Inner: there is, and it lacks something.
fn staged(fs: &Fs, source: Ino, dir: Ino) -> Result<(Staging, Result<CloneReport>)> {
    let pool = fs.pool();
    let _writable = pool.pm.mapping().writable();
    let locks = AllLocks::take(pool);
    let began = pool.clock.now_ns();
    let staging = Staging::make(fs, dir)?;
    let left = left_over(fs, dir);
    let mut copy = Copy {
        fs,
        staging: staging.ino,
        linked: HashMap::new(),
        directories: Vec::new(),
        report: CloneReport::default(),
    };
    let copied = copy.tree(source);
    drop(locks);
    copy.report.frozen_ns = pool.clock.now_ns().abs_diff(began);
    for left in left.unwrap_or_default() {
        // A directory that can't be removed now is left over for the next clone, too.
        let _ = remove(fs, dir, &left);
    }
    Ok((staging, copied.map(|()| copy.report)))
}

/// The staging directories that nobody has open: of processes that were killed.
fn left_over(fs: &Fs, dir: Ino) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    fs.readdir_for(dir, 0, false, &mut |entry| {
        if entry.name.starts_with(STAGING) && entry.kind == mode::S_IFDIR {
            found.push((entry.ino, entry.name.to_vec()));
        }
        true
    })?;
    if found.len() > 1 {
        let holdings = crate::holders::holdings(fs.pool());
        found.retain(|&(ino, _)| holdings.iter().all(|holding| holding.ino != ino));
        return Ok(found.into_iter().map(|(_, name)| name).collect());
    }
    Ok(Vec::new())
}

/// A directory to be filled: one of the source, and its copy, whose attributes come last.
struct Directory {
    from: Attr,
    to: Ino,
}

struct Copy<'a> {
    fs: &'a Fs,
    staging: Ino,
    /// The copies of files with several names.
    linked: HashMap<Ino, Ino>,
    /// In the order in which they were met, each behind the one that has it.
    directories: Vec<Directory>,
    report: CloneReport,
}

impl Copy<'_> {
    fn tree(&mut self, source: Ino) -> Result<()> {
        // An ACL that the staging directory got by default would be passed on.
        for name in self.fs.listxattr(self.staging)? {
            self.fs.removexattr(self.staging, &name)?;
        }
        let attr = self.fs.getattr(source)?;
        self.node(&attr, self.staging, INSIDE)?;
        let mut filled = 0;
        while filled < self.directories.len() {
            let Directory { from, to } = self.directories[filled];
            self.fill(from.ino, to)?;
            filled += 1;
        }
        for directory in std::mem::take(&mut self.directories).iter().rev() {
            self.attributes(&directory.from, directory.to)?;
        }
        Ok(())
    }

    fn fill(&mut self, from: Ino, to: Ino) -> Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        self.fs.readdir_for(from, 0, false, &mut |entry| {
            let is_there = entry.name != b"." && entry.name != b"..";
            if is_there && entry.ino != self.staging {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        for name in names {
            let attr = self.fs.lookup(from, &name)?;
            self.node(&attr, to, &name)?;
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

fn is(attr: &Attr, kind: u32) -> bool {
    attr.mode & mode::S_IFMT == kind
}

/// Removes a name with all below it. Others may put names in, and take some out, meanwhile.
fn remove(fs: &Fs, dir: Ino, name: &[u8]) -> Result<()> {
    let mut above = vec![(dir, name.to_vec())];
    while let Some((dir, name)) = above.last().cloned() {
        let gone = match fs.lookup(dir, &name) {
            Ok(attr) if is(&attr, mode::S_IFDIR) => match fs.rmdir(dir, &name) {
                Err(Error::NotEmpty) => {
                    above.extend(
                        inside(fs, attr.ino)?
                            .into_iter()
                            .map(|name| (attr.ino, name)),
                    );
                    continue;
                }
                gone => gone,
            },
            Ok(_) => fs.unlink(dir, &name),
            Err(error) => Err(error),
        };
        match gone {
            Ok(()) | Err(Error::NotFound | Error::Stale) => above.pop(),
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

fn inside(fs: &Fs, dir: Ino) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    fs.readdir_for(dir, 0, false, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    Ok(names)
}
