//! The trace: what each CPU did to the pool, in order.

use crate::mutants::{Mutant, Scope};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::cell::Cell;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A place in the source.
pub type Place = &'static Location<'static>;

/// The number of a CPU: a fence covers what its own flushed and streamed
/// (docs/adr/0023-barriers.md). There is one for each thread that is told apart.
pub type Cpu = u8;

/// CPUs that a trace can tell apart.
pub const CPUS: usize = 4;

thread_local! {
    /// The CPU that this thread is, if it is not its recorder's.
    static ON: Cell<Option<Cpu>> = const { Cell::new(None) };
}

/// From here on this thread is that CPU, whoever records it.
pub(crate) fn on_cpu(cpu: Cpu) {
    assert!((cpu as usize) < CPUS);
    ON.set(Some(cpu));
}

/// One thing that was done to the pool.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A store; of `Cached` kind it lies inside one word.
    Store {
        /// Byte offset.
        off: u64,
        /// The place of its bytes among the trace's.
        bytes: (u32, u32),
        /// The kind of store.
        kind: StoreKind,
        /// The CPU that did it.
        cpu: Cpu,
        /// The place in the source.
        at: Place,
    },
    /// A line's write-back began.
    Flush {
        /// Byte offset of the line.
        line: u64,
        /// The range that its flush was asked for: byte offset and length.
        asked: (u64, u64),
        /// The CPU that did it.
        cpu: Cpu,
        /// The place in the source.
        at: Place,
    },
    /// A fence.
    Fence {
        /// The CPU that did it.
        cpu: Cpu,
        /// The place in the source.
        at: Place,
    },
    /// A step of the program returned.
    Return {
        /// The CPU that did it.
        cpu: Cpu,
    },
    /// A word of a crash image was looked at, and so decided.
    Decided {
        /// Byte offset.
        off: u64,
        /// The value that it has.
        value: [u8; 8],
        /// The part of a bulk store that persisted, or did not, if that was decided with it.
        part: Option<(u32, bool)>,
    },
}

/// Events, and the bytes that they stored.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In the order in which they happened.
    pub events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Trace {
    /// Returns the bytes that a store stored.
    #[must_use]
    pub fn bytes(&self, (start, len): (u32, u32)) -> &[u8] {
        &self.bytes[start as usize..(start + len) as usize]
    }

    /// The events, as a mutant would have done them.
    pub(crate) fn without(
        &self,
        mutant: Option<Mutant>,
        scope: Scope,
    ) -> impl Iterator<Item = &Event> {
        let out = mutant.map(|mutant| mutant.leaves_out(self, scope));
        let kept = move |at: usize| out.as_ref().is_none_or(|out| !out[at]);
        let events = self.events.iter().enumerate();
        events.filter_map(move |(at, event)| kept(at).then_some(event))
    }

    /// Notes a store.
    pub(crate) fn store(&mut self, off: u64, bytes: &[u8], kind: StoreKind, cpu: Cpu, at: Place) {
        let start = u32::try_from(self.bytes.len()).expect("traces are below 4 GiB");
        self.bytes.extend_from_slice(bytes);
        self.events.push(Event::Store {
            off,
            bytes: (start, bytes.len() as u32),
            kind,
            cpu,
            at,
        });
    }

    /// Fences in it.
    #[must_use]
    pub fn fences(&self) -> usize {
        let is_fence = |event: &&Event| matches!(event, Event::Fence { .. });
        self.events.iter().filter(is_fence).count()
    }
}

/// Records while it is switched on. Stores to a range that no crash image keeps are left out.
#[derive(Debug)]
pub struct Recorder {
    on: AtomicBool,
    ignored: Range<u64>,
    cpu: Cpu,
    trace: Arc<Mutex<Trace>>,
}

impl Recorder {
    /// A recorder of CPU 0, switched off, that ignores a range of the pool (bytes).
    #[must_use]
    pub fn new(ignored: Range<u64>) -> Recorder {
        Recorder {
            on: AtomicBool::new(false),
            ignored,
            cpu: 0,
            trace: Arc::default(),
        }
    }

    /// One more, of another CPU, into the same trace.
    #[must_use]
    pub fn beside(&self, cpu: Cpu) -> Recorder {
        assert!((cpu as usize) < CPUS);
        Recorder {
            on: AtomicBool::new(false),
            ignored: self.ignored.clone(),
            cpu,
            trace: self.trace.clone(),
        }
    }

    /// Records from here on.
    pub fn start(&self) {
        self.on.store(true, Ordering::SeqCst);
    }

    /// Does not record, until it is started again.
    pub fn pause(&self) {
        self.on.store(false, Ordering::SeqCst);
    }

    /// Ends it, and takes what all CPUs did.
    pub fn stop(&self) -> Trace {
        self.pause();
        std::mem::take(&mut self.lock())
    }

    /// Notes that a step returned.
    pub fn returned(&self) {
        self.push(Event::Return { cpu: self.cpu });
    }

    fn cpu(&self) -> Cpu {
        ON.get().unwrap_or(self.cpu)
    }

    fn lock(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().expect("no panic while it is held")
    }

    fn push(&self, event: Event) {
        if self.on.load(Ordering::Relaxed) {
            self.lock().events.push(event);
        }
    }
}

impl Observer for Recorder {
    fn store(&self, _mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        if self.on.load(Ordering::Relaxed) && !self.ignored.contains(&off) {
            self.lock().store(off, bytes, kind, self.cpu(), at);
        }
        Verdict::Do
    }

    fn flush(&self, _mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        if !self.ignored.contains(&line) {
            self.push(Event::Flush {
                line,
                asked,
                cpu: self.cpu(),
                at,
            });
        }
    }

    fn fence(&self, _mem: &Pmem, at: Place) {
        self.push(Event::Fence {
            cpu: self.cpu(),
            at,
        });
    }
}
