//! Emulates a slower medium, as PMFS's emulator did (section 4, PMEP): what is asked for is charged
//! here.
//!
//! - A line read from the pool: the thread spins. Words of a line that this thread read last are
//!   not charged again, as they are in its cache.
//! - A barrier: the thread spins.
//! - A line written (flushed, or stored past the caches): a share of the bandwidth that all
//!   processes have together. One word, in the pool, says until when the medium is busy. A writer
//!   moves it on, in one atomic step, and waits until its own part is done. A process killed in
//!   between has had its part: nothing stays held. A medium that was idle is ahead by [`QUEUE_NS`]:
//!   its controllers take in that much before anybody has to wait.
//!
//! A device in place of such figures ([`device`]) has times of its own ([`model`]): accesses are
//! given to it, and the thread spins until each is over.
//!
//! Off, each place costs one load and a branch, which [`crate::processes::death`] shares at
//! barriers.

mod buffer;
pub mod device;
mod devices;
pub mod emulation;
mod model;
mod norm;
mod stream;
pub(crate) mod ticks;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::LINE;
use crate::emulate::device::DIMMS_MAX;
use crate::emulate::model::{Model, WORDS};
use crate::emulate::stream::{Counted, Stream};
pub(crate) use crate::processes::active::active;
use crate::processes::active::{self, COUNTING};
use crate::processes::death;
use crate::processes::thread;
use crate::{Emulation, Pmem};

pub(crate) use crate::emulate::model::Op;

/// Written lines that the medium's queues hold, in ns of its time.
const QUEUE_NS: u64 = 1000;
/// Units of the medium's time in a ns. A line takes only a few of them.
const PARTS: u64 = 64;
/// A medium busy for longer than this got its word before the last reboot, s.
const BUSY_S_MAX: u64 = 10;
/// The greatest credit of a thread that was preempted in the middle of a delay, ns.
const CREDIT_NS_MAX: u64 = 100;
/// A wait by which the way to one is measured, ns, and how often it is.
const WAIT_NS: u64 = 150;
const ROUNDS: u64 = 16;
/// No offset: the word belongs to this process alone.
const NOT_SHARED: u64 = u64::MAX;

/// The delays charged to this process so far, as counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charged {
    /// Lines read.
    pub lines_read: u64,
    /// Barriers.
    pub barriers: u64,
    /// Lines written.
    pub lines_written: u64,
    /// Accesses that a device would have ended before this machine did: it is too slow for them.
    pub late: u64,
}

/// The places of the words that all processes of a pool share, in bytes from its start (8-aligned,
/// initially zero).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediumWords {
    /// The time until which the medium, or a device's first module, is busy.
    pub busy: u64,
    /// The same of a device's further modules, and the count of streams. `None`: each process
    /// emulates a device of its own.
    pub more: Option<[u64; DIMMS_MAX as usize]>,
}

/// Emulates one pool's medium in one process.
pub(crate) struct Emulator {
    asked: Emulation,
    line_ticks: u64,
    barrier_ticks: u64,
    credit_ticks_max: u64,
    way_ticks: u64,
    /// The time of a written line, in [`PARTS`] of a ns.
    line_parts: u64,
    /// The offset of the shared word in the pool.
    shared: AtomicU64,
    /// The words of a device's modules behind the first one.
    shared_more: OnceLock<[u64; DIMMS_MAX as usize]>,
    own: [AtomicU64; WORDS],
    model: Option<Model>,
    lines_read: AtomicU64,
    barriers: AtomicU64,
    lines_written: AtomicU64,
}

impl Emulator {
    fn new(asked: Emulation, pool_len: u64) -> Emulator {
        active::emulation_begins();
        let per_line = |rate| (LINE * PARTS * 1_000_000_000 + rate / 2) / rate;
        Emulator {
            asked,
            line_ticks: ticks::of_ns(asked.read_ns),
            barrier_ticks: ticks::of_ns(asked.barrier_ns),
            credit_ticks_max: ticks::of_ns(CREDIT_NS_MAX),
            way_ticks: 0,
            line_parts: match asked.write_bytes_per_s {
                0 => 0,
                rate => per_line(rate),
            },
            shared: AtomicU64::new(NOT_SHARED),
            shared_more: OnceLock::new(),
            own: Default::default(),
            model: (asked.device).map(|modules| Model::new(modules, pool_len, ticks::per_ns())),
            lines_read: AtomicU64::new(0),
            barriers: AtomicU64::new(0),
            lines_written: AtomicU64::new(0),
        }
    }

