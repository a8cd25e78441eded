//! Snapshots of trees: clones that do not change, kept in one directory of the pool.
//!
//! Each inode of a snapshot has a flag, and all calls refuse to change one with it, in every
//! process (docs/adr/0084-snapshots.md). A snapshot is made in a staging directory and then moved
//! to its name; to be deleted it is moved to one and taken apart there.

use crate::clone_tree::{Becomes, CloneReport, clone_tree};
use crate::staging::{
    HOME, INSIDE, SNAPSHOTS, Staging, inside, is, is_home, is_name, left_over, origin, remove,
};
use pm_journal::locks::AllLocks;
use pmfs::types::{XattrFlags, mode};
use pmfs::{Error, Fs, Ino, NewNode, ROOT_INO, Result};

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name in [`SNAPSHOTS`].
    pub name: Vec<u8>,
    /// The directory at its top.
    pub ino: Ino,
    /// The path that its source had.
    pub origin: Vec<u8>,
    /// Tells it from all other snapshots. One that was saved and loaded has the same.
    pub id: [u8; 16],
    /// When it was made, in nanoseconds since the epoch.
    pub made_ns: i64,
}

/// The directory of all snapshots; `None`: there has been none.
fn home(fs: &Fs) -> Result<Option<Ino>> {
    match fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes()) {
        Ok(attr) if is_home(fs, ROOT_INO, attr.ino, SNAPSHOTS.as_bytes()) => Ok(Some(attr.ino)),
        Ok(attr) if is(&attr, mode::S_IFDIR) && inside(fs, attr.ino)?.is_empty() => {
            // One that was killed may have made it, and not marked it.
            Ok(None)
        }
        Ok(_) => Err(Error::NotPermitted(
            &"/.snapshots is another's directory; rename it, so that snapshots have their place",
        )),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn made_home(fs: &Fs) -> Result<Ino> {
    if let Some(home) = home(fs)? {
        return Ok(home);
    }
    let root = fs.getattr(ROOT_INO)?;
    let node = NewNode {
        mode: 0o755,
        uid: root.uid,
        gid: root.gid,
        umask: 0,
    };
    let home = match fs.mkdir(ROOT_INO, SNAPSHOTS.as_bytes(), &node) {
        Err(Error::Exists) => fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes())?.ino,
        made => made?.ino,
    };
    fs.setxattr(home, HOME, b"", XattrFlags::empty())?;
    Ok(home)
}

/// The directory of all snapshots, in which a new one gets a name that is free.
pub(crate) fn place_for(fs: &Fs, name: &[u8]) -> Result<Ino> {
    if is_name(name) {
        return Err(Error::Invalid(&"such names are for what is not finished"));
    }
    let home = made_home(fs)?;
    match fs.lookup(home, name) {
        Err(Error::NotFound) if !name.is_empty() => Ok(home),
        Ok(_) => Err(Error::Exists),
        Err(error) => Err(error),
    }
}

/// See [`crate::Admin::create_snapshot`].
pub(crate) fn create(fs: &Fs, source: Ino, path: &[u8], name: &[u8]) -> Result<CloneReport> {
    fs.pool().writable()?;
    if !is(&fs.getattr(source)?, mode::S_IFDIR) {
        return Err(Error::NotDirectory);
    }
    let home = place_for(fs, name)?;
    clone_tree(fs, source, (home, name), Becomes::Snapshot(path))
}

/// See [`crate::Admin::snapshots`].
pub(crate) fn list(fs: &Fs) -> Result<Vec<Snapshot>> {
    let Some(home) = home(fs)? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for name in inside(fs, home)? {
        match find(fs, home, &name) {
            Ok(snapshot) => all.push(snapshot),
            // It was deleted meanwhile, or is a name that somebody else has made.
            Err(Error::NotFound | Error::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    all.sort_by(|one, other| (one.made_ns, &one.name).cmp(&(other.made_ns, &other.name)));
    Ok(all)
}

fn find(fs: &Fs, home: Ino, name: &[u8]) -> Result<Snapshot> {
    let attr = fs.lookup(home, name)?;
    if !is(&attr, mode::S_IFDIR) || !fs.is_of_snapshot(attr.ino)? {
        return Err(Error::NotFound);
    }
    let (origin, id) = origin(fs, attr.ino)?;
    Ok(Snapshot {
        name: name.to_vec(),
        ino: attr.ino,
        origin,
        id,
        made_ns: attr.crtime_ns,
    })
}

/// See [`crate::Admin::snapshot`].
pub(crate) fn named(fs: &Fs, name: &[u8]) -> Result<Snapshot> {
    match home(fs)? {
        Some(home) => find(fs, home, name),
        None => Err(Error::NotFound),
    }
}

/// Makes a staging directory among the snapshots, and removes what others have left over.
pub(crate) fn begin_staging(fs: &Fs, home: Ino) -> Result<Staging> {
    let (staging, marked, left) = {
        let pool = fs.pool();
        let _writable = pool.pm.mapping().writable();
        // One who looks for what is left over must not find it before it is held.
        let _locks = AllLocks::take(pool);
        let staging = Staging::make(fs, home)?;
        let marked = staging.mark(fs);
        (staging, marked, left_over(fs, home))
    };
    for left in left.unwrap_or_default() {
        // A failure leaves it to the next one, as one of this one's own would.
        let _ = remove(fs, home, &left);
    }
    match marked {
        Ok(()) => Ok(staging),
        Err(error) => staging.end(fs).and(Err(error)),
    }
}

/// See [`crate::Admin::delete_snapshot`].
pub(crate) fn delete(fs: &Fs, name: &[u8]) -> Result<()> {
    fs.pool().writable()?;
    let home = home(fs)?.ok_or(Error::NotFound)?;
    find(fs, home, name)?;
    let staging = begin_staging(fs, home)?;
    let (from, to) = ((home, name), (staging.ino, INSIDE));
    let moved = fs.change(|pool| pool.move_snapshot(from, to));
    staging.end(fs)?;
    moved
}

/// See [`crate::Admin::restore_snapshot`].
pub(crate) fn restore(
    fs: &Fs,
    snapshot: &Snapshot,
    to: (Ino, &[u8]),
    replaces: bool,
) -> Result<CloneReport> {
    if to.0 == ROOT_INO && to.1 == SNAPSHOTS.as_bytes() {
        return Err(Error::NotPermitted(
            &"snapshots are kept there; name another place",
        ));
    }
    let is_there = replaces && fs.lookup(to.0, to.1).is_ok();
    let becomes = match is_there {
        true => Becomes::Successor,
        false => Becomes::Tree,
    };
    clone_tree(fs, snapshot.ino, to, becomes)
}
