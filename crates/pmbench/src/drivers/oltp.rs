//! Filebench's OLTP: readers, writers and a log of a database. Readers read 2 KiB at random and
//! compute; a writer writes 2 KiB a hundred times at random, durably, for each thousand reads; the
//! log writer writes 256 KiB, durably, for each 3200.
//!
//! Readers are throttled by both, as there: they may be so many reads ahead, and no more.

use super::fileset::print;
use super::mixes::Shape;
use crate::random::Random;
use anyhow::Context;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Bytes read and written.
const PAGE: usize = 2048;
/// Reads that go with one write of the log, and with one batch of a writer. Readers may be twice as
/// many ahead.
const LOG_READS: u64 = 3200;
const BATCH_READS: u64 = 1000;
/// Pages that a writer writes.
const BATCH: u64 = 100;
const LOG_BYTES: usize = 256 << 10;
const LOG_MOST: u64 = 10 << 20;
/// The work of a reader, in steps of a chain of multiplications: some 20 us.
const COMPUTE: u64 = 20_000;
/// The share of writers: one of all threads writes the log, and of the others one in so many writes
/// pages, as there (10 of 210).
const WRITERS: usize = 21;

/// Reads that no write has preceded yet.
struct Ahead {
    reads: Mutex<u64>,
    changed: Condvar,
    /// The reads for which a write makes room.
    each: u64,
    until: Instant,
}

impl Ahead {
    fn new(each: u64, until: Instant) -> Ahead {
        Ahead {
            reads: Mutex::new(0),
            changed: Condvar::new(),
            each,
            until,
        }
    }

    /// A reader has read; waits where that is too far ahead. False when it is all over.
    fn read(&self) -> bool {
        self.when(|reads| reads < 2 * self.each, |reads| reads + 1)
    }

    /// Waits for as many reads as are written for. False when it is all over.
    fn written(&self) -> bool {
        self.when(|reads| reads >= self.each, |reads| reads - self.each)
    }

    /// Waits until `ready`, or until it is over; then changes the count.
    fn when(&self, ready: impl Fn(u64) -> bool, change: impl Fn(u64) -> u64) -> bool {
        let mut reads = self.reads.lock().expect("nobody panics");
        while !ready(*reads) {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            reads = self
                .changed
                .wait_timeout(reads, left)
                .expect("nobody panics")
                .0;
        }
        *reads = change(*reads);
        self.changed.notify_all();
        true
    }
}

/// The database.
struct Tables {
    files: Vec<File>,
    bytes: u64,
}

impl Tables {
    fn open(dir: &Path, shape: Shape) -> anyhow::Result<Tables> {
        std::fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
        let file = |number: u64| -> anyhow::Result<File> {
            let path = dir.join(format!("table{number}"));
            let mut file = durable().read(true).open(path)?;
            if file.metadata()?.len() < shape.mean_bytes {
                let block = vec![1; 1 << 20];
                for _ in 0..shape.mean_bytes.div_ceil(1 << 20) {
                    file.write_all(&block)?;
                }
                file.sync_all()?;
            }
            Ok(file)
        };
        let files = (0..shape.files).map(file).collect::<anyhow::Result<_>>()?;
        let bytes = shape.mean_bytes;
        Ok(Tables { files, bytes })
    }

    fn place(&self, random: &mut Random) -> (&File, u64) {
        let file = random.below(self.files.len() as u64) as usize;
        (
            &self.files[file],
            random.below(self.bytes / PAGE as u64) * PAGE as u64,
        )
    }
}

/// Writes are durable when they return.
fn durable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options.custom_flags(OFlags::DSYNC.bits() as i32);
    options
}

/// Measures and prints.
pub fn run(dir: &Path, shape: Shape, span: Duration) -> anyhow::Result<()> {
    let tables = Tables::open(dir, shape)?;
    let log = durable().open(dir.join("log"))?;
    let start = Instant::now();
    let until = start + span;
    let (for_log, for_pages) = (Ahead::new(LOG_READS, until), Ahead::new(BATCH_READS, until));
    let others = shape.threads.saturating_sub(1).max(2);
    let writers = (others / WRITERS).max(1);
    let counts: Vec<anyhow::Result<u64>> = std::thread::scope(|scope| {
        let (tables, log) = (&tables, &log);
        let (for_log, for_pages) = (&for_log, &for_pages);
        let mut threads = vec![scope.spawn(move || write_log(log, for_log))];
        for number in 0..others {
            let mut random = Random(number as u64 + 1);
            threads.push(scope.spawn(move || match number < writers {
                true => write(tables, for_pages, &mut random),
                false => read(tables, [for_log, for_pages], &mut random),
            }));
        }
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"));
        joined.collect()
    });
    print(
        counts.into_iter().sum::<anyhow::Result<u64>>()?,
        start.elapsed(),
    );
    Ok(())
}

fn read(tables: &Tables, ahead: [&Ahead; 2], random: &mut Random) -> anyhow::Result<u64> {
    let (mut page, mut done) = ([0; PAGE], 0);
    while ahead.iter().all(|one| one.read()) {
        let (file, at) = tables.place(random);
        file.read_exact_at(&mut page, at)?;
        let mut chain = u64::from(page[0]);
        for step in 0..COMPUTE {
            chain = black_box(chain.wrapping_mul(31) ^ step);
        }
        done += 1;
    }
    Ok(done)
}

fn write(tables: &Tables, ahead: &Ahead, random: &mut Random) -> anyhow::Result<u64> {
    let (page, mut done) = ([4; PAGE], 0);
    while ahead.written() {
        for _ in 0..BATCH {
            let (file, at) = tables.place(random);
            file.write_all_at(&page, at)?;
            done += 1;
        }
    }
    Ok(done)
}

fn write_log(log: &File, ahead: &Ahead) -> anyhow::Result<u64> {
    let (entry, mut at, mut done) = (vec![8; LOG_BYTES], 0, 0);
    while ahead.written() {
        log.write_all_at(&entry, at)?;
        at = (at + LOG_BYTES as u64) % LOG_MOST;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_for_those_who_write() {
        let ahead = Ahead::new(2, Instant::now() + Duration::from_millis(50));
        let read = (0..5).map(|_| ahead.read()).collect::<Vec<_>>();
        assert_eq!(read, [true, true, true, true, false]);
        assert!(ahead.written() && ahead.written() && !ahead.written());
    }

    #[test]
    fn it_runs_and_writes_the_log() {
        let place = tempfile::tempdir().unwrap();
        let shape = Shape {
            files: 2,
            there: 100,
            mean_bytes: 1 << 20,
            width: 10,
            at_once: 1 << 20,
            threads: 4,
        };
        run(place.path(), shape, Duration::from_millis(600)).unwrap();
        let log = std::fs::metadata(place.path().join("log")).unwrap();
        assert!(log.len() > 0);
    }
}
