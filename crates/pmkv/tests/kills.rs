//! Goal: a put that was acknowledged is there, whatever end its process meets. Method: this program
//! is run again as writers, two at once, which put numbered keys and print each after its put; they
//! are killed at random moments, and the heap is opened again. Every number that was printed is
//! there, and beyond it at most the one that was under way, in a hash engine and in a tree.
//! `PMKV_KILLS` has more rounds, `PMKV_KILLS_SEED` makes the choices again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pmkv::{Kind, Store};
use pmlib::{Heap, Options};

/// The work of a process that this program is run as: `writer path`.
const ROLE: &str = "PMKV_TEST_ROLE";
const WRITERS: u64 = 2;
/// Keys that writers put anew, in turn, so that puts go over old values as well.
const SHARED_KEYS: u64 = 50;

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn key(writer: u64, nth: u64) -> Vec<u8> {
    format!("writer {writer} key {nth}").into_bytes()
}

/// A value follows from its number alone; some have a run of chunks of their own.
fn value(writer: u64, nth: u64) -> Vec<u8> {
    let len = match nth % 97 {
        96 => 70_000,
        rest => rest * 13,
    };
    let word = (nth << 8 | writer).to_le_bytes();
    word.into_iter().cycle().take(8 + len as usize).collect()
}

/// Where the number is kept that a writer put last over an old value.
fn latest(writer: u64, nth: u64) -> Vec<u8> {
    format!("writer {writer} latest {}", nth % SHARED_KEYS).into_bytes()
}

/// The engine, of the kind that it was made with.
fn engine(heap: &Heap) -> Box<dyn Store + '_> {
    let kind = Kind::of_engine(heap, "kv").expect("the engine");
    let kind = kind.expect("it was made");
    kind.open(heap, "kv").expect("the engine")
}

/// Number `nth` puts a new key and an old one, and takes one away; answers whether that one was
/// there.
fn step(kv: &dyn Store, writer: u64, nth: u64) -> Result<bool, pmkv::Error> {
    kv.put(&key(writer, nth), &value(writer, nth))?;
    kv.put(&latest(writer, nth), &nth.to_le_bytes())?;
    gone_by(nth).map_or(Ok(true), |gone| kv.delete(&key(writer, gone)))
}

/// The key that number `nth` takes away.
fn gone_by(nth: u64) -> Option<u64> {
    nth.checked_sub(40).filter(|gone| gone % 2 == 1)
}

/// No test: the processes that the test below runs.
#[test]
fn as_another_process() {
    let Ok(work) = std::env::var(ROLE) else {
        return;
    };
    let (writer, path) = work.split_once(' ').expect("two words");
    let writer = writer.parse().expect("a number");
    let heap = Heap::open(Path::new(path), &Options::default()).expect("the heap");
    let kv = engine(&heap);
    let mut next = 0u64;
    while kv.get(&key(writer, next)).expect("a key").is_some() || was_taken(&*kv, writer, next) {
        next += 1;
    }
    // The number under way at the kill is done again, wholly; its old key may be gone already.
    let first = next.saturating_sub(1);
    let mut nth = first;
    let mut out = std::io::stdout();
    loop {
        let was_there = step(&*kv, writer, nth).expect("room");
        assert!(was_there || nth == first, "{writer}: {nth}");
        // One write a number: a kill cuts it off, or does not.
        out.write_all(format!("put {nth}\n").as_bytes())
            .expect("a reader");
        nth += 1;
    }
}

/// Whether the key of a number that was put is gone by a later one.
fn was_taken(kv: &dyn Store, writer: u64, nth: u64) -> bool {
    nth % 2 == 1 && kv.get(&key(writer, nth + 1)).expect("a key").is_some()
}

struct Writer {
    child: Child,
    lines: BufReader<ChildStdout>,
    acknowledged: Option<u64>,
}

