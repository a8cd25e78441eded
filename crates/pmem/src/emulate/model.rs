//! Accesses to emulated modules, each with its time, as `pmep::sim` has them.
//!
//! A thread's own time comes from the size and order of its accesses. The modules' time is shared:
//! a word for each module, which all processes of a pool have in common, says until when it is
//! busy. An access moves on the words of the modules that it meets, by the lines that their media
//! move for it. A read ends when both times are over. A store ends when its thread's time is over
//! and the module's queue has room. Times are in ticks of a clock that the caller reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cpu::LINE;
use crate::emulate::buffer::{Buffer, Moved, WHOLE};
use crate::emulate::device::{DIMMS_MAX, Device, Modules};
use crate::emulate::norm::Norm;
use crate::emulate::stream::{Counted, Order, Stream, Streams};

/// Words that processes share: one for each module, and one that counts streams.
pub(crate) const WORDS: usize = DIMMS_MAX as usize + 1;
/// The place of the last one.
const STREAMS_WORD: usize = DIMMS_MAX as usize;
/// A module that is busy for longer than this got its word before the last reboot, ns.
const BUSY_NS_MAX: f64 = 1e10;
const PAGE: u64 = 4096;
/// Threads whose growth of page times and whose losses are kept; more count as so many.
const CROWD_MAX: usize = 64;
/// The power that rounds the corner at the read streams that may stay.
const ROUNDED: f64 = 8.0;

/// A kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A copy out of the pool.
    Read,
    /// A word, whose value the thread waits for.
    Word,
    /// Lines stored past the caches.
    Stream,
    /// Lines flushed.
    Flush,
}

/// Emulated modules.
pub(crate) struct Model {
    /// The device's numbers; times in ticks, at the budget.
    device: Device,
    dimms: u64,
    interleave: u64,
    /// By [`Stay::place`] and by streams.
    again: [[f64; CROWD_MAX + 1]; Stay::ALL.len()],
    word_far: f64,
    busy_max: u64,
    knee: Norm,
    page_knee: Norm,
    page_growth: [f64; CROWD_MAX + 1],
    streams: Streams,
    buffers: Box<[Buffer]>,
}

/// The properties by which streams' lines stay in a buffer.
#[derive(Clone, Copy)]
enum Stay {
    Read { is_short: bool, in_order: bool },
    Write { is_whole: bool },
}

impl Stay {
    const ALL: [Stay; 6] = [
        Stay::read(false, false),
        Stay::read(false, true),
        Stay::read(true, false),
        Stay::read(true, true),
        Stay::Write { is_whole: false },
        Stay::Write { is_whole: true },
    ];

    const fn read(is_short: bool, in_order: bool) -> Stay {
        Stay::Read { is_short, in_order }
    }

    /// The place in [`Stay::ALL`].
    fn place(self) -> usize {
        match self {
            Stay::Read { is_short, in_order } => 2 * usize::from(is_short) + usize::from(in_order),
            Stay::Write { is_whole } => 4 + usize::from(is_whole),
        }
    }

    /// Media accesses for each part of a line beyond its first, if `crowd` streams meet a module.
    fn again(self, device: &Device, crowd: f64) -> f64 {
        match self {
            Stay::Read { is_short, in_order } => {
                let mut stay = device.read_streams;
                if is_short {
                    stay *= device.short_streams;
                }
                if in_order {
                    stay *= device.sequential_streams;
                }
                let beyond = 1.0 + libm::pow(crowd / stay, ROUNDED);
                device.read_again * (1.0 - libm::pow(beyond, -1.0 / ROUNDED))
            }
            Stay::Write { is_whole } => {
                let half = match is_whole {
                    true => device.full_streams,
                    false => device.part_streams,
                };
                1.0 - 1.0 / (1.0 + (crowd / half) * (crowd / half))
            }
        }
    }
}

/// The time that the modules spend on an access, by module.
type Service = [f64; DIMMS_MAX as usize];

