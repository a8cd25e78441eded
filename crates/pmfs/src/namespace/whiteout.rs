//! RENAME_WHITEOUT: the old name stays and names a character device 0:0, which overlay file systems
//! take for "nothing here". Made as mknod makes it, in the rename's own transaction.

use super::create::{Kind, inherited, plan};
use super::inode_table::{new_ino, write};
use crate::dir::Hit;
use crate::dir::bucket::kind_of;
use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::Lane;
use crate::types::{Ino, NewNode, mode};
use pm_journal::error::Result;
use pm_journal::{Logged, Sealed, Transaction};
use pm_store::FreshSet;
use pmfs_format::InodeRaw;

/// A device without links, in a place of its own; the lane's intent says that no name has its
/// number yet.
pub(crate) struct Whiteout {
    ino: Ino,
    off: u64,
    mode: u32,
}

/// The words that give it the name.
pub(crate) struct LoggedWhiteout {
    record: Logged,
    word: u64,
    links: Logged,
}

impl Whiteout {
    /// # Errors
    /// `NoInodes`, `NoSpace`.
    pub fn make(
        pool: &Pool,
        lane: &Lane<'_>,
        fresh: &mut FreshSet<'_>,
        dir: &Inode,
        (uid, gid): (u32, u32),
        now_ns: i64,
    ) -> Result<Whiteout> {
        let node = NewNode {
            mode: 0,
            umask: 0,
            uid,
            gid,
        };
        let kind = Kind::Special(mode::S_IFCHR, 0);
        let (bits, attributes) = inherited(pool, dir, &node, kind)?;
        let (ino, off) = new_ino(pool, lane)?;
        let mut new = plan(pool, dir, &node, bits, kind);
        new.xattr = pool.place_xattrs(lane, fresh, ino, &attributes, 0)?;
        write(pool, fresh, off, &new, now_ns);
        Ok(Whiteout {
            ino,
            off,
            mode: new.mode,
        })
    }

    /// Logs the name's record and the device's links.
    pub fn log(&self, tx: &mut Transaction<'_>, name: &Hit) -> LoggedWhiteout {
        LoggedWhiteout {
            record: tx.log(name.record.off, 8),
            word: name.record.renamed_to(self.ino, kind_of(self.mode)),
            links: tx.log(InodeRaw::links.of(self.off), 8),
        }
    }
}

impl LoggedWhiteout {
    /// Stores them.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn apply(&self, tx: &mut Sealed<'_>) {
        tx.set(&self.record, 0, self.word);
        tx.set(&self.links, 0, 1);
    }
}
