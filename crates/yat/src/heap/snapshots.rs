//! Snapshots beside threads that write: whether each is of one instant, holds what it shows, and
//! says that it was ended.

use super::text;
use pmkv::{Error, Hash, Snapshot, Store, Tree};
use pmlib::{Heap, Options};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Keys of each engine, so that it has several chunks.
const KEYS: u64 = 20_000;

fn number(snapshot: &Snapshot<'_>, key: &[u8]) -> Result<u64, String> {
    let value = snapshot.get(key).map_err(text)?.unwrap_or_default();
    match value.try_into() {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(value) => Err(format!("a value that nobody has put: {value:?}")),
    }
}

/// Puts the same number under one key after the other, in two engines by turns, again and again.
fn write(hash: &Hash<'_>, tree: &Tree<'_>, is_over: &AtomicBool) -> Result<(), Error> {
    for nth in 1u64.. {
        for key in 0..4u8 {
            let engine: &dyn Store = if key % 2 == 0 { hash } else { tree };
            engine.put(&[key], &nth.to_le_bytes())?;
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

/// Whether a snapshot of both has each change before a later one.
fn look(hash: &Hash<'_>, tree: &Tree<'_>) -> Result<(), String> {
    let both = Snapshot::of(&[hash, tree], Duration::MAX).map_err(text)?;
    let read = |key: u8| number(&both[usize::from(key % 2)], &[key]);
    let numbers = (0..4).map(read).collect::<Result<Vec<u64>, String>>()?;
    let is_one = numbers.is_sorted_by(|one, later| one >= later) && numbers[0] <= numbers[3] + 1;
    match is_one {
        true => Ok(()),
        false => Err(format!("a snapshot of several instants: {numbers:?}")),
    }
}

/// Whether snapshots that others end show nothing of what is put later.
fn look_after_the_end(heap: &Heap, hash: &Hash<'_>) -> Result<(), String> {
    hash.put(b"short", &[1; 100]).map_err(text)?;
    let snapshot = hash.snapshot_for(Duration::from_millis(1)).map_err(text)?;
    for nth in 2..40 {
        std::thread::sleep(Duration::from_millis(1));
        for _ in 0..4 {
            let window = heap.ground().mem().window();
            heap.ground().advance_era();
            drop(window);
        }
        for _ in 0..100 {
            hash.put(b"short", &[nth; 100]).map_err(text)?;
        }
        match snapshot.get(b"short") {
            Ok(Some(value)) if value == [1; 100] => {}
            Err(Error::Ended) => return Ok(()),
            other => return Err(format!("shown after its end: {other:?}")),
        }
    }
    Err("a snapshot whose time is over was not ended".into())
}

/// Takes snapshots beside a writer for so long; answers how many.
///
/// # Errors
/// The first violation.
///
/// # Panics
/// The writer has panicked.
pub fn seen_at_once(time: Duration) -> Result<u64, String> {
    let options = Options {
        max: 512 << 20,
        ..Options::default()
    };
    let heap = Heap::private(32 << 20, &options).map_err(text)?;
    let hash = Hash::open(&heap, "hash").map_err(text)?;
    let tree = Tree::open(&heap, "tree").map_err(text)?;
    for nth in 0..KEYS {
        hash.put(&nth.to_be_bytes(), b"").map_err(text)?;
        tree.put(&nth.to_be_bytes(), b"").map_err(text)?;
    }
    for key in 0..4u8 {
        hash.put(&[key], &[0; 8]).map_err(text)?;
        tree.put(&[key], &[0; 8]).map_err(text)?;
    }
    look_after_the_end(&heap, &hash)?;
    let is_over = AtomicBool::new(false);
    let (written, looked) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&hash, &tree, &is_over));
        let (begun, mut count) = (Instant::now(), 0);
        let mut looked = Ok(0);
        while looked.is_ok() && begun.elapsed() < time {
            count += 1;
            looked = look(&hash, &tree).map(|()| count);
        }
        is_over.store(true, Ordering::Relaxed);
        (writer.join().expect("it ends"), looked)
    });
    written.map_err(text)?;
    looked
}
