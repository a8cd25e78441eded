//! A pool's bytes: where its parts lie, and whether its superblock is sound.

pub(crate) mod freeze;
pub mod geometry;
pub mod header;
mod lazy;
pub(crate) mod sparse;
pub(crate) mod store;
pub mod superblock;
pub(crate) mod table_blocks;