impl Writer {
    fn start(path: &Path, writer: u64) -> Writer {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "as_another_process", "--nocapture"])
            .env(ROLE, format!("{writer} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let stdout = child.stdout.take().expect("a pipe");
        Writer {
            child,
            lines: BufReader::new(stdout),
            acknowledged: None,
        }
    }

    /// Reads what it acknowledged; after its end, all of it.
    fn read(&mut self, until: impl Fn(u64) -> bool) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("a pipe") > 0 {
            let whole = line.ends_with('\n');
            // The harness's own words are before the first number, on its line.
            if whole && let Some((_, digits)) = line.trim_end().rsplit_once("put ") {
                let nth = digits.parse().expect("a number");
                self.acknowledged = Some(nth);
                if until(nth) {
                    return;
                }
            }
            line.clear();
        }
    }

    fn kill(mut self) -> Option<u64> {
        self.child.kill().expect("it runs");
        let status = self.child.wait().expect("it ran");
        self.read(|_| false);
        assert!(status.code().is_none(), "it ended by itself: {status}");
        self.acknowledged
    }
}

/// All that a writer acknowledged up to a number is there as it was put.
fn verify(kv: &dyn Store, writer: u64, acknowledged: u64, round: u64) {
    let get = |key: &[u8]| kv.get(key).expect("no damage");
    let gone_up_to = acknowledged.saturating_sub(40);
    for nth in 0..=acknowledged {
        let found = get(&key(writer, nth));
        let is_gone = nth % 2 == 1 && nth <= gone_up_to && acknowledged >= 40;
        let may_be_gone = nth % 2 == 1 && nth == gone_up_to + 1;
        match found {
            Some(found) => {
                assert!(!is_gone, "round {round}, writer {writer}: {nth} came back");
                assert!(found == value(writer, nth), "round {round}: {writer} {nth}");
            }
            None => assert!(
                is_gone || may_be_gone,
                "round {round}, writer {writer}: {nth} of {acknowledged} is lost"
            ),
        }
    }
    for nth in (acknowledged + 1).saturating_sub(SHARED_KEYS)..=acknowledged {
        let found = get(&latest(writer, nth)).expect("an old key");
        let found = u64::from_le_bytes(found.try_into().expect("a number"));
        // The one under way may have been put already.
        let is_next = found == acknowledged + 1 && found % SHARED_KEYS == nth % SHARED_KEYS;
        assert!(found == nth || is_next, "round {round}: {found} for {nth}");
    }
    // Nothing is there that was never begun.
    assert_eq!(get(&key(writer, acknowledged + 2)), None, "round {round}");
}

#[test]
fn what_a_hash_acknowledged_outlives_kills() {
    what_was_acknowledged_outlives_kills(Kind::Hash);
}

#[test]
fn what_a_tree_acknowledged_outlives_kills() {
    what_was_acknowledged_outlives_kills(Kind::Tree);
}

fn what_was_acknowledged_outlives_kills(kind: Kind) {
    let rounds = number("PMKV_KILLS", 30);
    let seed = number("PMKV_KILLS_SEED", u64::from(std::process::id()) * 77 + 1);
    println!("PMKV_KILLS_SEED={seed}");
    let mut random = Random(seed.max(1));
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let made = Heap::create(&path, 16 << 20, &Options::default()).expect("a heap");
    drop(kind.open(&made, "kv").expect("the engine"));
    made.close().expect("left");
    let mut acknowledged = [None; WRITERS as usize];
    let begun = Instant::now();
    for round in 0..rounds {
        let mut writers: Vec<Writer> = (0..WRITERS).map(|nth| Writer::start(&path, nth)).collect();
        // Sometimes before its first put, sometimes at once after it.
        if random.below(8) > 0 {
            writers[0].read(|_| true);
        }
        std::thread::sleep(Duration::from_micros(random.below(8_000)));
        for (nth, writer) in writers.into_iter().enumerate() {
            let last = writer.kill();
            acknowledged[nth] = acknowledged[nth].max(last);
            // The other one goes on for a while over what the killed one left.
            std::thread::sleep(Duration::from_micros(random.below(2_000)));
        }
        let heap = Heap::open(&path, &Options::default()).expect("the heap");
        let kv = engine(&heap);
        for (writer, last) in acknowledged.iter().enumerate() {
            if let Some(last) = last {
                verify(&*kv, writer as u64, *last, round);
            }
        }
        assert!(kv.entries().all(|entry| entry.is_ok()), "round {round}");
        drop(kv);
        heap.check().expect("no byte is lost");
        heap.close().expect("left");
    }
    let total: u64 = acknowledged.iter().flatten().sum();
    println!(
        "{rounds} rounds, {total} numbers, {} s",
        begun.elapsed().as_secs()
    );
    assert!(total > rounds, "{acknowledged:?}");
}
