//! The code of planted bugs alone: it changes in place what belongs in a transaction.

use crate::dir::Hit;
use crate::dir::bucket::fingerprint;
use crate::pool::Pool;
use crate::types::Ino;
use crate::types::Run;
use pm_space::Bitmap;
use pmfs_format::directory::FINGERPRINT_FREE;

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

/// Takes an inode number, or gives it back.
pub(crate) fn mark_number(pool: &Pool, ino: Ino, taken: bool) {
    let map = Bitmap::inodes(pool);
    let _held = map.lock(ino);
    map.mark(Run::one(ino), taken);
}
