//! The bytes of a pool, and where everything stands in them. Other processes are unknown here.

use crate::error::Error;
use crate::medium::geometry::Geometry;
use crate::medium::sparse::Backed;
use crate::medium::table_blocks::TableBlocks;
use pm_store::Pm;
use pm_store::Runtime;
use pm_store::annexes::Annexes;
use pmem::{DIMMS_MAX, Pmem};
use pmfs_format::{BLOCK_BYTES, RuntimeHeaderRaw, SuperblockRaw};
use pmshare::{Layout, Shared};
use std::ops::Range;

/// A mapped pool. Any holder of it may read; `pm_store` says how it is written.
pub struct Store {
    pub pm: Pm,
    pub geometry: Geometry,
    shared: Layout,
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
            shares: pmfs_format::RuntimeHeaderRaw::shares.of(geometry.header),
            data: data.clone(),
        };
        let backed = Backed::of(&mem, geometry.blocks);
        Store {
            pm: Pm::new(mem, runtime).with_annexes(annexes),
            shared: shared_words(&geometry),
            geometry,
            superblock,
            data,
            table_blocks: TableBlocks::default(),
            backed,
        }
    }
}

/// One process's place in a pool.
pub type Share = pmshare::Share<Store>;
/// That place, of a call that may have to wait.
pub type Waits<'a> = pmshare::Waits<'a, Store>;
/// A lock word held.
pub type Held<'a> = pmshare::owner::Held<'a, Store>;

impl Shared for Store {
    type Error = Error;

    const PROGRAM: &'static str = "pmfs";
    const KIND: &'static str = "pool";
    const PUBLISHES: bool = true;

    #[inline(always)]
    fn mem(&self) -> &Pmem {
        self.pm.mapping()
    }

    #[inline(always)]
    fn runtime(&self) -> Runtime<'_> {
        self.pm.runtime()
    }

    #[inline(always)]
    fn layout(&self) -> &Layout {
        &self.shared
    }
}

/// The words of an emulated device's modules behind the first one, and of its streams.
fn busy_more(header: u64) -> [u64; DIMMS_MAX as usize] {
    let runs = [
        (RuntimeHeaderRaw::busy_first.of(header), 7),
        (RuntimeHeaderRaw::busy_middle.of(header), 5),
        (RuntimeHeaderRaw::busy_last.of(header), 3),
        (RuntimeHeaderRaw::streams.of(header), 1),
    ];
    let mut words = runs
        .into_iter()
        .flat_map(|(first, count)| (0..count).map(move |word| first + word * 8));
    std::array::from_fn(|_| words.next().expect("there are as many"))
}

/// The words that processes share, of those of the runtime area.
fn shared_words(geometry: &Geometry) -> Layout {
    let header = geometry.header;
    Layout {
        slots: geometry.slot(0),
        slot_count: geometry.slot_count,
        recovery: RuntimeHeaderRaw::recovery_owner.of(header),
        closing: RuntimeHeaderRaw::closing_owner.of(header),
        tokens: RuntimeHeaderRaw::tokens.of(header),
        slots_end: RuntimeHeaderRaw::slots_end.of(header),
        patrolled: RuntimeHeaderRaw::patrolled_ns.of(header),
        busy_until: RuntimeHeaderRaw::busy_until.of(header),
        busy_more: Some(busy_more(header)),
        arrivals: RuntimeHeaderRaw::arrivals.of(header),
        lease: RuntimeHeaderRaw::lease.of(header),
    }
}
