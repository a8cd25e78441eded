//! Goal: a process that may only read sees what is committed and nothing else, disturbs nobody, and
//! ends with an answer whatever the others do. Method: this program is run again as those others,
//! which commit at full speed, leave, come back, are killed, and make the heap longer.

use pmlib::containers::{PLog, PQueue};
use pmlib::{Error, Heap, Options, P, State, is_heap};
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The work of a process that this program is run as, and where: `role path`.
const ROLE: &str = "PMLIB_TEST_READERS";
const SUM: u64 = 1000;

type Pair = [P<u64>; 2];

fn options() -> Options {
    Options {
        lanes: 2,
        lane_bytes: 4096,
        ..Options::default()
    }
}

fn child(role: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "as_another_process", "--nocapture"])
        .env(ROLE, format!("{role} {}", path.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs")
}

fn end(child: &mut Child) {
    child.kill().expect("it is there");
    child.wait().expect("it was there");
}

/// No test: the processes that the tests below run.
#[test]
fn as_another_process() {
    let Ok(work) = std::env::var(ROLE) else {
        return;
    };
    let (role, path) = work.split_once(' ').expect("two words");
    let path = PathBuf::from(path);
    match role {
        "transfer" => loop {
            let heap = Heap::open(&path, &options()).expect("the heap");
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(3) {
                transfer(&heap);
            }
            heap.close().expect("left");
        },
        "stay" => {
            let heap = Heap::open(&path, &options()).expect("the heap");
            loop {
                transfer(&heap);
            }
        }
        role => panic!("{role}"),
    }
}

/// Some units go from one of two objects to the other one, which changes place.
fn transfer(heap: &Heap) {
    static TRANSFERS: AtomicU64 = AtomicU64::new(0);
    let units = TRANSFERS.fetch_add(1, Ordering::Relaxed) % 97;
    let pair = heap.root::<Pair>("pair").expect("the pair");
    heap.tx(|tx| {
        let [from, to] = tx.read(pair)?;
        let (less, more) = (tx.read(from)?, tx.read(to)?);
        tx.free(from)?;
        let from = tx.new(less.wrapping_sub(units))?;
        *tx.edit(to)? = more.wrapping_add(units);
        *tx.edit(pair)? = [to, from];
        Ok::<_, Error>(())
    })
    .expect("a transfer");
}

/// A heap in memory with the pair in it.
fn made(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 1 << 20, &options()).expect("a heap");
    let pair = heap.root::<Pair>("pair").expect("a root");
    heap.tx(|tx| {
        // In two chunks.
        let one = tx.new(SUM)?;
        let other = tx.new([0u64; 9])?;
        *tx.edit(pair)? = [one, tx.new(0)?];
        tx.free(other)
    })
    .expect("the objects");
    heap.close().expect("left");
    path
}

fn place<T>(p: P<T>) -> u64 {
    p.get().map_or(0, |place| place.0)
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory")
}

fn reader(path: &Path) -> Result<Heap, Error> {
    Heap::open(path, &Options::read_only())
}

/// The sum of the pair, in one view.
fn sum(heap: &Heap) -> Result<u64, Error> {
    let pair = heap.root::<Pair>("pair")?;
    heap.view(|view| {
        let [one, other] = view.read(pair)?;
        Ok(view.read(one)?.wrapping_add(view.read(other)?))
    })
}

/// Goal: what is read is of one moment, also over the end of a run. Method: a process transfers,
/// leaves and comes back, a few hundred times; another one only stays.
#[test]
fn a_view_is_of_one_moment_while_others_write() {
    for role in ["stay", "transfer"] {
        let dir = dir();
        let path = made(&dir);
        let heap = reader(&path).unwrap();
        assert_eq!(sum(&heap).unwrap(), SUM);
        let mut child = child(role, &path);
        let pair = heap.root::<Pair>("pair").unwrap();
        let (mut values, mut views) = (std::collections::BTreeSet::new(), 0);
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(2) {
            let seen = sum(&heap);
            assert_eq!(seen.expect(role), SUM, "{role}");
            let first = heap.view(|view| view.read(view.read(pair)?[0]));
            values.insert(first.expect(role));
            views += 1;
        }
        assert!(child.try_wait().unwrap().is_none(), "the other goes on");
        end(&mut child);
        println!("{role}: {views} views, {} values", values.len());
        assert!(values.len() > 10, "others' commits are seen");
    }
}

