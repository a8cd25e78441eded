//! The steps through the crate itself, and each worker as a process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pmkv::{Change, Entry, Error, Expect, Kind, Snapshot, Store};
use pmlib::{Heap, Options};

use crate::model::{self, EACH, KEYS, SHARED, Step, value};

/// The words of a worker that this program is run as.
pub const ROLE: &str = "PMKV_TEST_ROLE";
/// The directory in which `tests/kv-faces.sh` puts the workers of the other faces.
const FACES: &str = "PMKV_FACES";

/// The name of an engine: libpmemkv can't choose another.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Tree => "pmemkv_stree",
        _ => "pmemkv",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Rust,
    C,
    Python,
    Pmemkv,
}

impl Face {
    pub const ALL: [Face; 4] = [Face::Rust, Face::C, Face::Python, Face::Pmemkv];

    /// Where there is no directory of workers, all are this program. One that lacks a face's worker
    /// (there is no Python) has Rust's in its place.
    pub fn of(worker: u64) -> Face {
        let face = Face::ALL[(worker % EACH) as usize];
        match face.file() {
            Some(file) if file.exists() => face,
            _ => Face::Rust,
        }
    }

    fn file(self) -> Option<PathBuf> {
        let name = match self {
            Face::Rust => return None,
            Face::C => "c",
            Face::Python => "pmkv.abi3.so",
            Face::Pmemkv => "pmemkv",
        };
        std::env::var_os(FACES).map(|dir| Path::new(&dir).join(name))
    }

    /// A worker's process with its words.
    pub fn command(self, words: [&str; 5]) -> Command {
        let mut command = match (self, self.file()) {
            (Face::C | Face::Pmemkv, Some(file)) => Command::new(file),
            (Face::Python, Some(module)) => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", module.parent().expect("a directory"));
                command.arg(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/tests/faces/python.py"
                ));
                command
            }
            _ => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args(["--exact", "as_another_process", "--nocapture"]);
                command.env(ROLE, words.join("\n"));
                return command;
            }
        };
        command.args(words);
        command
    }
}

/// A worker that runs, and what it has acknowledged.
pub struct Worker {
    child: Child,
    /// The number of the first step that is not acknowledged.
    next: Arc<AtomicU64>,
    reader: JoinHandle<()>,
}

impl Worker {
    pub fn start(path: &Path, worker: u64, kind: Kind, first: u64) -> Worker {
        let path = path.to_str().expect("a path of text");
        let (number, first_text) = (worker.to_string(), first.to_string());
        let kind = kind.to_string();
        let words = ["write", path, &number, &kind, &first_text];
        let mut command = Face::of(worker).command(words);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let next = Arc::new(AtomicU64::new(first));
        let told = next.clone();
        let reader = std::thread::spawn(move || read(lines, &told));
        Worker {
            child,
            next,
            reader,
        }
    }

    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Kills it, and answers the first number that it has not acknowledged.
    pub fn kill(mut self) -> u64 {
        self.child.kill().expect("it runs");
        let status = self.child.wait().expect("it ran");
        self.reader.join().expect("a reader");
        assert!(status.code().is_none(), "it ended by itself: {status}");
        self.next.load(Ordering::Acquire)
    }
}

/// The acknowledgements of a worker are outside of the store: they stay when it is gone.
fn read(mut lines: impl BufRead, next: &AtomicU64) {
    let mut line = String::new();
    while lines.read_line(&mut line).expect("a pipe") > 0 {
        // A harness's own words are before the first number, on its line.
        let digits = line.rsplit(' ').next().unwrap_or("");
        if let Some(nth) = digits.strip_suffix('\n').and_then(|text| text.parse().ok()) {
            let nth: u64 = nth;
            next.store(nth + 1, Ordering::Release);
        }
        line.clear();
    }
}

/// This program as a worker.
pub fn work(words: &str) {
    let words: Vec<&str> = words.split('\n').collect();
    let [work, path, worker, kind, number] = words[..] else {
        panic!("five words");
    };
    let heap = Heap::open(Path::new(path), &Options::default()).expect("the heap");
    let kind = if kind == "tree" {
        Kind::Tree
    } else {
        Kind::Hash
    };
    let kv = kind.open(&heap, name(kind)).expect("the engine");
    let (worker, number) = (worker.parse().unwrap(), number.parse().unwrap());
    match work {
        "read" => read_all(&*kv, worker, number),
        _ => write(&*kv, worker, number),
    }
}

