//! Calls on names and on what they stand for: attributes, directories, extended attributes.

use super::Fs;
use crate::dir::list;
use crate::namespace::create::Kind;
use crate::types::{Attr, DirEntry, Ino, NewNode, RenameFlags, SetAttr, StatFs, XattrFlags};
use pm_journal::error::Result;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Finds a name; "." and ".." too.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.read_call(|pool| pool.lookup(dir, name))
    }

    /// Looks up like [`Fs::lookup`], to where the caller wants it; after an error it says nothing.
    pub fn lookup_into(&self, dir: Ino, name: &[u8], attr: &mut Attr) -> Result<()> {
        self.read_call(|pool| pool.lookup_into(dir, name, attr))
    }

    /// An inode's attributes.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.read_call(|pool| pool.getattr(ino))
    }

    /// Looks up like [`Fs::lookup`], by the number, what was just listed in a directory. An entry
    /// that has another name since may be an error.
    pub fn listed(&self, dir: Ino, entry: &DirEntry<'_>) -> Result<Attr> {
        self.read_call(|pool| pool.listed(dir, entry))
    }

    /// Changes attributes.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.change(|pool| pool.setattr(ino, set))
    }

    /// Changes attributes as they are: `change` is asked under the inode's lock, so nobody else
    /// changes them between its look and what it says. Set-id bits are taken away so. A size that
    /// it says is not set, and with nothing to set nothing is done.
    pub fn setattr_by(&self, ino: Ino, change: &dyn Fn(&Attr) -> SetAttr) -> Result<Attr> {
        self.change(|pool| pool.setattr_by(ino, change))
    }

    /// Makes a regular file; does not hold it open.
    pub fn create(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::File))
    }

    /// Makes a directory.
    pub fn mkdir(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Directory))
    }

    /// Makes a file, device, FIFO or socket; `kind` is the type's bits.
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

    /// Makes a symbolic link.
    pub fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Symlink(target)))
    }

    /// Makes a file without a name (O_TMPFILE), held open once: pair it with [`Fs::release`].
    pub fn tmpfile(&self, dir: Ino, node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.tmpfile(dir, node))
    }

    /// Gives a file one more name.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.change(|pool| pool.link(ino, dir, name))
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.unlink(dir, name, None))
    }

    /// Unlinks like [`Fs::unlink`], for who has just looked: the name stood for `seen`. If it does
    /// no more, what it stands for now goes.
    pub fn unlink_seen(&self, dir: Ino, name: &[u8], seen: Ino) -> Result<()> {
        self.change(|pool| pool.unlink(dir, name, Some(seen)))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.rmdir(dir, name))
    }

    /// Moves a name; see `renameat2(2)`.
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

    /// Renames like [`Fs::rename`], by a user and a group, who are to own a whiteout, which else is
    /// root's. `seen`: what the names, the second one if it stood for anything, stood for when the
    /// caller looked; if they do no more, what they stand for now counts.
    pub fn rename_by(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
        owner: (u32, u32),
        seen: Option<(Ino, Option<Ino>)>,
    ) -> Result<()> {
        self.change(|pool| pool.rename(from, to, flags, owner, seen))
    }

    /// A symbolic link's target.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.read_call(|pool| pool.readlink(ino))
    }

    /// Shows `emit` the entries after `cookie` (0: all, "." and ".." first) until it declines one.
    /// A cookie stays good whatever changes meanwhile.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.readdir_for(dir, cookie, true, emit)
    }

    /// Lists like [`Fs::readdir`], with the time of access left as it is unless `wants_atime`.
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

    /// An extended attribute's value.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.read_call(|pool| pool.getxattr(ino, name))
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.change(|pool| pool.setxattr(ino, name, value, flags))
    }

    /// The extended attributes' names.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.read_call(|pool| pool.listxattr(ino))
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.removexattr(ino, name))
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        self.read_call(|pool| pool.statfs())
    }

    /// Does what [`Fs::getattr`] does, to where the caller wants it, which is a fifth faster; after
    /// an error it says nothing. The blocks of a file with holes are counted once stores into them,
    /// by mappings below a mount, are written back.
    pub fn getattr_into(&self, ino: Ino, attr: &mut Attr) -> Result<()> {
        self.read_call(|pool| pool.getattr_into(ino, attr))?;
        match attr.is_sparse() {
            true => self.getattr_of_sparse(ino, attr),
            false => Ok(()),
        }
    }

    /// Does what [`Fs::getattr_into`] does, once its blocks count.
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
