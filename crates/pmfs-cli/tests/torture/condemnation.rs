//! By what the parent has a worker die at a barrier: a few bytes for each in a file. A
//! kill from outside seldom falls inside a transaction, which lasts a microsecond.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BYTES: usize = 16;

pub fn open(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(dir.join("condemned"))
}

fn place(worker: usize) -> u64 {
    (worker * BYTES) as u64
}

/// The barrier, counted from when the worker reads this, and the instructions after it.
pub fn read(file: &File, worker: usize) -> Option<(u64, u64)> {
    let mut bytes = [0; BYTES];
    file.read_exact_at(&mut bytes, place(worker)).ok()?;
    let (barrier, instructions) = bytes.split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    (word(barrier) > 0).then(|| (word(barrier), word(instructions)))
}

/// # Errors
/// The file can't be written.
pub fn write(file: &File, worker: usize, barrier: u64, instructions: u64) -> io::Result<()> {
    let mut bytes = barrier.to_le_bytes().to_vec();
    bytes.extend(instructions.to_le_bytes());
    file.write_all_at(&bytes, place(worker))
}

/// # Errors
/// The file can't be written.
pub fn lift(file: &File, worker: usize) -> io::Result<()> {
    write(file, worker, 0, 0)
}
