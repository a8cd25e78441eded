//! The event model: single accesses of streams, one after the other, each with its time.
//!
//! A stream's own time, a module's time for each line, and the loss by streams that push each
//! other's lines out come from the device's numbers, as in the closed forms. The model adds the
//! buffer's lines, the queues of modules, and the order of addresses as it is, not as it is called.

mod far;
mod levels;
mod stream;
mod wear;

pub use far::FarStreams;
use far::Link;
use levels::{Level, Pages};
pub use stream::{Access, MediaCount};
use stream::{Stream, Times};
use wear::Wear;

use crate::buffer::{Buffer, Moved, parts};
use crate::device::{Key, Numbers};
use crate::error::{BadInput, Result};
use crate::geometry::{Geometry, LINE, PAGE};
use crate::pattern::{Machine, Op, Order, Pattern};

/// Accesses after which the streams that take part are counted anew.
const EPOCH: u32 = 8192;
const NS_A_US: f64 = 1e3;
/// The most streams.
pub const STREAMS_MAX: u32 = 65_536;

#[derive(Clone, Debug)]
struct Module {
    free_at: f64,
    buffer: Buffer,
    pages: Pages,
    wear: Wear,
}

/// The model of a machine.
#[derive(Clone, Debug)]
pub struct Sim {
    numbers: Numbers,
    machine: Machine,
    modules: Vec<Module>,
    streams: Vec<Stream>,
    far: FarStreams,
    link: Link,
    until_epoch: u32,
    epoch: u32,
    active: u32,
    last_active: u32,
    total: MediaCount,
}

/// Bytes that an access moved, and the farthest level that answered its reads.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: MediaCount,
    level: Level,
}

/// The end of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// When the stream can go on, ns.
    pub next_ns: f64,
}

impl Sim {
    /// A machine at rest.
    #[must_use]
    pub fn new(numbers: &Numbers, machine: &Machine) -> Sim {
        let lines = numbers[Key::BufferLines] as u64;
        let module = |at: u32| Module {
            free_at: 0.0,
            buffer: Buffer::new(lines, 0x9e37_79b9 + u64::from(at)),
            pages: Pages::new(numbers[Key::AitBytes]),
            wear: Wear::default(),
        };
        Sim {
            numbers: *numbers,
            machine: *machine,
            modules: (0..machine.geometry.dimms()).map(module).collect(),
            streams: Vec::new(),
            far: FarStreams::default(),
            link: Link::default(),
            until_epoch: EPOCH,
            epoch: 1,
            active: 0,
            last_active: 0,
            total: MediaCount::default(),
        }
    }

    /// The same machine, of which these streams are on the other socket.
    #[must_use]
    pub fn with_far(mut self, far: FarStreams) -> Sim {
        self.far = far;
        self
    }

