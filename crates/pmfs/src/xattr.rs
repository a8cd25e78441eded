//! Extended attributes: all of an inode's in one run of blocks, replaced whole by a shadow and one word
//! (DECISIONS 21).
//!
//! The run holds: u32 length of what follows, u32 CRC-32C of it, then for each attribute u16 name length,
//! u16 zero, u32 value length, name, value.

use crate::alloc::Class;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lane::{Claim, Purpose, Run, Zone};
use crate::locks::{self, LockSet};
use crate::namespace::Change;
use crate::persist::Transaction;
use crate::pool::Pool;
use crate::tree::corrupt;
use crate::types::{Ino, XattrFlags};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// Longest value, as the kernel has it.
const VALUE_MAX: usize = 65536;
/// Longest name.
const NAME_MAX: usize = 255;
/// Blocks that one inode's attributes may take.
const BLOCKS_MAX: u64 = 32;

/// What the kernel says of a name before it asks any file system.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::AttributeName);
    }
    Ok(())
}

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(bytes: &[u8], off: u64) -> Result<Attributes> {
    let bad = || corrupt("extended attributes", off);
    let mut attributes = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (head, tail) = rest.split_at_checked(8).ok_or_else(bad)?;
        let name_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (name, tail) = tail.split_at_checked(name_len).ok_or_else(bad)?;
        let (value, tail) = tail.split_at_checked(value_len).ok_or_else(bad)?;
        attributes.push((name.to_vec(), value.to_vec()));
        rest = tail;
    }
    Ok(attributes)
}

fn encode(attributes: &Attributes) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in attributes {
        body.extend_from_slice(&(name.len() as u16).to_le_bytes());
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&(value.len() as u32).to_le_bytes());
        body.extend_from_slice(name);
        body.extend_from_slice(value);
    }
    let mut bytes = Vec::with_capacity(body.len() + 8);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// All attributes of an inode just read.
///
/// # Errors
/// `Corrupt` if they fail their checksum, or their run lies outside the pool.
pub(crate) fn load(pool: &Pool, inode: &Inode) -> Result<Attributes> {
    let run = inode.xattr_run();
    if inode.xattr == 0 {
        return Ok(Vec::new());
    }
    let off = run.block << BLOCK_SHIFT;
    let len = run.count * BLOCK_BYTES;
    if run.count == 0
        || run.count > BLOCKS_MAX
        || off < pool.data.start
        || off + len > pool.data.end
    {
        return Err(corrupt("extended attributes' place", inode.off));
    }
    let mut bytes = vec![0; len as usize];
    pool.pm.copy_out(off, &mut bytes)?;
    let body_len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let crc = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let body = bytes
        .get(8..8 + body_len)
        .ok_or_else(|| corrupt("extended attributes", off))?;
    if crc32c::crc32c(body) != crc {
        return Err(corrupt("extended attributes' checksum", off));
    }
    decode(body, off)
}

impl Pool {
    fn xattrs(&self, ino: Ino) -> Result<Attributes> {
        self.alive()?;
        locks::read(self, ino, || load(self, &Inode::live(self, ino)?))
    }

    /// The value of one attribute.
    pub(crate) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let attributes = self.xattrs(ino)?;
        let found = attributes.into_iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value).ok_or(Error::NoAttribute)
    }

    /// All names.
    pub(crate) fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self
            .xattrs(ino)?
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    }

    /// Sets one.
    pub(crate) fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        check_name(name)?;
        if name.contains(&0) {
            return Err(Error::Invalid("attribute name"));
        }
        if value.len() > VALUE_MAX {
            return Err(Error::AttributeTooLong);
        }
        self.change_xattrs(ino, |attributes| {
            let old = attributes.iter_mut().find(|(key, _)| key == name);
            match old {
                Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Error::Exists),
                None if flags.contains(XattrFlags::REPLACE) => return Err(Error::NoAttribute),
                Some((_, old)) => *old = value.to_vec(),
                None => attributes.push((name.to_vec(), value.to_vec())),
            }
            Ok(())
        })
    }

    /// Removes one.
    pub(crate) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.change_xattrs(ino, |attributes| {
            let at = attributes.iter().position(|(key, _)| key == name);
            attributes.remove(at.ok_or(Error::NoAttribute)?);
            Ok(())
        })
    }

    fn change_xattrs(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Attributes) -> Result<()>,
    ) -> Result<()> {
        self.writable()?;
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::live(self, ino)?;
        let mut attributes = load(self, &inode)?;
        change(&mut attributes)?;
        let lane = Claim::new(self);
        lane.work_on(&inode);
        let mut fresh = self.pm.fresh();
        let mut word = 0;
        if !attributes.is_empty() {
            let bytes = encode(&attributes);
            let blocks = (bytes.len() as u64).div_ceil(BLOCK_BYTES);
            if blocks > BLOCKS_MAX {
                return Err(Error::AttributesTooBig);
            }
            // What makes them shorter must go through on a full pool.
            let class = if bytes.len() as u64 <= inode.xattr_run().count * BLOCK_BYTES {
                Class::Privileged
            } else {
                Class::Ordinary
            };
            let run = self.contiguous(&lane, blocks, class, ino)?;
            fresh
                .range(run.block << BLOCK_SHIFT, run.count * BLOCK_BYTES)
                .bytes(0, &bytes)?;
            word = run.block << BLOCK_SHIFT | run.count;
        }
        if inode.xattr != 0 {
            lane.intend_run(inode.xattr_run(), Purpose::Xattr { ino })?;
        }
        fresh.until_seal();
        let mut tx = Transaction::begin(&self.pm, &lane);
        let mut changed = Change::log(&mut tx, &inode);
        changed.hot.set_xattr(word);
        changed.hot.change(self.clock.now_ns());
        let mut tx = tx.seal();
        locks.change();
        changed.apply(&mut tx);
        tx.commit();
        Ok(())
    }

    /// A run of exactly `blocks` blocks inside one group: where the next ones are, else wherever there is
    /// one; a shorter one is left to settle.
    fn contiguous(&self, lane: &Claim<'_>, blocks: u64, class: Class, ino: Ino) -> Result<Run> {
        let purpose = Purpose::Xattr { ino };
        let run = self.alloc(lane, blocks, class, Zone::Meta, purpose)?;
        if run.count == blocks {
            return Ok(run);
        }
        self.alloc_whole(lane, blocks, class, purpose)
    }
}
