//! What only planted bugs do: change in place what belongs in a transaction.

use crate::dir::Hit;
use crate::dir::bucket::{HeaderEdit, fingerprint};
use crate::inode::Inode;
use crate::pool::Pool;
use crate::space::bitmap::Bitmap;
use crate::types::Ino;
use crate::types::Run;
use pm_store::Durable;
use pmfs_format::InodeRaw;
use pmfs_format::directory::FINGERPRINT_FREE;
use pmfs_format::inode::CTIME_IS_MTIME;

/// Stores a bucket's new header.
pub(crate) fn store_header(pool: &Pool, edit: &HeaderEdit) {
    for (at, word) in edit.new.words().into_iter().enumerate() {
        let slot = edit.bucket().off + at as u64 * 8;
        pool.pm.publish_hidden(slot, word);
    }
    pool.pm.barrier();
}

fn print_off(hit: &Hit) -> u64 {
    hit.bucket.off + hit.record.line as u64
}

/// Takes a name out of its bucket.
pub(crate) fn unname(pool: &Pool, hit: &Hit) {
    let _ = pool.pm.publish_bytes(print_off(hit), &[FINGERPRINT_FREE]);
}

/// Puts a name, of one line, back.
pub(crate) fn name_again(pool: &Pool, hit: &Hit) {
    let print = fingerprint(hit.record.hash);
    let _ = pool.pm.publish_bytes(print_off(hit), &[print]);
}

/// Makes mtime and ctime now.
pub(crate) fn touch(pool: &Pool, inode: &Inode, now_ns: i64) {
    let pair = [inode.size_word | CTIME_IS_MTIME, now_ns as u64];
    pool.pm
        .publish_pair(inode.off, pair, Durable::nothing_exposed());
}

/// Sets a count of links, durable with the next barrier.
pub(crate) fn store_links(pool: &Pool, inode: &Inode, links: u32) {
    let slot = InodeRaw::links.of(inode.off);
    pool.pm.publish_hidden(slot, u64::from(links));
}

/// Takes an inode number, or gives it back.
pub(crate) fn mark_number(pool: &Pool, ino: Ino, taken: bool) {
    let map = Bitmap::inodes(pool);
    let _held = map.lock(ino);
    let run = Run {
        block: ino,
        count: 1,
    };
    map.mark(run, taken);
}
