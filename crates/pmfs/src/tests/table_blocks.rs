//! The places of the inode table's blocks, when a pool is mended.

use crate::ROOT_INO;
use crate::inode::PER_BLOCK;
use crate::recovery::attach;
use crate::scratch::{NODE, Scratch};

/// Goal: who mends a pool believes nothing of what stood there before. Method: a block that is
/// none of the table's.
#[test]
fn a_rebuild_forgets() {
    let scratch = Scratch::new(16 << 20);
    let fs = scratch.open();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let pool = fs.pool();
    let end = pool.data.end - 4096;
    pool.table_blocks.keep(ino / PER_BLOCK, end);
    let _writable = pool.pm.mapping().writable();
    attach::rebuild_held(pool).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().mode & 0o777, 0o644);
}
