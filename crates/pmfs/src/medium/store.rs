//! The bytes of a pool, and where everything stands in them. Other processes are unknown here.

use crate::medium::geometry::Geometry;
use crate::medium::sparse::Backed;
use crate::medium::table_blocks::TableBlocks;
use pm_store::Pm;
use pm_store::annexes::Annexes;
use pmfs_format::{BLOCK_BYTES, SuperblockRaw};
use std::ops::Range;

/// A mapped pool. Whoever has it may read; how it is written `pm_store` says.
pub(crate) struct Store {
    pub pm: Pm,
    pub geometry: Geometry,
    pub superblock: SuperblockRaw,
    /// The bytes that tree entries may point into.
    pub data: Range<u64>,
    pub table_blocks: TableBlocks,
    pub(super) backed: Backed,
}

impl Store {
    /// Wraps a mapping that a superblock describes.
    pub fn new(mem: pmem::Pmem, superblock: SuperblockRaw, geometry: Geometry) -> Store {
        let data = geometry.data_start * BLOCK_BYTES..geometry.data_end();
        let runtime = geometry.runtime.clone();
        let annexes = Annexes {
            roots: geometry.annex_roots,
            data: data.clone(),
        };
        let backed = Backed::of(&mem, geometry.blocks);
        Store {
            pm: Pm::new(mem, runtime).with_annexes(annexes),
            geometry,
            superblock,
            data,
            table_blocks: TableBlocks::default(),
            backed,
        }
    }
}