    /// Blocks that wear levelling moved.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.modules.iter().map(|module| module.wear.moves).sum()
    }

    /// Bytes asked for, and those that the media moved, of all streams.
    #[must_use]
    pub fn total(&self) -> MediaCount {
        self.total
    }

    /// The same of one stream.
    #[must_use]
    pub fn count(&self, stream: u32) -> MediaCount {
        let found = self.streams.get(stream as usize);
        found.map_or(MediaCount::default(), |stream| stream.count)
    }

    /// Lines in the buffers that the media does not have yet.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.modules
            .iter()
            .map(|module| module.buffer.dirty())
            .sum()
    }

    fn turn(&mut self) {
        self.until_epoch -= 1;
        if self.until_epoch == 0 {
            self.until_epoch = EPOCH;
            self.epoch = self.epoch.wrapping_add(1);
            self.last_active = self.active;
            self.active = 0;
        }
    }

    fn take_part(&mut self, at: usize) {
        if self.streams[at].epoch != self.epoch {
            self.streams[at].epoch = self.epoch;
            self.active += 1;
        }
    }

    /// One access.
    ///
    /// # Errors
    /// No bytes, too many, or a stream beyond [`STREAMS_MAX`].
    pub fn access(&mut self, access: &Access) -> Result<Done> {
        if access.bytes == 0 || access.bytes > crate::pattern::ACCESS_MAX {
            let cause = format!("an access of {} B", access.bytes);
            return Err(BadInput::new("access", cause, "give 1 B to 1 GiB"));
        }
        let at = access.stream as usize;
        if at >= self.streams.len() {
            if access.stream >= STREAMS_MAX {
                let cause = format!("stream {}", access.stream);
                let way_out = format!("number streams from 0 to {}", STREAMS_MAX - 1);
                return Err(BadInput::new("stream", cause, way_out));
            }
            for stream in self.streams.len() as u32..=access.stream {
                self.streams.push(Stream::new(self.far.has(stream)));
            }
        }
        self.turn();
        self.take_part(at);
        let crowd = self.active.max(self.last_active);
        let stream = &mut self.streams[at];
        let (order, enters_page) = stream.follow(access);
        let begun = access.time_ns.max(stream.clock);
        let is_far = stream.is_far;
        let mut times = stream.times(&self.numbers, &self.machine, access, order, crowd);
        let slowed;
        if is_far {
            let (op, bytes) = (access.op, access.bytes);
            slowed = times.slower(self.link.slower(&self.numbers, op, bytes, crowd));
            times = &slowed;
        }
        let way = Way {
            access,
            begun,
            enters_page,
            times,
        };
        let geometry = self.machine.geometry;
        let (mut moved, stalled) = way.lines(&mut self.modules, &self.numbers, geometry);
        let thread_ns = times.thread_ns;
        moved.count.asked(access.op, access.bytes);
        self.total.add(&moved.count);
        let stream = &mut self.streams[at];
        stream.count.add(&moved.count);
        stream.clock = (begun + thread_ns).max(stalled);
        stream.await_fence(access.op, begun, moved.level, order);
        Ok(Done {
            next_ns: stream.clock,
        })
    }

    /// A fence of a stream: it goes on when its stores are in the controllers, and the last of its
    /// loads has come. So loads that depend on each other are loads with fences between them. A
    /// fence that has nothing to wait for takes no time.
    ///
    /// # Errors
    /// A stream beyond [`STREAMS_MAX`].
    pub fn fence(&mut self, stream: u32, time_ns: f64) -> Result<Done> {
        if stream >= STREAMS_MAX {
            let way_out = format!("number streams from 0 to {}", STREAMS_MAX - 1);
            return Err(BadInput::new("stream", format!("stream {stream}"), way_out));
        }
        let Some(known) = self.streams.get_mut(stream as usize) else {
            return Ok(Done { next_ns: time_ns });
        };
        let hop = match known.is_far {
            true => self.numbers[Key::HopLatency],
            false => 0.0,
        };
        known.fence(&self.numbers, time_ns, hop);
        Ok(Done {
            next_ns: known.clock,
        })
    }

    /// The streams that have had an access, or a lower number than one that had.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Bandwidth (GiB/s) of a pattern whose threads go on as soon as they can.
    ///
    /// # Errors
    /// None but those of [`Sim::access`].
    pub fn measure(&mut self, pattern: &Pattern, accesses: u64) -> Result<f64> {
        let threads = pattern.threads;
        let mut clocks = vec![0.0_f64; threads as usize];
        let mut steps = vec![0_u64; threads as usize];
        let mut random: u64 = 0x2545_f491_4f6c_dd1d;
        let mut warm = (0.0, 0_u64);
        for done in 0..accesses {
            let mut at = 0;
            for other in 1..clocks.len() {
                if clocks[other] < clocks[at] {
                    at = other;
                }
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let base = (at as u64) << 34;
            let address = match pattern.order {
                Order::Random => (random >> 20) % (1 << 33) / pattern.access * pattern.access,
                Order::Strided if !pattern.is_sequential() => {
                    base + steps[at] * pattern.stride % (1 << 33)
                }
                _ => base + at as u64 * 4096 + steps[at] * pattern.stride % (1 << 33),
            };
            steps[at] += 1;
            let access = Access {
                time_ns: clocks[at],
                stream: at as u32,
                op: pattern.op,
                address,
                bytes: pattern.access,
            };
            if done == accesses / 4 {
                warm = (clocks[at], done);
            }
            clocks[at] = self.access(&access)?.next_ns;
        }
        let end = clocks.iter().copied().fold(f64::INFINITY, f64::min);
        let bytes = (accesses - warm.1) * pattern.access;
        Ok(bytes as f64 / (end - warm.0).max(1e-9) / crate::analytic::GIB_S)
    }
}

