//! The recorder: a call's stores, flushes and fences, in order.

use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A place in the source.
pub type Place = &'static Location<'static>;

/// One thing that a call did to the pool.
#[derive(Clone, Debug)]
pub enum Event {
    /// A store; of `Cached` kind it lies inside one word.
    Store {
        /// Byte offset.
        off: u64,
        /// What was stored.
        bytes: Vec<u8>,
        /// How.
        kind: StoreKind,
        /// Where in the source.
        at: Place,
    },
    /// A line's write-back began.
    Flush {
        /// Byte offset of the line.
        line: u64,
        /// Where in the source.
        at: Place,
    },
    /// A fence.
    Fence {
        /// Where in the source.
        at: Place,
    },
    /// The thread was killed: no fence of another covers what it had flushed or streamed.
    Death,
}

/// Records while it is switched on. Stores to the runtime area are left out: no crash image keeps it.
#[derive(Debug)]
pub struct Recorder {
    on: AtomicBool,
    ignored: std::ops::Range<u64>,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// A recorder that ignores a range of the pool (bytes): its runtime area.
    #[must_use]
    pub fn new(ignored: std::ops::Range<u64>) -> Recorder {
        Recorder {
            on: AtomicBool::new(false),
            ignored,
            events: Mutex::new(Vec::new()),
        }
    }

    /// Starts a trace.
    pub fn start(&self) {
        self.lock().clear();
        self.on.store(true, Ordering::SeqCst);
    }

    /// Ends it.
    pub fn stop(&self) -> Vec<Event> {
        self.on.store(false, Ordering::SeqCst);
        std::mem::take(&mut self.lock())
    }

    /// Notes that the recorded thread was killed.
    pub fn death(&self) {
        self.push(Event::Death);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.events.lock().expect("no panic while it is held")
    }

    fn push(&self, event: Event) {
        if self.on.load(Ordering::Relaxed) {
            self.lock().push(event);
        }
    }
}

impl Observer for Recorder {
    fn store(
        &self,
        _mem: &Pmem,
        off: u64,
        bytes: &[u8],
        kind: StoreKind,
        at: &'static Location<'static>,
    ) -> Verdict {
        if !self.ignored.contains(&off) {
            self.push(Event::Store {
                off,
                bytes: bytes.to_vec(),
                kind,
                at,
            });
        }
        Verdict::Do
    }

    fn flush(&self, _mem: &Pmem, line: u64, at: &'static Location<'static>) {
        if !self.ignored.contains(&line) {
            self.push(Event::Flush { line, at });
        }
    }

    fn fence(&self, _mem: &Pmem, at: &'static Location<'static>) {
        self.push(Event::Fence { at });
    }
}
