//! Goal: records under a checksum are tried in few images, and every bug of a record is still
//! found. Method: a log of records of two lines, sound and with a bug each, read word by word and
//! as a whole; crashes of the records that a recovered log appends are looked at too.

use pmem::record::Observer;
use pmem::{Pmem, Stage};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use yat::explore::{Counts, Explorer, Options, Violation, explore, record};
use yat::program::{Moment, Program, accepts_equal};

const RECORD_BYTES: u64 = 128;
/// Words of a record: its checksum, its number, what it says.
const WORDS: usize = 16;
const SLOTS: u64 = 6;

/// The faults that the log can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// The second line of a record is stored by cached stores and not flushed.
    LineUnflushed,
    /// Nobody waits for a record.
    Unfenced,
    /// A record counts by its number alone.
    NotCompared,
    /// The checksum is over the first line.
    HalfChecked,
}

struct Log {
    mem: Pmem,
    bug: Bug,
    whole: bool,
    /// Records, by what they say.
    said: Vec<u64>,
}

fn checksum(bug: Bug, at: u64, words: &[u64]) -> u64 {
    let covered = if bug == Bug::HalfChecked {
        7
    } else {
        WORDS - 1
    };
    let mut hasher = DefaultHasher::new();
    words[..covered].hash(&mut hasher);
    at.hash(&mut hasher);
    hasher.finish()
}

/// The meaning of a record: each word of it counts.
fn meaning(words: &[u64; WORDS]) -> u64 {
    let says = words[2..].iter();
    says.fold(0, |all: u64, &word| all.wrapping_mul(31).wrapping_add(word))
}

impl Log {
    fn open(mem: Pmem, bug: Bug, whole: bool) -> Log {
        let said = Vec::new();
        let mut log = Log {
            mem,
            bug,
            whole,
            said,
        };
        while let Some(says) = log.record(log.said.len() as u64) {
            log.said.push(says);
        }
        log
    }

    /// The meaning of a record, if it is there.
    fn record(&self, slot: u64) -> Option<u64> {
        if slot == SLOTS {
            return None;
        }
        let at = slot * RECORD_BYTES;
        if self.whole {
            self.mem.will_check(at, WORDS as u64 * 8);
        }
        let words: [u64; WORDS] = self.mem.read(at);
        let is_there = match self.bug {
            Bug::NotCompared => words[1] == slot,
            _ => words[0] == checksum(self.bug, at, &words[1..]),
        };
        is_there.then(|| meaning(&words))
    }

    fn append(&mut self, says: u64) {
        let slot = self.said.len() as u64;
        let at = slot * RECORD_BYTES;
        let mut words = [says; WORDS];
        words[1] = slot;
        words[0] = checksum(self.bug, at, &words[1..]);
        let mut stage = Stage::new();
        words.iter().for_each(|&word| stage.push_word(word));
        let bytes = stage.whole_lines();
        if self.bug == Bug::LineUnflushed {
            self.mem.write_nt(at, &bytes[..64]).unwrap();
            self.mem.write(at + 64, &words[8..]);
        } else {
            self.mem.write_nt(at, bytes).unwrap();
        }
        if self.bug != Bug::Unfenced {
            self.mem.fence();
        }
        self.said.push(meaning(&words));
    }

    /// Takes the last one away.
    fn pop(&mut self) {
        let slot = self.said.len() as u64 - 1;
        self.mem.store(slot * RECORD_BYTES, 0);
        self.mem.flush(slot * RECORD_BYTES, 8);
        self.mem.fence();
        self.said.pop();
    }
}

struct Logs {
    bug: Bug,
    whole: bool,
}

impl Program for Logs {
    type Running = Log;
    type Visible = Vec<u64>;