    /// Spins for `ticks`, because a sleep is far longer than any memory's latency. Excess time is
    /// subtracted from the next delay.
    fn spin(&self, ticks: u64) {
        // The call itself is part of the delay.
        let start = ticks::now().wrapping_sub(self.way_ticks);
        thread::with(|thread| {
            let credit = thread.delay_credit.get();
            let due = ticks.saturating_sub(credit);
            let mut took = 0;
            while took < due {
                took = ticks::now().wrapping_sub(start);
            }
            let over = (took + credit).saturating_sub(ticks);
            thread.delay_credit.set(over.min(self.credit_ticks_max));
        });
    }

    fn read(&self, lines: u64) {
        if self.line_ticks == 0 {
            self.lines_read.fetch_add(lines, Ordering::Relaxed);
            return;
        }
        self.delay(&self.lines_read, lines, lines * self.line_ticks);
    }

    /// Counts an access and spins.
    #[inline(never)]
    fn delay(&self, counter: &AtomicU64, count: u64, ticks: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
        self.spin(ticks);
    }

    /// The time at which an access begins. The thread's last wait was too long by its stream's
    /// credit, and the way here is part of the access.
    fn begin(&self, stream: &Stream) -> u64 {
        let over = self.way_ticks + stream.credit.load(Ordering::Relaxed);
        ticks::now().saturating_sub(over)
    }

    /// Spins until an access to a device is over. Returns whether it was over already.
    fn spin_until(&self, stream: &Stream, due: u64) -> bool {
        let mut now = ticks::now();
        let is_late = now > due;
        while now < due {
            now = ticks::now();
        }
        let over = (now - due).min(self.credit_ticks_max);
        stream.credit.store(over, Ordering::Relaxed);
        is_late
    }

    /// Ends an access to a device.
    fn finish(&self, stream: &Stream, due: u64) {
        if self.spin_until(stream, due) {
            stream.count(Counted::Late, 1);
        }
    }

    /// Reserves a part of the medium's time. Returns its end, in [`PARTS`] of a ns.
    fn reserve(&self, word: &AtomicU64, lines: u64) -> u64 {
        self.lines_written.fetch_add(lines, Ordering::Relaxed);
        if self.line_parts == 0 {
            return 0;
        }
        let now = now_parts();
        let takes = lines * self.line_parts;
        let mut busy = word.load(Ordering::Relaxed);
        loop {
            let idle_since = now.saturating_sub(QUEUE_NS * PARTS);
            let stale = busy > now + BUSY_S_MAX * 1_000_000_000 * PARTS;
            let begin = if stale { now } else { busy.max(idle_since) };
            let moved = begin + takes;
            match word.compare_exchange_weak(busy, moved, Ordering::Relaxed, Ordering::Relaxed) {
                // The end is in the past already: reading the clock takes longer than writing a
                // line.
                Ok(_) => return if moved <= now { 0 } else { moved },
                Err(found) => busy = found,
            }
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        active::emulation_ends();
    }
}

/// The time of CLOCK_MONOTONIC, which all processes of a machine share, in [`PARTS`] of a ns.
fn now_parts() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) * PARTS
}

/// A number of this thread, other than 0.
fn thread_number() -> u64 {
    thread::with(|thread| std::ptr::from_ref(thread).addr() as u64)
}

/// The count of lines that a range touches.
fn lines_of(off: u64, len: u64) -> u64 {
    match len {
        0 => 0,
        len => (off + len).div_ceil(LINE) - off / LINE,
    }
}