/// Goal: a heap that a killed process has left is refused until somebody has recovered it, and then
/// read on. Method: a process that transfers is killed, forty times.
#[test]
fn what_the_killed_leave_is_refused_until_it_is_recovered() {
    let dir = dir();
    let path = made(&dir);
    let heap = reader(&path).unwrap();
    for round in 0..40 {
        let mut child = child("stay", &path);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(20 + round) {
            assert_eq!(sum(&heap).expect("somebody has it"), SUM);
        }
        end(&mut child);
        // For a moment the process is taken for a user of the heap.
        std::thread::sleep(Duration::from_millis(20));
        let seen = sum(&heap);
        if !matches!(seen, Err(Error::NeedsRecovery { .. })) {
            // The process was killed before it attached.
            assert_eq!(seen.expect("the old run"), SUM);
        }
        Heap::open(&path, &options()).unwrap().close().unwrap();
        assert_eq!(sum(&heap).expect("recovered"), SUM);
    }
    let opened = reader(&path).expect("left clean");
    assert_eq!(sum(&opened).unwrap(), SUM);
    drop(Heap::open(&path, &options()).unwrap().into_memory());
    let refused = reader(&path).err();
    assert!(
        matches!(refused, Some(Error::NeedsRecovery { .. })),
        "{refused:?}"
    );
}

/// Where the word is that tells of changes of a chunk.
fn sequence_of(path: &Path, object: u64) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let mem = pmem::Pmem::private(bytes.len() as u64);
    mem.write_nt(0, &bytes).unwrap();
    let chunks = bytes.len() as u64 >> 16;
    Heap::volatile(&mem).end - (chunks - (object >> 16)) * 64 + 24
}

/// Goal: nobody is waited for who never comes. Method: a chunk is marked as being changed while no
/// process has it, or one that has nothing to do with it.
#[test]
fn a_commit_that_broke_off_is_no_endless_wait() {
    for with_member in [true, false] {
        let dir = dir();
        let path = made(&dir);
        let member = Heap::open(&path, &options()).unwrap();
        let heap = reader(&path).unwrap();
        let pair = heap.root::<Pair>("pair").unwrap();
        let [one, _] = heap.read(pair).unwrap();
        let at = sequence_of(&path, place(one));
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&1u64.to_le_bytes(), at).unwrap();
        let member = match with_member {
            true => Some(member),
            false => {
                drop(member.into_memory());
                None
            }
        };
        let since = Instant::now();
        let seen = sum(&heap);
        assert!(
            matches!(seen, Err(Error::NeedsRecovery { .. })),
            "{with_member}: {seen:?}"
        );
        assert!(since.elapsed() < Duration::from_secs(60));
        if let Some(member) = member {
            file.write_all_at(&2u64.to_le_bytes(), at).unwrap();
            assert_eq!(sum(&heap).unwrap(), SUM);
            drop(member);
        }
    }
}

/// Goal: nothing is stored, locked or taken. Method: the file's bytes before and after, the
/// mapping's access, and a process that finds itself alone.
#[test]
fn a_reader_leaves_no_trace() {
    let dir = dir();
    let path = made(&dir);
    let before = std::fs::read(&path).unwrap();
    let heap = reader(&path).unwrap();
    assert_eq!(sum(&heap).unwrap(), SUM);
    heap.check().unwrap();
    heap.stats().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.to_str().unwrap();
    let mapped: Vec<&str> = maps.lines().filter(|line| line.contains(name)).collect();
    assert!(!mapped.is_empty());
    assert!(mapped.iter().all(|line| line.contains(" r--s ")), "{maps}");
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    assert!(!locks.contains(&format!(":{inode} ")), "{locks}");
    // The last user beside the reader leaves the heap clean.
    Heap::open(&path, &options()).unwrap().close().unwrap();
    assert_eq!(sum(&heap).unwrap(), SUM);
    drop(heap);
    let heap = reader(&path).unwrap();
    heap.close().unwrap();
    let after = std::fs::read(&path).unwrap();
    // The run's number alone has changed, by the other one.
    let changed = (0..4096).filter(|&at| before[at] != after[at]);
    assert!(changed.into_iter().all(|at| (512..520).contains(&at)));
}

/// Goal: whatever would change the heap is refused.
#[test]
fn every_change_is_refused() {
    let dir = dir();
    let path = made(&dir);
    let writer = Heap::open(&path, &options()).unwrap();
    let log = writer.root::<PLog>("log").unwrap();
    let queue = writer.root::<PQueue<u64>>("queue").unwrap();
    writer.at(log).append(b"one").unwrap();
    writer.at(queue).push(1).unwrap();
    let heap = reader(&path).unwrap();
    let pair = heap.root::<Pair>("pair").unwrap();
    let refused = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::ReadOnly)), "{result:?}");
    };
    refused(heap.tx(|_| Ok(())));
    refused(heap.tx(|tx| tx.free(pair)));
    refused(heap.root::<u64>("missing").map(|_| ()));
    refused(heap.recover_dead().map(|_| ()));
    refused(heap.at(log).append(b"two").map(|_| ()));
    refused(heap.at(log).trim(0));
    refused(heap.at(log).clear());
    refused(heap.at(queue).push(2));
    refused(heap.at(queue).pop().map(|_| ()));
    let created = Heap::create(&dir.path().join("new"), 1 << 20, &Options::read_only());
    refused(created.map(|_| ()));
    assert!(!dir.path().join("new").exists());
}

