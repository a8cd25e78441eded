//! Small writes to a file that is open and whose blocks are there: at its end, where PMFS changes
//! size and time by one 16-byte store, or over what it holds, which PMFS has to log. Section 4.2.3
//! of Dulloor et al. 2014.
//!
//! Both write the same bytes at the same places in the same order. Nothing is synced: PMFS's are
//! durable when they return.

use anyhow::ensure;
use clap::{Args, ValueEnum};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The writes to make.
#[derive(Args)]
pub struct Options {
    /// The directory.
    #[arg(long)]
    dir: PathBuf,
    /// The kind of writes.
    #[arg(long, value_enum)]
    how: How,
    /// Bytes of a write.
    #[arg(long, default_value_t = 64)]
    bytes: u64,
    /// The number of writes.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
}

/// The two ways.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum How {
    /// At the end of the file.
    Append,
    /// Over the bytes from its beginning on.
    Overwrite,
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let path = options.dir.join("small-writes");
    let ns = measure(&path, options);
    let _ = std::fs::remove_file(&path);
    println!(
        "{}",
        serde_json::json!({"how": format!("{:?}", options.how), "ns": ns?})
    );
    Ok(())
}

fn measure(path: &Path, options: &Options) -> anyhow::Result<f64> {
    ensure!(
        options.bytes > 0 && options.count > 0,
        "nothing would be written: --bytes and --count have to be more than 0"
    );
    let total = options.bytes * options.count;
    let mut file = prepare(path, options.how, total)?;
    let block = vec![7; options.bytes as usize];
    let start = Instant::now();
    for number in 0..options.count {
        match options.how {
            How::Append => file.write_all(&block)?,
            How::Overwrite => file.write_all_at(&block, number * options.bytes)?,
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / options.count as f64;
    let len = file.metadata()?.len();
    ensure!(
        len == total,
        "the file has {len} bytes in place of {total}: somebody else works in {}",
        path.display()
    );
    Ok(ns)
}

/// A file with all its blocks, empty or full.
fn prepare(path: &Path, how: How, total: u64) -> anyhow::Result<File> {
    let _ = std::fs::remove_file(path);
    let mut options = OpenOptions::new();
    let options = options.create_new(true);
    let options = match how {
        How::Append => options.append(true),
        How::Overwrite => options.write(true),
    };
    let mut file = options.open(path)?;
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, total)?;
    if how == How::Overwrite {
        let block = vec![1; 1 << 20];
        for at in (0..total).step_by(block.len()) {
            let len = (total - at).min(block.len() as u64);
            file.write_all(&block[..len as usize])?;
        }
    }
    // Nothing of this is to be written back while writes are measured.
    rustix::fs::syncfs(&file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an append begins with an empty file that has its blocks, an overwrite with a full one.
    /// Method: the file before and after.
    #[test]
    fn files_are_empty_or_full_before() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("file");
        for (how, len) in [(How::Append, 0), (How::Overwrite, 192)] {
            let file = prepare(&path, how, 192).unwrap().metadata().unwrap();
            assert_eq!(file.len(), len, "{how:?}");
            assert!(std::os::unix::fs::MetadataExt::blocks(&file) > 0, "{how:?}");
            let options = Options {
                dir: place.path().into(),
                how,
                bytes: 64,
                count: 3,
            };
            assert!(measure(&path, &options).unwrap() > 0.0);
            assert_eq!(std::fs::read(&path).unwrap(), [7; 192], "{how:?}");
        }
    }
}
