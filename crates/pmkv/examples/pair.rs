//! Two processes on one engine: how much more they do at once than one alone, beside loops that
//! only store or load as many bytes, each in memory of its own.
//!
//! `pair PATH [hash|tree] [ROUNDS]`; the file is made, and removed. Gains are medians of rounds, by
//! the clock and by the processes' own time, which says more on a machine that others use.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use pmkv::{Kind, Store};
use pmlib::{Heap, Options};

/// The word that has a process do its part.
const WORK: &str = "work";
const WORKS: [&str; 4] = ["put", "get", "stores", "loads"];
/// Calls of a process in a round.
const CALLS: u64 = 100_000;
/// Bytes that a record of a key of 16 and a value of 64 bytes has.
const BYTES: usize = 112;
const PRIVATE_BYTES: u64 = 64 << 20;

type Any = Box<dyn std::error::Error>;

/// Keys in no order.
fn key(nth: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&nth.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&nth.to_be_bytes());
    key
}

fn own_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits for a line, does the calls, and tells their time by the clock and the thread's own.
fn timed(mut call: impl FnMut(u64) -> Result<(), Any>) -> Result<(), Any> {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let (begun, own) = (Instant::now(), own_ns());
    for nth in 0..CALLS {
        call(nth)?;
    }
    println!("{} {}", begun.elapsed().as_nanos(), own_ns() - own);
    Ok(())
}

fn on_engine(kv: &dyn Store, what: &str, first: u64) -> Result<(), Any> {
    let mut value = Vec::new();
    // The pages of the index are faults of each process once.
    for nth in 0..CALLS {
        kv.get_into(&key(nth), &mut value)?;
    }
    timed(|nth| match what {
        "put" => Ok(kv.put(&key(first + nth), &[1; 64])?),
        _ => {
            // Those of the first round.
            let there = kv.get_into(&key(nth * 7919 % CALLS), &mut value)?;
            there.then_some(()).ok_or_else(|| "a key is missing".into())
        }
    })
}

fn on_memory(what: &str) -> Result<(), Any> {
    let heap = Heap::private(PRIVATE_BYTES, &Options::default())?;
    let mem = heap.ground().mem();
    let mut bytes = [1; BYTES];
    let half = PRIVATE_BYTES / 2;
    let place = |nth: u64| half + nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (half / 2) / 64 * 64;
    timed(|nth| {
        if what == "loads" {
            return Ok(mem.copy_out(place(nth), &mut bytes)?);
        }
        let _window = mem.window();
        mem.write_nt(half + nth * 128 % (half / 2), &bytes)?;
        mem.store(place(nth) + half / 2 - 64, nth);
        mem.flush(place(nth) + half / 2 - 64, 8);
        mem.fence();
        Ok(())
    })
}

fn work(path: &Path, kind: Kind, what: &str, first: u64) -> Result<(), Any> {
    if what == "stores" || what == "loads" {
        return on_memory(what);
    }
    let heap = Heap::open(path, &Options::default())?;
    let kv = kind.open(&heap, "kv")?;
    on_engine(&*kv, what, first)?;
    drop(kv);
    heap.close()?;
    Ok(())
}

/// So many processes at once: the mean times of a call, by the clock and their own, ns.
fn at_once(
    path: &Path,
    kind: Kind,
    what: &str,
    count: u64,
    next: &mut u64,
) -> Result<[f64; 2], Any> {
    let mut children: Vec<(Child, BufReader<ChildStdout>)> = Vec::new();
    for _ in 0..count {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(path)
            .args([WORK, &kind.to_string(), what, &next.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        *next += CALLS;
        let mut said = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        said.read_line(&mut String::new())?;
        children.push((child, said));
    }
    for (child, _) in &mut children {
        child.stdin.as_mut().ok_or("no pipe")?.write_all(b"go\n")?;
    }
    let mut sums = [0.0; 2];
    for (mut child, mut said) in children {
        let mut line = String::new();
        said.read_line(&mut line)?;
        for (sum, word) in sums.iter_mut().zip(line.split_whitespace()) {
            *sum += word.parse::<f64>()? / (CALLS * count) as f64;
        }
        child.wait()?;
    }
    Ok(sums)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn measure(path: &Path, kind: Kind, rounds: u64) -> Result<(), Any> {
    let heap = Heap::create(path, 64 << 20, &Options::default())?;
    let kv = kind.open(&heap, "kv")?;
    for nth in 0..CALLS {
        kv.put(&key(nth), &[1; 64])?;
    }
    let mut next = CALLS;
    let mut gains = [const { (Vec::new(), Vec::new(), Vec::new()) }; WORKS.len()];
    for _ in 0..rounds {
        for (what, (ns, clock, own)) in WORKS.iter().zip(&mut gains) {
            let one = at_once(path, kind, what, 1, &mut next)?;
            let two = at_once(path, kind, what, 2, &mut next)?;
            ns.push(one[0]);
            clock.push(2.0 * one[0] / two[0]);
            own.push(2.0 * one[1] / two[1]);
        }
    }
    // It was open throughout, so that nobody had to settle what a former run left.
    drop(kv);
    heap.close()?;
    println!("of two processes at once, {kind}, {rounds} rounds: ns of one, gain, by own time");
    for (what, (ns, clock, own)) in WORKS.iter().zip(gains) {
        println!(
            "{what:<8} {:>7.0} {:.2} {:.2}",
            median(ns),
            median(clock),
            median(own)
        );
    }
    Ok(())
}

fn kind_of(word: Option<&String>) -> Result<Kind, Any> {
    match word.map(String::as_str) {
        None | Some("hash") => Ok(Kind::Hash),
        Some("tree") => Ok(Kind::Tree),
        Some(_) => Err("an engine is a hash or a tree".into()),
    }
}

fn main() -> Result<(), Any> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first().map(Path::new) else {
        return Err("pair PATH [hash|tree] [ROUNDS]".into());
    };
    if let [_, told, kind, what, first] = &arguments[..]
        && told == WORK
    {
        return work(path, kind_of(Some(kind))?, what, first.parse()?);
    }
    let rounds = arguments.get(2).map_or(Ok(9), |word| word.parse())?;
    let measured = measure(path, kind_of(arguments.get(1))?, rounds);
    let _ = std::fs::remove_file(path);
    measured
}