impl Pmem {
    /// Adds the emulation of a slower medium to the mapping.
    #[must_use]
    pub fn emulating(mut self, asked: Emulation) -> Pmem {
        let pool_len = self.len();
        self.emulator = (!asked.is_off()).then(|| Box::new(Emulator::new(asked, pool_len)));
        let way_ticks = match asked.device {
            Some(_) => self.way_of_device(),
            None if asked.read_ns != 0 || asked.barrier_ns != 0 => self.way_ticks(),
            None => 0,
        };
        if let Some(emulator) = &mut self.emulator {
            emulator.way_ticks = way_ticks;
        }
        self
    }

    /// The time of an access to a device outside of its begin and its end: the least of many. Each
    /// waits as an access does, because a processor foresees that no wait ends.
    fn way_of_device(&self) -> u64 {
        const MANY: u64 = 64;
        let Some((emulator, model)) = self.model() else {
            return 0;
        };
        let wait = ticks::of_ns(WAIT_NS);
        let round = || {
            let start = ticks::now();
            for _ in 0..MANY {
                let stream = model.stream(thread_number());
                let due = emulator.begin(stream) + wait;
                emulator.spin_until(std::hint::black_box(stream), due);
            }
            (ticks::now().wrapping_sub(start) / MANY).saturating_sub(wait)
        };
        let way = (0..ROUNDS).map(|_| round()).min().unwrap_or(0);
        // Nothing of this is the first access's.
        (model.stream(thread_number()).credit).store(0, Ordering::Relaxed);
        way
    }

    fn model(&self) -> Option<(&Emulator, &Model)> {
        let emulator = self.emulator.as_deref()?;
        Some((emulator, emulator.model.as_ref()?))
    }

    /// Gives an access of so many lines to the device, and returns its end.
    fn access(
        &self,
        (emulator, model): (&Emulator, &Model),
        op: Op,
        (off, len): (u64, u64),
        lines: u64,
    ) -> u64 {
        let stream = model.stream(thread_number());
        let begun = emulator.begin(stream);
        let counted = match op {
            Op::Read | Op::Word => Counted::LinesRead,
            Op::Stream | Op::Flush => Counted::LinesWritten,
        };
        stream.count(counted, lines);
        let busy = emulator.shared.load(Ordering::Relaxed);
        let Some(more) = emulator.shared_more.get().filter(|_| busy != NOT_SHARED) else {
            let own = |number: usize| &emulator.own[number];
            return model.access(own, stream, begun, op, (off, len));
        };
        let words = |number: usize| {
            let off = match number.checked_sub(1) {
                None => busy,
                Some(further) => more[further],
            };
            // SAFETY: `word` gives an aligned word of the mapping; all accesses to it are atomic.
            unsafe { AtomicU64::from_ptr(self.word(off)) }
        };
        let _writable = self.writable();
        model.access(words, stream, begun, op, (off, len))
    }

    /// The time of an empty delay: the least of many, because preemption may lengthen any of them.
    fn way_ticks(&self) -> u64 {
        const MANY: u64 = 64;
        let Some(emulator) = &self.emulator else {
            return 0;
        };
        let round = || {
            let start = ticks::now();
            for _ in 0..MANY {
                emulator.delay(&emulator.lines_read, 0, 0);
            }
            ticks::now().wrapping_sub(start) / MANY
        };
        (0..MANY).map(|_| round()).min().unwrap_or(0)
    }

    /// The emulated medium.
    #[must_use]
    pub fn emulation(&self) -> Emulation {
        let asked = self.emulator.as_ref().map(|emulator| emulator.asked);
        asked.unwrap_or_default()
    }

    /// The delays charged by this mapping so far.
    #[must_use]
    pub fn charged(&self) -> Charged {
        let Some(emulator) = &self.emulator else {
            return Charged::default();
        };
        if let Some(model) = &emulator.model {
            return Charged {
                lines_read: model.counted(Counted::LinesRead),
                barriers: model.counted(Counted::Barriers),
                lines_written: model.counted(Counted::LinesWritten),
                late: model.counted(Counted::Late),
            };
        }
        Charged {
            lines_read: emulator.lines_read.load(Ordering::Relaxed),
            barriers: emulator.barriers.load(Ordering::Relaxed),
            lines_written: emulator.lines_written.load(Ordering::Relaxed),
            late: 0,
        }
    }

