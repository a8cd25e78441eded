//! unlink and rmdir. The inode's last link and its name go in one transaction; its blocks are freed
//! when no process holds it open.

use super::{find, named, named_dir, peek, with_links, with_names};
use crate::dir::bucket::HeaderEdit;
use crate::dir::{Hit, Name};
use crate::inode::Inode;
use crate::namespace::planted;
use crate::pool::Pool;
use crate::purpose::Claim;
use crate::resolve::intend_reclaim;
use crate::types::Ino;
use pm_journal::Transaction;
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;

/// The type of inode that is to lose its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    File,
    Directory,
}

impl Pool {
    /// unlink: anything but a directory. `seen`: what the name stood for when the caller looked.
    pub(crate) fn unlink(&self, dir: Ino, name: &[u8], seen: Option<Ino>) -> Result<()> {
        match name {
            b"." | b".." => Err(Error::IsDirectory),
            _ => self.remove(dir, name, What::File, seen),
        }
    }

    /// rmdir: an empty directory.
    pub(crate) fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(dir, name, What::Directory, None)
    }

    /// The directory, and its record of the name; `None`: that stands for another inode by now.
    fn record_of(&self, dir: Ino, name: &Name<'_>, ino: Ino) -> Result<Option<(Inode, Hit)>> {
        let parent = named_dir(self, dir)?;
        let hit = find(self, &parent, name)?.ok_or(Error::NotFound)?;
        Ok((hit.ino == ino).then_some((parent, hit)))
    }

    fn remove(&self, dir: Ino, name: &[u8], what: What, mut seen: Option<Ino>) -> Result<()> {
        self.writable()?;
        let name = Name::plain(self, name)?;
        loop {
            let told = seen.take();
            let ino = match told {
                Some(ino) => ino,
                None => peek(self, dir, &name)?.ok_or(Error::NotFound)?,
            };
            let locks = LockSet::take(self, &[dir, ino]);
            let (parent, hit) = match self.record_of(dir, &name, ino) {
                Ok(Some(found)) => found,
                Err(error) if told.is_none() => return Err(error),
                // The caller's knowledge may be out of date in any way: its own lookup says why.
                _ => continue,
            };
            let inode = named(self, &parent, &hit)?;
            match what {
                What::File if inode.is_dir() => return Err(Error::IsDirectory),
                What::Directory if !inode.is_dir() => return Err(Error::NotDirectory),
                What::Directory if inode.size() > 0 => return Err(Error::NotEmpty),
                // A file is of no snapshot any more when the directory that has it is not.
                What::Directory => inode.changeable()?,
                _ => {}
            }
            let links = if what == What::Directory {
                0
            } else {
                inode.links.saturating_sub(1)
            };
            let lane = Claim::new(self);
            if links == 0 {
                intend_reclaim(&lane, ino)?;
            }
            let now = self.clock.now_ns();
            let mut header = HeaderEdit::of(self, hit.bucket);
            header.remove(&hit.record);
            let mut tx = Transaction::begin(&lane);
            let logged = header.log(&mut tx);
            let counted = parent.log(&mut tx, &with_names(&parent, -1, inode.is_dir(), now));
            let target = inode.log(&mut tx, &with_links(&inode, links, now));
            if planted!("bug-inode-number-freed-early") && links == 0 {
                planted::mark_number(self, ino, false);
            }
            let mut tx = tx.seal();
            locks.change();
            logged.apply(&mut tx);
            counted.apply(&mut tx);
            target.apply(&mut tx);
            locks.commit(tx);
            if planted!("bug-inode-number-freed-early") && links == 0 {
                planted::mark_number(self, ino, true);
            }
            return Ok(());
        }
    }
}
