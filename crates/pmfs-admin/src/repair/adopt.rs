//! Names for inodes that have none: in their own directory, when it is filled anew, or in
//! lost+found.
//!
//! A name alone is added: link counts, "..", and the types that records tell are put right by the
//! next round.

use pm_journal::Transaction;
use pm_journal::locks::LockSet;
use pm_store::Restore;
use pmfs::parts::dir::bucket::{HeaderEdit, kind_of};
use pmfs::parts::dir::{Name, bucket_of, split};
use pmfs::parts::inode::Inode;
use pmfs::parts::namespace::create::Kind;
use pmfs::parts::namespace::{find, named_dir};
use pmfs::parts::pool::Pool;
use pmfs::parts::purpose::Claim;
use pmfs::types::{Ino, NewNode};
use pmfs::{Error, Result};
use pmfs_format::inode::{ROOT_INO, SIZE_MASK};

/// The directory for inodes that no name reaches.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Empties a directory, whose old tree is free then, and gives it these names.
///
/// # Errors
/// No space; damage elsewhere.
pub(super) fn refill(pool: &Pool, dir: Ino, names: &[(Vec<u8>, Ino)]) -> Result<()> {
    let inode = Inode::load(pool, dir)?;
    let restore = Restore::new(&pool.pm);
    restore.words(inode.root_slot(), &[0]);
    restore.words(inode.off, &[inode.size_word & !SIZE_MASK]);
    restore.barrier();
    for (name, ino) in names {
        match adopt(pool, dir, name, *ino) {
            Ok(()) | Err(Error::Exists | Error::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives each of these inodes the name `#number` in lost+found.
///
/// # Errors
/// No space.
pub(super) fn lost_and_found(pool: &Pool, inodes: &[Ino]) -> Result<()> {
    if inodes.is_empty() {
        return Ok(());
    }
    let dir = place(pool)?;
    for &ino in inodes.iter().filter(|&&ino| ino != dir) {
        match adopt(pool, dir, format!("#{ino}").as_bytes(), ino) {
            Ok(()) | Err(Error::Exists) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// lost+found, made if need be; another name if that one is a file's.
fn place(pool: &Pool) -> Result<Ino> {
    let node = NewNode {
        mode: 0o700,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    let mut name = LOST_AND_FOUND.to_vec();
    for _ in 0..100 {
        match pool.lookup(ROOT_INO, &name) {
            Ok(attr) if Inode::load(pool, attr.ino)?.is_dir() => return Ok(attr.ino),
            Ok(_) => name.push(b'+'),
            Err(Error::NotFound) => {
                return Ok(pool.make(ROOT_INO, &name, &node, Kind::Directory)?.ino);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::Exists)
}

fn adopt(pool: &Pool, dir: Ino, name: &[u8], ino: Ino) -> Result<()> {
    let name = Name::plain(pool, name)?;
    let locks = LockSet::take(pool, &[dir, ino]);
    let parent = named_dir(pool, dir)?;
    let inode = Inode::load(pool, ino)?;
    if find(pool, &parent, &name)?.is_some() {
        return Err(Error::Exists);
    }
    let lane = Claim::new(pool);
    let parent = split::make_room(pool, &lane, &locks, parent, name.hash, name.bytes.len())?
        .unwrap_or(parent);
    let mut fresh = pool.pm.fresh();
    let mut header = HeaderEdit::of(pool, bucket_of(pool, &parent.tree(), name.hash)?);
    header.insert(&mut fresh, ino, kind_of(inode.mode), name.hash, name.bytes);
    fresh.until_seal();
    let mut tx = Transaction::begin(&lane);
    let logged = header.log(&mut tx);
    let mut named = parent.hot();
    named.set_size(parent.size() + 1);
    let named = parent.log(&mut tx, &named);
    let mut tx = tx.seal();
    locks.change();
    logged.apply(&mut tx);
    named.apply(&mut tx);
    tx.commit();
    Ok(())
}