    /// Shares the medium's time with all users of these words. `None`: it is no longer shared.
    ///
    /// # Panics
    /// If a word is not in the pool.
    pub fn share_bandwidth(&self, words: Option<&MediumWords>) {
        let Some(emulator) = &self.emulator else {
            return;
        };
        for off in words.iter().flat_map(|words| words.more).flatten() {
            self.word(off);
        }
        if let Some(words) = words {
            self.word(words.busy);
            if let Some(more) = words.more {
                emulator.shared_more.get_or_init(|| more);
            }
        }
        let busy = words.map_or(NOT_SHARED, |words| words.busy);
        emulator.shared.store(busy, Ordering::Relaxed);
    }

    /// Charges for words that are about to be loaded.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_words(&self, off: u64, len: u64) {
        let Some(emulator) = &self.emulator else {
            return;
        };
        let lines = thread::with(|thread| {
            // A line's number is never 0, which means no line.
            let last = (off + len - 1) / LINE + 1;
            let known = thread.line_read.replace(last);
            lines_of(off, len) - u64::from(known == off / LINE + 1)
        });
        if lines == 0 {
            return;
        }
        let Some(device) = self.model() else {
            emulator.read(lines);
            return;
        };
        let due = self.access(device, Op::Word, (off, len), lines);
        emulator.finish(device.1.stream(thread_number()), due);
    }

    /// Charges for bytes that are about to be copied out. Returns the argument for
    /// [`Pmem::copied`].
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_copy(&self, off: u64, len: u64) -> u64 {
        let Some(emulator) = &self.emulator else {
            return 0;
        };
        let Some(device) = self.model().filter(|_| len > 0) else {
            emulator.read(lines_of(off, len));
            return 0;
        };
        self.access(device, Op::Read, (off, len), lines_of(off, len))
    }

    /// Waits for bytes that were copied out.
    pub(crate) fn copied_out(&self, due: u64) {
        if due != 0 {
            self.wait(due);
        }
    }

    /// Reserves time for lines that are about to be written, from that of `off` on. Returns the
    /// argument for [`Pmem::written`].
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_write(&self, op: Op, off: u64, lines: u64) -> u64 {
        let Some(emulator) = &self.emulator else {
            return 0;
        };
        if let Some(device) = self.model().filter(|_| lines > 0) {
            return self.access(device, op, (off & !(LINE - 1), lines * LINE), lines);
        }
        let off = emulator.shared.load(Ordering::Relaxed);
        if off == NOT_SHARED {
            return emulator.reserve(&emulator.own[0], lines);
        }
        let _writable = self.writable();
        // SAFETY: `share_bandwidth` checked that it is an aligned word of the mapping; all accesses
        // to it are atomic.
        emulator.reserve(unsafe { AtomicU64::from_ptr(self.word(off)) }, lines)
    }

    /// Waits for lines that were written.
    #[inline(always)]
    pub(crate) fn written(&self, due: u64) {
        if due != 0 {
            self.wait(due);
        }
    }

    /// Waits until the medium has done an access.
    #[cold]
    #[inline(never)]
    fn wait(&self, due: u64) {
        match self.model() {
            Some((emulator, model)) => emulator.finish(model.stream(thread_number()), due),
            None => {
                while now_parts() < due {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// The slow path of a fence.
    #[cold]
    #[inline(never)]
    pub(crate) fn at_barrier(&self, active: u64) {
        if active & COUNTING != 0 {
            death::at_barrier();
        }
        if let Some((emulator, model)) = self.model() {
            let stream = model.stream(thread_number());
            stream.count(Counted::Barriers, 1);
            let due = model.fence(stream);
            if ticks::now() < due {
                emulator.spin_until(stream, due);
            }
        } else if let Some(emulator) = &self.emulator {
            match emulator.barrier_ticks {
                0 => _ = emulator.barriers.fetch_add(1, Ordering::Relaxed),
                ticks => emulator.delay(&emulator.barriers, 1, ticks),
            }
        }
    }
}

#[cfg(test)]
mod tests;
