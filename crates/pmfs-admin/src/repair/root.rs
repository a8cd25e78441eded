//! The root directory, made anew where its inode is damaged. The names that its tree still holds
//! are kept.

use pm_store::Restore;
use pmfs::parts::inode::{Inode, NewInode};
use pmfs::parts::namespace::inode_table;
use pmfs::parts::pool::Pool;
use pmfs::parts::purpose::Claim;
use pmfs::parts::tree::entry::Entry;
use pmfs::types::mode;
use pmfs::{Error, Result};
use pmfs_format::InodeRaw;
use pmfs_format::inode::ROOT_INO;

/// Makes inode 2 a directory with links.
///
/// # Errors
/// No space for the table's block.
pub(super) fn renew(pool: &Pool) -> Result<()> {
    let restore = Restore::new(&pool.pm);
    match Inode::load(pool, ROOT_INO) {
        Ok(root) if root.mode & !0o7777 == mode::S_IFDIR => {
            restore.words(root.off, &[0]);
            restore.words(InodeRaw::links.of(root.off), &[2]);
        }
        Ok(root) => write(pool, &restore, root.off, Entry(root.root)),
        Err(Error::Stale) => {
            let lane = Claim::new(pool);
            inode_table::grow(pool, &lane, ROOT_INO)?;
            lane.clear_intents();
            write(pool, &restore, pool.inode_off(ROOT_INO)?, Entry::HOLE);
        }
        Err(error) => return Err(error),
    }
    restore.barrier();
    Ok(())
}

fn write(pool: &Pool, restore: &Restore<'_>, off: u64, tree: Entry) {
    let new = NewInode {
        mode: mode::S_IFDIR | 0o755,
        uid: 0,
        gid: 0,
        parent: ROOT_INO,
        size: 0,
        root: tree,
        inline: &[],
        xattr: 0,
    };
    let mut words = new.words(1, pool.clock.now_ns());
    words[InodeRaw::links.word()] = 2;
    restore.words(off, &words);
}
