//! The numbers of a device: one table, in which each has a unit, bounds and a meaning. A number
//! that is not in the table does not exist for the model.

/// The origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Fitted: App Direct, first generation, 15 W.
    Core,
    /// Fitted: the power budget.
    Budget,
    /// Fitted: the memory clock.
    Clock,
    /// Fitted: the second generation.
    Generation,
    /// Fitted: a host, a laboratory or a module's capacity.
    Lab,
    /// Published, and not fitted.
    Cited,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in a device's file.
    pub name: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// The least value that is accepted.
    pub min: f64,
    /// The first guess of a fit.
    pub start: f64,
    /// The greatest value that is accepted.
    pub max: f64,
    /// The origin.
    pub class: Class,
    /// The physical meaning.
    pub meaning: &'static str,
}

macro_rules! keys {
    ($($key:ident $name:literal $unit:literal $min:literal $start:literal $max:literal $class:ident $meaning:literal)*) => {
        /// A number of a device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Key {
            $(#[doc = $meaning] $key,)*
        }

        /// All numbers, in the order of [`Key`].
        pub const ENTRIES: &[Entry] = &[
            $(Entry { name: $name, unit: $unit, min: $min, start: $start, max: $max, class: Class::$class, meaning: $meaning },)*
        ];

        /// All keys.
        pub const KEYS: &[Key] = &[$(Key::$key,)*];
    };
}

