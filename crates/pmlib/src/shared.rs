//! A heap's memory as processes share it: the mapping, and where the words stand that are theirs.

use pm_store::Runtime;
use pm_store::annexes::Annexes;
use pmem::Pmem;
use pmlib_format::shared::{
    ARRIVALS_OFFSET, BUSY_UNTIL_OFFSET, CLOSING_OFFSET, LAYOUT, LEASE_OFFSET, PATROLLED_OFFSET,
    RECORD_OFFSET, RECORD_WORDS, RECOVERY_OFFSET, RUN_READY, SLOT_BYTES, SLOTS_END_OFFSET,
    TOKENS_OFFSET,
};
use pmlib_format::{CHUNK_BYTES, HeaderRaw};
use pmshare::attach::Run;
use pmshare::{Layout, Shared};
use std::ops::Range;

use crate::error::Error;
use crate::layout::{CHUNKS_MAX, Places};

/// The mapping, and its words.
pub(crate) struct Memory {
    pub mem: Pmem,
    /// Lines of chunks are wherever the heap has grown to.
    area: Range<u64>,
    annexes: Annexes,
    layout: Layout,
}

impl Memory {
    pub fn new(mem: Pmem, header: &HeaderRaw, places: &Places) -> Memory {
        let at = |offset: u64| places.shared + offset;
        Memory {
            mem,
            area: 0..CHUNKS_MAX * CHUNK_BYTES,
            annexes: Annexes::default(),
            layout: Layout {
                slots: places.slots,
                slot_count: header.slots.into(),
                recovery: at(RECOVERY_OFFSET),
                closing: at(CLOSING_OFFSET),
                tokens: at(TOKENS_OFFSET),
                slots_end: at(SLOTS_END_OFFSET),
                patrolled: at(PATROLLED_OFFSET),
                busy_until: at(BUSY_UNTIL_OFFSET),
                busy_more: None,
                arrivals: at(ARRIVALS_OFFSET),
                lease: at(LEASE_OFFSET),
            },
        }
    }
}

impl Shared for Memory {
    type Error = Error;

    const PROGRAM: &'static str = "pmlib";
    const KIND: &'static str = "heap";

    #[inline(always)]
    fn mem(&self) -> &Pmem {
        &self.mem
    }

    #[inline(always)]
    fn runtime(&self) -> Runtime<'_> {
        Runtime::new(&self.mem, &self.area, &self.annexes)
    }

    #[inline(always)]
    fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// The run's record in the volatile area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub run: Run,
    /// The area can be believed.
    pub is_ready: bool,
}

impl Record {
    pub fn load(mem: &Pmem, places: &Places) -> Record {
        let words: [u64; RECORD_WORDS] = mem.read(places.shared + RECORD_OFFSET);
        let [low, high, dev, ino, layout, ready] = words;
        let mut boot_id = [0; 16];
        boot_id[..8].copy_from_slice(&low.to_le_bytes());
        boot_id[8..].copy_from_slice(&high.to_le_bytes());
        Record {
            run: Run {
                boot_id,
                dev,
                ino,
                layout,
            },
            is_ready: ready == RUN_READY,
        }
    }

    /// In a write window.
    pub fn store(self, mem: &Pmem, places: &Places) {
        let Run {
            boot_id,
            dev,
            ino,
            layout,
        } = self.run;
        let (low, high) = boot_id.split_at(8);
        let [low, high] =
            [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes")));
        let ready = if self.is_ready { RUN_READY } else { 0 };
        let words = [low, high, dev, ino, layout, ready];
        mem.write(places.shared + RECORD_OFFSET, &words);
    }
}

/// The run that this process is in.
pub(crate) fn this_run(mem: &Pmem) -> Run {
    Run::of(mem.identity(), LAYOUT)
}

const _: () = assert!(SLOT_BYTES == pmshare::layout::SLOT_BYTES);