impl Model {
    /// Modules for a pool of `pool_len` bytes, by a clock of so many ticks a ns.
    pub(crate) fn new(modules: Modules, pool_len: u64, ticks_per_ns: f64) -> Model {
        let device = in_ticks(
            modules.device(),
            modules.device().speed_at(modules.power_mw()),
            ticks_per_ns,
        );
        let dimms = modules.dimms();
        let resident = (device.mapped_bytes * dimms as f64 / pool_len.max(1) as f64).min(1.0);
        let growth = |crowd: usize| libm::pow(crowd.max(1) as f64, device.write_page_growth);
        Model {
            device,
            dimms,
            interleave: modules.interleave(),
            again: Stay::ALL.map(|stay| {
                std::array::from_fn(|crowd| {
                    stay.again(&device, crowd as f64 / (dimms as f64).sqrt())
                })
            }),
            word_far: device.word_mapped
                + (1.0 - resident) * (device.word_far - device.word_mapped),
            busy_max: (BUSY_NS_MAX * ticks_per_ns) as u64,
            knee: Norm::new(device.sharpness),
            page_knee: Norm::new(device.page_sharpness),
            page_growth: std::array::from_fn(growth),
            streams: Streams::new(),
            buffers: (0..dimms)
                .map(|_| Buffer::new(device.buffer_lines))
                .collect(),
        }
    }

    /// The stream of a thread.
    pub(super) fn stream(&self, thread: u64) -> &Stream {
        self.streams.stream_of(thread)
    }

    /// The sum of what all streams counted.
    pub(super) fn counted(&self, what: Counted) -> u64 {
        self.streams.counted(what)
    }

