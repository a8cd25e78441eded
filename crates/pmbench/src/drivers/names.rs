//! The time to make, look at and delete a file among so many others, in directories of so many
//! entries, by one thread or several.
//!
//! The files are there when the clock starts, and all of them are gone at the end. Each thread has
//! directories of its own.

use crate::random::Random;
use anyhow::ensure;
use clap::{Args, ValueEnum};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

/// The calls to make, and the files among which they are made.
#[derive(Args)]
pub struct Options {
    /// The directory.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, value_enum)]
    call: Call,
    /// Files that are there, of all threads.
    #[arg(long)]
    files: u64,
    /// Entries of a directory.
    #[arg(long, default_value_t = 1000)]
    width: u64,
    /// The calls of each thread.
    #[arg(long, default_value_t = 5000)]
    count: u64,
    #[arg(long, default_value_t = 1)]
    threads: u64,
}

/// The calls.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Call {
    /// open, which makes an empty file; close.
    Create,
    /// stat of a file that is there.
    Stat,
    /// unlink of files that were made after the others.
    Unlink,
}

/// A thread's files: the first so many are there, further ones are made and deleted.
struct Files {
    dir: PathBuf,
    there: u64,
    width: u64,
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(
        options.threads > 0 && options.width > 0 && options.count > 0,
        "--threads, --width and --count have to be more than 0"
    );
    let there = options.files / options.threads;
    ensure!(there > 0, "--files has to be as many as threads at least");
    let dir = options.dir.join("names");
    let _ = std::fs::remove_dir_all(&dir);
    let begin = Barrier::new(options.threads as usize);
    let spans: Vec<anyhow::Result<f64>> = std::thread::scope(|scope| {
        let thread = |number: u64| {
            let files = Files {
                dir: dir.join(number.to_string()),
                there,
                width: options.width,
            };
            let begin = &begin;
            scope.spawn(move || {
                let prepared = files.prepare(options);
                begin.wait();
                prepared?;
                files.measure(options, number)
            })
        };
        let threads: Vec<_> = (0..options.threads).map(thread).collect();
        let joined = threads.into_iter();
        joined
            .map(|thread| thread.join().expect("it does not panic"))
            .collect()
    });
    let _ = std::fs::remove_dir_all(&dir);
    let mut rate = 0.0;
    for seconds in spans {
        rate += options.count as f64 / seconds?;
    }
    let us = options.threads as f64 / rate * 1e6;
    println!(
        "{}",
        serde_json::json!({"call": format!("{:?}", options.call), "us": us, "operations_per_s": rate})
    );
    Ok(())
}

impl Files {
    /// The file of this number. New ones go to all directories alike.
    fn path(&self, number: u64) -> PathBuf {
        let dir = match number < self.there {
            true => number / self.width,
            false => number % self.dirs(),
        };
        self.dir.join(format!("{dir}/file-{number:08}"))
    }

    fn dirs(&self) -> u64 {
        self.there.div_ceil(self.width)
    }

    fn prepare(&self, options: &Options) -> anyhow::Result<()> {
        for dir in 0..self.dirs() {
            std::fs::create_dir_all(self.dir.join(dir.to_string()))?;
        }
        for number in 0..self.there {
            File::create_new(self.path(number))?;
        }
        if options.call == Call::Unlink {
            self.make(options.count)?;
        }
        // Nothing of this is to be written back while calls are measured.
        Ok(rustix::fs::syncfs(File::open(&self.dir)?)?)
    }

    fn make(&self, count: u64) -> anyhow::Result<()> {
        for number in 0..count {
            File::create_new(self.path(self.there + number))?;
        }
        Ok(())
    }

    /// Seconds.
    fn measure(&self, options: &Options, seed: u64) -> anyhow::Result<f64> {
        let mut random = Random(seed);
        let paths: Vec<PathBuf> = (0..options.count)
            .map(|number| match options.call {
                Call::Stat => self.path(random.below(self.there)),
                Call::Create | Call::Unlink => self.path(self.there + number),
            })
            .collect();
        let start = Instant::now();
        for path in &paths {
            self.call(options.call, path)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn call(&self, call: Call, path: &Path) -> anyhow::Result<()> {
        match call {
            Call::Create => drop(File::create_new(path)?),
            Call::Stat => {
                std::hint::black_box(std::fs::metadata(path)?);
            }
            Call::Unlink => std::fs::remove_file(path)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path, call: Call, threads: u64) -> Options {
        Options {
            dir: dir.into(),
            call,
            files: 100,
            width: 30,
            count: 7,
            threads,
        }
    }

    /// Goal: each call meets as many files as it should, and leaves what its name says. Method:
    /// what is there before and after.
    #[test]
    fn files_are_there_before_and_after() {
        let place = tempfile::tempdir().unwrap();
        for (call, before, after) in [
            (Call::Create, 100, 107),
            (Call::Stat, 100, 100),
            (Call::Unlink, 107, 100),
        ] {
            let files = Files {
                dir: place.path().join(format!("{call:?}")),
                there: 100,
                width: 30,
            };
            let there = || {
                let dirs = (0..4).map(|dir| files.dir.join(dir.to_string()));
                dirs.map(|dir| std::fs::read_dir(dir).unwrap().count())
                    .sum::<usize>()
            };
            let options = options(place.path(), call, 1);
            files.prepare(&options).unwrap();
            assert_eq!(there(), before, "{call:?}");
            assert!(files.measure(&options, 1).unwrap() > 0.0);
            assert_eq!(there(), after, "{call:?}");
        }
    }

    #[test]
    fn nothing_is_left_by_any_number_of_threads() {
        let place = tempfile::tempdir().unwrap();
        for call in Call::value_variants() {
            for threads in [1, 2, 3] {
                run(&options(place.path(), *call, threads)).unwrap();
                assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
            }
        }
        let mut none = options(place.path(), Call::Stat, 3);
        none.files = 2;
        assert!(run(&none).is_err());
    }
}
