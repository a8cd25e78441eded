//! An engine that grows from nothing to many keys: how long puts take, what it needs of space, how
//! long snapshots take and keep a writer waiting, and how long an opening takes, after a clean end,
//! a kill, and a kill of the last process, which is recovered as after power loss.
//!
//! `scale PATH KEYS [hash|tree]`; the file is made, and removed. Times are of this machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pmkv::{Kind, Store};
use pmlib::{Heap, Options};

const KEY_BYTES: u64 = 16;
const VALUE_BYTES: u64 = 64;
/// Where a process is told to have the heap, and no more.
const HOLD: &str = "hold";

type Any = Box<dyn std::error::Error>;

/// Keys come in no order, each once.
fn key(nth: u64) -> [u8; KEY_BYTES as usize] {
    let mut key = [0; KEY_BYTES as usize];
    let mixed = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&nth.to_be_bytes());
    key
}

/// Durations, 16 parts to a doubling.
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

impl Histogram {
    fn new() -> Histogram {
        Histogram {
            counts: vec![0; 64 * 16],
            total: 0,
            most: 0,
        }
    }

    fn note(&mut self, ns: u64) {
        let log2 = u64::from(ns.max(16).ilog2());
        let part = (ns.max(16) >> (log2 - 4)) & 15;
        self.counts[(log2 * 16 + part) as usize] += 1;
        self.total += 1;
        self.most = self.most.max(ns);
    }

    /// So many of a million took no longer, ns.
    fn at(&self, millionths: u64) -> u64 {
        let wanted = self.total * millionths / 1_000_000;
        let mut seen = 0;
        for (nth, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen > wanted {
                let (log2, part) = (nth as u64 / 16, nth as u64 % 16);
                return (1 << log2) + ((part + 1) << log2 >> 4);
            }
        }
        self.most
    }
}

/// Time in which this thread had a processor, with the kernel's work for it: a machine that others
/// use as well shows in it less.
fn own_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// Opens heap and engine, and gets a few keys.
fn open(path: &Path, keys: u64, kind: Kind, after: &str) -> Result<(), Any> {
    let (begun, own) = (Instant::now(), own_ns());
    let heap = Heap::open(path, &Options::default())?;
    let (heap_opened, heap_own) = (begun.elapsed(), own_ns() - own);
    let kv = kind.open(&heap, "kv")?;
    let (opened, opened_own) = (begun.elapsed(), own_ns() - own);
    let mut value = Vec::new();
    let (mut gets, mut gets_own) = (Vec::new(), Vec::new());
    for nth in 0..100 {
        let (begun, own) = (Instant::now(), own_ns());
        let is_there = kv.get_into(&key(keys / 101 * nth), &mut value)?;
        gets.push(begun.elapsed());
        gets_own.push(own_ns() - own);
        assert!(is_there, "{nth}");
    }
    let slowest = gets.iter().max().copied().unwrap_or_default();
    println!(
        "open after {after}: {:.0} us, of which the heap {:.0}; first get {:.1} us, \
         slowest of 100 {:.1} us",
        micros(opened),
        micros(heap_opened),
        micros(gets[0]),
        micros(slowest)
    );
    println!(
        "of the thread's own time: {} us, {}; {}, {}",
        opened_own / 1000,
        heap_own / 1000,
        gets_own[0] / 1000,
        gets_own.iter().max().copied().unwrap_or_default() / 1000
    );
    let (begun, own) = (Instant::now(), own_ns());
    kv.put(&key(keys + 1), &[1; VALUE_BYTES as usize])?;
    let (put, put_own) = (begun.elapsed(), own_ns() - own);
    println!("first put: {:.1} us, own {}", micros(put), put_own / 1000);
    drop(kv);
    heap.close()?;
    Ok(())
}

