//! Extended attributes: all of an inode's in one run of blocks, replaced whole by a shadow and one
//! word (docs/adr/0038-xattrs.md).
//!
//! The run holds: u32 length of what follows, u32 CRC-32C of it, then for each attribute u16 name
//! length, u16 zero, u32 value length, name, value.
//!
//! Names are Linux's: `user.` on regular files and directories, `trusted.` and `security.` on
//! everything (the mount checks the rights), and of `system.` the two ACLs, which
//! [`crate::inode::acl`] judges.

use crate::inode::Inode;
use crate::inode::acl;
use crate::pool::Pool;
use crate::purpose::{Claim, Lane, Purpose};
use crate::tree::corrupt;
use crate::types::Run;
use crate::types::{Ino, XattrFlags, mode};
use pm_journal::Transaction;
use pm_journal::error::{Error, Result};
use pm_journal::locks::{self, LockSet};
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw};

/// Longest value, as the kernel has it.
const VALUE_MAX: usize = 65536;
/// Longest name.
const NAME_MAX: usize = 255;
/// Blocks that one inode's attributes may take.
const BLOCKS_MAX: u64 = 32;

/// Checks what the kernel checks of a name and a value before it asks any file system, and which
/// namespaces there are.
fn check(name: &[u8], value: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::AttributeName);
    }
    if value.len() > VALUE_MAX {
        return Err(Error::AttributeTooLong);
    }
    for space in [&b"user."[..], b"trusted.", b"security."] {
        match name.strip_prefix(space) {
            Some([]) => return Err(Error::Invalid(&"attribute name")),
            Some(rest) if rest.contains(&0) => return Err(Error::Invalid(&"attribute name")),
            Some(_) => return Ok(()),
            None => {}
        }
    }
    if acl::is_acl(name) {
        return Ok(());
    }
    Err(Error::NotSupported(&"this namespace of attributes"))
}

/// Returns whether an inode of these type bits may have such an attribute at all.
fn may_have(name: &[u8], kind: u32) -> bool {
    !name.starts_with(b"user.") || matches!(kind, mode::S_IFREG | mode::S_IFDIR)
}

/// Names and values of one inode's attributes.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn value_of<'a>(attributes: &'a Attributes, name: &[u8]) -> Option<&'a [u8]> {
    let found = attributes.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_slice())
}

/// Sets an attribute, or with `None` removes it.
pub(crate) fn put(attributes: &mut Attributes, name: &[u8], value: Option<Vec<u8>>) {
    let at = attributes.iter().position(|(key, _)| key == name);
    match (at, value) {
        (Some(at), Some(value)) => attributes[at].1 = value,
        (Some(at), None) => drop(attributes.remove(at)),
        (None, Some(value)) => attributes.push((name.to_vec(), value)),
        (None, None) => {}
    }
}

/// The ACL of that name, as it is stored.
///
/// # Errors
/// `Corrupt` if what is stored is none.
pub(crate) fn acl_of(attributes: &Attributes, name: &[u8], off: u64) -> Result<Option<acl::Acl>> {
    match value_of(attributes, name) {
        None => Ok(None),
        Some(value) => acl::decode(value).map_err(|_| corrupt("ACL", off)),
    }
}

/// The words to be stored after the attributes were read.
#[derive(Default)]
struct Effect {
    /// The attributes have changed.
    attributes: bool,
    /// The mode is to be another.
    mode: Option<u32>,
}

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
        // No call has set such a one: others' pools may have it.
        if check(name, value).is_err() || value_of(&attributes, name).is_some() {
            return Err(bad());
        }
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

/// The blocks of an inode that has attributes.
///
/// # Errors
/// `Corrupt` if they lie outside the pool's.
pub(crate) fn place(pool: &Pool, inode: &Inode) -> Result<Run> {
    let run = inode.xattr_run();
    let blocks = pool.data.start >> BLOCK_SHIFT..pool.data.end >> BLOCK_SHIFT;
    let inside = run.block >= blocks.start && run.block + run.count <= blocks.end;
    if inside && (1..=BLOCKS_MAX).contains(&run.count) {
        return Ok(run);
    }
    Err(corrupt("extended attributes' place", inode.off))
}

