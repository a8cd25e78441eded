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
/// The extended attribute by which one is known from a user's directory of such a name.
const MARK: &[u8] = b"user.pmfs.staging";
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
    let mut recovered = false;
    for tried in 0.. {
        let (staging, report) = staged(fs, source, dir)?;
        let done = report.and_then(|report| {
            fs.rename(staging.ino, INSIDE, dir, name, RenameFlags::NOREPLACE)?;
            Ok(report)
        });
        // A staging directory that can't be removed now is left over for the next clone.
        let _ = remove(fs, dir, &staging.name);
        fs.release(staging.ino)?;
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
        // Its owner is one who may remove it, if it is left over.
        let parent = fs.getattr(dir)?;
        let node = NewNode {
            mode: 0o700,
            uid: parent.uid,
            gid: parent.gid,
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

/// Returns whether [`Staging::make`] makes directories of such a name.
fn is_name(name: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let numbers = name.strip_prefix(STAGING);
    numbers.is_some_and(|numbers| {
        let mut parts = numbers.split(|&byte| byte == b'-');
        parts
            .by_ref()
            .take(2)
            .filter(|part| is_number(part))
            .count()
            == 2
            && parts.next().is_none()
    })
}

/// Returns whether a directory is a clone's staging directory.
fn is_staging(fs: &Fs, ino: Ino, name: &[u8]) -> bool {
    is_name(name) && fs.getxattr(ino, MARK).is_ok()
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
        // A failure leaves it to the next clone, as one of this clone's own would.
        let _ = remove(fs, dir, &left);
    }
    Ok((staging, copied.map(|()| copy.report)))
}

/// The staging directories that nobody has open: of processes that were killed. One that did not
/// get its mark is empty; a user's that has such a name and files stays.
fn left_over(fs: &Fs, dir: Ino) -> Result<Vec<Vec<u8>>> {
    let mut found = inside(fs, dir)?;
    found.retain(|name| is_name(name));
    if found.len() < 2 {
        return Ok(Vec::new());
    }
    let holdings = crate::holders::holdings(fs.pool());
    found.retain(|name| {
        let Ok(attr) = fs.lookup(dir, name) else {
            return false;
        };
        let is_held = holdings.iter().any(|holding| holding.ino == attr.ino);
        !is_held && (is_staging(fs, attr.ino, name) || fs.rmdir(dir, name).is_ok())
    });
    Ok(found)
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
        let flags = XattrFlags::empty();
        self.fs.setxattr(self.staging, MARK, b"", flags)?;
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
        for name in inside(self.fs, from)? {
            let attr = self.fs.lookup(from, &name)?;
            // This clone's, and those of others that have begun or were killed.
            if !is_staging(self.fs, attr.ino, &name) {
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

/// The names in a directory.
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
