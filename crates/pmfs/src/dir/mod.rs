//! Directories: an extendible hash whose table is a tree (docs/adr/0037-directories.md).
//!
//! A name's keyed 63-bit hash leads through at most a few nodes to one bucket ([`bucket`]); a look
//! at its header line and at the one record whose fingerprint fits decides. A full bucket is split
//! into two fresh ones under a fresh copy of its node, and one pointer is swung ([`split`]), so
//! that the calls themselves never log more than a few lines.

pub mod bucket;
pub(crate) mod list;
pub mod split;

use crate::inode::Inode;
use crate::pool::Pool;
use crate::tree::entry::Entry;
use crate::tree::{Shape, Tree};
use crate::types::Ino;
use bucket::{Bucket, Record};
use pm_journal::error::{Error, Result};
use pmfs_format::InodeRaw;
use pmfs_format::directory::{HASH_FIRST, NAME_MAX};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// A name with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

impl<'a> Name<'a> {
    /// Checks and hashes a name that a call is to look up.
    ///
    /// # Errors
    /// [`Error::NameTooLong`], [`Error::Invalid`], [`Error::NotFound`] for an empty one.
    pub fn new(pool: &Pool, bytes: &'a [u8]) -> Result<Name<'a>> {
        if bytes.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if bytes.is_empty() {
            return Err(Error::NotFound);
        }
        if has_nul_or_slash(bytes) {
            return Err(Error::Invalid(&"a name has no NUL and no slash"));
        }
        Ok(Name {
            bytes,
            hash: hash(pool, bytes),
        })
    }

    /// Makes a name as [`Name::new`] does, one that is to be made or removed: "." and ".." are not.
    ///
    /// # Errors
    /// Those of [`Name::new`]; `Invalid` for ".", `NotEmpty` for "..".
    pub fn plain(pool: &Pool, bytes: &'a [u8]) -> Result<Name<'a>> {
        match bytes {
            b"." => Err(Error::Invalid(&"'.' can't be made or removed")),
            b".." => Err(Error::NotEmpty),
            _ => Name::new(pool, bytes),
        }
    }
}

/// Returns whether a record may have such a name.
pub fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !matches!(bytes, b"." | b"..") && !has_nul_or_slash(bytes)
}

/// Eight bytes at a time: a rename comes here four times.
fn has_nul_or_slash(name: &[u8]) -> bool {
    let Some(last) = name.last_chunk::<8>() else {
        return name.iter().any(|byte| matches!(byte, 0 | b'/'));
    };
    let eights = name.as_chunks::<8>().0.iter();
    eights.chain([last]).any(|&eight| {
        let word = u64::from_le_bytes(eight);
        let slashes = u64::from_le_bytes([b'/'; 8]);
        bucket::zero_bytes(word) | bucket::zero_bytes(word ^ slashes) != 0
    })
}

/// The keyed hash of a name: 63 bits, none below [`HASH_FIRST`].
pub fn hash(pool: &Pool, name: &[u8]) -> u64 {
    let [k0, k1] = pool.geometry.hash_key;
    let mut hasher = SipHasher13::new_with_keys(k0, k1);
    hasher.write(name);
    (hasher.finish() >> 1).max(HASH_FIRST)
}

/// A name found.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    pub ino: Ino,
    pub bucket: Bucket,
    pub record: Record,
}

/// Looks a name up in a directory just read. Lock-free callers check the sequence afterwards.
///
/// # Errors
/// Damage.
#[inline]
pub(crate) fn lookup(pool: &Pool, dir: &Inode, name: &Name<'_>) -> Result<Option<Hit>> {
    let tree = dir.tree();
    let off = match tree.bucket(pool, name.hash, |off| pool.pm.load(off)) {
        Some(off) => off,
        None => match tree.find(pool, name.hash)?.entry {
            entry if entry.is_hole() => return Ok(None),
            entry => entry.off(),
        },
    };
    let bucket = Bucket::at(off);
    let header = bucket.header(pool);
    for line in header.matches(bucket::fingerprint(name.hash)) {
        let record = bucket.record(pool, line)?;
        if record.hash == name.hash && record.name_is(pool, name.bytes) {
            return Ok(Some(Hit {
                ino: Ino::from(record.ino),
                bucket,
                record,
            }));
        }
    }
    Ok(None)
}

/// Prefetches the header of a name's bucket: the headers of two names then come at once. Changes
/// nothing, and needs no lock; the later lookup is charged for the load where a slower medium is
/// emulated.
#[inline]
pub(crate) fn expect(pool: &Pool, dir: Ino, name: &Name<'_>) {
    if let Ok(off) = pool.inode_off(dir) {
        let slot = InodeRaw::root.of(off);
        let tree = Tree {
            root: Entry(pool.pm.load_cached(slot)),
            slot,
            shape: Shape::Directory,
        };
        tree.expect_bucket(pool, name.hash);
    }
}

/// The bucket that a name belongs in.
///
/// # Errors
/// Damage; [`Error::NotFound`] if the directory has no buckets at all.
pub fn bucket_of(pool: &Pool, tree: &Tree, hash: u64) -> Result<Bucket> {
    let found = tree.find(pool, hash)?;
    if found.entry.is_hole() {
        Err(Error::NotFound)
    } else {
        Ok(Bucket::at(found.entry.off()))
    }
}

#[cfg(test)]
mod tests {
    use super::has_nul_or_slash;

    #[test]
    fn what_no_name_has_is_seen_anywhere() {
        for len in 1..=25 {
            for at in 0..len {
                for byte in 0..=255 {
                    let mut name = vec![b'x'; len];
                    name[at] = byte;
                    let has = byte == 0 || byte == b'/';
                    assert_eq!(has_nul_or_slash(&name), has, "{byte} at {at} of {len}");
                }
            }
        }
    }
}
