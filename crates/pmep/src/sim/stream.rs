//! A stream of accesses: its clock, the order of its addresses, and its counts.

use crate::analytic::{Event, event};
use crate::device::{Key, Numbers};
use crate::geometry::{LINE, PAGE};
use crate::pattern::{Machine, Op, Order, Pattern};
use crate::sim::Level;

/// An access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Time at which it is asked for, ns; it begins later if its stream is not done yet.
    pub time_ns: f64,
    /// The stream: a thread, or a process.
    pub stream: u32,
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Bytes that were asked for, and bytes that the media moved for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct MediaCount {
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
    /// Bytes that the media read.
    pub media_read: f64,
    /// Bytes that it wrote.
    pub media_written: f64,
}

impl MediaCount {
    pub(super) fn add(&mut self, other: &MediaCount) {
        self.read += other.read;
        self.written += other.written;
        self.media_read += other.media_read;
        self.media_written += other.media_written;
    }

    pub(super) fn asked(&mut self, op: Op, bytes: u64) {
        match op {
            Op::Load => self.read += bytes as f64,
            _ => self.written += bytes as f64,
        }
    }

    /// Bytes written by bytes that the media wrote; `None` if it wrote none.
    #[must_use]
    pub fn write_ratio(&self) -> Option<f64> {
        (self.media_written > 0.0).then(|| self.written / self.media_written)
    }
}

/// Times of accesses of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub thread_ns: f64,
    pub window_ns: f64,
    pub read_ns: f64,
    pub write_ns: f64,
    /// Media accesses for each further part of a line.
    pub again: f64,
    /// Least time of a byte, ns.
    pub floor_ns: f64,
    pub page_ns: f64,
    pub page_power: f64,
    /// Share of cached stores that the media writes once.
    pub used: f64,
    pub is_sequential: bool,
}

impl Times {
    /// The same, all of it slower by a factor.
    pub fn slower(self, factor: f64) -> Times {
        let mut times = self;
        for time in [
            &mut times.thread_ns,
            &mut times.window_ns,
            &mut times.read_ns,
            &mut times.write_ns,
            &mut times.floor_ns,
            &mut times.page_ns,
        ] {
            *time *= factor;
        }
        times
    }

    pub fn with_page(&self, service: f64) -> f64 {
        let most = service.max(self.page_ns);
        if most <= 0.0 {
            return 0.0;
        }
        let sum =
            (service / most).powf(self.page_power) + (self.page_ns / most).powf(self.page_power);
        most * sum.powf(1.0 / self.page_power)
    }
}

/// The kind of access for which times stand.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind {
    op: Op,
    order: Order,
    bytes: u64,
    stride: u64,
    crowd: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub clock: f64,
    pub epoch: u32,
    pub count: MediaCount,
    last: u64,
    end: u64,
    stride: u64,
    known: Option<Kind>,
    times: Times,
    pub is_far: bool,
    has_stored: bool,
    /// The last load that no fence waited for, if there is one: its beginning, and the level that
    /// answers it.
    has_loaded: bool,
    load_begun: f64,
    level: Level,
    order: Option<Order>,
}

impl Stream {
    pub fn new(is_far: bool) -> Stream {
        Stream {
            is_far,
            ..Stream::default()
        }
    }

    /// Keeps of an access what a fence will wait for.
    #[inline]
    pub fn await_fence(&mut self, op: Op, begun: f64, level: Level, order: Order) {
        if op != Op::Load {
            self.has_stored = true;
            return;
        }
        self.has_loaded = true;
        self.load_begun = begun;
        self.level = level;
        self.order = Some(order);
    }

    /// Waits for these; each takes `hop` ns longer.
    pub fn fence(&mut self, numbers: &Numbers, time_ns: f64, hop: f64) {
        self.clock = self.clock.max(time_ns);
        let has_loaded = std::mem::take(&mut self.has_loaded);
        if std::mem::take(&mut self.has_stored) {
            self.clock += numbers[Key::StoreLatency] + hop;
        }
        if let (true, Some(order)) = (has_loaded, self.order) {
            let end = self.load_begun + self.level.latency(numbers, order) + hop;
            self.clock = self.clock.max(end);
        }
    }

    /// The order that the address keeps, and whether a stride enters a page.
    #[inline]
    pub fn follow(&mut self, access: &Access) -> (Order, bool) {
        let stride = access.address.wrapping_sub(self.last);
        let order = match (access.address == self.end, stride == self.stride) {
            (true, _) => Order::Sequential,
            (false, true) => Order::Strided,
            (false, false) => Order::Random,
        };
        let enters = order == Order::Strided && access.address / PAGE != self.last / PAGE;
        self.last = access.address;
        self.end = access.address.wrapping_add(access.bytes);
        self.stride = stride;
        (order, enters)
    }

    #[inline]
    pub fn times(
        &mut self,
        numbers: &Numbers,
        machine: &Machine,
        access: &Access,
        order: Order,
        crowd: u32,
    ) -> &Times {
        let kind = Kind {
            op: access.op,
            order,
            bytes: access.bytes,
            stride: match order {
                Order::Strided => self.stride,
                _ => 0,
            },
            crowd,
        };
        if self.known != Some(kind) {
            self.known = Some(kind);
            self.times = anew(numbers, machine, &kind);
        }
        &self.times
    }
}

fn anew(numbers: &Numbers, machine: &Machine, kind: &Kind) -> Times {
    let pattern = Pattern {
        op: kind.op,
        order: kind.order,
        access: kind.bytes,
        // A stride backwards, or below the access, moves lines as its length does.
        stride: match kind.order {
            Order::Strided => (kind.stride.min(kind.stride.wrapping_neg())).max(kind.bytes),
            _ => kind.bytes,
        },
        threads: kind.crowd.max(1),
    };
    let Event {
        thread_ns,
        read_gib_s,
        write_gib_s,
        again,
        page_ns,
        used,
        floor_ns,
    } = event(numbers, &pattern, machine);
    let ns = |gib_s: f64| LINE as f64 / (gib_s * crate::analytic::GIB_S);
    let (read_ns, write_ns) = (ns(read_gib_s), ns(write_gib_s));
    let chunk = machine.geometry.interleave() as f64;
    let bytes = kind.bytes as f64;
    let ratio = (bytes / chunk).max(chunk / bytes).sqrt();
    let each = bytes.min(chunk).max(64.0) / LINE as f64;
    let one = if kind.op == Op::Load {
        read_ns
    } else {
        write_ns
    };
    let flight = numbers[Key::InFlight] * ratio * each * one;
    Times {
        thread_ns,
        window_ns: flight / f64::from(pattern.threads),
        read_ns,
        write_ns,
        again,
        floor_ns,
        page_ns,
        page_power: numbers[Key::PageSharpness],
        used,
        is_sequential: pattern.is_sequential(),
    }
}
