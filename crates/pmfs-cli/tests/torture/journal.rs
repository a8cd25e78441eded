//! The record of what a worker did, kept outside the pool: an entry before each operation and one
//! after it, and now and then its whole state. A kill tears neither: what was written stays in the
//! page cache, and a torn entry is none.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::op::{Chooser, Op, State};

const ENTRY_BYTES: usize = 32;
const BEGIN: u64 = 1;
const END: u64 = 2;

/// An entry: what began or ended.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    /// A place in [`crate::op::NAMES`].
    kind: u8,
    /// The operation's number.
    number: u64,
    outcome: u64,
}

impl Entry {
    fn words(self) -> [u64; 4] {
        let first = self.tag << 8 | u64::from(self.kind);
        let check = first ^ self.number.rotate_left(17) ^ self.outcome.rotate_left(39) ^ 0x5eed;
        [first, self.number, self.outcome, check]
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (place, word) in bytes.chunks_mut(8).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Entry> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let first = word(0)?;
        let entry = Entry {
            tag: first >> 8,
            kind: first as u8,
            number: word(8)?,
            outcome: word(16)?,
        };
        (word(24)? == entry.words()[3]).then_some(entry)
    }
}

/// A worker's journal.
pub struct Journal {
    file: File,
    end: u64,
    state_path: PathBuf,
}

fn journal_path(dir: &Path, worker: usize) -> PathBuf {
    dir.join(format!("w{worker}.journal"))
}

/// The state that a worker left.
pub struct Left {
    pub state: State,
    /// Begun and not known to have returned.
    pub in_flight: Option<Op>,
}

impl Journal {
    /// Opens the worker's journal for more entries.
    pub fn open(dir: &Path, worker: usize) -> io::Result<Journal> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(journal_path(dir, worker))?;
        let end = file.metadata()?.len() / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
        Ok(Journal {
            file,
            end,
            state_path: state_path(dir, worker),
        })
    }

    fn write(&mut self, entry: Entry) -> io::Result<()> {
        self.file.write_all_at(&entry.to_bytes(), self.end)?;
        self.end += ENTRY_BYTES as u64;
        Ok(())
    }

    pub fn begin(&mut self, number: u64, kind: u8) -> io::Result<()> {
        self.write(Entry {
            tag: BEGIN,
            kind,
            number,
            outcome: 0,
        })
    }

    pub fn end(&mut self, number: u64, kind: u8, outcome: u64) -> io::Result<()> {
        self.write(Entry {
            tag: END,
            kind,
            number,
            outcome,
        })
    }

    /// Keeps the state, and lets the entries before it go.
    pub fn checkpoint(&mut self, state: &State) -> io::Result<()> {
        let draft = self.state_path.with_extension("draft");
        fs::write(&draft, pack(state))?;
        fs::rename(&draft, &self.state_path)?;
        self.file.set_len(0)?;
        self.end = 0;
        Ok(())
    }
}

fn state_path(dir: &Path, worker: usize) -> PathBuf {
    dir.join(format!("w{worker}.state"))
}

/// The state as JSON after its length, then the files' bytes, each after their number.
fn pack(state: &State) -> Vec<u8> {
    let json = serde_json::to_vec(state).expect("plain data");
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json);
    for node in state.own.nodes.values() {
        bytes.extend((node.content.len() as u64).to_le_bytes());
        bytes.extend(&node.content);
    }
    bytes
}

fn unpack(bytes: &[u8]) -> State {
    let mut rest = bytes;
    let mut part = || {
        let (length, more) = rest.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
        let (part, more) = more.split_at(length as usize);
        rest = more;
        part
    };
    let mut state: State = serde_json::from_slice(part()).expect("what pack wrote");
    for node in state.own.nodes.values_mut() {
        node.content = part().to_vec();
    }
    state
}

fn entries(dir: &Path, worker: usize) -> Vec<Entry> {
    let bytes = fs::read(journal_path(dir, worker)).unwrap_or_default();
    let entries = bytes.chunks(ENTRY_BYTES).map(Entry::from_bytes);
    entries.map_while(|entry| entry).collect()
}

/// Returns what the worker was in the middle of; `None` if between operations. A place in
/// [`crate::op::NAMES`].
pub fn last_begun(dir: &Path, worker: usize) -> Option<u8> {
    let file = File::open(journal_path(dir, worker)).ok()?;
    let length = file.metadata().ok()?.len() / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
    let mut bytes = [0; ENTRY_BYTES];
    let at = length.checked_sub(ENTRY_BYTES as u64)?;
    file.read_exact_at(&mut bytes, at).ok()?;
    let entry = Entry::from_bytes(&bytes)?;
    (entry.tag == BEGIN).then_some(entry.kind)
}

/// Returns how long ago its last entry was written.
pub fn age(dir: &Path, worker: usize) -> Duration {
    let written = fs::metadata(journal_path(dir, worker)).and_then(|file| file.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    age.unwrap_or_default()
}

/// Does again, on the model, what the worker did.
pub fn replay(dir: &Path, worker: usize, seed: u64) -> Left {
    let mut state = match fs::read(state_path(dir, worker)) {
        Ok(bytes) => unpack(&bytes),
        Err(_) => State::default(),
    };
    let mut in_flight: Option<Op> = None;
    for entry in entries(dir, worker) {
        let special = usize::from(entry.kind) >= usize::from(crate::op::ATTACH);
        if special || entry.number < state.number {
            continue;
        }
        assert_eq!(entry.number, state.number, "worker {worker}: {entry:?}");
        match (entry.tag, in_flight.take()) {
            (BEGIN, None) => {
                let op = Chooser::new(seed, worker, &state).choose();
                assert_eq!(op.number(), entry.kind, "worker {worker} began {op:?}?");
                in_flight = Some(op);
            }
            (END, Some(op)) => state.apply(&op, entry.outcome),
            (_, before) => panic!("worker {worker}: {entry:?} after {before:?}"),
        }
    }
    Left { state, in_flight }
}
