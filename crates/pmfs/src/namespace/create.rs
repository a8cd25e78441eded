//! create, mkdir, mknod, symlink, O_TMPFILE: a new inode, then the transaction that names it.

use super::inode_table::{made, new_ino, write};
use super::{find, named_dir, with_names};
use crate::dir::Name;
use crate::dir::bucket::{HeaderEdit, kind_of};
use crate::dir::{bucket_of, expect, split};
use crate::inode::acl;
use crate::inode::xattr::{self, Attributes};
use crate::inode::{Inode, NewInode};
use crate::pool::Pool;
use crate::purpose::{Claim, Lane, Purpose};
use crate::tables::open_table::Thing;
use crate::tree::corrupt;
use crate::tree::entry::Entry;
use crate::types::{Attr, Ino, NewNode, mode};
use pm_journal::Transaction;
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::inode::{FLAG_LINKABLE, INLINE_BYTES, LINKS_MAX};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw};

/// Longest symlink target.
pub(crate) const TARGET_MAX: usize = 4095;

/// The kind of an inode, beyond its mode.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    File,
    Directory,
    /// Device, FIFO or socket: type bits and device number.
    Special(u32, u32),
    Symlink(&'a [u8]),
}

impl Kind<'_> {
    fn type_bits(self) -> u32 {
        match self {
            Kind::File => mode::S_IFREG,
            Kind::Directory => mode::S_IFDIR,
            Kind::Special(bits, _) => bits,
            Kind::Symlink(_) => mode::S_IFLNK,
        }
    }

    fn links(self) -> u32 {
        if matches!(self, Kind::Directory) {
            2
        } else {
            1
        }
    }
}

/// The permission bits of an inode to be, and the ACLs it starts with: by the directory's default
/// ACL, or without one by the umask.
pub(super) fn inherited(
    pool: &Pool,
    dir: &Inode,
    node: &NewNode,
    kind: Kind<'_>,
) -> Result<(u32, Attributes)> {
    let mut attributes = Attributes::new();
    let asked = node.mode & 0o7777;
    if matches!(kind, Kind::Symlink(_)) {
        return Ok((asked, attributes));
    }
    let default = match dir.xattr {
        0 => None,
        _ => xattr::acl_of(&xattr::load(pool, dir)?, acl::DEFAULT, dir.off)?,
    };
    let Some(default) = default else {
        return Ok((asked & !(node.umask & 0o777), attributes));
    };
    let mut access = default.clone();
    let left = access.limit(asked);
    if !access.is_mode() {
        xattr::put(&mut attributes, acl::ACCESS, Some(access.encode()));
    }
    if matches!(kind, Kind::Directory) {
        xattr::put(&mut attributes, acl::DEFAULT, Some(default.encode()));
    }
    Ok((left, attributes))
}

/// The inode to be, in a directory whose set-gid bit hands down its group.
pub(super) fn plan<'a>(
    pool: &Pool,
    dir: &Inode,
    node: &NewNode,
    bits: u32,
    kind: Kind<'a>,
) -> NewInode<'a> {
    let mut mode_bits = bits | kind.type_bits();
    let mut gid = node.gid;
    if dir.mode & mode::S_ISGID != 0 {
        gid = (pool.pm.load(InodeRaw::uid.of(dir.off)) >> 32) as u32;
        if matches!(kind, Kind::Directory) {
            mode_bits |= mode::S_ISGID;
        }
    }
    let mut new = NewInode {
        mode: mode_bits,
        uid: node.uid,
        gid,
        parent: 0,
        size: 0,
        root: Entry::HOLE,
        xattr: 0,
        inline: &[],
    };
    match kind {
        Kind::File => {}
        Kind::Directory => new.parent = dir.ino,
        Kind::Special(_, rdev) => new.parent = u64::from(rdev),
        Kind::Symlink(target) => {
            new.size = target.len() as u64;
            if target.len() <= INLINE_BYTES {
                new.inline = target;
            }
        }
    }
    new
}

/// A long symlink's target goes to a block of its own.
fn place_target(
    pool: &Pool,
    lane: &Lane<'_>,
    fresh: &mut FreshSet<'_>,
    ino: Ino,
    kind: Kind<'_>,
) -> Result<Entry> {
    let Kind::Symlink(target) = kind else {
        return Ok(Entry::HOLE);
    };
    if target.len() <= INLINE_BYTES {
        return Ok(Entry::HOLE);
    }
    let purpose = Purpose::leaf(ino, 0);
    let run = pool.alloc(lane, 1, Class::Ordinary, Zone::Meta, purpose)?;
    let off = run.block << BLOCK_SHIFT;
    fresh.range(off, BLOCK_BYTES).bytes(0, target)?;
    Ok(Entry::leaf(off).rooted(0))
}

