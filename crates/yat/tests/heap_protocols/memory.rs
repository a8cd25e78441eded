//! Words of a heap on loom's memory, and what may be wrong with their orders.

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use pmfs::lock_protocol::{Word, release, release_by_store, try_acquire};
use pmlib::protocol::Words;
use std::convert::Infallible;

/// Something that a step leaves out: loom has to find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Loads that follow may be done before those that precede.
    NoAcquire,
    /// Loads of words order nothing.
    RelaxedLoads,
    /// Stores of words order nothing.
    RelaxedStores,
    /// An owner word is opened without order.
    RelaxedRelease,
}

/// Words of a heap, by their offsets.
pub struct Memory {
    words: Vec<(u64, AtomicU64)>,
    fault: Fault,
}

impl Memory {
    pub fn new(offsets: impl IntoIterator<Item = u64>, fault: Fault) -> Memory {
        let words = offsets.into_iter().map(|at| (at, AtomicU64::new(0)));
        let words = words.collect();
        Memory { words, fault }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        let found = self.words.iter().find(|(at, _)| *at == offset);
        &found.expect("a word of the model").1
    }

    /// A copy in no order of its own.
    pub fn copy(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }
}

impl Words for Memory {
    fn load(&self, offset: u64) -> u64 {
        let order = match self.fault {
            Fault::RelaxedLoads => Ordering::Relaxed,
            _ => Ordering::Acquire,
        };
        self.word(offset).load(order)
    }

    fn load_all<const N: usize>(&self, offset: u64) -> [u64; N] {
        std::array::from_fn(|at| self.load(offset + 8 * at as u64))
    }

    fn store(&self, offset: u64, value: u64) {
        let order = match self.fault {
            Fault::RelaxedStores => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        self.word(offset).store(value, order);
    }

    fn store_all(&self, offset: u64, values: &[u64]) {
        for (at, &value) in values.iter().enumerate() {
            self.store(offset + 8 * at as u64, value);
        }
    }

    fn cas(&self, offset: u64, old: u64, new: u64) -> Result<u64, u64> {
        let word = self.word(offset);
        word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn acquire(&self) {
        if self.fault != Fault::NoAcquire {
            fence(Ordering::Acquire);
        }
    }
}

/// An owner word; nobody sleeps here.
pub struct Owner<'a>(pub &'a Memory, pub u64);

impl Owner<'_> {
    pub fn take(&self) {
        while !try_acquire(self, 1) {
            thread::yield_now();
        }
    }

    pub fn open(&self) {
        if !release_by_store(self) {
            release(self);
        }
    }
}

impl Word for Owner<'_> {
    fn load(&self) -> u64 {
        self.0.load(self.1)
    }

    fn cas(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.cas(self.1, old, new)
    }

    fn store(&self, value: u64) {
        let order = match self.0.fault {
            Fault::RelaxedRelease => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        self.0.word(self.1).store(value, order);
    }

    fn swap(&self, _: u64) -> u64 {
        unreachable!("nobody sleeps");
    }

    fn wake(&self) {
        unreachable!("nobody sleeps");
    }
}

/// The answer of a wait that can't fail.
pub fn yields() -> Result<(), Infallible> {
    thread::yield_now();
    Ok(())
}
