//! Goal: a value that a session has got stays as it was, whatever others do; room that a session
//! holds comes back with its end, with its process's, or with its time. Method: values that are
//! replaced and taken away under sessions, beside writers; the bytes that the engine has are
//! counted. This program is run again as readers that are stopped and killed with sessions open.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pmkv::{Error, Hash, Kind, Reader, Store};
use pmlib::{Heap, Options};

/// The work of a process that this program is run as: a limit in milliseconds, 0 for none, and a
/// path.
const ROLE: &str = "PMKV_SESSION_ROLE";
/// Bytes of values: such as share a chunk with many, with few, and with none.
const SIZES: [usize; 4] = [20, 1000, 9_000, 100_000];
const KINDS: [Kind; 2] = [Kind::Hash, Kind::Tree];
const LONG: Duration = Duration::MAX;

fn heap() -> Heap {
    let options = Options {
        max: 256 << 20,
        ..Options::default()
    };
    Heap::private(16 << 20, &options).expect("a heap")
}

fn bytes_of(kv: &dyn Store) -> u64 {
    kv.stats().expect("stats").record_bytes
}

/// Puts a key so often anew, and takes it away at the end.
fn replace(kv: &dyn Store, key: &[u8], len: usize, times: u64) {
    for nth in 0..times {
        kv.put(key, &vec![nth as u8; len]).expect("room");
    }
    assert!(kv.delete(key).expect("no damage"));
}

fn copy(reader: &Reader<'_>, key: &[u8]) -> Option<Vec<u8>> {
    let value = reader.get(key).expect("no damage")?;
    Some(value.to_vec().expect("open"))
}

#[test]
fn a_value_stays_while_its_session_is_open() {
    for kind in KINDS {
        for len in SIZES {
            let heap = heap();
            let kv = kind.open(&heap, "kv").expect("an engine");
            for key in 0..20u8 {
                kv.put(&[key], &vec![key; len]).expect("room");
            }
            let reader = kv.reader(LONG).expect("a session");
            let values: Vec<_> = (0..20u8)
                .map(|key| reader.get(&[key]).expect("whole").expect("there"))
                .collect();
            for key in 0..20u8 {
                replace(&*kv, &[key], len, 20);
            }
            kv.compact().expect("room");
            replace(&*kv, b"other", len, 20);
            for (key, value) in values.iter().enumerate() {
                assert_eq!(value.len(), len as u64);
                assert_eq!(
                    value.to_vec().expect("open"),
                    vec![key as u8; len],
                    "{kind} {len}"
                );
                let mut pieces = Vec::new();
                let more = |piece: &[u8]| pieces.extend_from_slice(piece);
                value.pieces(more).expect("open");
                assert_eq!(pieces, vec![key as u8; len]);
            }
            assert_eq!(copy(&reader, &[3]), None, "it sees what is there by now");
            assert!(reader.is_open());
        }
    }
}

#[test]
fn room_comes_back_with_the_end_of_a_session() {
    for kind in KINDS {
        for len in SIZES {
            let heap = heap();
            let kv = kind.open(&heap, "kv").expect("an engine");
            let times = (4 << 20) / len as u64 / 4;
            kv.put(b"kept", &vec![1; len]).expect("room");
            replace(&*kv, b"key", len, times);
            let before = bytes_of(&*kv);
            let reader = kv.reader(LONG).expect("a session");
            replace(&*kv, b"key", len, times);
            let held = bytes_of(&*kv);
            assert!(held > before + (512 << 10), "{kind} {len}: {before} {held}");
            drop(reader);
            for _ in 0..4 {
                replace(&*kv, b"key", len, times);
            }
            let after = bytes_of(&*kv);
            // Runs of single records are given back eight at a time.
            let put_off = if len > 64 << 10 { 8 * (128 << 10) } else { 0 };
            assert!(
                after <= held + (128 << 10) + put_off,
                "{kind} {len}: {held} {after}"
            );
            kv.compact().expect("room");
            assert!(
                bytes_of(&*kv) <= 3 << 16,
                "{kind} {len}: {}",
                bytes_of(&*kv)
            );
        }
    }
}