    fn name(&self) -> String {
        "records".to_owned()
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = Pmem::private(4096);
        mem.poke(0, &[0xdb; 4096]);
        Ok(mem)
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Log, String> {
        mem.observe(Some(observer));
        Ok(Log::open(mem, self.bug, self.whole))
    }

    fn steps(&self) -> usize {
        4
    }

    fn step_name(&self, step: usize) -> String {
        if step == 2 { "pop" } else { "append" }.to_owned()
    }

    fn step(&self, log: &mut Log, step: usize) -> Result<(), String> {
        match step {
            2 => log.pop(),
            _ => log.append(step as u64 + 5),
        }
        Ok(())
    }

    fn inspect(&self, log: &mut Log) -> Result<Vec<u64>, String> {
        Ok(log.said.clone())
    }

    fn accepts(&self, seen: &Vec<u64>, moment: &Moment<'_, Vec<u64>>) -> Result<(), String> {
        accepts_equal(seen, moment)
    }

    fn go_on(&self, log: &mut Log) -> Result<(), String> {
        log.append(99);
        Ok(())
    }

    fn detach(&self, log: Log) -> Option<Pmem> {
        Some(log.mem)
    }
}

fn options(depth: usize) -> Options {
    Options {
        depth,
        ..Options::default()
    }
}

fn sound(whole: bool, depth: usize) -> Counts {
    let logs = Logs {
        bug: Bug::None,
        whole,
    };
    let counts = explore(&logs, options(depth)).unwrap();
    counts.unwrap_or_else(|violation| panic!("{violation}"))
}

fn violation(bug: Bug, depth: usize) -> Box<Violation> {
    let logs = Logs { bug, whole: true };
    explore(&logs, options(depth)).unwrap().unwrap_err()
}

#[test]
fn a_whole_record_is_few_images() {
    let (words, whole) = (sound(false, 0), sound(true, 0));
    assert_eq!(words.points, whole.points);
    assert!(
        words.images_max >= 1 << 16 && words.sampled > 0,
        "{words:?}"
    );
    // Two lines: both old, both new, one of them new.
    assert_eq!((whole.images_max, whole.sampled), (4, 0), "{whole:?}");
    assert_eq!(whole.states, words.states, "all that can be seen is seen");
    let deep = sound(true, 2);
    assert!(deep.nested > 0 && deep.sampled == 0, "{deep:?}");
}

#[test]
fn bugs_of_records_are_found() {
    for bug in [
        Bug::LineUnflushed,
        Bug::Unfenced,
        Bug::NotCompared,
        Bug::HalfChecked,
    ] {
        let found = violation(bug, 0);
        println!("{found}");
        // The report alone gives the same again.
        let logs = Logs { bug, whole: true };
        let recording = record(&logs).unwrap();
        let crash = found.crash.to_string().parse().unwrap();
        let explorer = Explorer::new(&logs, &recording, Options::default());
        assert_eq!(explorer.replay(&crash).unwrap_err().text, found.text);
    }
}

/// Goal: a content that was there between two others, complete with its checksum, is tried: the
/// newest and the oldest are not all that may hold. Method: a record is overwritten twice, by
/// cached stores and without a fence; recovery must show each of the three.
#[test]
fn each_content_that_was_there_is_tried() {
    struct Twice(std::sync::Mutex<Vec<u64>>);
    impl Program for Twice {
        type Running = Log;
        type Visible = u64;
        fn name(&self) -> String {
            "twice".to_owned()
        }
        fn setup(&self) -> Result<Pmem, String> {
            let mem = Pmem::private(4096);
            mem.poke(0, &[0xdb; 4096]);
            Ok(mem)
        }
        fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Log, String> {
            mem.observe(Some(observer));
            let log = Log::open(mem, Bug::None, true);
            let shown = log.said.first().copied().unwrap_or(0);
            self.0.lock().unwrap().push(shown);
            Ok(log)
        }
        fn prepare(&self, log: &mut Log) -> Result<(), String> {
            log.append(1);
            Ok(())
        }
        fn steps(&self) -> usize {
            1
        }
        fn step_name(&self, _: usize) -> String {
            "overwrite".to_owned()
        }
        fn step(&self, log: &mut Log, _: usize) -> Result<(), String> {
            for says in [2, 3] {
                let mut words = [says; WORDS];
                words[1] = 0;
                words[0] = checksum(Bug::None, 0, &words[1..]);
                log.mem.write(0, &words);
            }
            log.mem.flush(0, WORDS as u64 * 8);
            log.mem.fence();
            Ok(())
        }
        fn inspect(&self, log: &mut Log) -> Result<u64, String> {
            Ok(log.said.first().copied().unwrap_or(0))
        }
        fn accepts(&self, _: &u64, _: &Moment<'_, u64>) -> Result<(), String> {
            Ok(())
        }
    }
    let program = Twice(std::sync::Mutex::default());
    explore(&program, Options::default()).unwrap().unwrap();
    let mut shown = program.0.into_inner().unwrap();
    shown.sort_unstable();
    shown.dedup();
    // No record, and each of the three.
    assert_eq!(shown.len(), 4, "{shown:?}");
}