/// An access on its way to the modules.
struct Way<'a> {
    access: &'a Access,
    begun: f64,
    enters_page: bool,
    times: &'a Times,
}

impl Way<'_> {
    /// The access's lines at their modules. Returns what was moved, and the time until which the
    /// stream has to wait for the modules.
    #[inline]
    fn lines(&self, modules: &mut [Module], numbers: &Numbers, geometry: Geometry) -> (Tally, f64) {
        let mut moved = Tally::default();
        let mut stalled = self.begun;
        let mut left = self.access.bytes;
        let mut address = self.access.address;
        while left > 0 {
            let bytes = left.min(LINE - address % LINE);
            let place = geometry.place(address);
            let module = &mut modules[place.module as usize];
            let written = moved.count.media_written;
            let service = serve(
                module,
                place.line,
                address,
                bytes,
                self.access.op,
                self.times,
                &mut moved,
            );
            let is_paged = self.enters_page
                && (address == self.access.address || address.is_multiple_of(PAGE));
            let service = match is_paged {
                true => self.times.with_page(service),
                false => service,
            };
            module.free_at = module.free_at.max(self.begun) + service;
            if self.access.op != Op::Load && moved.count.media_written > written {
                let lines = (moved.count.media_written - written) / LINE as f64;
                let limit = numbers[Key::TailWrites];
                if module.wear.write(place.line, lines, limit) {
                    module.free_at += numbers[Key::TailTime] * NS_A_US;
                }
            }
            stalled = stalled.max(module.free_at - self.times.window_ns);
            left -= bytes;
            address = address.wrapping_add(bytes);
        }
        (moved, stalled)
    }
}

