//! Goal: what a session of a reader looks at is nobody else's while the session is open, and a
//! session that is over holds nothing. Method: a session beside a writer who clears a slot, frees
//! its place and takes it again, on loom's memory, by the code's own steps (`pmlib::eras`,
//! `pmkv::protocol`), in every order; processes that are killed with sessions open; the same with
//! one step wrong, which has to be found. The selection of planted bugs is the process's: one test
//! alone.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use pmkv::protocol::{byte_of_free, change_byte, free_held, take_free};
use pmlib::eras::{FOR_EVER, advance, begin, is_at_rest, lower, mark_at};
use pmlib::protocol::Words;
use std::panic::{AssertUnwindSafe, catch_unwind};

const ERA: u64 = 0;
const MARKS: u64 = 8;
/// The lock of the slot's chunk.
const LOCK: u64 = 24;
/// 1: it names the place.
const SLOT: u64 = 32;
/// The word of the places' bytes: one place.
const PLACES: u64 = 40;
/// The record: 1, and 2 once another one is stored there.
const RECORD: u64 = 48;
const TAKEN: u64 = 0x80;

/// Something that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The era goes on whatever sessions there are.
    SessionsIgnored,
    /// The era is tagged without a look at the present one.
    NoBarrier,
}

struct Memory(Vec<AtomicU64>, Fault);

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
        if self.1 == Fault::NoBarrier {
            return word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        }
        // A full barrier, which loom has for fences alone.
        fence(Ordering::SeqCst);
        let found = word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        found
    }

    fn acquire(&self) {
        fence(Ordering::Acquire);
    }
}

/// A session that looks once.
fn read(words: &Memory) {
    let parity = begin(words, ERA, MARKS, FOR_EVER, |_| 0, |_| {});
    if is_at_rest(words, LOCK) && words.load(SLOT) == 1 {
        for _ in 0..2 {
            let record = words.0[RECORD as usize / 8].load(Ordering::Relaxed);
            assert_eq!(record, 1, "the place is another record's");
        }
    }
    lower(words, mark_at(MARKS, parity), 0);
}

fn go_on(words: &Memory) {
    advance(words, ERA, |parity| {
        words.1 != Fault::SessionsIgnored && words.load(mark_at(MARKS, parity)) != 0
    });
}

/// A writer that frees a place and takes it again; `rounds`: how often it has the era go on before
/// and after.
fn write(words: &Memory, (before, after): (u64, u64)) {
    for _ in 0..before {
        go_on(words);
    }
    words.cas(LOCK, 0, 1).expect("one writer");
    words.store(SLOT, 0);
    let byte = byte_of_free(words, ERA, 0);
    assert!(change_byte(words, (PLACES, 0), TAKEN, byte));
    words.store(LOCK, 0);
    for _ in 0..after {
        go_on(words);
        free_held(words, PLACES, ERA);
    }
    if take_free(words, PLACES, |_| true).is_some() {
        words.0[RECORD as usize / 8].store(2, Ordering::Relaxed);
    }
}

/// `era`: the era word at first.
fn session_beside_writer(era: u64, rounds: (u64, u64), fault: Fault) {
    let words = [era, 0, 0, 0, 1, TAKEN, 1].map(AtomicU64::new);
    let words = Arc::new(Memory(words.into(), fault));
    let reader = {
        let words = Arc::clone(&words);
        thread::spawn(move || read(&words))
    };
    write(&words, rounds);
    reader.join().unwrap();
    // Nothing is held any more once the session is over.
    go_on(&words);
    let (_, rest) = free_held(&*words, PLACES, ERA);
    assert!(!rest, "held for nobody");
}

fn is_well(fault: Fault) -> bool {
    // Off; on, without a session; being found out.
    let all = [0, 1, 2]
        .into_iter()
        .flat_map(|era| [(era, (0, 2)), (era, (1, 1))]);
    let mut all = all;
    all.all(|(era, rounds)| {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        let model = move || builder.check(move || session_beside_writer(era, rounds, fault));
        catch_unwind(AssertUnwindSafe(model)).is_ok()
    })
}

#[test]
fn what_a_session_looks_at_is_nobody_elses() {
    assert!(is_well(Fault::None));
    assert!(!is_well(Fault::SessionsIgnored));
    assert!(!is_well(Fault::NoBarrier));
    #[cfg(feature = "planted-bugs")]
    {
        use pmlib::planted::select;
        let orders = [
            "bug-session-of-any-era",
            "bug-session-looks-beside-a-writer",
            "bug-place-of-a-session-free",
            "bug-held-place-free-at-once",
        ];
        for bug in orders {
            select(Some(bug));
            assert!(!is_well(Fault::None), "{bug}");
        }
        select(Some("bug-session-never-ended"));
        assert!(!ends_what_lasts_too_long());
        select(Some("bug-session-of-the-dead-kept"));
        assert!(killed().is_err());
        select(None);
    }
    assert!(ends_what_lasts_too_long());
    killed().unwrap_or_else(|text| panic!("{text}"));
}

/// Whether the era goes on past a session whose time is over, and the session learns of it.
fn ends_what_lasts_too_long() -> bool {
    use std::time::Duration;
    let heap = pmlib::Heap::private(4 << 20, &pmlib::Options::default()).unwrap();
    let ground = heap.ground();
    let short = Duration::from_millis(1);
    let session = ground.session(short).unwrap();
    let _window = ground.mem().window();
    assert!(!ground.advance_era().is_off() || !session.is_open());
    std::thread::sleep(short * 5);
    ground.advance_era().is_off() && !session.is_open()
}

/// Kills at each store of calls that have sessions, and whether these hold something afterwards.
fn killed() -> Result<(), String> {
    use yat::heap::keyed_read;
    use yat::heap::kill::{Finds, What, kill_everywhere};
    use yat::program::Program;
    for program in keyed_read() {
        for step in 0..program.steps() {
            let kills = kill_everywhere(&program, What::Step(step), Finds::Looking)?;
            println!(
                "{kills:?}: {} of {}",
                program.step_name(step),
                program.name()
            );
        }
    }
    Ok(())
}