fn write(kv: &dyn Store, worker: u64, first: u64) {
    let mut out = std::io::stdout();
    let mut sight = None;
    for nth in first.. {
        if nth % 48 == 0 {
            sight = look_at_once(kv, sight);
        }
        step(kv, worker, nth).expect("a step");
        out.write_all(format!(" {nth}\n").as_bytes())
            .expect("a reader");
        if nth % 4 == 0 {
            let other = worker / EACH * EACH + (worker + 1 + nth / 4 % 3) % EACH;
            look(kv, &model::own(other, nth * 3 % KEYS), Some(other));
            look(kv, &model::shared(nth / 4 % SHARED), None);
        }
    }
}

/// A snapshot, and what it had when it was taken.
type Sight<'k> = (Snapshot<'k>, Vec<Entry>);

/// A snapshot has whole values, all of a batch or nothing, and stays as it was. One is taken, and
/// the last one looked at again.
fn look_at_once<'k>(kv: &'k dyn Store, before: Option<Sight<'k>>) -> Option<Sight<'k>> {
    let entries = |snapshot: &Snapshot<'_>| {
        let entries: Result<Vec<Entry>, Error> = snapshot.iter().collect();
        entries.expect("no damage")
    };
    if let Some((snapshot, then)) = before {
        assert!(entries(&snapshot) == then, "a snapshot was changed");
        return None;
    }
    let snapshot = kv.snapshot(Duration::MAX).expect("room");
    for worker in 0..2 * EACH {
        let parts = [0, 1, 2].map(|part| snapshot.get(&model::part(worker, part)));
        let parts = parts.map(|part| part.expect("no damage"));
        assert!(
            parts[0] == parts[1] && parts[1] == parts[2],
            "half of a batch"
        );
    }
    let then = entries(&snapshot);
    for (_, value) in then.iter().filter(|(key, _)| key != b"count") {
        assert!(model::number_of(value).is_some(), "no whole value");
    }
    Some((snapshot, then))
}

/// Another's value is whole, whatever it is.
fn look(kv: &dyn Store, key: &[u8], worker: Option<u64>) {
    if let Some(value) = kv.get(key).expect("no damage") {
        let of = model::number_of(&value).expect("a whole value").0;
        assert!(worker.is_none_or(|worker| worker == of), "another's value");
    }
}

fn step(kv: &dyn Store, worker: u64, nth: u64) -> Result<(), Error> {
    let value = value(worker, nth);
    match model::step(nth) {
        Step::Put(key) => kv.put(&model::own(worker, key), &value),
        Step::Delete(key) => kv.delete(&model::own(worker, key)).map(drop),
        Step::Shared(key) => kv.put(&model::shared(key), &value),
        Step::Batch => {
            let keys = [0, 1, 2].map(|part| model::part(worker, part));
            let changes = keys.each_ref().map(|key| Change::Put(key, &value));
            kv.batch(&changes)
        }
        Step::Count => count(kv),
    }
}

fn count(kv: &dyn Store) -> Result<(), Error> {
    loop {
        let old = kv.get(b"count")?;
        let expected = old.as_deref().map_or(Expect::Missing, Expect::Value);
        let count = old.as_deref().map_or(0, |text| {
            let text = std::str::from_utf8(text).expect("digits");
            text.parse::<u64>().expect("a number")
        });
        if kv.put_if(b"count", expected, (count + 1).to_string().as_bytes())? {
            return Ok(());
        }
    }
}

/// Prints the keys that are not as they were put.
fn read_all(kv: &dyn Store, worker: u64, keys: u64) {
    println!();
    for nth in 0..keys {
        match kv.get(format!("d{nth}").as_bytes()) {
            Ok(Some(found)) => assert!(found == value(worker, nth), "d{nth} is wrong"),
            Ok(None) => println!("missing {nth}"),
            Err(Error::Corrupt { .. }) => println!("damaged {nth}"),
            Err(error) => panic!("d{nth}: {error}"),
        }
    }
    println!("end");
}