/// A process that has the heap, and has put something.
fn holder(path: &Path, kind: Kind) -> Result<Child, Any> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(path)
        .args([HOLD, &kind.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(child)
}

fn hold(path: &Path, kind: Kind) -> Result<(), Any> {
    let heap = Heap::open(path, &Options::default())?;
    let kv = kind.open(&heap, "kv")?;
    for nth in 0..1000 {
        kv.put(&key(nth), &[3; VALUE_BYTES as usize])?;
    }
    println!("it has it");
    loop {
        std::thread::park();
    }
}

fn kill(mut child: Child) -> Result<(), Any> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Puts so many keys, and tells how long each took, by tenths.
fn fill(kv: &dyn Store, keys: u64) -> Result<(), Any> {
    let (mut all, mut own, begun) = (Histogram::new(), Histogram::new(), Instant::now());
    for tenth in 0..10 {
        let mut part = Histogram::new();
        for nth in keys / 10 * tenth..keys / 10 * (tenth + 1) {
            let key = key(nth);
            let own_before = own_ns();
            let before = Instant::now();
            kv.put(&key, &[1; VALUE_BYTES as usize])?;
            let ns = before.elapsed().as_nanos() as u64;
            own.note(own_ns() - own_before);
            part.note(ns);
            all.note(ns);
        }
        let at = [500_000, 990_000, 999_000, 999_900].map(|millionths| part.at(millionths));
        println!(
            "keys {}: {at:?} ns, at most {}",
            keys / 10 * (tenth + 1),
            part.most
        );
    }
    let at = [500_000, 990_000, 999_000, 999_900, 999_990].map(|millionths| all.at(millionths));
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "put, p50 p99 p99.9 p99.99 p99.999: {at:?} ns, at most {}",
        all.most
    );
    let at = [500_000, 990_000, 999_000, 999_900].map(|millionths| own.at(millionths));
    println!(
        "of the thread's own time, p50 p99 p99.9 p99.99: {at:?} ns, at most {}",
        own.most
    );
    println!("{:.0} puts a second", keys as f64 / seconds);
    Ok(())
}

/// Takes snapshots beside a writer, and tells how long they took and its longest put.
fn snapshots(kv: &dyn Store, keys: u64) -> Result<(), Any> {
    let is_over = AtomicBool::new(false);
    let (puts, taken) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut puts = Histogram::new();
            for nth in 0.. {
                let begun = Instant::now();
                kv.put(&key(nth % keys), &[2; VALUE_BYTES as usize])?;
                puts.note(begun.elapsed().as_nanos() as u64);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok::<_, pmkv::Error>(puts)
        });
        let take = |_| {
            let begun = Instant::now();
            let snapshot = kv.snapshot(Duration::MAX)?;
            let took = begun.elapsed();
            assert!(snapshot.count()? == keys);
            std::thread::sleep(Duration::from_millis(20));
            Ok::<_, pmkv::Error>(took)
        };
        let taken: Result<Vec<Duration>, _> = (0..5).map(take).collect();
        is_over.store(true, Ordering::Relaxed);
        (writer.join(), taken)
    });
    let puts = puts.map_err(|_| "the writer panicked")??;
    let taken: Vec<f64> = taken?.into_iter().map(micros).collect();
    println!(
        "snapshots: {taken:.0?} us; longest put beside them {} ns",
        puts.most
    );
    Ok(())
}

fn measure(path: &Path, keys: u64, kind: Kind) -> Result<(), Any> {
    let heap = Heap::create(path, 64 << 20, &Options::default())?;
    let kv = kind.open(&heap, "kv")?;
    fill(&*kv, keys)?;
    let (stats, file) = (kv.stats()?, std::fs::metadata(path)?.len());
    let data = keys * (KEY_BYTES + VALUE_BYTES);
    let index = stats.index_chunks << 16;
    println!(
        "bytes of keys and values {data}; records {:.3}x, index {:.3}x, both {:.3}x, file {:.3}x",
        stats.record_bytes as f64 / data as f64,
        index as f64 / data as f64,
        (stats.record_bytes + index) as f64 / data as f64,
        file as f64 / data as f64
    );
    println!(
        "load of the index {:.3}",
        stats.keys as f64 / stats.slots as f64
    );
    snapshots(&*kv, keys)?;
    drop(kv);
    heap.close()?;
    open(path, keys, kind, "a clean end")?;
    let (other, killed) = (holder(path, kind)?, holder(path, kind)?);
    kill(killed)?;
    open(path, keys, kind, "a kill, while another has it")?;
    kill(other)?;
    open(path, keys, kind, "a kill of the last, as after power loss")
}

fn main() -> Result<(), Any> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, what, rest @ ..] = &arguments[..] else {
        return Err("scale PATH KEYS [hash|tree]".into());
    };
    let (path, kind) = (
        Path::new(path),
        match rest.first().map(String::as_str) {
            None | Some("hash") => Kind::Hash,
            Some("tree") => Kind::Tree,
            Some(_) => return Err("an engine is a hash or a tree".into()),
        },
    );
    if what == HOLD {
        return hold(path, kind);
    }
    let measured = measure(path, what.parse()?, kind);
    let _ = std::fs::remove_file(path);
    measured
}
