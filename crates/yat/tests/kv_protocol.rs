//! Goal: a put takes a place only of a chunk that is its engine's, whatever the process does that
//! gives the chunk back meanwhile. Method: both on loom's memory, the put by the code's own steps
//! (`pmkv::protocol`), in every order; the same with one step wrong, which loom has to find.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use pmkv::protocol::take_free;
use pmlib::protocol::Words;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The owner of the chunk: 1, the engine.
const OWNER: u64 = 0;
/// The word of the chunk's places, of which there is one.
const PLACES: u64 = 8;
/// The place is free; another object has the same bytes there later.
const FREE: u64 = 0x40;
/// It is taken by whoever gives the chunk back.
const CLOSED: u64 = 0x80;

/// The two words.
struct Memory([AtomicU64; 2]);

impl Words for Memory {
    fn load(&self, offset: u64) -> u64 {
        self.0[offset as usize / 8].load(Ordering::Acquire)
    }

    fn load_all<const N: usize>(&self, offset: u64) -> [u64; N] {
        std::array::from_fn(|at| self.load(offset + 8 * at as u64))
    }

    fn store(&self, offset: u64, value: u64) {
        self.0[offset as usize / 8].store(value, Ordering::Release);
    }

    fn store_all(&self, offset: u64, values: &[u64]) {
        for (at, &value) in values.iter().enumerate() {
            self.store(offset + 8 * at as u64, value);
        }
    }

    fn cas(&self, offset: u64, old: u64, new: u64) -> Result<u64, u64> {
        let word = &self.0[offset as usize / 8];
        word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn acquire(&self) {
        loom::sync::atomic::fence(Ordering::Acquire);
    }
}

/// A put beside one who gives the chunk back, with or without a wait for the index chunk's lock.
fn put_beside_giver(waits: bool) {
    let words = Arc::new(Memory([AtomicU64::new(1), AtomicU64::new(FREE)]));
    let index = Arc::new(Mutex::new(()));
    let giver = {
        let (words, index) = (Arc::clone(&words), Arc::clone(&index));
        thread::spawn(move || {
            if words.cas(PLACES, FREE, CLOSED).is_err() {
                return false;
            }
            if waits {
                drop(index.lock().unwrap());
            }
            words.store(OWNER, 0);
            words.store(PLACES, FREE);
            true
        })
    };
    let taken = {
        let _locked = index.lock().unwrap();
        take_free(&*words, PLACES, |_| words.load(OWNER) == 1)
    };
    let is_given = giver.join().unwrap();
    assert!(is_given != taken.is_some(), "{is_given} {taken:?}");
    let places = words.load(PLACES);
    assert_eq!(places, if is_given { FREE } else { 0x81 });
}

fn is_well(waits: bool) -> bool {
    let model = move || loom::model::Builder::new().check(move || put_beside_giver(waits));
    catch_unwind(AssertUnwindSafe(model)).is_ok()
}

#[test]
fn a_place_is_taken_of_the_engines_own_chunk() {
    assert!(is_well(true));
    assert!(!is_well(false), "given back without a wait");
    #[cfg(feature = "planted-bugs")]
    {
        pmkv::planted::select(Some("bug-place-read-after-its-owner"));
        assert!(!is_well(true), "the owner is read first");
        pmkv::planted::select(None);
    }
}
