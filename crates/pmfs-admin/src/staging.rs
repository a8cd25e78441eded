//! Staging directories: a tree is made in one before it gets its name, and taken apart in one when
//! it has none any more.
//!
//! A process that is killed leaves its staging directory. The next one that makes one beside it
//! removes it. The directory of all snapshots is here, too: marks tell both from users'
//! directories.

use pmfs::types::{XattrFlags, mode};
use pmfs::{Attr, Error, Fs, Ino, NewNode, ROOT_INO, Result};

/// Staging directories are named so, with the number of their process and another behind it.
const STAGING: &[u8] = b".pmfs-clone-";
/// The extended attribute by which one is known from a user's directory of such a name.
const MARK: &[u8] = b"user.pmfs.staging";
/// The one name in a staging directory.
pub(crate) const INSIDE: &[u8] = b"tree";

/// The directory of all snapshots, in the root directory.
pub const SNAPSHOTS: &str = ".snapshots";
/// The extended attribute by which that is known from a user's directory of such a name.
pub(crate) const HOME: &[u8] = b"user.pmfs.snapshots";
/// The extended attribute of a snapshot's top that has the path of its source.
const ORIGIN: &[u8] = b"user.pmfs.snapshot";
/// The extended attribute of a snapshot's top that tells it from all others, 16 bytes.
const ID: &[u8] = b"user.pmfs.snapshot.id";

/// Returns whether a name of `dir` is the directory of all snapshots.
pub(crate) fn is_home(fs: &Fs, dir: Ino, ino: Ino, name: &[u8]) -> bool {
    dir == ROOT_INO && name == SNAPSHOTS.as_bytes() && fs.getxattr(ino, HOME).is_ok()
}

/// Returns whether an extended attribute is one of snapshots, which no copy has.
pub(crate) fn is_of_snapshots(name: &[u8]) -> bool {
    name == ORIGIN || name == ID
}

/// Has inodes not change any more, which are a tree, each before the directory that has it.
pub(crate) fn fix(fs: &Fs, made: &[Ino], origin: &[u8], id: [u8; 16]) -> Result<()> {
    if let Some(&top) = made.last() {
        fs.setxattr(top, ORIGIN, origin, XattrFlags::empty())?;
        fs.setxattr(top, ID, &id, XattrFlags::empty())?;
    }
    let mut made = made.iter();
    made.try_for_each(|&ino| fs.change(|pool| pool.set_of_snapshot(ino, true)))
}

/// The path that a snapshot's source had, and the identity of the snapshot, by its top.
pub(crate) fn origin(fs: &Fs, top: Ino) -> Result<(Vec<u8>, [u8; 16])> {
    let or_none = |name| match fs.getxattr(top, name) {
        Err(Error::NoAttribute) => Ok(Vec::new()),
        value => value,
    };
    let id = or_none(ID)?.try_into();
    Ok((or_none(ORIGIN)?, id.unwrap_or_default()))
}

/// A staging directory, held by this process.
pub(crate) struct Staging {
    pub ino: Ino,
    name: Vec<u8>,
    /// The directory that has it.
    dir: Ino,
}

impl Staging {
    /// Makes one. A process with the same number, in another container or killed, may have left
    /// another.
    pub fn make(fs: &Fs, dir: Ino) -> Result<Staging> {
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
            return Ok(Staging { ino, name, dir });
        }
        unreachable!("no directory has so many names")
    }

    /// Has it be known for one, and pass nothing on to what is made in it.
    pub fn mark(&self, fs: &Fs) -> Result<()> {
        // An ACL that it got by default would be passed on.
        for name in fs.listxattr(self.ino)? {
            fs.removexattr(self.ino, &name)?;
        }
        fs.setxattr(self.ino, MARK, b"", XattrFlags::empty())
    }

    /// Removes it with all that is in it, and gives it up.
    pub fn end(self, fs: &Fs) -> Result<()> {
        // It is left over for the next one if it can't be removed now.
        let _ = remove(fs, self.dir, &self.name);
        fs.release(self.ino)
    }
}

/// Returns whether [`Staging::make`] makes directories of such a name.
pub(crate) fn is_name(name: &[u8]) -> bool {
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

/// Returns whether a directory is a staging directory.
pub(crate) fn is_staging(fs: &Fs, ino: Ino, name: &[u8]) -> bool {
    is_name(name) && fs.getxattr(ino, MARK).is_ok()
}

/// The staging directories that nobody has open: of processes that were killed. One that did not
/// get its mark is empty; a user's that has such a name and files stays.
pub(crate) fn left_over(fs: &Fs, dir: Ino) -> Result<Vec<Vec<u8>>> {
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

pub(crate) fn is(attr: &Attr, kind: u32) -> bool {
    attr.mode & mode::S_IFMT == kind
}

/// Removes a name in a staging directory, or one itself, with all below it: a snapshot, too. Others
/// may put names in, and take some out, meanwhile.
pub(crate) fn remove(fs: &Fs, dir: Ino, name: &[u8]) -> Result<()> {
    let mut above = vec![(dir, name.to_vec())];
    while let Some((dir, name)) = above.last().cloned() {
        let gone = match fs.lookup(dir, &name) {
            Ok(attr) if is(&attr, mode::S_IFDIR) => {
                if fs.is_of_snapshot(attr.ino)? {
                    fs.pool().set_of_snapshot(attr.ino, false)?;
                }
                match fs.rmdir(dir, &name) {
                    Err(Error::NotEmpty) => {
                        let names = inside(fs, attr.ino)?.into_iter();
                        above.extend(names.map(|name| (attr.ino, name)));
                        continue;
                    }
                    gone => gone,
                }
            }
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
pub(crate) fn inside(fs: &Fs, dir: Ino) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    fs.readdir_for(dir, 0, false, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    Ok(names)
}