/// Goal: sessions that follow each other without a pause, of several threads, hold little. Method:
/// each is renewed while a key is replaced.
#[test]
fn sessions_that_are_renewed_hold_little() {
    let heap = heap();
    let kv = Hash::open(&heap, "kv").expect("an engine");
    kv.put(b"kept", &[1; 1000]).expect("room");
    let mut readers: Vec<Reader<'_>> = (0..3).map(|_| kv.reader_for(LONG).expect("one")).collect();
    let mut most = 0;
    for round in 0..300 {
        replace(&kv, b"key", 1000, 50);
        readers[round % 3].renew().expect("a session");
        assert_eq!(copy(&readers[round % 3], b"kept"), Some(vec![1; 1000]));
        most = most.max(bytes_of(&kv));
    }
    // Three sessions, each two eras, of 50 KiB a round.
    assert!(most < 4 << 20, "{most}");
}

/// Goal: a session has its time, and then is ended by who wants room; others go on. Method: one of
/// no time beside one without an end, and later one of the same era's parity.
#[test]
fn a_session_is_ended_when_its_time_is_over() {
    for len in [1000, 100_000] {
        let heap = heap();
        let kv = Hash::open(&heap, "kv").expect("an engine");
        kv.put(b"ada", &vec![7; len]).expect("room");
        let mut short = kv.reader_for(Duration::from_millis(2)).expect("a session");
        let value = short.get(b"ada").expect("whole").expect("there");
        assert_eq!(value.to_vec().expect("open"), vec![7; len]);
        let begun = Instant::now();
        while short.is_open() {
            replace(&kv, b"ada", len, 100);
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it is never ended"
            );
        }
        assert!(matches!(value.to_vec(), Err(Error::Ended)));
        assert!(matches!(value.pieces(|_| {}), Err(Error::Ended)));
        assert!(matches!(short.get(b"ada"), Err(Error::Ended)));
        kv.put(b"ada", b"1815").expect("room");
        // Others of this process come while the ended one is there still.
        let others: Vec<Reader<'_>> = (0..4).map(|_| kv.reader_for(LONG).expect("one")).collect();
        assert!(!short.is_open());
        assert!(others.iter().all(Reader::is_open));
        short.renew().expect("a session");
        assert_eq!(copy(&short, b"ada"), Some(b"1815".to_vec()));
        drop(short);
        assert!(others.iter().all(Reader::is_open));
        assert_eq!(copy(&others[3], b"ada"), Some(b"1815".to_vec()));
    }
}

