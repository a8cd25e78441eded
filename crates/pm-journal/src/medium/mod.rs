//! A pool's bytes: where its parts lie, and whether its superblock is sound.

pub mod freeze;
pub mod geometry;
pub mod header;
mod lazy;
pub mod sparse;
pub mod store;
pub mod superblock;
pub(crate) mod table_blocks;
