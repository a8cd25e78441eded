//! Goal: a snapshot is an engine, or several, as they were at one instant, whatever others do
//! later. Method: random calls beside the standard library's maps, with several snapshots open;
//! threads whose changes follow each other; damage; room that is counted; and this program run
//! again as a process that is killed with a snapshot open.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pmkv::{Change, Error, Expiry, Hash, Kind, Shape, Snapshot, Store, Tree, TreeShape};
use pmlib::{Heap, Options};

/// The path of a heap, for a process that this program is run as.
const ROLE: &str = "PMKV_SNAPSHOT_ROLE";
const KINDS: [Kind; 2] = [Kind::Hash, Kind::Tree];
const LONG: Duration = Duration::MAX;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn heap() -> Heap {
    let options = Options {
        seed: 7,
        max: 512 << 20,
        ..Options::default()
    };
    Heap::private(16 << 20, &options).expect("a heap")
}

/// A generator of numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Whether a snapshot has what a map has, by walks from both ends, by looks, and by ranges.
fn compare(snapshot: &Snapshot<'_>, map: &Map, chance: &mut Chance) {
    assert_eq!(snapshot.count().expect("open"), map.len() as u64);
    let walked: Result<Vec<_>, _> = snapshot.iter().collect();
    let mut walked = walked.expect("whole");
    let back: Result<Vec<_>, _> = snapshot.iter().rev().collect();
    let mut back = back.expect("whole");
    if snapshot.is_sorted() {
        back.reverse();
    } else {
        walked.sort();
        back.sort();
    }
    let there: Vec<_> = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(walked, there);
    assert_eq!(back, there);
    for _ in 0..50 {
        let key = key_of(chance);
        assert_eq!(snapshot.get(&key).expect("whole"), map.get(&key).cloned());
        let value = snapshot.get_ref(&key).expect("whole");
        let value = value.map(|value| value.to_vec().expect("open"));
        assert_eq!(value, map.get(&key).cloned());
    }
    let (mut from, mut to) = (key_of(chance), key_of(chance));
    if from > to {
        std::mem::swap(&mut from, &mut to);
    }
    let part: Result<Vec<_>, _> = snapshot.range(from.clone()..to.clone()).collect();
    let mut part = part.expect("whole");
    part.sort();
    let expected = map.range(from..to);
    let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(part, expected);
}

fn key_of(chance: &mut Chance) -> Vec<u8> {
    let number = chance.below(600);
    let mut key = number.to_string().into_bytes();
    // Some are long, some are the beginnings of others.
    if number.is_multiple_of(7) {
        key.resize(40 + number as usize % 300, b'x');
    }
    key
}

fn value_of(chance: &mut Chance) -> Vec<u8> {
    let len = match chance.below(40) {
        0 => 70_000,
        1..4 => 5_000,
        _ => chance.below(200) as usize,
    };
    vec![chance.below(256) as u8; len]
}

fn change(kv: &dyn Store, map: &mut Map, chance: &mut Chance) {
    match chance.below(10) {
        0..6 => {
            let (key, value) = (key_of(chance), value_of(chance));
            kv.put(&key, &value).expect("room");
            map.insert(key, value);
        }
        6..9 => {
            let key = key_of(chance);
            assert_eq!(kv.delete(&key).expect("whole"), map.remove(&key).is_some());
        }
        _ => {
            let puts: Vec<_> = (0..chance.below(20))
                .map(|_| (key_of(chance), value_of(chance)))
                .collect();
            let gone: Vec<_> = (0..chance.below(10)).map(|_| key_of(chance)).collect();
            let changes = puts.iter().map(|(key, value)| Change::Put(key, value));
            let changes = changes.chain(gone.iter().map(|key| Change::Delete(key)));
            kv.batch(&changes.collect::<Vec<_>>()).expect("room");
            map.extend(puts);
            for key in gone {
                map.remove(&key);
            }
        }
    }
}

