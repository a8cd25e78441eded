//! Inodes by their numbers, in place of names.

use pmfs::{Attr, Error, Ino, Result};

use super::Server;

impl Server {
    /// LOOKUP of [`pmfs::INODE_NAME`].
    pub fn lookup_number(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino).map(|attr| self.told(attr))
    }

    /// A number out of a handle (`open_by_handle_at(2)`, NFS): it may be no file's any
    /// more, and of which it was its generation tells.
    pub(super) fn lookup_itself(&self, ino: Ino) -> Result<Attr> {
        let attr = self.fs.getattr(ino).map_err(|error| match error {
            Error::ShutDown | Error::Medium { .. } => error,
            _ => Error::NotFound,
        })?;
        // An inode without a name is not held for the kernel.
        match attr.links {
            0 => Err(Error::NotFound),
            _ => Ok(self.told(attr)),
        }
    }
}
