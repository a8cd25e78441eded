//! Where the parts of a pool lie, and whether its superblock is sound.

pub(crate) mod geometry;
pub(crate) mod sparse;
pub(crate) mod superblock;
pub(crate) mod table_blocks;
