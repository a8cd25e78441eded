//! A heap's memory as processes share it: the mapping, and where the words stand that are theirs.

use pm_store::Runtime;
use pm_store::annexes::Annexes;
use pmem::Pmem;
use pmlib_format::shared::{
    ARRIVALS_OFFSET, BUSY_UNTIL_OFFSET, CLOSING_OFFSET, GROW_OFFSET, LAYOUT, LEASE_OFFSET,
    MARKS_OFFSET, PATROLLED_OFFSET, RECORD_OFFSET, RECORD_WORDS, RECOVERY_OFFSET, RUN_READY,
    SLOT_BYTES, SLOT_COUNTS_OFFSET, SLOTS_END_OFFSET, TOKENS_OFFSET,
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

/// The place of the words of an emulated device behind its first module's: those that are free in
/// the lines of `BUSY_UNTIL_OFFSET`, of the lease and of growth, which few calls touch.
fn busy_more(word: usize) -> u64 {
    let (line, place) = match word {
        0..=6 => (BUSY_UNTIL_OFFSET, word),
        7..=13 => (LEASE_OFFSET, word - 7),
        _ => (GROW_OFFSET, word - 14),
    };
    line + 8 + 8 * place as u64
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
                busy_more: Some(std::array::from_fn(|word| at(busy_more(word)))),
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
const _: () = assert!(MARKS_OFFSET == pmshare::layout::SESSIONS_OFFSET);
const _: () = assert!(SLOT_COUNTS_OFFSET == pmshare::layout::TOTALS_OFFSET);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heap, Options};
    use pmem::{DIMMS_MAX, MapOptions};
    use pmlib_format::shared::SHARED_BYTES;

    /// Goal: the words of an emulated device are free ones. Method: no two words, and none of those
    /// that processes share.
    #[test]
    fn words_of_a_device_are_free() {
        let more = || (0..DIMMS_MAX as usize).map(busy_more);
        let mut all: Vec<u64> = more().collect();
        all.dedup();
        assert_eq!(all.len() as u64, DIMMS_MAX);
        let record = RECORD_OFFSET..RECORD_OFFSET + 8 * RECORD_WORDS as u64;
        for word in more() {
            assert!(!word.is_multiple_of(64) && word < SHARED_BYTES && !record.contains(&word));
        }
    }

    /// Goal: a heap's processes share an emulated device. Method: the words of its modules move in
    /// the heap's own memory, and accesses are charged. The next to open it finds what was stored.
    #[test]
    fn a_heap_is_emulated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let options = Options {
            map: MapOptions {
                emulate: "device:optane-100,dimms=3".parse().unwrap(),
                ..MapOptions::default()
            },
            ..Options::default()
        };
        let heap = Heap::create(&path, 4 << 20, &options).unwrap();
        let object = heap.tx(|tx| tx.alloc(1 << 20)).unwrap();
        heap.tx(|tx| {
            tx.lock(object)?;
            tx.edit_bytes(object, 0, 1 << 20)?.fill(7);
            Ok::<(), Error>(())
        })
        .unwrap();
        let mem = heap.ground().mem();
        assert!(
            mem.charged().lines_written >= 1 << 14,
            "{:?}",
            mem.charged()
        );
        let shared = Heap::volatile(mem).start;
        let busy = |word| mem.load_cached(shared + word) != 0;
        assert!(busy(BUSY_UNTIL_OFFSET) && busy(busy_more(0)) && busy(busy_more(1)));
        assert!(
            !busy(busy_more(2)) && busy(busy_more(15)),
            "three modules and the streams"
        );
        heap.close().unwrap();
        let heap = Heap::open(&path, &Options::default()).unwrap();
        assert_eq!(heap.check().unwrap().objects, 1);
    }
}