/// Goal: a session's value is never another one's. Method: threads read in sessions, long ones and
/// short ones, while others replace values; each value is made of one byte.
#[test]
fn no_session_sees_a_place_used_again() {
    for kind in KINDS {
        let heap = heap();
        let kv = kind.open(&heap, "kv").expect("an engine");
        for key in 0..8u8 {
            kv.put(&[key], &[key; 300]).expect("room");
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for limit in [LONG, Duration::ZERO] {
                let (kv, is_over) = (&*kv, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        look_for_a_while(kv, limit);
                    }
                });
            }
            for nth in 0..40_000u64 {
                let value = [nth as u8; 300];
                kv.put(&[(nth % 8) as u8], &value).expect("room");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

fn look_for_a_while(kv: &dyn Store, limit: Duration) {
    let reader = kv.reader(limit).expect("a session");
    let mut values = Vec::new();
    for key in 0..8u8 {
        match reader.get(&[key]) {
            Ok(value) => values.push(value.expect("there")),
            Err(Error::Ended) if limit == Duration::ZERO => return,
            Err(error) => panic!("{error}"),
        }
    }
    for _ in 0..20 {
        for value in &values {
            match value.to_vec() {
                Ok(bytes) => assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{bytes:?}"),
                Err(Error::Ended) if limit == Duration::ZERO => return,
                Err(error) => panic!("{error}"),
            }
        }
        std::thread::yield_now();
    }
}

/// Goal: what was freed before anybody knew a chunk's places is held as well. Method: a heap is
/// opened again, and its keys go while a session has them.
#[test]
fn places_of_a_former_run_are_held() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let made = Heap::create(&path, 16 << 20, &Options::default()).expect("a heap");
    let kv = Hash::open(&made, "kv").expect("an engine");
    for key in 0..100u8 {
        kv.put(&[key], &[key; 500]).expect("room");
    }
    kv.put(b"large", &[9; 100_000]).expect("room");
    drop(kv);
    made.close().expect("left");
    let heap = Heap::open(&path, &Options::default()).expect("the heap");
    let kv = Hash::open(&heap, "kv").expect("an engine");
    let reader = kv.reader_for(LONG).expect("a session");
    let mut values = Vec::new();
    for key in 0..100u8 {
        values.push((reader.get(&[key]).expect("whole").expect("there"), key));
        assert!(kv.delete(&[key]).expect("whole"));
    }
    let large = reader.get(b"large").expect("whole").expect("there");
    assert!(kv.delete(b"large").expect("whole"));
    for nth in 0..1000u64 {
        kv.put(&nth.to_le_bytes(), &[0xee; 500]).expect("room");
    }
    kv.put(b"other", &[0xee; 100_000]).expect("room");
    for (value, key) in values {
        assert_eq!(value.to_vec().expect("open"), [key; 500]);
    }
    assert_eq!(large.to_vec().expect("open"), [9; 100_000]);
    drop(reader);
    assert_eq!(kv.clear().expect("whole"), 1001);
    kv.compact().expect("room");
    assert_eq!(bytes_of(&kv), 0);
    drop(kv);
    heap.close().expect("left");
}

/// No test: the reader that tests below run.
#[test]
fn as_another_process() {
    let Ok(work) = std::env::var(ROLE) else {
        return;
    };
    let (limit, path) = work.split_once(' ').expect("two words");
    let limit = match limit.parse().expect("a number") {
        0 => LONG,
        limit => Duration::from_millis(limit),
    };
    let heap = Heap::open(Path::new(path), &Options::default()).expect("the heap");
    let kv = Hash::open(&heap, "kv").expect("the engine");
    let reader = kv.reader_for(limit).expect("a session");
    let value = reader.get(b"key").expect("whole").expect("there");
    println!("\nit reads");
    while let Ok(value) = value.to_vec() {
        assert_eq!(value, [7; 9_000]);
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("\nit was ended");
    assert!(matches!(reader.get(b"key"), Err(Error::Ended)));
}

struct Another {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Another {
    fn start(path: &Path, limit: u64) -> Another {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "as_another_process", "--nocapture"])
            .env(ROLE, format!("{limit} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut another = Another { child, lines };
        another.wait_for("it reads");
        another
    }

    fn wait_for(&mut self, text: &str) {
        let found = self.lines.by_ref().any(|line| line.expect("text") == text);
        assert!(found, "it ended before {text:?}");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("it runs").success());
    }
}

impl Drop for Another {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_reader(limit: u64, body: impl FnOnce(&Hash<'_>, &mut Another)) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let options = Options {
        max: 64 << 20,
        ..Options::default()
    };
    let heap = Heap::create(&path, 16 << 20, &options).expect("a heap");
    let kv = Hash::open(&heap, "kv").expect("an engine");
    kv.put(b"key", &[7; 9_000]).expect("room");
    let mut another = Another::start(&path, limit);
    body(&kv, &mut another);
    drop(another);
    drop(kv);
    heap.close().expect("left");
}

/// Replaces the key until the engine has what it needs for that alone. Meanwhile the heap may be
/// full of what is held.
fn needs_no_more(kv: &Hash<'_>) {
    let begun = Instant::now();
    loop {
        let before = bytes_of(kv);
        let replaced = (0..400).try_for_each(|nth| kv.put(b"key", &vec![nth as u8; 9_000]));
        match replaced {
            Ok(()) if bytes_of(kv) == before => break,
            Ok(()) => {}
            Err(Error::Held { .. }) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("{error}"),
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it is held for ever"
        );
    }
    assert!(kv.delete(b"key").expect("no damage"));
}

#[test]
fn a_killed_reader_holds_nothing() {
    with_reader(0, |kv, another| {
        let before = bytes_of(kv);
        replace(kv, b"key", 9_000, 200);
        assert!(bytes_of(kv) > before + (1 << 20), "its session holds it");
        another.child.kill().expect("it runs");
        another.child.wait().expect("it ran");
        needs_no_more(kv);
        kv.compact().expect("room");
        assert_eq!(bytes_of(kv), 0);
    });
}

#[test]
fn a_stopped_reader_holds_room_for_its_time() {
    with_reader(200, |kv, another| {
        another.signal("-STOP");
        needs_no_more(kv);
        another.signal("-CONT");
        another.wait_for("it was ended");
        assert!(another.child.wait().expect("it ran").success());
        kv.compact().expect("room");
        assert_eq!(bytes_of(kv), 0);
    });
}

/// Goal: a writer without room learns who holds it. Method: a session without an end, until the
/// heap is full.
#[test]
fn a_full_heap_tells_who_reads() {
    with_reader(0, |kv, another| {
        let full = loop {
            if let Err(error) = kv.put(b"key", &[8; 60_000]) {
                break error.to_string();
            }
        };
        let pid = another.child.id().to_string();
        assert!(full.contains("no room") && full.contains(&pid), "{full}");
        another.child.kill().expect("it runs");
        another.child.wait().expect("it ran");
        kv.put(b"key", &[8; 60_000]).expect("room");
    });
}
