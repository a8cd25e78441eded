//! The content of a heap: counted quickly, or by a look at everything.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{CLASS_BYTES, KIND_FREE, KIND_OBJECTS, KIND_RUN, bitmap_words};

use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::space::{CLASSES, Space, is_shared, valid_bits};

/// How full a heap is, by its chunk table: exact when no transaction goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of the heap.
    pub bytes: u64,
    /// Bytes in chunks that are free.
    pub free_bytes: u64,
    /// Bytes of the longest run of free chunks: the largest object that fits.
    pub largest_free_bytes: u64,
    /// For each class that has any, the bytes of an object and the chunks.
    pub classes: Vec<(u64, u64)>,
    /// Transactions that can go on at once.
    pub lanes: u32,
    /// How often it was made or has grown.
    pub spans: u64,
}

/// The result of a look at everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Objects.
    pub objects: u64,
    /// Their bytes, each rounded up to its class.
    pub object_bytes: u64,
    /// Bytes in chunks of objects and not in objects.
    pub spare_bytes: u64,
    /// Bytes in free chunks.
    pub free_bytes: u64,
    /// Bytes that the heap's own parts take.
    pub own_bytes: u64,
}

impl Heap {
    /// How full it is, by a look at the chunk table.
    ///
    /// # Errors
    /// `NeedsRecovery`, `Busy`, `Apart`, `Shorter`: of a heap that is only read.
    pub fn stats(&self) -> Result<Stats> {
        // Another process may have made it longer; what can't be reached is not counted.
        let _ = self.core().find_spans();
        self.in_one_run(|| Ok(self.counted()))
    }

    fn counted(&self) -> Stats {
        let core = self.core();
        let mut counts = [0; CLASSES];
        let mut free = Space::default();
        core.walk(|chunk, entry| match entry.kind {
            KIND_OBJECTS if entry.class < CLASSES => counts[entry.class] += entry.extent(),
            KIND_FREE => free.give(chunk, 1),
            _ => {}
        });
        let runs = || free.free_runs().map(|chunks| chunks * CHUNK_BYTES);
        let classes = CLASS_BYTES.into_iter().zip(counts);
        Stats {
            bytes: self.size(),
            free_bytes: runs().sum(),
            largest_free_bytes: runs().max().unwrap_or(0),
            classes: classes.filter(|&(_, chunks)| chunks > 0).collect(),
            lanes: core.header.lanes,
            spans: core.spans.count(),
        }
    }

    /// Has something looked at in one run: again, if somebody recovers the heap meanwhile.
    pub(crate) fn in_one_run<R>(&self, body: impl Fn() -> Result<R>) -> Result<R> {
        let core = self.core();
        core.enter()?;
        loop {
            let look = core.look()?;
            let answer = body();
            core.mem.acquire();
            if core.is_same_run(look) {
                return answer;
            }
        }
    }

    /// Looks at every chunk and counts every byte. No transaction may go on meanwhile.
    ///
    /// # Errors
    /// `Damaged`: what the format does not allow. A heap that is only read has those of
    /// [`Heap::stats`] too.
    pub fn check(&self) -> Result<Census> {
        self.core().enter()?;
        self.core().find_spans()?;
        self.in_one_run(|| self.census())
    }

    fn census(&self) -> Result<Census> {
        let core = self.core();
        core.check_table()?;
        core.root()?;
        core.names()?;
        let mut census = Census::default();
        for span in core.spans.iter() {
            census.own_bytes += span.meta_chunks * CHUNK_BYTES;
            let (mut chunk, end) = (span.first + span.meta_chunks, span.first + span.chunks);
            while chunk < end {
                let entry = core.entry(chunk).ok_or(Error::Broken)?;
                match entry.kind {
                    KIND_OBJECTS if is_shared(entry) && entry.chunks <= end - chunk => {
                        let live = self.live(chunk, entry.class)?;
                        let bytes = live * CLASS_BYTES[entry.class];
                        census.objects += live;
                        census.object_bytes += bytes;
                        census.spare_bytes += entry.chunks * CHUNK_BYTES - bytes;
                        chunk += entry.chunks;
                    }
                    KIND_RUN if entry.chunks > 0 && entry.chunks <= end - chunk => {
                        census.objects += 1;
                        census.object_bytes += entry.chunks * CHUNK_BYTES;
                        chunk += entry.chunks;
                    }
                    KIND_FREE => {
                        census.free_bytes += CHUNK_BYTES;
                        chunk += 1;
                    }
                    _ => {
                        return Err(Error::Damaged {
                            what: "the chunk table",
                            offset: span.entry(chunk),
                        });
                    }
                }
            }
        }
        Ok(census)
    }

    /// How many objects a chunk has.
    fn live(&self, chunk: u64, class: usize) -> Result<u64> {
        let core = self.core();
        let start = chunk * CHUNK_BYTES;
        let mut live = 0;
        for word in 0..bitmap_words(class) {
            let bits = core.mem.load(start + word * 8);
            if bits & !valid_bits(class, word) != 0 {
                return Err(Error::Damaged {
                    what: "a bitmap of objects",
                    offset: start + word * 8,
                });
            }
            live += u64::from(bits.count_ones());
        }
        Ok(live)
    }
}