/// A module's time for a part of an access that lies in one line.
#[inline]
fn serve(
    module: &mut Module,
    line: u64,
    address: u64,
    bytes: u64,
    op: Op,
    times: &Times,
    tally: &mut Tally,
) -> f64 {
    let Tally { count, level } = tally;
    let mask = parts(address, bytes);
    let touched = f64::from(mask.count_ones());
    match op {
        Op::Load => {
            let moved = module.buffer.read(line);
            if !moved.hit {
                *level = (*level).max(module.pages.read(line));
            }
            let again = touched - if moved.hit { 0.0 } else { 1.0 };
            let read = f64::from(moved.read) + again.max(0.0) * times.again;
            count.media_read += read * LINE as f64;
            count.media_written += f64::from(moved.written) * LINE as f64;
            read * times.read_ns + f64::from(moved.written) * times.write_ns
        }
        Op::Store => {
            // The cache hands lines back later, in an order that is not known here.
            let share = bytes as f64 / LINE as f64;
            let (read, written) = (1.0_f64.min(share * 4.0).min(1.0), share / times.used);
            let read = if times.is_sequential { share } else { read };
            count.media_read += read * LINE as f64;
            count.media_written += written * LINE as f64;
            read * times.read_ns + written * times.write_ns
        }
        _ => {
            let moved: Moved = module.buffer.write(line, mask);
            let again = touched - if moved.hit { 0.0 } else { 1.0 };
            let early = again.max(0.0) * times.again;
            let written = f64::from(moved.written) + early;
            count.media_read += f64::from(moved.read) * LINE as f64;
            count.media_written += written * LINE as f64;
            (written * times.write_ns).max(bytes as f64 * times.floor_ns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::analytic::predict;

    fn cases() -> Vec<(Pattern, Machine)> {
        let mut cases = Vec::new();
        for op in [Op::Load, Op::NtStore, Op::StoreClwb, Op::Store] {
            for order in [Order::Random, Order::Strided, Order::Sequential] {
                for access in [64, 128, 256, 512, 1024, 4096, 16_384] {
                    for threads in [1, 2, 4, 8, 16] {
                        for dimms in [1, 6] {
                            let stride = (order == Order::Strided).then_some(16_384);
                            let pattern = Pattern::new(op, order, access, stride, threads);
                            cases.push((pattern.unwrap(), Machine::plain(dimms, 4096).unwrap()));
                        }
                    }
                }
            }
        }
        cases
    }

    /// Goal: the event model and the closed forms agree. Method: a grid of patterns; the median
    /// error is bounded, as the forms round off where queues do not.
    #[test]
    fn events_agree_with_closed_forms() {
        let numbers = Device::named("optane-100").unwrap().numbers;
        let mut errors = Vec::new();
        for (pattern, machine) in cases() {
            let forms = predict(&numbers, &pattern, &machine).bandwidth_gib_s;
            let accesses = (40_000_000 / pattern.access).clamp(2_000, 30_000);
            let events = Sim::new(&numbers, &machine)
                .measure(&pattern, accesses)
                .unwrap();
            errors.push((
                (events / forms - 1.0).abs(),
                pattern,
                machine.geometry.dimms(),
                forms,
                events,
            ));
        }
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        for it in errors.iter().rev().take(40) {
            println!("{:.2} {:?} {} {:.2} {:.2}", it.0, it.1, it.2, it.3, it.4);
        }
        let median = errors[errors.len() / 2].0;
        println!("median {median}, p90 {}", errors[errors.len() * 9 / 10].0);
        assert!(median <= 0.05, "median {median}");
    }

    /// Goal: bytes are conserved. Method: whole and partial writes; the media's bytes and the dirty
    /// lines cover what was asked, and the write ratio is at most 1 but for the last buffer.
    #[test]
    fn written_bytes_are_on_the_media_or_dirty() {
        let numbers = Device::named("optane-100").unwrap().numbers;
        for (pattern, machine) in cases() {
            if pattern.op == Op::Load || pattern.op == Op::Store {
                continue;
            }
            let mut sim = Sim::new(&numbers, &machine);
            sim.measure(&pattern, 2_000).unwrap();
            let total = sim.total();
            let held = sim.dirty() as f64 * LINE as f64;
            assert!(
                total.written <= total.media_written + held + 0.5,
                "{pattern:?}"
            );
        }
    }

    /// Goal: times carry the model. Method: all bandwidths double, all times halve.
    #[test]
    fn half_the_time_is_twice_the_bandwidth() {
        let slow = Device::named("optane-100").unwrap().numbers;
        let mut fast = slow;
        for key in crate::device::KEYS {
            match key.entry().unit {
                "ns" => fast.set(*key, slow[*key] / 2.0),
                "GiB/s" => fast.set(*key, slow[*key] * 2.0),
                _ => {}
            }
        }
        for (pattern, machine) in cases() {
            let of = |numbers: &Numbers| predict(numbers, &pattern, &machine).bandwidth_gib_s;
            assert!((of(&fast) / of(&slow) - 2.0).abs() < 1e-6, "{pattern:?}");
        }
    }

    /// Goal: no more for fewer modules or less power. Method: neighbours are compared.
    #[test]
    fn more_modules_and_power_are_never_slower() {
        let numbers = Device::named("optane-100").unwrap().numbers;
        for (pattern, _) in cases() {
            if pattern.order == Order::Strided {
                continue;
            }
            let of = |dimms, watts| {
                let machine = Machine::plain(dimms, 4096)
                    .unwrap()
                    .at_budget(watts)
                    .unwrap();
                predict(&numbers, &pattern, &machine).bandwidth_gib_s
            };
            let by_dimms: Vec<f64> = (1..=8).map(|dimms| of(dimms, 15.0)).collect();
            assert!(
                by_dimms.windows(2).all(|two| two[1] >= two[0] * 0.999),
                "{pattern:?}: {by_dimms:?}"
            );
            assert!(of(6, 12.5) <= of(6, 15.0) && of(6, 15.0) <= of(6, 18.0));
        }
    }
}
