//! A pool's bytes: where its parts lie, and whether its superblock is sound.

pub(crate) mod freeze;
pub(crate) mod geometry;
pub(crate) mod header;
mod lazy;
pub(crate) mod sparse;
pub(crate) mod store;
pub(crate) mod superblock;
pub(crate) mod table_blocks;
