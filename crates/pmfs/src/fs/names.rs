//! Calls on names and on inodes: attributes, directories, extended attributes.

use super::Fs;
use crate::dir::list;
use crate::namespace::create::Kind;
use crate::namespace::rename::How;
use crate::types::{Attr, DirEntry, Ino, NewNode, RenameFlags, SetAttr, StatFs, XattrFlags};
use pm_journal::error::Result;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Finds the inode of a name in a directory; "." and ".." too.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotDirectory`], [`crate::Error::NameTooLong`]
    /// above 255 bytes.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.read_call(|pool| pool.lookup(dir, name))
    }

    /// Looks up as [`Fs::lookup`] does, into the caller's `attr`, which is undefined after an
    /// error.
    pub fn lookup_into(&self, dir: Ino, name: &[u8], attr: &mut Attr) -> Result<()> {
        self.read_call(|pool| pool.lookup_into(dir, name, attr))
    }

    /// An inode's attributes.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.read_call(|pool| pool.getattr(ino))
    }

    /// Returns whether an inode is of a snapshot: calls that would change it are
    /// [`crate::Error::OfSnapshot`].
    pub fn is_of_snapshot(&self, ino: Ino) -> Result<bool> {
        self.read_call(|pool| pool.is_of_snapshot(ino))
    }

    /// Looks up an entry that [`Fs::readdir`] has just listed, by its inode number. An entry that
    /// has been replaced since may give an error.
    pub fn listed(&self, dir: Ino, entry: &DirEntry<'_>) -> Result<Attr> {
        self.read_call(|pool| pool.listed(dir, entry))
    }

    /// Changes the attributes that `set` has, and returns all.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.change(|pool| pool.setattr(ino, set))
    }

    /// Changes attributes depending on their values: `change` is called under the inode's lock, so
    /// that no other call changes them in between. Set-id bits are removed in this way. A size that
    /// it returns is ignored, and an empty change does nothing.
    pub fn setattr_by(&self, ino: Ino, change: &dyn Fn(&Attr) -> SetAttr) -> Result<Attr> {
        self.change(|pool| pool.setattr_by(ino, change))
    }

    /// Creates a regular file, without holding it open.
    ///
    /// # Errors
    /// [`crate::Error::Exists`], [`crate::Error::NameTooLong`], [`crate::Error::NoSpace`],
    /// [`crate::Error::NoInodes`].
    pub fn create(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::File))
    }

    /// Creates a directory; errors as [`Fs::create`].
    pub fn mkdir(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Directory))
    }

    /// Creates a file, device, FIFO or socket. `kind` has the type's bits (S_IFMT); errors as
    /// [`Fs::create`].
    pub fn mknod(
        &self,
        dir: Ino,
        name: &[u8],
        node: &NewNode,
        kind: u32,
        rdev: u32,
    ) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Special(kind, rdev)))
    }

    /// Creates a symbolic link to `target`; errors as [`Fs::create`].
    pub fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Symlink(target)))
    }

    /// Creates a file without a name (O_TMPFILE), held once; [`Fs::release`] ends the hold.
    pub fn tmpfile(&self, dir: Ino, node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.tmpfile(dir, node))
    }

    /// Gives a file another name.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.change(|pool| pool.link(ino, dir, name))
    }

    /// Removes a name of an inode other than a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.unlink(dir, name, None))
    }

    /// Unlinks as [`Fs::unlink`] does, for a caller that has found the inode `seen` at the name. If
    /// the name stands for another inode now, that one is unlinked.
    pub fn unlink_seen(&self, dir: Ino, name: &[u8], seen: Ino) -> Result<()> {
        self.change(|pool| pool.unlink(dir, name, Some(seen)))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.rmdir(dir, name))
    }

    /// Renames as `renameat2(2)` does.
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_by((dir, name), (new_dir, new_name), flags, (0, 0), None)
    }

    /// Renames as [`Fs::rename`] does, with the owner and group of a whiteout, which otherwise are
    /// root's. `seen` has the inodes that the caller has found at the names, the second one only if
    /// it exists. If a name stands for another inode now, that one counts.
    pub fn rename_by(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
        owner: (u32, u32),
        seen: Option<(Ino, Option<Ino>)>,
    ) -> Result<()> {
        let how = How {
            flags,
            owner,
            ..How::default()
        };
        self.change(|pool| pool.rename(from, to, how, seen))
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.read_call(|pool| pool.readlink(ino))
    }

    /// Calls `emit` for the entries after `cookie` (0: all, "." and ".." first) until it declines
    /// one. A cookie stays valid whatever changes meanwhile.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.readdir_for(dir, cookie, true, emit)
    }

    /// Lists as [`Fs::readdir`] does, and updates the time of access only if `wants_atime`.
    pub fn readdir_for(
        &self,
        dir: Ino,
        cookie: u64,
        wants_atime: bool,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_call(|pool| {
            pool.alive()?;
            list::readdir(pool, dir, cookie, wants_atime, emit)
        })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`]; [`crate::Error::AttributeName`]: the name is empty or longer
    /// than 255 bytes.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.read_call(|pool| pool.getxattr(ino, name))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Those of [`Fs::getxattr`]; [`crate::Error::AttributeTooLong`] above 64 KiB;
    /// [`crate::Error::AttributesTooBig`], [`crate::Error::NoSpace`].
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.change(|pool| pool.setxattr(ino, name, value, flags))
    }

    /// The names of all extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.read_call(|pool| pool.listxattr(ino))
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.removexattr(ino, name))
    }

    /// The blocks and inodes of the pool, in all and free.
    pub fn statfs(&self) -> Result<StatFs> {
        self.read_call(|pool| pool.statfs())
    }

    /// Reads attributes as [`Fs::getattr`] does, into the caller's `attr`, which is a fifth faster.
    /// `attr` is undefined after an error. Blocks that stores by mappings below a mount have filled
    /// in a file with holes count once they are written back.
    pub fn getattr_into(&self, ino: Ino, attr: &mut Attr) -> Result<()> {
        self.read_call(|pool| pool.getattr_into(ino, attr))?;
        match attr.is_sparse() {
            true => self.getattr_of_sparse(ino, attr),
            false => Ok(()),
        }
    }

    /// Reads attributes as [`Fs::getattr_into`] does, after the blocks of a file with holes have
    /// been counted.
    #[cold]
    fn getattr_of_sparse(&self, ino: Ino, attr: &mut Attr) -> Result<()> {
        let pool = self.pool();
        while let Err(error) = pool.stores_are_written(ino) {
            if !self.pages_are_back(&error) {
                return Err(error);
            }
        }
        pool.getattr_into(ino, attr)
    }
}