    /// The end of an access that begins at `begun` and is of at least one byte. `words` gives the
    /// words of the modules, and that of streams, by their places.
    pub(super) fn access<'a>(
        &self,
        words: impl Fn(usize) -> &'a AtomicU64,
        stream: &Stream,
        begun: u64,
        op: Op,
        (off, len): (u64, u64),
    ) -> u64 {
        let crowd = stream.crowd(words(STREAMS_WORD), begun);
        let track = match op {
            Op::Read | Op::Word => &stream.reads,
            Op::Stream | Op::Flush => &stream.stores,
        };
        // Words lead to copies and do not break their order.
        let (order, is_paged) = match op {
            Op::Word => (Order::Random, false),
            _ => track.follow(off, len),
        };
        let mut service = [0.0; DIMMS_MAX as usize];
        let again = self.again(op, order, len, crowd);
        let hit = self.serve(op, again, (off, len), &mut service);
        if is_paged {
            let line = self.line_ticks(op, again);
            self.add_pages(op, (crowd, line), (off, len), &mut service);
        }
        let free = self.occupy(&words, (begun, crowd), &service);
        let thread = self.thread_ticks(op, order, len);
        match op {
            Op::Read => {
                let queue = free.saturating_sub(begun) as f64 - self.spared(&service);
                begun + whole(self.knee.meet(thread, queue.max(0.0)))
            }
            Op::Word => free.max(begun + whole(self.word_ticks(stream, off, hit))),
            Op::Stream | Op::Flush => {
                let stored = begun + whole(self.device.persist);
                stream.stored_at.store(stored, Relaxed);
                let window = whole(self.queued_ticks(len, crowd));
                (begun + whole(thread)).max(free.saturating_sub(window))
            }
        }
    }

    /// The time of a fence: until the stream's stores are in the controllers.
    pub(super) fn fence(&self, stream: &Stream) -> u64 {
        let stored = stream.stored_at.load(Relaxed);
        stream.stored_at.store(0, Relaxed);
        stored
    }

    /// A thread's own time.
    fn thread_ticks(&self, op: Op, order: Order, len: u64) -> f64 {
        let device = &self.device;
        let bytes = len as f64;
        match op {
            Op::Read => {
                let share = match order {
                    Order::Random => 1.0,
                    Order::Strided => device.sequential_share.sqrt(),
                    Order::Sequential => device.sequential_share,
                };
                device.read_start * share + bytes * device.read_byte
            }
            Op::Word => 0.0,
            Op::Stream => bytes * device.nt_byte,
            Op::Flush => bytes * device.flush_byte,
        }
    }

    /// The latency of a word.
    fn word_ticks(&self, stream: &Stream, off: u64, hit: bool) -> f64 {
        let line = off / LINE + 1;
        let known = stream.word_line.load(Relaxed);
        stream.word_line.store(line, Relaxed);
        match (known + 1 == line, hit) {
            (true, _) => self.device.word_next,
            (false, true) => self.device.word_buffered,
            (false, false) => self.word_far,
        }
    }

    /// Media accesses for each part of a line beyond its first.
    fn again(&self, op: Op, order: Order, len: u64, crowd: u64) -> f64 {
        let line = self.device.line_bytes;
        let in_order = order == Order::Sequential;
        let stay = match op {
            Op::Read | Op::Word => Stay::Read {
                is_short: len <= line,
                in_order,
            },
            Op::Stream | Op::Flush => Stay::Write {
                is_whole: in_order || len.is_multiple_of(line),
            },
        };
        self.again[stay.place()][(crowd as usize).min(CROWD_MAX)]
    }

    /// Adds the modules' time for the lines of an access. Returns whether a buffer had its first.
    fn serve(&self, op: Op, again: f64, (off, len): (u64, u64), service: &mut Service) -> bool {
        let line = self.device.line_bytes;
        let (mut at, end) = (off, off + len);
        let mut hit = false;
        while at < end {
            let chunk = at / self.interleave;
            let module = (chunk % self.dimms) as usize;
            let within = chunk / self.dimms * self.interleave + at % self.interleave;
            let here = (self.interleave - at % self.interleave).min(end - at);
            let took = &mut service[module];
            let (head, lines, tail) = cut(within, here, line);
            if head > 0 {
                let moved = self.part(op, module, within, head);
                hit |= moved.hit && at == off;
                *took += self.part_ticks(op, again, (within, head), moved);
            }
            *took += lines as f64 * self.line_ticks(op, again);
            if tail > 0 {
                let from = within + here - tail;
                let moved = self.part(op, module, from, tail);
                *took += self.part_ticks(op, again, (from, tail), moved);
            }
            at += here;
        }
        hit
    }

    /// A module's time for a line that is read or written as a whole.
    fn line_ticks(&self, op: Op, again: f64) -> f64 {
        let device = &self.device;
        let parts = (device.line_bytes / LINE) as f64;
        let times = 1.0 + (parts - 1.0) * again;
        match op {
            Op::Read | Op::Word => times * device.line_read,
            Op::Stream => times * device.line_written,
            Op::Flush => {
                let floor = device.line_bytes as f64 * device.flush_floor;
                (times * device.line_written).max(floor)
            }
        }
    }

    /// Takes a part of a line through the module's buffer.
    fn part(&self, op: Op, module: usize, within: u64, len: u64) -> Moved {
        if self.device.buffer_lines == 0 {
            return Moved {
                read: 1,
                written: 1,
                hit: false,
            };
        }
        let line = self.device.line_bytes;
        let buffer = &self.buffers[module];
        match op {
            Op::Read | Op::Word => buffer.read(within / line),
            Op::Stream | Op::Flush => buffer.write(within / line, parts(within % line, len)),
        }
    }

    /// A module's time for a part of a line.
    fn part_ticks(&self, op: Op, again: f64, (within, len): (u64, u64), moved: Moved) -> f64 {
        let device = &self.device;
        let touched = parts(within % device.line_bytes, len).count_ones();
        let more = f64::from(touched) - if moved.hit { 0.0 } else { 1.0 };
        let more = more.max(0.0) * again;
        match op {
            Op::Read | Op::Word => {
                let written = match device.buffer_lines {
                    0 => 0.0,
                    _ => moved.written as f64 * device.line_written,
                };
                (moved.read as f64 + more) * device.line_read + written
            }
            Op::Stream => (moved.written as f64 + more) * device.line_written,
            Op::Flush => {
                let mut written = (moved.written as f64 + more) * device.line_written;
                // The line's earlier parts have had their time already.
                if moved.hit {
                    let earlier = device.line_bytes - u64::from(touched) * LINE;
                    written -= earlier as f64 * device.flush_floor;
                }
                written.max(len as f64 * device.flush_floor)
            }
        }
    }

    /// Adds the time of the pages that an access enters by its stride. Each is entered beside a
    /// line, which takes `line`, or less if it is not whole.
    fn add_pages(
        &self,
        op: Op,
        (crowd, line): (u64, f64),
        (off, len): (u64, u64),
        service: &mut Service,
    ) {
        let device = &self.device;
        let growth = self.page_growth[(crowd as usize).min(CROWD_MAX)];
        let page = match op {
            Op::Read | Op::Word => device.read_page,
            Op::Stream => device.write_page * growth,
            Op::Flush => device.write_page * growth * device.flush_page,
        };
        let mut at = off;
        while at < off + len {
            let took = &mut service[(at / self.interleave % self.dimms) as usize];
            let line = line.min(*took);
            *took += self.page_knee.meet(line, page) - line;
            at = (at / PAGE + 1) * PAGE;
        }
    }

    /// Moves on the words of the modules that have something to do. Returns the time at which the
    /// last of them is free.
    fn occupy<'a>(
        &self,
        words: &impl Fn(usize) -> &'a AtomicU64,
        (begun, crowd): (u64, u64),
        service: &Service,
    ) -> u64 {
        let mut last = begun;
        for (module, ticks) in service[..self.dimms as usize].iter().enumerate() {
            let ticks = whole(*ticks);
            if ticks == 0 {
                continue;
            }
            let word = words(module);
            let mut busy = word.load(Relaxed);
            loop {
                let stale = busy > begun.saturating_add(self.busy_max);
                let end = ticks + if stale { begun } else { busy.max(begun) };
                // A locked instruction waits for the thread's stores past the caches. A stream that
                // is alone needs none; what it takes from one that begins meanwhile is small.
                if crowd == 1 {
                    word.store(end, Relaxed);
                    last = last.max(end);
                    break;
                }
                match word.compare_exchange_weak(busy, end, Relaxed, Relaxed) {
                    Ok(_) => {
                        last = last.max(end);
                        break;
                    }
                    Err(found) => busy = found,
                }
            }
        }
        last
    }

    /// The part of an access's own time at its modules in which the thread's next ones are at
    /// others.
    fn spared(&self, service: &Service) -> f64 {
        if self.dimms == 1 {
            return 0.0;
        }
        let service = &service[..self.dimms as usize];
        let met = service.iter().filter(|ticks| **ticks > 0.0).count();
        let most = service.iter().copied().fold(0.0, f64::max);
        most * (1.0 - met as f64 / self.dimms as f64)
    }

    /// The time of queued lines that a stream does not wait for.
    fn queued_ticks(&self, len: u64, crowd: u64) -> f64 {
        let (bytes, chunk) = (len as f64, self.interleave as f64);
        let ratio = (bytes / chunk).max(chunk / bytes).sqrt();
        let each = bytes.min(chunk).max(LINE as f64) / self.device.line_bytes as f64;
        self.device.in_flight * ratio * each * self.device.line_written / crowd as f64
    }
}

