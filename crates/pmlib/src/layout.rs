//! Where a heap's parts are: its spans, and what follows from its header.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use pmlib_format::chunk::{CHUNK_LINE_BYTES, ENTRY_BYTES, GROUP_BYTES, GROUP_CHUNKS};
use pmlib_format::header::{COPY_OFFSET, HEADER_PAGE_BYTES, SPANS_MAX};
use pmlib_format::lane::{LANE_LINE_BYTES, LANES_MAX, LOCK_LINE_BYTES, RING_OFFSET};
use pmlib_format::shared::{COUNTS_BYTES, SHARED_BYTES, SLOT_BYTES, SLOTS_MAX, SLOTS_MIN};
use pmlib_format::{CHUNK_BYTES, HeaderRaw, LINE_BYTES};

/// The most chunks that a word of the spans can say, and an entry's offset can reach: 32 TiB.
pub(crate) const CHUNKS_MAX: u64 = 1 << 29;
/// The shortest lane: two records of some words beside its first line.
const LANE_BYTES_MIN: u64 = 1024;

/// Chunks that were added at once, and where what is known of them stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first chunk.
    pub first: u64,
    /// Its chunks, its own parts among them.
    pub chunks: u64,
    /// The chunk table.
    pub table: u64,
    /// The chunks' lines.
    lines: u64,
    /// Chunks that its own parts take.
    pub meta_chunks: u64,
}

impl Span {
    /// The places of a span that begins at chunk `first`; `header` if it is the first.
    fn new(first: u64, chunks: u64, header: Option<&HeaderRaw>) -> Span {
        let table_bytes = chunks.div_ceil(GROUP_CHUNKS) * GROUP_BYTES;
        let start = first * CHUNK_BYTES;
        let (table, lines) = match header {
            None => (start, start + table_bytes),
            Some(header) => {
                let places = Places::of(header);
                (places.table, places.chunk_lines)
            }
        };
        let end = lines + chunks * CHUNK_LINE_BYTES;
        Span {
            first,
            chunks,
            table,
            lines,
            meta_chunks: end.div_ceil(CHUNK_BYTES) - first,
        }
    }

    /// The chunk after it.
    #[inline]
    fn end(&self) -> u64 {
        self.first + self.chunks
    }

    pub fn groups(&self) -> u64 {
        self.chunks.div_ceil(GROUP_CHUNKS)
    }

    /// The entry of a chunk.
    #[inline]
    pub fn entry(&self, chunk: u64) -> u64 {
        let at = chunk - self.first;
        // Behind each group's entries there is one more of their size, for its check.
        self.table + (at + at / GROUP_CHUNKS) * ENTRY_BYTES
    }

    /// Where the chunks' lines are.
    pub fn lines(&self) -> std::ops::Range<u64> {
        self.lines..self.lines + self.chunks * CHUNK_LINE_BYTES
    }

    /// The line of a chunk.
    #[inline]
    pub fn line(&self, chunk: u64) -> u64 {
        self.lines + (chunk - self.first) * CHUNK_LINE_BYTES
    }
}

/// The parts of the first span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    table: u64,
    lanes: u64,
    lane_bytes: u64,
    /// The words that processes share: the start of the volatile area.
    pub shared: u64,
    pub slots: u64,
    /// Lines of counts.
    pub counts: u64,
    pub locks: u64,
    lane_lines: u64,
    chunk_lines: u64,
}

impl Places {
    pub fn of(header: &HeaderRaw) -> Places {
        let table = COPY_OFFSET + HEADER_PAGE_BYTES;
        let table_bytes = header.chunks.div_ceil(GROUP_CHUNKS) * GROUP_BYTES;
        let lanes = (table + table_bytes).next_multiple_of(HEADER_PAGE_BYTES);
        let shared = lanes + u64::from(header.lanes) * header.lane_bytes;
        let slots = shared + SHARED_BYTES;
        let counts = slots + u64::from(header.slots) * SLOT_BYTES;
        let locks = counts + u64::from(header.slots) * COUNTS_BYTES;
        let lane_lines = locks + u64::from(header.lock_lines) * LOCK_LINE_BYTES;
        Places {
            table,
            lanes,
            lane_bytes: header.lane_bytes,
            shared,
            slots,
            counts,
            locks,
            lane_lines,
            chunk_lines: lane_lines + u64::from(header.lanes) * LANE_LINE_BYTES,
        }
    }

    /// A lane's first line.
    #[inline]
    pub fn lane(&self, lane: u32) -> u64 {
        self.lanes + u64::from(lane) * self.lane_bytes
    }

    /// Where a lane's ring is, bytes.
    #[inline]
    pub fn ring(&self, lane: u32) -> std::ops::Range<u64> {
        self.lane(lane) + RING_OFFSET..self.lane(lane) + self.lane_bytes
    }

    /// A lane's lines in the volatile area.
    #[inline]
    pub fn lane_line(&self, lane: u32) -> u64 {
        self.lane_lines + u64::from(lane) * LANE_LINE_BYTES
    }
}

