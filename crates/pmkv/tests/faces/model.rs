//! The steps of a worker, and what each may have left. Every face's worker does the same
//! steps (`steps.h`, `python.py`, `worker.rs`), so that a number says all.
//!
//! | number mod 6 | step of worker W with number N |
//! |---|---|
//! | 0, 1 | puts its own key "wW kK", K = 7 N mod 200 |
//! | 2 | deletes that key, if it is there |
//! | 3 | puts "sK", K = N / 6 mod 16, which four workers put |
//! | 4 | puts "wW b0", "wW b1" and "wW b2" in a batch |
//! | 5 | counts "count" up by one; not by libpmemkv |

use pmkv::Store;

pub const KEYS: u64 = 200;
pub const SHARED: u64 = 16;
/// Workers of an engine, one a face.
pub const EACH: u64 = 4;

/// The value of a number: a word, again and again. A part of it is told from all of it.
pub fn value(worker: u64, nth: u64) -> Vec<u8> {
    let len = match nth {
        _ if nth % 97 == 96 => 70_000,
        _ if nth % 61 == 60 => 5000,
        _ => 8 + nth * 13 % 600,
    };
    let word = (nth << 8 | worker).to_le_bytes();
    word.into_iter().cycle().take(len as usize).collect()
}

/// The number that a whole value has, and its worker.
pub fn number_of(value: &[u8]) -> Option<(u64, u64)> {
    let word = u64::from_le_bytes(*value.first_chunk()?);
    let (worker, nth) = (word & 255, word >> 8);
    (value == self::value(worker, nth)).then_some((worker, nth))
}

pub fn own(worker: u64, key: u64) -> Vec<u8> {
    format!("w{worker} k{key}").into_bytes()
}

pub fn part(worker: u64, part: u64) -> Vec<u8> {
    format!("w{worker} b{part}").into_bytes()
}

pub fn shared(key: u64) -> Vec<u8> {
    format!("s{key}").into_bytes()
}

pub enum Step {
    Put(u64),
    Delete(u64),
    Shared(u64),
    Batch,
    Count,
}

pub fn step(nth: u64) -> Step {
    match nth % 6 {
        0 | 1 => Step::Put(nth * 7 % KEYS),
        2 => Step::Delete(nth * 7 % KEYS),
        3 => Step::Shared(nth / 6 % SHARED),
        4 => Step::Batch,
        _ => Step::Count,
    }
}

/// The state that a worker's acknowledged steps have left.
pub struct Model {
    worker: u64,
    /// The number of the first step that is not acknowledged.
    pub next: u64,
    own: [Option<u64>; KEYS as usize],
    shared: [Option<u64>; SHARED as usize],
    batch: Option<u64>,
    pub counted: u64,
}

impl Model {
    pub fn new(worker: u64) -> Model {
        Model {
            worker,
            next: 0,
            own: [None; KEYS as usize],
            shared: [None; SHARED as usize],
            batch: None,
            counted: 0,
        }
    }

    /// All steps before this one are acknowledged.
    pub fn acknowledge(&mut self, next: u64) {
        for nth in self.next..next {
            match step(nth) {
                Step::Put(key) => self.own[key as usize] = Some(nth),
                Step::Delete(key) => self.own[key as usize] = None,
                Step::Shared(key) => self.shared[key as usize] = Some(nth),
                Step::Batch => self.batch = Some(nth),
                Step::Count => self.counted += 1,
            }
        }
        self.next = self.next.max(next);
    }

    /// Verifies all that is the worker's alone, while it does not run: each key is as the last
    /// acknowledged step left it, or as the one under way leaves it.
    pub fn verify(&self, kv: &dyn Store, whence: &str) {
        let found = |key: &[u8]| -> Option<u64> {
            let shown = String::from_utf8_lossy(key);
            let value = kv.get(key);
            let value = value.unwrap_or_else(|error| panic!("{whence}: {shown}: {error}"))?;
            let Some((worker, nth)) = number_of(&value) else {
                panic!("{whence}: {shown} is torn");
            };
            assert_eq!(worker, self.worker, "{whence}: {shown}");
            Some(nth)
        };
        let next = self.next;
        for key in 0..KEYS {
            let (is, was) = (found(&own(self.worker, key)), self.own[key as usize]);
            let may_be = match step(next) {
                Step::Put(put) if put == key => Some(next),
                Step::Delete(gone) if gone == key => None,
                _ => was,
            };
            assert!(
                is == was || is == may_be,
                "{whence}: key {key} is of step {is:?}, acknowledged {was:?}, under way {next}"
            );
        }
        let parts = [0, 1, 2].map(|part| found(&self::part(self.worker, part)));
        let is_under_way = matches!(step(next), Step::Batch) && parts == [Some(next); 3];
        assert!(
            parts == [self.batch; 3] || is_under_way,
            "{whence}: a batch is {parts:?}, acknowledged {:?}, under way {next}",
            self.batch
        );
    }

    /// Whether the worker may have put this number last on a shared key.
    fn may_be_last(&self, key: u64, nth: u64) -> bool {
        let is_under_way = matches!(step(self.next), Step::Shared(put) if put == key);
        self.shared[key as usize] == Some(nth) || is_under_way && nth == self.next
    }
}

/// Verifies what the workers of an engine share, while none runs. `kills` is how many were killed
/// so far, each of which may have counted once without telling.
pub fn verify_shared(kv: &dyn Store, models: &[Model], kills: u64, whence: &str) {
    for key in 0..SHARED {
        let is_put = models
            .iter()
            .any(|model| model.shared[key as usize].is_some());
        let Some(value) = kv.get(&shared(key)).expect("a shared key") else {
            assert!(!is_put, "{whence}: shared key {key} is lost");
            continue;
        };
        let number = number_of(&value);
        let (worker, nth) = number.unwrap_or_else(|| panic!("{whence}: shared key {key} is torn"));
        let model = models.iter().find(|model| model.worker == worker);
        assert!(
            model.is_some_and(|model| model.may_be_last(key, nth)),
            "{whence}: shared key {key} is of step {nth} of worker {worker}, a later one is gone"
        );
    }
    let count = kv.get(b"count").expect("the count");
    let count = count.map_or(0, |text| {
        String::from_utf8(text)
            .expect("digits")
            .parse()
            .expect("a number")
    });
    // A face that counts nothing acknowledges its steps all the same.
    let counted: u64 = models
        .iter()
        .filter(|model| model.counts())
        .map(|m| m.counted)
        .sum();
    assert!(
        (counted..=counted + kills).contains(&count),
        "{whence}: counted to {count}, acknowledged {counted}, {kills} kills"
    );
}

impl Model {
    fn counts(&self) -> bool {
        crate::Face::of(self.worker) != crate::Face::Pmemkv
    }
}
