//! Events of the kernel on one thread: a software event that owns the ring and knows how long the
//! thread ran, and hardware breakpoints that write into the same ring.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use perf_event::events::{Breakpoint, Software};
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};
use perf_event_open_sys::bindings::perf_event_attr;
use perf_event_open_sys::ioctls;
use pmmon::decode::Registers;

use crate::stray::{self, Stray};

/// Bytes of a thread's ring: 300 samples.
const RING_BYTES: usize = 64 << 10;
/// Debug registers of x86.
pub(crate) const POINTS_MAX: usize = 4;
/// Bytes of a watched word.
const WORD_BYTES: u64 = 8;
/// Traps that a calibration measures, with warm caches and with full ones.
const STORES_WARM: u32 = 401;
const STORES_COLD: u32 = 201;
/// The time for which stray traps are looked for, that between two moves, and the most threads.
const PROBE: Duration = Duration::from_millis(500);
const PROBE_STEP: Duration = Duration::from_millis(1);
const PROBES_MAX: usize = 8;
/// Bytes that fill the caches nearest to a core.
const DATA_BYTES: usize = 1 << 20;

/// A counter's state, since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub count: u64,
    pub running_ns: u64,
}

fn builder(event: impl perf_event::events::Event, tid: u32) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder
        .observe_pid(libc::pid_t::try_from(tid).unwrap_or(libc::pid_t::MAX))
        .any_cpu()
        .exclude_kernel(true)
        .exclude_hv(true)
        .remove_on_exec(true)
        .clockid(Clock::MONOTONIC)
        .sample(SampleFlag::IDENTIFIER)
        .sample(SampleFlag::IP)
        .sample(SampleFlag::TID)
        .sample(SampleFlag::TIME)
        .sample(SampleFlag::ADDR)
        .sample(SampleFlag::REGS_USER)
        .sample_regs_user(Registers::PERF_MASK);
    builder
}

/// The event that owns a thread's ring and counts how long the thread runs.
pub(crate) fn open_ring(tid: u32) -> io::Result<Sampler> {
    let mut counter = builder(Software::DUMMY, tid).build()?;
    counter.enable()?;
    counter.sampled(RING_BYTES)
}

/// A clock of a thread's time in user space, which ticks into its own ring.
pub(crate) fn open_clock(tid: u32, period_ns: u64) -> io::Result<Sampler> {
    let mut builder = builder(Software::CPU_CLOCK, tid);
    builder.sample_period(period_ns);
    let mut counter = builder.build()?;
    counter.enable()?;
    counter.sampled(RING_BYTES)
}

/// How long the thread has run since the event was opened.
pub(crate) fn read(counter: &mut Counter) -> io::Result<Reading> {
    let data = counter.read_full()?;
    let running = data.time_running().unwrap_or(Duration::ZERO);
    Ok(Reading {
        count: data.count(),
        running_ns: running.as_nanos() as u64,
    })
}

/// A hardware breakpoint on one word of one thread.
#[derive(Debug)]
pub(crate) struct Point {
    counter: Counter,
    attributes: perf_event_attr,
}

impl Point {
    /// Opens a breakpoint that writes its samples into another event's ring, disabled.
    pub fn open(tid: u32, word: u64, reads: bool, ring: &Sampler) -> io::Result<Self> {
        let event = if reads {
            Breakpoint::read_write(word, WORD_BYTES)
        } else {
            Breakpoint::write(word, WORD_BYTES)
        };
        let mut builder = builder(event, tid);
        builder.sample_period(1);
        let attributes = *builder.attrs();
        let counter = builder.build()?;
        let to = ring.as_counter().as_raw_fd();
        ioctl(counter.as_raw_fd(), |fd| {
            // SAFETY: both are descriptors of events that live here; the kernel refuses a pair
            // that does not fit, and holds the ring as long as an event writes into it.
            unsafe { ioctls::SET_OUTPUT(fd, to) }
        })?;
        Ok(Self {
            counter,
            attributes,
        })
    }

    /// The number by which its samples are known.
    pub fn id(&self) -> u64 {
        self.counter.id()
    }

    /// Its hits and how long it has watched.
    pub fn read(&mut self) -> io::Result<Reading> {
        read(&mut self.counter)
    }

    /// Watches.
    pub fn enable(&mut self) -> io::Result<()> {
        self.counter.enable()
    }

    /// Does not watch any more.
    pub fn disable(&mut self) -> io::Result<()> {
        self.counter.disable()
    }

    /// Watches another word from now on. A disabled breakpoint stays so.
    pub fn move_to(&mut self, word: u64) -> io::Result<()> {
        self.attributes.__bindgen_anon_3.bp_addr = word;
        let attributes: *mut perf_event_attr = &mut self.attributes;
        ioctl(self.counter.as_raw_fd(), |fd| {
            // SAFETY: the descriptor is an event's, the attributes are those it was opened with but
            // for the address, and live beyond the call, which only reads them.
            unsafe { ioctls::MODIFY_ATTRIBUTES(fd, attributes) }
        })
    }
}

