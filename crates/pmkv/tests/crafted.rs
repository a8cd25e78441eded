//! Goal: engines whose bytes somebody has changed answer each call: a value that the key had, none,
//! or an error. Method: in a heap with a hash and a tree, some words that are in use become other
//! words, in ways that damage and forgery would choose, and every call is made. A panic fails, and
//! so does a call that does not end, and a value of another key.
//!
//! `PMKV_CRAFTED` is the number of heaps, `PMKV_CRAFTED_SEED` the seed of the first one.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pmem::Pmem;
use pmkv::{Change, Expect, Hash, Kind, OnDamage, Result, Store, Tree};
use pmlib::{Heap, Options};

const BYTES: u64 = 2 << 20;
/// Keys of each engine.
const KEYS: u64 = 200;
/// A heap that takes longer than this hangs. The slowest seen take a few milliseconds.
const HANGS: Duration = Duration::from_secs(60);

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().expect("a number"))
}

fn chance(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

fn key(nth: u64) -> Vec<u8> {
    format!("key {nth:03}").into_bytes()
}

/// A value that says whose it is. Some are long, and one is a run of its own.
fn value(nth: u64, version: u64) -> Vec<u8> {
    let len = match nth {
        7 => 100_000,
        _ if nth.is_multiple_of(40) => 5000,
        _ => nth as usize % 90,
    };
    let mut value = format!("{nth} has {version} ").into_bytes();
    value.resize(value.len() + len, nth as u8);
    value
}

fn is_of(nth: u64, value: &[u8]) -> bool {
    value.starts_with(format!("{nth} has ").as_bytes())
}

fn fill(kv: &dyn Store) -> Result<()> {
    for nth in 0..KEYS {
        kv.put(&key(nth), &value(nth, 0))?;
    }
    for nth in (0..KEYS).step_by(3) {
        kv.put(&key(nth), &value(nth, 1))?;
        kv.delete(&key(nth + 1))?;
    }
    kv.put_ttl(&key(11), &value(11, 2), Duration::from_secs(1 << 30))?;
    let (a, b) = (key(20), key(21));
    kv.batch(&[Change::Put(&a, &value(20, 3)), Change::Delete(&b)])
}

/// A sound heap with both engines, and whether a process ended in the middle of using it.
fn sound(is_closed: bool) -> Vec<u8> {
    let options = Options {
        lanes: 4,
        lane_bytes: 4096,
        seed: 7,
        ..Options::default()
    };
    let heap = Heap::private(BYTES, &options).unwrap();
    fill(&Hash::open(&heap, "hash").unwrap()).unwrap();
    fill(&Tree::open(&heap, "tree").unwrap()).unwrap();
    if is_closed {
        return bytes_of(&heap.into_memory());
    }
    bytes_of(heap.ground().mem())
}

fn bytes_of(mem: &Pmem) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    mem.copy_out(0, &mut bytes).unwrap();
    bytes
}