/// Goal: records of logs are all seen, also those of which no mark tells. Method: a log is filled,
/// and the heap left; its mark says less, as power loss may leave it; it is looked at in the next
/// run, in which nobody has asked for the log, and while records are added.
#[test]
fn logs_are_read_without_their_marks() {
    let dir = dir();
    let path = made(&dir);
    let writer = Heap::open(&path, &options()).unwrap();
    let log = writer.root::<PLog>("log").unwrap();
    let append = |heap: &Heap, from: u64, to: u64| {
        for number in from..to {
            heap.at(log).append(&number.to_le_bytes()).unwrap();
        }
    };
    let all = |heap: &Heap| -> Vec<u64> {
        let records = heap.at(log).iter().map(|record| record.unwrap().1);
        records
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    };
    append(&writer, 0, 3);
    let mut head = [0; 16];
    writer.read_bytes(place(log), 0, &mut head).unwrap();
    let last = u64::from_le_bytes(head[8..].try_into().unwrap());
    let mut mark = [0; 8];
    writer.read_bytes(last, 16, &mut mark).unwrap();
    append(&writer, 3, 6);
    let heap = reader(&path).unwrap();
    assert_eq!(all(&heap), [0, 1, 2, 3, 4, 5]);
    writer.close().unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&mark, last + 16).unwrap();
    assert_eq!(all(&heap), [0, 1, 2, 3, 4, 5], "at rest");
    assert_eq!(heap.at(log).end().unwrap() % 24, 0);
    let writer = Heap::open(&path, &options()).unwrap();
    assert_eq!(all(&heap), [0, 1, 2, 3, 4, 5], "in a run without a mark");
    append(&writer, 6, 100);
    assert_eq!(all(&heap).len(), 100);
    std::thread::scope(|scope| {
        scope.spawn(|| append(&writer, 100, 2000));
        let mut seen = 100;
        while seen < 2000 {
            let now = all(&heap);
            assert!(now.iter().enumerate().all(|(at, &each)| each == at as u64));
            assert!(now.len() >= seen);
            seen = now.len();
        }
    });
}

/// Goal: records that are added while a reader copies a segment are not taken for damage: one may
/// be torn in the copy and the next one there. Method: records that take about as long to store as
/// a segment to copy, so that most looks come between; each look finds an end, and none before.
#[test]
fn a_log_that_becomes_longer_meanwhile_is_sound() {
    const KEPT: u64 = 1 << 20;
    let dir = dir();
    let path = dir.path().join("heap");
    let writer = Heap::create(&path, 8 << 20, &options()).unwrap();
    let log = writer.root::<PLog>("log").unwrap();
    writer.tx(|tx| tx.write(log, &PLog::ring(KEPT))).unwrap();
    writer.at(log).append(b"first").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let record = [7; 3000];
            while !is_over.load(Ordering::Relaxed) {
                writer.at(log).append(&record).unwrap();
            }
        });
        let looks = catch_unwind(|| {
            let heap = reader(&path).unwrap();
            let (since, mut seen, mut looks) = (Instant::now(), 0, 0u64);
            while since.elapsed() < Duration::from_secs(2) {
                let end = heap.at(log).end().unwrap();
                assert!(end >= seen);
                (seen, looks) = (end, looks + 1);
            }
            looks
        });
        is_over.store(true, Ordering::Relaxed);
        println!(
            "{} looks",
            looks.unwrap_or_else(|panic| resume_unwind(panic))
        );
    });
}

/// Goal: what others add to the heap's end is reached.
#[test]
fn growth_is_followed() {
    let dir = dir();
    let path = made(&dir);
    let heap = reader(&path).unwrap();
    let writer = Heap::open(&path, &options()).unwrap();
    let root = writer.root::<u64>("large").unwrap();
    let large = writer.tx(|tx| {
        let large = tx.alloc(4 << 20)?;
        tx.edit_bytes(large, (4 << 20) - 1, 1)?[0] = 7;
        *tx.edit(root)? = large;
        Ok::<_, Error>(large)
    });
    let large = large.unwrap();
    let mut byte = [0];
    assert_eq!(
        heap.read(heap.root::<u64>("large").unwrap()).unwrap(),
        large
    );
    heap.read_bytes(large, (4 << 20) - 1, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(heap.stats().unwrap(), writer.stats().unwrap());
    assert_eq!(heap.check().unwrap(), writer.check().unwrap());
}

/// Goal: a heap's state is told to anybody who may read its file.
#[test]
fn a_heaps_state_is_told() {
    let dir = dir();
    let path = made(&dir);
    let state = || State::of(&path).unwrap();
    assert!(is_heap(&path).unwrap());
    assert_eq!(state(), State::Clean);
    let heap = Heap::open(&path, &options()).unwrap();
    assert_eq!(state(), State::InUse);
    drop(heap.into_memory());
    assert_eq!(state(), State::NeedsRecovery);
    let other = dir.path().join("other");
    for bytes in [&[7; 5][..], &[7; 9000]] {
        std::fs::write(&other, bytes).unwrap();
        assert!(!is_heap(&other).unwrap());
        assert!(State::of(&other).is_err());
    }
}
