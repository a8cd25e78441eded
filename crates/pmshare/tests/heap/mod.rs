//! A heap of a few words that processes share, unrelated to pools. The crate's own tests use it too
//! (`crate::heap`).

#![allow(dead_code, reason = "each test uses a part")]

use pm_store::Runtime;
use pm_store::annexes::Annexes;
use pmem::slots::Prober;
use pmem::{MapOptions, Pmem};
use pmfs_format::SlotRaw;
use pmshare::attach::{attach_lock_by, occupy};
use pmshare::owner;
use pmshare::{Dead, Error, Layout, Member, Options, Rescue, Shared, Undone};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Mutex;
use tempfile::TempDir;

const BYTES: u64 = 1 << 20;
const SLOTS: u64 = 16;
/// The heap's own locks.
const LOCKS: u64 = 64;
/// Shared words, one in a line, followed by the slots.
const SHARED: u64 = 64 << 10;

/// The mapping, and its words.
pub struct Heap {
    mem: Pmem,
    area: Range<u64>,
    annexes: Annexes,
    layout: Layout,
}

impl Shared for Heap {
    type Error = Error;

    const PROGRAM: &'static str = "heap";
    const KIND: &'static str = "heap";

    fn mem(&self) -> &Pmem {
        &self.mem
    }

    fn runtime(&self) -> Runtime<'_> {
        Runtime::new(&self.mem, &self.area, &self.annexes)
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }
}

fn layout() -> Layout {
    let word = |number: u64| SHARED + number * 64;
    Layout {
        slots: word(8),
        slot_count: SLOTS,
        recovery: word(0),
        closing: word(1),
        tokens: word(2),
        slots_end: word(3),
        patrolled: word(4),
        busy_until: word(5),
        busy_more: None,
        arrivals: word(6),
        lease: word(7),
    }
}

/// The owner word of one of the heap's locks.
pub fn lock(number: u64) -> u64 {
    number * 64
}

/// A process's place in the heap.
pub struct Place {
    share: pmshare::Share<Heap>,
    /// The dead that it has cleaned up after.
    pub rescued: Mutex<Vec<Dead>>,
}

impl Deref for Place {
    type Target = pmshare::Share<Heap>;

    fn deref(&self) -> &pmshare::Share<Heap> {
        &self.share
    }
}

impl Member<Heap> for Place {
    fn share(&self) -> &pmshare::Share<Heap> {
        self
    }
}

impl Rescue<Error> for Place {
    fn clean(&self, dead: &[Dead]) -> Result<Undone, Error> {
        self.rescued.lock().unwrap().extend(dead);
        let words = (0..LOCKS).map(lock).chain([self.layout().closing]);
        for word in words {
            let owner = self.mem().load(word);
            if dead.iter().any(|dead| dead.owns(owner)) {
                owner::release(self, word);
            }
        }
        Ok(Undone::default())
    }

    fn close(&self, _slot: u64) -> u64 {
        0
    }
}

impl Place {
    /// Leaves the heap.
    pub fn leave(self) {
        let slot = self.holder().slot;
        self.drop_lease_of(slot);
        self.free_slot(slot);
        self.drop_locks();
    }
}

/// A file with a heap of zeros.
pub struct Scratch {
    dir: TempDir,
    pub path: PathBuf,
}

impl Scratch {
    pub fn new() -> Scratch {
        let dir = TempDir::with_prefix_in("pmshare-test-", "/dev/shm").expect("a directory");
        let path = dir.path().join("heap");
        let file = File::create(&path).expect("a file");
        file.set_len(BYTES).expect("its size");
        Scratch { dir, path }
    }

    /// Attaches again, as another process would.
    pub fn open(&self) -> Place {
        assert!(layout().slot(SLOTS) + SlotRaw::SIZE <= BYTES);
        let heap = Heap {
            mem: Pmem::open(&self.path, &MapOptions::default()).expect("a mapping"),
            area: 0..BYTES,
            annexes: Annexes::default(),
            layout: layout(),
        };
        let prober = Prober::open(&self.path).expect("the file");
        let _entry = attach_lock_by(&prober).expect("the attach lock");
        let place = Place {
            share: pmshare::Share::new(heap, Some(prober), Options::default()),
            rescued: Mutex::new(Vec::new()),
        };
        {
            let _writable = place.mem().writable();
            occupy((&place).into(), Some(&self.path)).expect("a slot");
        }
        place
    }
}