/// Whole ticks of a time, which is not negative: sooner than by `round` and a conversion to `u64`.
fn whole(ticks: f64) -> u64 {
    (ticks + 0.5) as i64 as u64
}

/// A device's numbers by a clock, with media that are so much faster.
fn in_ticks(device: &Device, speed: f64, ticks: f64) -> Device {
    let media = ticks / speed;
    Device {
        read_start: device.read_start * ticks,
        read_byte: device.read_byte * ticks,
        nt_byte: device.nt_byte * ticks,
        flush_byte: device.flush_byte * ticks,
        flush_floor: device.flush_floor * media,
        line_read: device.line_read * media,
        line_written: device.line_written * media,
        word_next: device.word_next * ticks,
        word_buffered: device.word_buffered * ticks,
        word_mapped: device.word_mapped * ticks,
        word_far: device.word_far * ticks,
        persist: device.persist * ticks,
        read_page: device.read_page * ticks,
        write_page: device.write_page * ticks,
        ..*device
    }
}

/// Cuts a range at lines of the media: bytes before the first whole line, whole lines, and bytes
/// behind the last.
fn cut(off: u64, len: u64, line: u64) -> (u64, u64, u64) {
    let head = (off.wrapping_neg() & (line - 1)).min(len);
    let lines = (len - head) / line;
    (head, lines, len - head - lines * line)
}

/// The parts of a line that a range within it touches.
fn parts(offset: u64, len: u64) -> u64 {
    let (first, last) = (offset / LINE, (offset + len - 1) / LINE);
    WHOLE << first & WHOLE >> (3 - last.min(3))
}
