//! The time of opening a heap: left clean, by a kill, and by power loss, at several sizes.
//!
//! Method: heaps of objects of 64 bytes, opened in rounds; the first open of a round finds none of
//! its pages mapped. A kill is a heap that is let go as it stands, with the last transactions of
//! its lanes not closed; power loss fills the volatile area with bytes besides.

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool::map_options;
use clap::Args;
use pmlib::{Error, Heap, Options as HeapOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Objects that one transaction makes.
const TOGETHER: u64 = 500;
/// Transactions after which a heap is let go.
const LAST: u64 = 200;
const LINE: u64 = 64;

/// The heaps to open.
#[derive(Args)]
pub struct Options {
    /// Objects.
    #[arg(long, default_values_t = [1_000_000, 10_000_000])]
    objects: Vec<u64>,
}

/// How a heap was left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Clean,
    Killed,
    PowerLost,
}

/// Measures and prints.
pub fn run(report: &Report, options: &Options) -> anyhow::Result<()> {
    let most = options.objects.iter().copied().max().unwrap_or(0);
    let ground = Ground::new(1 + ((most * 2 * LINE) >> 30))?;
    if !report.json {
        println!(
            "{} rounds; ms to open, median (least-greatest)",
            report.rounds
        );
        println!(
            "{:>10} {:>10} {:>9} {:>24} {:>12}",
            "objects", "left", "MiB", "ms", "page faults"
        );
    }
    for (number, &objects) in options.objects.iter().enumerate() {
        let path = ground.path().join(format!("heap-{number}"));
        make(&path, objects)?;
        for left in [Left::Clean, Left::Killed, Left::PowerLost] {
            measure(report, &path, objects, left)?;
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn heap_options() -> HeapOptions {
    HeapOptions {
        map: map_options(),
        ..HeapOptions::default()
    }
}

fn make(path: &Path, objects: u64) -> anyhow::Result<()> {
    let heap = Heap::create(path, 64 << 20, &heap_options())?;
    for _ in 0..objects.div_ceil(TOGETHER) {
        heap.tx(|tx| (0..TOGETHER).try_for_each(|_| tx.alloc(LINE).map(drop)))?;
    }
    let root = heap.tx(|tx| {
        let root = tx.alloc(LAST * LINE)?;
        tx.set_root(root)?;
        Ok::<_, Error>(root)
    })?;
    anyhow::ensure!(root != 0, "it has a root");
    heap.close()?;
    Ok(())
}

fn measure(report: &Report, path: &Path, objects: u64, left: Left) -> anyhow::Result<()> {
    let (mut ms, mut faults, mut mib) = (Figures::default(), Figures::default(), 0);
    for _ in 0..report.rounds {
        leave(path, left)?;
        let (before, start) = (minor_faults()?, Instant::now());
        let heap = Heap::open(path, &heap_options())?;
        ms.0.push(start.elapsed().as_secs_f64() * 1e3);
        faults.0.push(minor_faults()? - before);
        mib = heap.size() >> 20;
        heap.close()?;
    }
    if report.json {
        println!(
            "{}",
            serde_json::json!({
                "objects": objects, "left": format!("{left:?}"), "mib": mib, "ms": ms.0,
                "page_faults": faults.0, "median_ms": ms.median(),
            })
        );
        return Ok(());
    }
    let mut sorted = ms.0.clone();
    sorted.sort_by(f64::total_cmp);
    let spread = format!(
        "{:.2} ({:.2}-{:.2})",
        ms.median(),
        sorted[0],
        sorted[sorted.len() - 1]
    );
    let left = format!("{left:?}");
    println!(
        "{objects:>10} {left:>10} {mib:>9} {spread:>24} {:>12}",
        faults.text()
    );
    Ok(())
}

/// Leaves a heap that was closed in another way.
fn leave(path: &Path, left: Left) -> anyhow::Result<()> {
    if left == Left::Clean {
        return Ok(());
    }
    let heap = Heap::open(path, &heap_options())?;
    let root = heap.root_offset()?;
    for number in 0..LAST {
        heap.tx(|tx| {
            let bytes = tx.edit_bytes(root, number * LINE, LINE)?;
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
            Ok::<_, Error>(())
        })?;
    }
    let mem = heap.into_memory();
    let volatile = Heap::volatile(&mem);
    drop(mem);
    if left == Left::PowerLost {
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        let bytes = vec![0xdb; (volatile.end - volatile.start) as usize];
        file.write_all_at(&bytes, volatile.start)?;
    }
    Ok(())
}

/// Page faults of this process so far.
fn minor_faults() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields after the name, which may have spaces; minflt is the tenth of all.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let field = fields.split_whitespace().nth(7).unwrap_or_default();
    Ok(field.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a heap opens however it was left. Method: a small one, each way.
    #[test]
    fn a_heap_opens_however_it_was_left() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("heap");
        make(&path, 2000).unwrap();
        for left in [Left::Clean, Left::Killed, Left::PowerLost] {
            leave(&path, left).unwrap();
            let heap = Heap::open(&path, &heap_options()).unwrap();
            assert!(heap.root_offset().unwrap() != 0, "{left:?}");
            assert_eq!(heap.check().unwrap().objects, 2001, "{left:?}");
            heap.close().unwrap();
        }
        assert!(minor_faults().unwrap() > 0.0);
    }
}