/// Goal: snapshots stay as they were. Method: up to four are open at once beside random calls, each
/// with a copy of the model. `PMKV_MODEL_OPS` and `PMKV_MODEL_SEED` as in `hash.rs`.
fn model(kv: &dyn Store, chance: &mut Chance) {
    let (mut map, mut open) = (Map::new(), Vec::new());
    for nth in 0..number("PMKV_MODEL_OPS", 6_000) {
        change(kv, &mut map, chance);
        match chance.below(120) {
            0 if open.len() < 4 => {
                let limit = if chance.below(2) == 0 {
                    LONG
                } else {
                    60 * LIMIT
                };
                open.push((kv.snapshot(limit).expect("room"), map.clone()));
            }
            1 if !open.is_empty() => {
                let (snapshot, then) = &open[chance.below(open.len() as u64) as usize];
                compare(snapshot, then, chance);
            }
            2 | 3 if !open.is_empty() => {
                let (snapshot, then) = open.swap_remove(chance.below(open.len() as u64) as usize);
                compare(&snapshot, &then, chance);
            }
            4 => drop(kv.compact().expect("room")),
            5 if nth.is_multiple_of(9) => {
                kv.clear().expect("whole");
                map.clear();
            }
            _ => {}
        }
    }
    for (snapshot, then) in open {
        compare(&snapshot, &then, chance);
    }
    compare(&kv.snapshot(LONG).expect("room"), &map, chance);
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn snapshots_stay_as_they_were() {
    let small = Shape {
        groups: 1,
        lines: 2,
        stash: 1,
        places_log2: 3,
    };
    let leaves = TreeShape {
        groups: 2,
        leaves: 2,
        lines: 2,
        places_log2: 3,
    };
    let mut chance = Chance(number("PMKV_MODEL_SEED", 7));
    for shape in [small, Shape::default()] {
        let heap = heap();
        model(
            &Hash::open_as(&heap, "kv", shape).expect("an engine"),
            &mut chance,
        );
        heap.check().expect("whole");
    }
    for shape in [leaves, TreeShape::default()] {
        let heap = heap();
        model(
            &Tree::open_as(&heap, "kv", shape).expect("an engine"),
            &mut chance,
        );
        heap.check().expect("whole");
    }
}

/// Goal: what several engines have in a snapshot was there at once. Method: each writer puts a
/// number into a hash, then into a tree, then both by a batch of two keys: a snapshot that has a
/// later change has every earlier one.
#[test]
fn engines_are_of_one_instant() {
    let heap = heap();
    let hash = Hash::open(&heap, "hash").expect("an engine");
    let tree = Tree::open(&heap, "tree").expect("an engine");
    for nth in 0..20_000u64 {
        hash.put(&nth.to_le_bytes(), b"others").expect("room");
        tree.put(&nth.to_be_bytes(), b"others").expect("room");
    }
    let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |writer: u8| {
        for nth in 0u64.. {
            let bytes = nth.to_le_bytes();
            hash.put(&[b'a', writer], &bytes).expect("room");
            tree.put(&[b'b', writer], &bytes).expect("room");
            let [one, two] = [[b'c', writer], [b'd', writer]];
            let both = [Change::Put(&one, &bytes), Change::Put(&two, &bytes)];
            hash.batch(&both).expect("room");
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    let get = |snapshot: &Snapshot<'_>, key: [u8; 2]| {
        let value = snapshot.get(&key).expect("whole");
        value.map_or(0, |bytes| {
            1 + u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
        })
    };
    std::thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || write(writer));
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let both = Snapshot::of(&[&tree, &hash], LIMIT).expect("room");
            for writer in 0..2 {
                let (a, b) = (get(&both[1], [b'a', writer]), get(&both[0], [b'b', writer]));
                let [c, d] = [b'c', b'd'].map(|key| get(&both[1], [key, writer]));
                assert_eq!(c, d, "half of a batch");
                assert!(a >= b && b >= c && a <= c + 1, "{a} {b} {c}");
            }
            taken.fetch_add(1, Ordering::Relaxed);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(taken.load(Ordering::Relaxed) > 20, "{taken:?}");
}

#[test]
fn a_key_expires_as_of_the_snapshot() {
    static NOW: AtomicU64 = AtomicU64::new(1_000);
    let clock = || NOW.load(Ordering::Relaxed);
    let heap = heap();
    let kv = Hash::open(&heap, "kv")
        .expect("an engine")
        .with_clock(clock);
    kv.put_until(b"early", b"1", 900).expect("room");
    kv.put_until(b"late", b"2", 2_000).expect("room");
    kv.put(b"ever", b"3").expect("room");
    let snapshot = kv.snapshot().expect("room");
    NOW.store(3_000, Ordering::Relaxed);
    assert_eq!(kv.purge_expired().expect("whole"), 2);
    assert_eq!(snapshot.taken_at(), 1_000);
    assert_eq!(snapshot.get(b"early").expect("whole"), None);
    assert_eq!(snapshot.get(b"late").expect("whole"), Some(b"2".to_vec()));
    let mut value = Vec::new();
    let expiry = snapshot.get_expiring(b"late", &mut value).expect("whole");
    assert_eq!(expiry, Some(Expiry::At(2_000)));
    assert_eq!(snapshot.count().expect("whole"), 2);
    assert_eq!(snapshot.iter().count(), 2);
    assert_eq!(kv.count().expect("whole"), 1);
}

#[test]
fn a_damaged_record_is_an_error_of_its_key() {
    for kind in KINDS {
        let heap = heap();
        let kv = kind.open(&heap, "kv").expect("an engine");
        for nth in 0..1000u64 {
            kv.put(&nth.to_le_bytes(), &[nth as u8; 100]).expect("room");
        }
        let snapshot = kv.snapshot(LONG).expect("room");
        let value = snapshot.get_ref(&77u64.to_le_bytes()).expect("whole");
        let at = value.expect("there").as_ptr().addr();
        let start = heap.ground().mem().address(0, 8).addr();
        let (mem, at) = (heap.ground().mem(), (at - start) as u64 / 8 * 8);
        {
            let _window = mem.window();
            mem.store(at, mem.load(at) ^ 1 << 40);
        }
        for nth in 0..1000u64 {
            let found = snapshot.get(&nth.to_le_bytes());
            match nth {
                77 => assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}"),
                _ => assert_eq!(found.expect("whole"), Some(vec![nth as u8; 100])),
            }
        }
        let (mut whole, mut damaged) = (0, 0);
        for entry in snapshot.iter() {
            match entry {
                Ok(_) => whole += 1,
                Err(Error::Corrupt { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((whole, damaged), (999, 1), "{kind}");
    }
}

#[test]
fn engines_that_are_apart_are_told() {
    let (one, two) = (heap(), heap());
    let [first, second] = [&one, &two].map(|heap| Hash::open(heap, "kv").expect("an engine"));
    let again = Hash::open(&one, "kv").expect("an engine");
    let apart = Snapshot::of(&[&first, &second], LONG);
    assert!(matches!(apart, Err(Error::Apart)));
    assert!(matches!(
        Snapshot::of(&[&first, &again], LONG),
        Err(Error::Apart)
    ));
    assert!(Snapshot::of(&[], LONG).expect("none").is_empty());
    let nested = one.tx(|_| first.snapshot().map(drop));
    assert!(matches!(nested, Err(Error::Heap(pmlib::Error::Nested))));
}

fn bytes_of(kv: &dyn Store) -> u64 {
    kv.stats().expect("stats").record_bytes
}

/// Replaces the key until the engine needs no more for that.
fn needs_no_more(kv: &dyn Store) {
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
        assert!(begun.elapsed() < LIMIT, "it is held for ever");
    }
}

/// Goal: a snapshot holds what it needs, until its end or its time is over; then it says so, and
/// shows nothing that was put later. Method: a key is replaced under it.
#[test]
fn a_snapshot_holds_room_for_its_time() {
    for kind in KINDS {
        let heap = heap();
        let kv = kind.open(&heap, "kv").expect("an engine");
        kv.put(b"key", &[7; 9_000]).expect("room");
        let before = bytes_of(&*kv);
        let snapshot = kv.snapshot(Duration::from_millis(50)).expect("room");
        for nth in 0..200 {
            kv.put(b"key", &[nth; 9_000]).expect("room");
            match snapshot.get(b"key") {
                Ok(value) => assert_eq!(value, Some(vec![7; 9_000])),
                Err(error) => assert!(matches!(error, Error::Ended), "{error}"),
            }
        }
        assert!(bytes_of(&*kv) > before + (512 << 10), "{kind}");
        std::thread::sleep(Duration::from_millis(60));
        needs_no_more(&*kv);
        assert!(matches!(snapshot.get(b"key"), Err(Error::Ended)));
        assert!(matches!(snapshot.count(), Err(Error::Ended)));
        let walked = snapshot.iter().next();
        assert!(matches!(walked, Some(Err(Error::Ended))));
        drop(snapshot);
        needs_no_more(&*kv);
    }
}

/// No test: the process that the next one runs.
#[test]
fn as_another_process() {
    let Ok(path) = std::env::var(ROLE) else {
        return;
    };
    let heap = Heap::open(Path::new(&path), &Options::default()).expect("the heap");
    let kv = Hash::open(&heap, "kv").expect("the engine");
    let snapshot = kv.snapshot().expect("room");
    println!("\nit has one");
    loop {
        let value = snapshot.get(b"key").expect("it is for ever");
        assert_eq!(value, Some(vec![7; 9_000]));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_process_holds_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let options = Options {
        max: 64 << 20,
        ..Options::default()
    };
    let heap = Heap::create(&path, 16 << 20, &options).expect("a heap");
    let kv = Hash::open(&heap, "kv").expect("an engine");
    kv.put(b"key", &[7; 9_000]).expect("room");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "as_another_process", "--nocapture"])
        .env(ROLE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let has_one = lines.map_while(Result::ok).any(|line| line == "it has one");
    assert!(has_one, "it ended early");
    let full = loop {
        if let Err(error) = kv.put(b"key", &[8; 9_000]) {
            break error.to_string();
        }
    };
    assert!(full.contains(&child.id().to_string()), "{full}");
    assert!(
        child.try_wait().expect("a child").is_none(),
        "it has seen another value"
    );
    child.kill().expect("it runs");
    child.wait().expect("it ran");
    needs_no_more(&kv);
    drop(kv);
    heap.close().expect("left");
}