fn ioctl(fd: RawFd, call: impl FnOnce(RawFd) -> i32) -> io::Result<()> {
    if call(fd) < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The cost of a trap to a thread on this machine, in nanoseconds of the thread's own time, which
/// others do not lengthen: the middle between a trap that finds the kernel's code in the caches
/// and one that finds them full of the program's data. Traps of real programs are between the two,
/// which are 10 to 30 % apart.
///
/// Some hypervisors deliver a trap now and then without telling its cause (DR6 is empty). Linux
/// takes such a trap for an INT1 instruction and sends SIGTRAP, which would end the program that is
/// watched. So this makes many traps in a virtual machine, and counts the signals.
///
/// # Errors
/// The kernel allows no breakpoints, or a program that is watched may be killed ([`Stray`]).
pub fn calibrate() -> io::Result<f64> {
    let word = Box::new(AtomicU64::new(0));
    let tid = own_tid();
    let ring = open_ring(tid)?;
    let mut point = Point::open(tid, word.as_ptr() as u64, false, &ring)?;
    if stray::is_known() {
        return Err(io::Error::other(Stray));
    }
    let traps = stray::Counted::begin()?;
    let cost = cost(&word, &mut point)?;
    drop(point);
    if stray::is_virtual() && traps.stray() == 0 {
        probe(|| traps.stray() > 0);
    }
    match traps.stray() {
        0 => Ok(cost),
        _ => Err(met()),
    }
}

fn met() -> io::Error {
    stray::remember();
    io::Error::other(Stray)
}

/// Makes many traps for a while, or until it is over. Stray traps come mostly where threads take
/// turns on a processor, and where words are moved meanwhile, so that both is done here.
fn probe(is_over: impl Fn() -> bool) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stop = AtomicBool::new(false);
    let words: [AtomicU64; POINTS_MAX] = Default::default();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        for _ in 0..(cores * 2).min(PROBES_MAX) {
            let (tell, stop, words) = (tell.clone(), &stop, &words);
            scope.spawn(move || {
                // The receiver waits until all have told, and let go of their ends.
                let _ = tell.send(own_tid());
                drop(tell);
                while !stop.load(Relaxed) {
                    words.iter().for_each(|word| word.store(1, Relaxed));
                }
            });
        }
        drop(tell);
        let mut points: Vec<Vec<Point>> = told.iter().map(|tid| watch_all(tid, &words)).collect();
        let begin = Instant::now();
        while begin.elapsed() < PROBE && !is_over() {
            for (number, point) in points.iter_mut().flatten().enumerate() {
                // A point that can not be moved watches on.
                let _ = point.disable();
                let _ = point.move_to(words[number % words.len()].as_ptr() as u64);
                let _ = point.enable();
            }
            std::thread::sleep(PROBE_STEP);
        }
        stop.store(true, Relaxed);
    });
}

/// Breakpoints of a thread on words, as many as there are.
fn watch_all(tid: u32, words: &[AtomicU64]) -> Vec<Point> {
    let Ok(ring) = open_ring(tid) else {
        return Vec::new();
    };
    let open = |word: &AtomicU64| {
        let mut point = Point::open(tid, word.as_ptr() as u64, false, &ring).ok()?;
        point.enable().ok()?;
        Some(point)
    };
    words.iter().map_while(open).collect()
}

fn own_tid() -> u32 {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    tid.unsigned_abs()
}

fn cost(word: &AtomicU64, point: &mut Point) -> io::Result<f64> {
    let mut data: Vec<u64> = vec![1; DATA_BYTES / size_of::<u64>()];
    // Not watched and watched, with warm caches and with full ones.
    let mut costs = [[0.0; 2]; 2];
    for (watched, costs) in costs.iter_mut().enumerate() {
        if watched == 1 {
            point.enable()?;
        }
        costs[0] = median(STORES_WARM, || word.store(1, Relaxed));
        costs[1] = median(STORES_COLD, || {
            word.store(1, Relaxed);
            data.iter_mut().for_each(|value| *value += 1);
            std::hint::black_box(&mut data);
        });
    }
    let traps = u64::from(STORES_WARM + STORES_COLD);
    match point.read()?.count {
        0 => return Err(io::Error::other("breakpoints are accepted but do not trap")),
        count if count < traps => return Err(met()),
        _ => {}
    }
    let [warm, cold] = [costs[1][0] - costs[0][0], costs[1][1] - costs[0][1]];
    Ok((warm + cold.max(warm)) / 2.0)
}

/// The median time of an action, in nanoseconds of the calling thread.
fn median(times: u32, mut action: impl FnMut()) -> f64 {
    let mut costs: Vec<f64> = (0..times)
        .map(|_| {
            let begin = thread_ns();
            action();
            thread_ns() - begin
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

/// The calling thread's own time, in nanoseconds.
fn thread_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