keys! {
    ReadMedia "read_media" "GiB/s" 2.0 6.0 20.0 Core "Reads of whole lines by one module"
    WriteMedia "write_media" "GiB/s" 0.7 2.0 8.0 Core "Writes of whole lines by one module"
    ReadStart "read_start" "ns" 2.0 20.0 100.0 Core "Time of a thread for each random read beside its bytes"
    ReadStream "read_stream" "GiB/s" 1.0 3.0 10.0 Core "Bytes that one thread reads, bounded by its line-fill buffers"
    SequentialStart "sequential_start" "ratio" 0.05 0.3 1.0 Core "Share of read_start that sequential reads pay; strided ones its root"
    NtStream "nt_stream" "GiB/s" 1.0 4.0 12.0 Core "Bytes that one thread stores without the cache"
    ClwbStream "clwb_stream" "GiB/s" 0.3 1.0 5.0 Core "Bytes that one thread stores and flushes"
    StoreStream "store_stream" "GiB/s" 0.3 1.5 6.0 Core "Bytes that one thread stores into the cache, evictions included"
    StoreStart "store_start" "ns" 2.0 30.0 200.0 Core "Time of a thread for each store that is not sequential"
    ClwbMedia "clwb_media" "ratio" 0.3 0.8 1.5 Core "Limit of flushed stores by write_media: the line is read before"
    Sharpness "sharpness" "power" 1.5 5.0 20.0 Core "Norm by which a thread's and the media's limits meet"
    PageSharpness "page_sharpness" "power" 1.0 2.5 20.0 Core "Norm by which the limit of pages joins these"
    FullStreams "full_streams" "streams" 4.0 16.0 80.0 Core "Streams at which half of the whole lines leave the buffer in parts"
    PartStreams "part_streams" "streams" 1.5 8.0 40.0 Core "The same of lines that are never written whole"
    ReadPage "read_page" "ns" 5.0 70.0 500.0 Core "Time of a module for each 4 KiB page that strided reads enter"
    WritePage "write_page" "ns" 15.0 170.0 1000.0 Core "The same of strided writes of one thread"
    WritePageGrowth "write_page_growth" "power" 0.05 0.6 1.5 Core "Growth of write_page by threads"
    ClwbPage "clwb_page" "ratio" 0.03 0.25 1.0 Core "Share of write_page that flushed stores pay"
    ReadStreams "read_streams" "streams" 1.5 6.0 30.0 Core "Read streams whose lines stay in a module's buffer"
    ReadAgain "read_again" "ratio" 0.05 0.4 1.0 Core "Parts of a line that are read again from the media beyond that"
    ShortStreams "short_streams" "ratio" 0.7 1.5 5.0 Core "More streams stay if accesses are at most a line"
    SequentialStreams "sequential_streams" "ratio" 0.7 1.2 4.0 Core "More streams stay if they are sequential"
    InFlight "in_flight" "requests" 2.0 20.0 100.0 Core "Requests under way over all modules, at random accesses of one chunk"
    StoreMerge "store_merge" "ratio" 0.05 0.4 2.0 Core "Cached stores that leave the cache in order, of one sequential stream"
    Persist "persist" "ns" 60.0 170.0 500.0 Core "Store, flush and fence of one thread, loaded"
    LoadedRise "loaded_rise" "ratio" 0.05 0.4 2.0 Core "Rise of that latency at the limit of bandwidth"
    MixWeight "mix_weight" "ratio" 0.5 4.0 20.0 Core "Bytes that a reading thread moves beside one that writes"
    Budget125 "budget_12_5" "ratio" 0.4 0.7 1.0 Budget "Media limits at 12.5 W, by 15 W"
    Budget18 "budget_18" "ratio" 1.0 1.2 2.0 Budget "Media limits at 18 W, by 15 W"
    SlowClock "slow_clock" "ratio" 0.1 0.6 10.0 Clock "Random writes that a clock below 2666 MT/s leaves, by the limit beside them"
    SecondWrite "second_write" "ratio" 0.7 1.3 3.0 Generation "Media limit of writes, second generation by first"
    SecondFlush "second_flush" "ratio" 0.5 2.5 8.0 Generation "Time of a flushed store, second generation's hosts by first"
    SecondThread "second_thread" "ratio" 0.5 1.3 4.0 Generation "Bandwidth of one thread, second generation's hosts by first"
    HostPage "host_page" "ratio" 0.03 0.3 2.0 Lab "Page times of UCSD's second host by its first"
    Prefetch "prefetch" "ratio" 0.7 1.3 4.0 Lab "Bandwidth of one sequential thread with the prefetcher"
    PrefetchUse "prefetch_use" "ratio" 0.1 0.5 1.0 Lab "Share of prefetched lines that random reads of 1 KiB and more use"
    FencedStreams "fenced_streams" "ratio" 0.7 6.0 40.0 Lab "More streams keep their lines if each access is fenced"
    OtherCapacity "other_capacity" "ratio" 0.3 0.7 1.5 Lab "Media limits of modules of 128 and 512 GB by 256 GB"
    BufferLines "buffer_lines" "lines" 1.0 64.0 4096.0 Cited "Lines of the XPBuffer"
    AitBytes "ait_bytes" "bytes" 65536.0 16777216.0 1e12 Cited "Memory that the cache of the address indirection table covers"
    BufferLatency "buffer_latency" "ns" 20.0 180.0 5000.0 Cited "Idle latency of a read that the buffer answers"
    AitLatency "ait_latency" "ns" 20.0 310.0 5000.0 Cited "Idle latency of a read whose page the table's cache has"
    MediaLatency "media_latency" "ns" 20.0 377.0 10000.0 Cited "Idle latency of a read that goes to the media for both"
    SequentialLatency "sequential_latency" "ns" 20.0 169.0 5000.0 Cited "Idle latency of sequential reads"
    StoreLatency "store_latency" "ns" 10.0 94.0 5000.0 Cited "Idle latency of store, flush and fence"
    Amplification "amplification" "ratio" 1.0 1.04 4.0 Cited "Write amplification of lines that are written whole"
    DelayUnit "delay_unit" "ns" 0.1 0.4 1.0 Cited "One step of the delay loop of the load generator, a cycle"
    HopLatency "hop_latency" "ns" 0.0 60.0 1000.0 Cited "Further latency of the other socket"
    RemoteWrite "remote_write" "ratio" 0.05 0.6 1.0 Cited "Bandwidth of writes from the other socket, by the own one's"
    RemoteMix "remote_mix" "ratio" 0.01 0.16 1.0 Cited "Bandwidth of mixes from the other socket with four threads"
    TailWrites "tail_writes" "writes" 100.0 10000.0 1e9 Cited "Lines that the media writes to a 64 KiB block between two moves of it"
    TailTime "tail_time" "us" 1.0 52.0 10000.0 Cited "Time of such a move"
    TailUsual "tail_usual" "us" 0.01 0.37 100.0 Cited "Latency of the slowest stores but for moves"
}

impl Key {
    /// Its row.
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        &ENTRIES[self as usize]
    }

    /// The key of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Key> {
        let at = ENTRIES.iter().position(|entry| entry.name == name)?;
        Some(KEYS[at])
    }

    /// Returns whether a fit may change it.
    #[must_use]
    pub fn is_fitted(self) -> bool {
        self.entry().class != Class::Cited
    }
}