/// A symlink's target.
///
/// # Errors
/// `Invalid` if it is none.
pub fn link_target(pool: &Pool, inode: &Inode) -> Result<Vec<u8>> {
    if inode.kind() != mode::S_IFLNK {
        return Err(Error::Invalid(&"not a symbolic link"));
    }
    let len = inode.size() as usize;
    let root = Entry(inode.root);
    let off = if root.is_hole() {
        InodeRaw::inline.of(inode.off)
    } else {
        root.checked(&pool.data, BLOCK_BYTES, inode.root_slot())?
            .off()
    };
    let most = match root.is_hole() {
        true => INLINE_BYTES,
        false => TARGET_MAX,
    };
    if !(1..=most).contains(&len) || root.is_node() {
        return Err(corrupt("symlink length", inode.off));
    }
    let mut target = vec![0; len];
    pool.pm.copy_out(off, &mut target)?;
    // No call has made such a one: others' pools may have it.
    if target.contains(&0) {
        return Err(corrupt("symlink target", off));
    }
    Ok(target)
}

/// Checks what no lock is needed for.
fn check(kind: Kind<'_>) -> Result<()> {
    match kind {
        Kind::Symlink([]) => Err(Error::NotFound),
        Kind::Symlink(target) if target.len() > TARGET_MAX => Err(Error::NameTooLong),
        Kind::Special(bits, _)
            if !matches!(
                bits,
                mode::S_IFREG | mode::S_IFIFO | mode::S_IFSOCK | mode::S_IFBLK | mode::S_IFCHR
            ) =>
        {
            Err(Error::Invalid(
                &"mknod makes files, devices, FIFOs and sockets",
            ))
        }
        _ => Ok(()),
    }
}

impl Pool {
    /// Makes an inode and its first name.
    pub fn make(&self, dir: Ino, name: &[u8], node: &NewNode, kind: Kind<'_>) -> Result<Attr> {
        self.writable()?;
        check(kind)?;
        let name = match name {
            b"." | b".." => return Err(Error::Exists),
            _ => Name::new(self, name)?,
        };
        expect(self, dir, &name);
        let mut locks = LockSet::take(self, &[dir]);
        let parent = named_dir(self, dir)?;
        if find(self, &parent, &name)?.is_some() {
            return Err(Error::Exists);
        }
        if matches!(kind, Kind::Directory) && parent.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let (bits, attributes) = inherited(self, &parent, node, kind)?;
        let lane = Claim::new(self);
        let parent = split::make_room(self, &lane, &locks, parent, name.hash, name.bytes.len())?
            .unwrap_or(parent);
        let (ino, off) = new_ino(self, &lane)?;
        let covered = locks.try_add(ino);
        let now = self.clock.now_ns();
        let mut fresh = self.pm.fresh();
        let mut new = plan(self, &parent, node, bits, kind);
        new.xattr = self.place_xattrs(&lane, &mut fresh, ino, &attributes, 0)?;
        new.root = place_target(self, &lane, &mut fresh, ino, kind)?;
        write(self, &mut fresh, off, &new, now);
        let mut header = HeaderEdit::of(self, bucket_of(self, &parent.tree(), name.hash)?);
        header.insert(&mut fresh, ino, kind_of(new.mode), name.hash, name.bytes);
        fresh.until_seal();

        let mut tx = Transaction::begin(&lane);
        let logged = header.log(&mut tx);
        let is_dir = matches!(kind, Kind::Directory);
        let named = parent.log(&mut tx, &with_names(&parent, 1, is_dir, now));
        let links = tx.log(InodeRaw::links.of(off), 8);
        let mut tx = tx.seal();
        locks.change();
        tx.set(&links, 0, u64::from(kind.links()));
        logged.apply(&mut tx);
        named.apply(&mut tx);
        if planted!("bug-unlocked-before-commit") {
            drop(locks);
            tx.commit();
        } else if covered {
            locks.commit(tx);
        } else {
            tx.commit();
        }
        lane.clear_intents();
        Ok(self.attr_of(&made(self, ino)?))
    }

    /// O_TMPFILE: a file without a name, held open once by the caller.
    pub(crate) fn tmpfile(&self, dir: Ino, node: &NewNode) -> Result<Attr> {
        self.writable()?;
        let _locks = LockSet::take(self, &[dir]);
        let parent = named_dir(self, dir)?;
        let (bits, attributes) = inherited(self, &parent, node, Kind::File)?;
        let lane = Claim::new(self);
        let (ino, off) = new_ino(self, &lane)?;
        let mut fresh = self.pm.fresh();
        let mut new = plan(self, &parent, node, bits, Kind::File);
        new.xattr = self.place_xattrs(&lane, &mut fresh, ino, &attributes, 0)?;
        write(self, &mut fresh, off, &new, self.clock.now_ns());
        fresh
            .range(InodeRaw::links.of(off), 8)
            .words(0, &[u64::from(FLAG_LINKABLE) << 32]);
        // Another thread may link it, whose barrier does not cover what this one flushed.
        let _ = fresh.barrier();
        self.open_add(Thing::Inode(ino))?;
        lane.clear_intents();
        Ok(self.attr_of(&made(self, ino)?))
    }
}
