//! A pool's bytes: where its parts lie, and whether its superblock is sound.

pub(crate) mod geometry;
mod lazy;
pub(crate) mod sparse;
pub(crate) mod store;
pub(crate) mod superblock;
pub(crate) mod table_blocks;