/// All attributes of an inode just read.
///
/// # Errors
/// `Corrupt` if they fail their checksum, or their run lies outside the pool.
pub fn load(pool: &Pool, inode: &Inode) -> Result<Attributes> {
    if inode.xattr == 0 {
        return Ok(Vec::new());
    }
    let run = place(pool, inode)?;
    let off = run.block << BLOCK_SHIFT;
    let len = run.count * BLOCK_BYTES;
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
    fn xattrs(&self, ino: Ino) -> Result<(u32, Attributes)> {
        self.alive()?;
        locks::read(self, ino, || {
            let inode = Inode::live(self, ino)?;
            Ok((inode.kind(), load(self, &inode)?))
        })
    }

    /// The value of one attribute.
    pub(crate) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check(name, b"")?;
        let (kind, attributes) = self.xattrs(ino)?;
        if acl::is_acl(name) && kind == mode::S_IFLNK {
            acl::check_kind(name, kind)?;
        }
        let value = value_of(&attributes, name).ok_or(Error::NoAttribute)?;
        Ok(value.to_vec())
    }

    pub(crate) fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let (_, attributes) = self.xattrs(ino)?;
        Ok(attributes.into_iter().map(|(name, _)| name).collect())
    }

    /// Sets one.
    pub(crate) fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        check(name, value)?;
        if acl::is_acl(name) {
            let acl = acl::decode(value)?;
            return self.set_acl(ino, name, acl, flags.contains(XattrFlags::KILL_SGID));
        }
        self.change_xattrs(ino, |inode, attributes| {
            if !may_have(name, inode.kind()) {
                return Err(Error::NotPermitted(&"user attributes of such a file"));
            }
            match value_of(attributes, name) {
                Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Error::Exists),
                None if flags.contains(XattrFlags::REPLACE) => return Err(Error::NoAttribute),
                _ => put(attributes, name, Some(value.to_vec())),
            }
            Ok(Effect {
                attributes: true,
                mode: None,
            })
        })
    }

    /// Removes one. An ACL that is not there is no error, as in Linux.
    pub(crate) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        check(name, b"")?;
        if acl::is_acl(name) {
            return self.set_acl(ino, name, None, false);
        }
        self.change_xattrs(ino, |inode, attributes| {
            if !may_have(name, inode.kind()) {
                return Err(Error::NotPermitted(&"user attributes of such a file"));
            }
            value_of(attributes, name).ok_or(Error::NoAttribute)?;
            put(attributes, name, None);
            Ok(Effect {
                attributes: true,
                mode: None,
            })
        })
    }

    /// Sets an ACL, or with `None` removes it. An access ACL changes the mode with it, and is not
    /// kept if the mode then says all.
    fn set_acl(
        &self,
        ino: Ino,
        name: &[u8],
        acl: Option<acl::Acl>,
        kill_set_gid: bool,
    ) -> Result<()> {
        self.change_xattrs(ino, |inode, attributes| {
            if acl.is_some() || inode.kind() == mode::S_IFLNK {
                acl::check_kind(name, inode.kind())?;
            }
            let mut effect = Effect::default();
            let mut kept = acl.as_ref();
            if let Some(acl) = kept.filter(|_| name == acl::ACCESS) {
                let mut bits = acl.to_mode(inode.mode);
                if kill_set_gid {
                    bits &= !mode::S_ISGID;
                }
                effect.mode = Some(bits);
                kept = kept.filter(|acl| !acl.is_mode());
            }
            effect.attributes = kept.is_some() || value_of(attributes, name).is_some();
            put(attributes, name, kept.map(acl::Acl::encode));
            Ok(effect)
        })
    }

    fn change_xattrs(
        &self,
        ino: Ino,
        change: impl FnOnce(&Inode, &mut Attributes) -> Result<Effect>,
    ) -> Result<()> {
        self.writable()?;
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::live(self, ino)?;
        inode.changeable()?;
        let mut attributes = load(self, &inode)?;
        let effect = change(&inode, &mut attributes)?;
        if !effect.attributes && effect.mode.is_none() {
            return Ok(());
        }
        let lane = Claim::new(self);
        inode.account_in(&lane);
        let mut fresh = self.pm.fresh();
        let mut word = inode.xattr;
        if effect.attributes {
            word = self.shadow_xattrs(&lane, &mut fresh, &inode, &attributes)?;
        }
        fresh.until_seal();
        let mut tx = Transaction::begin(&lane);
        let mut changed = inode.hot();
        changed.set_xattr(word);
        changed.change(self.clock.now_ns());
        let changed = inode.log(&mut tx, &changed);
        let mode = effect.mode.map(|bits| {
            (
                tx.log(InodeRaw::mode.of(inode.off), 8),
                inode.mode_word(bits),
            )
        });
        if planted!("bug-attributes-before-durable") {
            self.pm.publish_hidden(InodeRaw::xattr.of(inode.off), word);
        }
        let mut tx = tx.seal();
        locks.change();
        changed.apply(&mut tx);
        if let Some((range, word)) = mode {
            tx.set(&range, 0, word);
        }
        locks.commit(tx);
        Ok(())
    }

    /// Writes an inode's attributes beside its old ones, which are to go; answers its word for
    /// them.
    pub(crate) fn shadow_xattrs(
        &self,
        lane: &Lane<'_>,
        fresh: &mut FreshSet<'_>,
        inode: &Inode,
        attributes: &Attributes,
    ) -> Result<u64> {
        let old = inode.xattr_run();
        let word = self.place_xattrs(lane, fresh, inode.ino, attributes, old.count)?;
        if inode.xattr != 0 {
            lane.intend_run(old, Purpose::Xattr { ino: inode.ino })?;
        }
        Ok(word)
    }

    /// Writes attributes to fresh blocks; answers the inode's word for them. Attributes that take
    /// no more than `old_blocks` must go through on a full pool.
    pub(crate) fn place_xattrs(
        &self,
        lane: &Lane<'_>,
        fresh: &mut FreshSet<'_>,
        ino: Ino,
        attributes: &Attributes,
        old_blocks: u64,
    ) -> Result<u64> {
        if attributes.is_empty() {
            return Ok(0);
        }
        let bytes = encode(attributes);
        let blocks = (bytes.len() as u64).div_ceil(BLOCK_BYTES);
        if blocks > BLOCKS_MAX {
            return Err(Error::AttributesTooBig);
        }
        let class = if blocks <= old_blocks {
            Class::Privileged
        } else {
            Class::Ordinary
        };
        let run = self.contiguous(lane, blocks, class, ino)?;
        fresh
            .range(run.block << BLOCK_SHIFT, run.count * BLOCK_BYTES)
            .bytes(0, &bytes)?;
        Ok(run.block << BLOCK_SHIFT | run.count)
    }

    /// Allocates a run of exactly `blocks` blocks inside one group: at the next free ones, else
    /// anywhere. A shorter run that it got on the way is left to resolving.
    fn contiguous(&self, lane: &Lane<'_>, blocks: u64, class: Class, ino: Ino) -> Result<Run> {
        let purpose = Purpose::Xattr { ino };
        let run = self.alloc(lane, blocks, class, Zone::Meta, purpose)?;
        if run.count == blocks {
            return Ok(run);
        }
        self.alloc_whole(lane, blocks, class, purpose)
    }
}