/// Whether a header's numbers can be, and what a heap of them needs at least, bytes.
pub(crate) fn possible(header: &HeaderRaw) -> Option<u64> {
    let lanes = (1..=LANES_MAX).contains(&header.lanes);
    let lane_bytes = (LANE_BYTES_MIN..=1 << 30).contains(&header.lane_bytes)
        && header.lane_bytes.is_multiple_of(LINE_BYTES);
    let lock_lines = header.lock_lines.is_power_of_two() && header.lock_lines <= 1 << 20;
    let slots = (SLOTS_MIN..=SLOTS_MAX).contains(&header.slots);
    let chunks = (1..=CHUNKS_MAX).contains(&header.chunks);
    if !(lanes && lane_bytes && lock_lines && slots && chunks) {
        return None;
    }
    let span = Span::new(0, header.chunks, Some(header));
    Some((span.meta_chunks + 1).max(header.chunks) * CHUNK_BYTES)
}

/// The spans of a heap, which only ever become more.
pub(crate) struct Spans {
    count: AtomicU64,
    /// The one of a heap that has not grown.
    first: Span,
    more: Box<[OnceLock<Span>]>,
}

impl Spans {
    pub fn new(header: HeaderRaw) -> Spans {
        Spans {
            count: AtomicU64::new(1),
            first: Span::new(0, header.chunks, Some(&header)),
            more: (1..SPANS_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Chunks of all.
    pub fn chunks(&self) -> u64 {
        self.get(self.count() - 1).end()
    }

    /// The further span that so many chunks would make.
    pub fn next(&self, chunks: u64) -> Span {
        Span::new(self.chunks(), chunks, None)
    }

    /// Adds one. By one thread at a time.
    pub fn push(&self, chunks: u64) {
        let count = self.count();
        let span = self.next(chunks);
        self.more[count as usize - 1].get_or_init(|| span);
        self.count.store(count + 1, Ordering::Release);
    }

    /// A span, of those that are counted.
    #[inline]
    pub fn get(&self, index: u64) -> &Span {
        match index {
            0 => &self.first,
            index => self.more[index as usize - 1].get().expect("it was counted"),
        }
    }

    /// Bytes of the first one.
    #[inline(always)]
    pub fn first_bytes(&self) -> u64 {
        self.first.end() * CHUNK_BYTES
    }

    /// The span of a chunk; `None`: past the end.
    #[inline]
    pub fn of(&self, chunk: u64) -> Option<&Span> {
        if chunk < self.first.end() {
            return Some(&self.first);
        }
        self.of_further(chunk)
    }

    /// The span of a chunk behind the first one. The latest are the longest, mostly.
    fn of_further(&self, chunk: u64) -> Option<&Span> {
        let mut found = None;
        for index in (1..self.count()).rev() {
            let span = self.get(index);
            if chunk >= span.end() {
                break;
            }
            found = Some(span);
        }
        found
    }

    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        (0..self.count()).map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn header(chunks: u64, lanes: u32, lane_bytes: u64) -> HeaderRaw {
        HeaderRaw {
            chunks,
            lanes,
            lane_bytes,
            lock_lines: 16,
            slots: 16,
            ..HeaderRaw::new_zeroed()
        }
    }

    /// No two parts of a heap overlap, and none of them reaches into a chunk of data.
    #[test]
    fn parts_lie_one_after_the_other() {
        let header = header(1024, 64, 64 << 10);
        let places = Places::of(&header);
        let spans = Spans::new(header);
        spans.push(512);
        let first = spans.get(0);
        let parts = [
            places.table,
            first.entry(1023) + 16,
            places.lane(0),
            places.ring(63).end,
            places.shared,
            places.slots,
            places.slots + 16 * SLOT_BYTES,
            places.counts,
            places.counts + 16 * COUNTS_BYTES,
            places.locks,
            places.lane_line(0),
            places.lane_line(63) + LANE_LINE_BYTES,
            first.line(0),
            first.line(1023) + 64,
            first.meta_chunks * CHUNK_BYTES,
        ];
        assert!(parts.is_sorted(), "{parts:?}");
        let second = spans.get(1);
        assert_eq!((second.first, spans.chunks()), (1024, 1536));
        assert_eq!(spans.of(1023), Some(first));
        assert_eq!(spans.of(1024), Some(second));
        assert_eq!(spans.of(1536), None);
        assert!(second.entry(1535) < second.line(1024));
        assert!(second.line(1535) + 64 <= (1024 + second.meta_chunks) * CHUNK_BYTES);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        assert!(possible(&header(16, 2, 4096)).is_some());
        for bad in [
            header(0, 2, 4096),
            header(16, 0, 4096),
            header(16, 1025, 4096),
            header(16, 2, 100),
            header(u64::MAX, 2, 4096),
            header(16, 2, u64::MAX - 63),
        ] {
            assert_eq!(possible(&bad), None, "{bad:?}");
        }
        // Two lanes of 64 KiB leave no chunk of two for objects.
        assert_eq!(possible(&header(2, 2, 64 << 10)), Some(4 * CHUNK_BYTES));
    }
}
