//! The streams of an emulated device: the state of each thread of this process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Streams that are told apart; threads beyond that share.
const STREAMS: usize = 1024;
/// Places that are looked at for a thread's stream.
const LOOKS: usize = 8;
/// Ticks after which the streams that take part are counted anew, as a power of two: about 1 ms.
const EPOCH_SHIFT: u32 = 21;
const PAGE: u64 = 4096;
const COUNT_MAX: u64 = 0xffff;

/// The order that addresses keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    Strided,
    Random,
}

/// The last access of one kind.
#[derive(Default)]
pub(super) struct Track {
    last: AtomicU64,
    end: AtomicU64,
    stride: AtomicU64,
}

impl Track {
    /// The order of an access, and whether its stride enters a page.
    pub(super) fn follow(&self, off: u64, len: u64) -> (Order, bool) {
        let last = self.last.load(Relaxed);
        let stride = off.wrapping_sub(last);
        let order = match (
            off == self.end.load(Relaxed),
            stride == self.stride.load(Relaxed),
        ) {
            (true, _) => Order::Sequential,
            (false, true) => Order::Strided,
            (false, false) => Order::Random,
        };
        self.last.store(off, Relaxed);
        self.end.store(off + len, Relaxed);
        self.stride.store(stride, Relaxed);
        (order, order == Order::Strided && off / PAGE != last / PAGE)
    }
}

/// A thread's state. Only its thread changes it, unless two share.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Stream {
    owner: AtomicU64,
    /// The epoch in which it last took part, plus one.
    epoch: AtomicU64,
    pub reads: Track,
    pub stores: Track,
    /// The line of the last word, plus one.
    pub word_line: AtomicU64,
    /// The time at which its stores are in the controllers; 0: they are.
    pub stored_at: AtomicU64,
    /// Ticks by which its last wait was too long.
    pub credit: AtomicU64,
    /// Accesses so far, by [`Counted`].
    counts: [AtomicU64; 4],
}

/// A count of a stream.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    LinesRead,
    Barriers,
    LinesWritten,
    Late,
}

/// The streams of a process.
pub(super) struct Streams(Box<[Stream]>);

impl Streams {
    pub(super) fn new() -> Streams {
        Streams((0..STREAMS).map(|_| Stream::default()).collect())
    }

    /// The stream of a thread, named by a number other than 0.
    pub(super) fn stream_of(&self, thread: u64) -> &Stream {
        let first = (thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
        for look in 0..LOOKS {
            let stream = &self.0[(first + look) % STREAMS];
            let owner = stream.owner.load(Relaxed);
            if owner == thread {
                return stream;
            }
            let claim = || {
                (stream.owner)
                    .compare_exchange(0, thread, Relaxed, Relaxed)
                    .is_ok()
            };
            if owner == 0 && claim() {
                return stream;
            }
        }
        &self.0[first % STREAMS]
    }

    /// The sum of what all streams counted.
    pub(super) fn counted(&self, what: Counted) -> u64 {
        let counts = self.0.iter().map(|stream| &stream.counts[what as usize]);
        counts.map(|count| count.load(Relaxed)).sum()
    }
}

impl Stream {
    /// Counts without a locked instruction: one behind a store past the caches would wait until
    /// memory has it, longer than a device takes.
    pub(super) fn count(&self, what: Counted, more: u64) {
        let count = &self.counts[what as usize];
        count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Takes part in the current epoch, which one word shows: its number (32 bits), the streams of
    /// it, and those of the last one. Returns the greater of the two.
    pub(super) fn crowd(&self, word: &AtomicU64, now: u64) -> u64 {
        let epoch = now >> EPOCH_SHIFT & 0xffff_ffff;
        let mut told = word.load(Relaxed);
        if self.epoch.load(Relaxed) != epoch + 1 {
            self.epoch.store(epoch + 1, Relaxed);
            loop {
                let joined = joined(told, epoch);
                match word.compare_exchange_weak(told, joined, Relaxed, Relaxed) {
                    Ok(_) => {
                        told = joined;
                        break;
                    }
                    Err(found) => told = found,
                }
            }
        }
        let (active, last) = (told >> 16 & COUNT_MAX, told & COUNT_MAX);
        active.max(last).max(1)
    }
}

/// The word of an epoch with one stream more. Clocks of two processors may differ by a moment, so
/// the next epoch counts as this one.
fn joined(told: u64, epoch: u64) -> u64 {
    let (known, active, last) = (told >> 32, told >> 16 & COUNT_MAX, told & COUNT_MAX);
    if known == epoch || known == epoch + 1 {
        return known << 32 | (active + 1).min(COUNT_MAX) << 16 | last;
    }
    let last = if known + 1 == epoch { active } else { 0 };
    epoch << 32 | 1 << 16 | last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each thread has one stream, also beside others. Method: many threads' numbers, asked
    /// for twice.
    #[test]
    fn threads_have_streams_of_their_own() {
        let streams = Streams::new();
        let thread = |number: u64| 0x7f00_0000_0000 + number * 0x80_1000;
        let place = |number| std::ptr::from_ref(streams.stream_of(thread(number))).addr();
        let places: std::collections::BTreeSet<usize> = (1..100).map(place).collect();
        assert_eq!(places.len(), 99);
        assert!((1..100).all(|number| places.contains(&place(number))));
        // More than there is room for share, and none is refused.
        (1..5000).for_each(|number| _ = place(number));
    }

    #[test]
    fn orders_are_those_of_the_addresses() {
        let track = Track::default();
        let follow = |off| track.follow(off, 64);
        follow(1 << 20);
        assert_eq!(follow((1 << 20) + 64), (Order::Sequential, false));
        assert_eq!(follow(77 << 20).0, Order::Random);
        assert_eq!(follow((77 << 20) + 16_384).0, Order::Random);
        assert_eq!(follow((77 << 20) + 32_768), (Order::Strided, true));
        assert_eq!(follow((77 << 20) + 49_152), (Order::Strided, true));
    }

    #[test]
    fn streams_of_an_epoch_are_counted() {
        let (word, streams) = (AtomicU64::new(0), Streams::new());
        let at = |epoch: u64| epoch << EPOCH_SHIFT;
        let crowd = |thread, epoch| streams.stream_of(thread).crowd(&word, at(epoch));
        assert_eq!(crowd(1, 7), 1);
        assert_eq!(crowd(1, 7), 1, "once an epoch");
        assert_eq!(crowd(2, 7), 2);
        assert_eq!(crowd(1, 8), 2, "the last epoch's count for this one");
        assert_eq!(crowd(1, 9), 1);
        assert_eq!(crowd(1, 100), 1);
        // Any value that another process leaves is taken.
        word.store(u64::MAX, Relaxed);
        assert!((1..=COUNT_MAX).contains(&crowd(1, 101)));
    }
}
