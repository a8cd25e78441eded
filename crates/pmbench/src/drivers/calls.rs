//! The time of single calls, with what goes with them: the operations of Izraelevitz et al. 2019,
//! section 5.1 (create; append, write and read with open, fsync and close), and those of the
//! Filebench workloads that create, overwrite and delete many files of 64 KiB.

use anyhow::ensure;
use clap::{Args, ValueEnum};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const BLOCK: usize = 4096;
/// The size of a file that is written in the middle.
const LARGE_BYTES: u64 = 64 << 20;
/// The size of a small file.
const SMALL_BLOCKS: usize = 16;
/// Files in a directory.
const WIDTH: u64 = 1000;

/// The calls to make.
#[derive(Args)]
pub struct Options {
    /// The directory.
    #[arg(long)]
    dir: PathBuf,
    /// The call.
    #[arg(long, value_enum)]
    call: Call,
    /// The number of calls.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Hold the large file open: what is left are the read, or the write and the fsync, as fio
    /// makes them.
    #[arg(long)]
    held: bool,
}

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Call {
    /// open, which makes an empty file; close.
    Create,
    /// open; write 4 KiB at the end; fsync; close.
    Append4k,
    /// open; write 4 KiB in the middle; fsync; close.
    Write4k,
    /// open; write 512 bytes in the middle; fsync; close.
    Write512,
    /// open; read 4 KiB; close.
    Read4k,
    /// open, which makes a file; write 64 KiB, 4 KiB at a time; close.
    CreateWhole,
    /// open; write a file of 64 KiB again, 4 KiB at a time; close. Tells what one write takes with
    /// its share of the rest.
    Overwrite,
    /// unlink a file of 64 KiB.
    Delete,
}

impl Call {
    fn is_of_large(self) -> bool {
        use Call::{Append4k, Read4k, Write4k, Write512};
        matches!(self, Append4k | Write4k | Write512 | Read4k)
    }
}

/// A block as programs have theirs: on a page.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let (dir, what) = (options.dir.join("calls"), options.call);
    ensure!(
        !options.held || what.is_of_large(),
        "--held is for calls on one large file: append4k, write4k, write512, read4k"
    );
    let _ = std::fs::remove_dir_all(&dir);
    prepare(&dir, what, options.count)?;
    let held = options.held.then(|| open_large(&dir, what)).transpose()?;
    // Made here: to fill a block takes a tenth of the time of a call.
    let mut aligned = Aligned([3; BLOCK]);
    let block = &mut aligned.0;
    let start = Instant::now();
    for number in 0..options.count {
        match &held {
            Some(file) => on_large(file, what, block)?,
            None => call(&dir, what, number, block)?,
        }
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / options.count as f64;
    // The figure is of one of the sixteen writes to a file.
    let us = if what == Call::Overwrite {
        us / SMALL_BLOCKS as f64
    } else {
        us
    };
    std::fs::remove_dir_all(&dir)?;
    println!(
        "{}",
        serde_json::json!({"call": format!("{what:?}"), "us": us})
    );
    Ok(())
}

fn small(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{}/{number}", number / WIDTH))
}

fn large(dir: &Path) -> PathBuf {
    dir.join("large")
}

/// Makes what is there before the first call.
fn prepare(dir: &Path, what: Call, count: u64) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    for number in (0..count).step_by(WIDTH as usize) {
        std::fs::create_dir(dir.join((number / WIDTH).to_string()))?;
    }
    if matches!(what, Call::Overwrite | Call::Delete) {
        for number in 0..count {
            whole(File::create(small(dir, number))?, &[2; BLOCK])?;
        }
    }
    let mut file = File::create(large(dir))?;
    if !matches!(what, Call::Append4k) {
        let block = vec![1; 1 << 20];
        for _ in 0..LARGE_BYTES >> 20 {
            file.write_all(&block)?;
        }
    }
    // Nothing of this is to be written back while calls are measured.
    rustix::fs::syncfs(&file)?;
    Ok(())
}

fn whole(mut file: File, block: &[u8; BLOCK]) -> anyhow::Result<()> {
    for _ in 0..SMALL_BLOCKS {
        file.write_all(block)?;
    }
    Ok(())
}

fn call(dir: &Path, what: Call, number: u64, block: &mut [u8; BLOCK]) -> anyhow::Result<()> {
    match what {
        Call::Create => drop(File::create_new(small(dir, number))?),
        Call::CreateWhole => whole(File::create_new(small(dir, number))?, block)?,
        Call::Overwrite => {
            let file = OpenOptions::new().write(true).open(small(dir, number))?;
            whole(file, block)?;
        }
        Call::Delete => std::fs::remove_file(small(dir, number))?,
        Call::Append4k | Call::Write4k | Call::Write512 | Call::Read4k => {
            on_large(&open_large(dir, what)?, what, block)?;
        }
    }
    Ok(())
}

fn open_large(dir: &Path, what: Call) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    match what {
        Call::Append4k => options.append(true),
        Call::Read4k => options.read(true),
        _ => options.write(true),
    };
    Ok(options.open(large(dir))?)
}

/// Makes a call on the large file when it is open.
fn on_large(mut file: &File, what: Call, block: &mut [u8; BLOCK]) -> anyhow::Result<()> {
    match what {
        Call::Read4k => return Ok(file.read_exact_at(block, LARGE_BYTES / 2)?),
        Call::Append4k => file.write_all(block)?,
        Call::Write512 => file.write_all_at(&block[..512], LARGE_BYTES / 2)?,
        _ => file.write_all_at(block, LARGE_BYTES / 2)?,
    }
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_works_and_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        for call in Call::value_variants() {
            let options = Options {
                dir: place.path().to_owned(),
                call: *call,
                count: 3,
                held: false,
            };
            run(&options).unwrap();
            let held = Options {
                held: true,
                ..options
            };
            assert_eq!(run(&held).is_ok(), call.is_of_large(), "{call:?}");
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }

    /// Goal: each call does what its name says. Method: what is there after it.
    #[test]
    fn calls_do_what_they_say() {
        let place = tempfile::tempdir().unwrap();
        let length = |path: PathBuf| std::fs::metadata(path).map(|file| file.len()).ok();
        for (what, small_after, large_after) in [
            (Call::Create, Some(0), LARGE_BYTES),
            (Call::Append4k, None, 4096),
            (Call::CreateWhole, Some(65536), LARGE_BYTES),
            (Call::Overwrite, Some(65536), LARGE_BYTES),
            (Call::Delete, None, LARGE_BYTES),
        ] {
            let dir = place.path().join(format!("{what:?}"));
            prepare(&dir, what, 1).unwrap();
            call(&dir, what, 0, &mut [3; BLOCK]).unwrap();
            assert_eq!(length(small(&dir, 0)), small_after, "{what:?}");
            assert_eq!(length(large(&dir)), Some(large_after), "{what:?}");
        }
    }
}