/// Makes every call. Errors are answers; a wrong value is not.
fn use_engine(kv: &dyn Store, state: &mut u64) -> Result<()> {
    let mut answers: Vec<Result<()>> = Vec::new();
    for nth in 0..KEYS {
        let got = kv.get(&key(nth));
        if let Ok(Some(value)) = &got {
            assert!(is_of(nth, value), "key {nth} has the value of another one");
        }
        answers.push(got.map(drop));
    }
    let mut seen = BTreeMap::new();
    // A forged index may show a key more than once, but a walk ends.
    for entry in kv.entries().take(100_000) {
        match entry {
            Ok((key, value)) => *seen.entry((key, value.len())).or_insert(0u64) += 1,
            Err(error) => answers.push(Err(error)),
        }
    }
    assert!(
        seen.values().sum::<u64>() < 100_000,
        "the walk does not end"
    );
    answers.push(in_snapshot(kv));
    answers.push(kv.stats().map(drop));
    for _ in 0..60 {
        let nth = chance(state) % (KEYS + 20);
        let (key, value) = (key(nth), value(nth, 4));
        answers.push(match chance(state) % 8 {
            0..3 => kv.put(&key, &value),
            3 => kv.put_if(&key, Expect::Present, &value).map(drop),
            4 => kv.put_ttl(&key, &value, Duration::from_secs(1)),
            5 => kv.overwrite(&key, &value),
            _ => kv.delete(&key).map(drop),
        });
    }
    let keys: Vec<Vec<u8>> = (0..30).map(|nth| key(nth * 9)).collect();
    let changes: Vec<Change<'_>> = keys.iter().map(|key| Change::Put(key, b"batch")).collect();
    answers.push(kv.batch(&changes));
    for step in kv.scrub(OnDamage::Drop).take(100_000) {
        answers.push(step.map(drop));
    }
    answers.push(kv.purge_expired().map(drop));
    answers.push(kv.compact().map(drop));
    answers.push(
        kv.last(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
            .map(drop),
    );
    answers.push(kv.clear().map(drop));
    answers.into_iter().collect()
}

/// Looks at all of a snapshot.
fn in_snapshot(kv: &dyn Store) -> Result<()> {
    let snapshot = kv.snapshot(Duration::MAX)?;
    for nth in 0..KEYS {
        if let Ok(Some(value)) = snapshot.get(&key(nth)) {
            assert!(is_of(nth, &value), "key {nth} has the value of another one");
        }
    }
    let entries: Vec<_> = snapshot.iter().collect();
    assert!(entries.len() < 100_000, "the walk does not end");
    entries.into_iter().try_for_each(|entry| entry.map(drop))?;
    snapshot.count().map(drop)
}

/// Uses a heap of these bytes; whether all went well.
fn used(bytes: &[u8], seed: u64) -> bool {
    let mem = Pmem::private(BYTES);
    mem.write_nt(0, bytes).unwrap();
    let Ok(heap) = Heap::attach(mem) else {
        return false;
    };
    let mut state = seed | 1;
    let mut all = true;
    for (kind, name) in [(Kind::Hash, "hash"), (Kind::Tree, "tree")] {
        let done = kind
            .open(&heap, name)
            .and_then(|kv| use_engine(&*kv, &mut state));
        all &= done.is_ok();
    }
    all & heap.check().is_ok()
}

/// Changes a few words; says which.
fn craft(bytes: &mut [u8], used: &[usize], seed: u64) -> Vec<(usize, u64)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut done = Vec::new();
    for _ in 0..=chance(&mut state) % 3 {
        let at = used[chance(&mut state) as usize % used.len()];
        let old = word(bytes, at);
        let other = word(bytes, used[chance(&mut state) as usize % used.len()]);
        let new = match chance(&mut state) % 8 {
            0..3 => old ^ 1 << (chance(&mut state) % 64),
            3 => other,
            4 => old.wrapping_add(chance(&mut state) % 17).wrapping_sub(8),
            5 => chance(&mut state) % BYTES / 64 * 64,
            6 => [0, u64::MAX, 1 << 63, u64::from(u32::MAX)][chance(&mut state) as usize % 4],
            _ => old & 0xffff_ffff | other & !0xffff_ffff,
        };
        bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
        done.push((at, new));
    }
    done
}

/// Ends the process if a heap takes too long.
fn watch(current: &'static AtomicU64) {
    std::thread::spawn(move || {
        let mut before = u64::MAX;
        loop {
            std::thread::sleep(HANGS);
            let now = current.load(Relaxed);
            if now == before {
                eprintln!("PMKV_CRAFTED_SEED={now}: a call does not end");
                std::process::abort();
            }
            before = now;
        }
    });
}

#[test]
fn engines_answer_whatever_is_in_the_heap() {
    static CURRENT: AtomicU64 = AtomicU64::new(0);
    let (count, first) = (number("PMKV_CRAFTED", 600), number("PMKV_CRAFTED_SEED", 1));
    println!("PMKV_CRAFTED_SEED={first}");
    let heaps = [sound(true), sound(false)];
    for heap in &heaps {
        assert!(used(heap, 1), "a sound heap is well");
    }
    let in_use = heaps.each_ref().map(|heap| {
        let words = (0..heap.len()).step_by(8);
        words
            .filter(|&at| heap[at..at + 8] != [0; 8])
            .collect::<Vec<_>>()
    });
    watch(&CURRENT);
    let (mut sound, mut failures) = (0, Vec::new());
    for seed in first..first + count {
        CURRENT.store(seed, Relaxed);
        let nth = (seed % 2) as usize;
        let mut bytes = heaps[nth].clone();
        let changed = craft(&mut bytes, &in_use[nth], seed);
        match catch_unwind(AssertUnwindSafe(|| used(&bytes, seed))) {
            Ok(all) => sound += u64::from(all),
            Err(_) => failures.push((seed, changed)),
        }
    }
    println!(
        "{count} heaps crafted, {sound} well, {} panics",
        failures.len()
    );
    for (seed, changed) in failures.iter().take(20) {
        println!("PMKV_CRAFTED_SEED={seed} PMKV_CRAFTED=1: {changed:x?}");
    }
    assert!(failures.is_empty());
    assert!(
        count < 100 || sound < count * 9 / 10,
        "most changes are met"
    );
}
