//! The time of writes on a file system that is nearly full. The file system is filled with files of
//! 64 KiB, some of which are deleted again at random, so that the free space is in many places.

use crate::random::Random;
use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

const BLOCK: usize = 4096;
const PIECE: u64 = 64 << 10;
/// Files in a directory.
const WIDTH: u64 = 1000;
/// The share filled before files are deleted, in hundredths.
const MOST: u64 = 97;
/// The largest file system that is filled: a larger one is unlikely to be a test's.
const LARGEST_BYTES: u64 = 16 << 30;
/// The size of a file that is made, blocks.
const WHOLE: usize = 4;

/// The calls to make, and the fill.
#[derive(Args)]
pub struct Options {
    /// A file system that no other program uses.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, value_enum)]
    call: Call,
    /// The fill, in hundredths.
    #[arg(long)]
    percent: u64,
    #[arg(long, default_value_t = 1000)]
    count: u64,
}

/// The call that is measured; durable once at the end.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Call {
    /// 4 KiB at the end of a file.
    Append,
    /// 4 KiB over a block of a file, at random.
    Overwrite,
    /// A new file of 16 KiB, in writes of 4 KiB.
    Create,
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(
        options.percent < MOST && options.count > 0,
        "--percent has to be less than {MOST}, and --count more than 0"
    );
    may_be_filled(&options.dir)?;
    let place = options.dir.join("full");
    let _ = std::fs::remove_dir_all(&place);
    let us = measure(&place, options);
    std::fs::remove_dir_all(&place)?;
    println!(
        "{}",
        serde_json::json!({"call": format!("{:?}", options.call), "us": us?})
    );
    Ok(())
}

/// Refuses the machine's own file system, which must not be filled.
fn may_be_filled(dir: &Path) -> anyhow::Result<()> {
    let device = |path: &Path| {
        let there = std::fs::metadata(path);
        let there = there.with_context(|| format!("{} can't be looked at", path.display()))?;
        anyhow::Ok(there.dev())
    };
    let is_root = device(dir)? == device(Path::new("/"))?;
    let all = statvfs(dir)?;
    check_size(all.f_blocks.saturating_mul(all.f_frsize), is_root)
        .with_context(|| format!("{} is not filled", dir.display()))
}

fn check_size(bytes: u64, is_root: bool) -> anyhow::Result<()> {
    ensure!(
        !is_root,
        "it is on the root file system: mount one of its own there"
    );
    ensure!(
        bytes <= LARGEST_BYTES,
        "its file system has {} GiB, more than {}, and others may need it: mount one of its own there",
        bytes >> 30,
        LARGEST_BYTES >> 30
    );
    Ok(())
}

fn measure(place: &Path, options: &Options) -> anyhow::Result<f64> {
    let files = place.join("files");
    std::fs::create_dir_all(&files)?;
    if options.call == Call::Overwrite {
        let mut file = File::create(place.join("written"))?;
        for _ in 0..options.count {
            file.write_all(&[1; BLOCK])?;
        }
    }
    fill(place, options.percent)?;
    // Nothing of this is to be written back while calls are measured.
    rustix::fs::syncfs(File::open(place)?)?;
    let start = Instant::now();
    work(place, options).context("it is too full for --count")?;
    rustix::fs::syncfs(File::open(place)?)?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / options.count as f64)
}

fn work(place: &Path, options: &Options) -> anyhow::Result<()> {
    let block = [2; BLOCK];
    let mut random = Random(options.percent);
    let mut open = OpenOptions::new();
    let file = open.create(true).write(true).open(place.join("written"))?;
    for number in 0..options.count {
        match options.call {
            Call::Append => file.write_all_at(&block, number * BLOCK as u64)?,
            Call::Overwrite => {
                file.write_all_at(&block, random.below(options.count) * BLOCK as u64)?;
            }
            Call::Create => {
                let mut file = File::create_new(place.join(format!("files/made-{number}")))?;
                (0..WHOLE).try_for_each(|_| file.write_all(&block))?;
            }
        }
    }
    Ok(())
}

/// Hundredths of the file system that are in use.
fn percent_used(place: &Path) -> anyhow::Result<f64> {
    let all = statvfs(place)?;
    let free = all.f_bfree as f64 / (all.f_blocks as f64).max(1.0);
    Ok(100.0 - free * 100.0)
}

fn fill(place: &Path, percent: u64) -> anyhow::Result<()> {
    let mut files = 0;
    while files % 16 != 0 || percent_used(place)? < MOST as f64 {
        let path = piece(place, files);
        if files % WIDTH == 0 {
            std::fs::create_dir(path.parent().context("a directory")?)?;
        }
        let file = File::create_new(path)?;
        let allocated = fallocate(file, FallocateFlags::empty(), 0, PIECE);
        allocated.context("it could not be filled")?;
        files += 1;
    }
    let mut left: Vec<u64> = (0..files).collect();
    let mut random = Random(1);
    while !left.len().is_multiple_of(16) || percent_used(place)? > percent as f64 {
        ensure!(
            !left.is_empty(),
            "{} holds so much else that it can't be {percent} % full",
            place.display()
        );
        let file = left.swap_remove(random.below(left.len() as u64) as usize);
        std::fs::remove_file(piece(place, file))?;
    }
    Ok(())
}

fn piece(place: &Path, number: u64) -> PathBuf {
    place.join(format!("files/{}/{number}", number / WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::Ground;

    #[test]
    fn what_others_need_is_not_filled() {
        assert!(check_size(2 << 30, false).is_ok());
        assert!(check_size(2 << 30, true).is_err());
        let why = check_size(250 << 30, false).unwrap_err().to_string();
        assert!(why.contains("250 GiB, more than 16"), "{why}");
        let missing = may_be_filled(Path::new("/no/such/place")).unwrap_err();
        assert!(
            missing.to_string().contains("/no/such/place"),
            "{missing:#}"
        );
    }

    /// Goal: it is as full as asked for, what is free is in many places, and each call does what it
    /// says. Method: a small tmpfs.
    #[test]
    fn it_is_as_full_as_asked_for() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let ground = Ground::small(64).unwrap();
        for percent in [10, 50, 90] {
            let place = ground.path().join("full");
            std::fs::create_dir_all(place.join("files")).unwrap();
            fill(&place, percent).unwrap();
            let used = percent_used(&place).unwrap();
            assert!((used - percent as f64).abs() < 4.0, "{percent}: {used}");
            let there = |number: &u64| piece(&place, *number).exists();
            let turns = (0..900).zip(1..).filter(|(a, b)| there(a) != there(b));
            assert!(turns.count() > 20, "{percent}");
            std::fs::remove_dir_all(&place).unwrap();
        }
        for (call, bytes) in [
            (Call::Append, 12288),
            (Call::Overwrite, 12288),
            (Call::Create, 0),
        ] {
            let options = Options {
                dir: ground.path().into(),
                call,
                percent: 50,
                count: 3,
            };
            let place = ground.path().join(format!("{call:?}"));
            assert!(measure(&place, &options).unwrap() > 0.0);
            let written = std::fs::read(place.join("written")).unwrap();
            assert_eq!(written.len(), bytes, "{call:?}");
            let made = std::fs::read(place.join("files/made-2"));
            assert_eq!(
                made.is_ok_and(|file| file == [2; 16384]),
                call == Call::Create
            );
            std::fs::remove_dir_all(&place).unwrap();
        }
    }
}
