//! Files in a tree under a mix of calls by many threads, like the personalities of Filebench
//! (Tarasov, Zadok and Shepler, 2016), which Debian has no more.
//!
//! The log is begun anew when it is large: at the speed of memory it would fill any pool.
//!
//! A file is in use by one thread at a time, as there. The count is Filebench's: each open, read,
//! write, append, fsync, close, stat and delete is one operation.

use super::Span;
use super::mixes::{Mix, Shape, Step};
use super::oltp;
use crate::random::Random;
use anyhow::Context;
use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes that the log holds at most.
const LOG_MOST: u64 = 64 << 20;

/// The mix, and the place.
#[derive(Args)]
pub struct Options {
    /// The personality.
    #[arg(long, value_enum)]
    mix: Mix,
    /// The directory; the tree is made there if it isn't yet.
    #[arg(long)]
    dir: PathBuf,
    /// Files [default: the personality's].
    #[arg(long)]
    files: Option<u64>,
    /// Threads [default: the personality's].
    #[arg(long)]
    threads: Option<usize>,
    /// Mean size of a file, in KiB [default: the personality's].
    #[arg(long)]
    mean_kib: Option<u64>,
    /// Files in a directory [default: the personality's].
    #[arg(long)]
    width: Option<u64>,
    /// KiB that are read and written at a time [default: the personality's].
    #[arg(long)]
    at_once_kib: Option<u64>,
    #[command(flatten)]
    span: Span,
}

impl Options {
    /// The personality's, but for what was asked for.
    fn shape(&self) -> Shape {
        let own = self.mix.shape();
        let bytes = |kib: Option<u64>, own: u64| kib.map_or(own, |kib| kib.max(1) << 10);
        Shape {
            files: self.files.unwrap_or(own.files),
            there: own.there,
            mean_bytes: bytes(self.mean_kib, own.mean_bytes),
            // A width of one would make directories without end.
            width: self.width.unwrap_or(own.width).max(2),
            at_once: bytes(self.at_once_kib, own.at_once),
            threads: self.threads.unwrap_or(own.threads),
        }
    }
}

/// Names, by number.
struct Names {
    /// The files that exist and are not in use.
    idle: Vec<u64>,
    /// The files that are not there.
    absent: Vec<u64>,
}

/// The tree.
pub struct Fileset {
    dir: PathBuf,
    shape: Shape,
    names: Mutex<Names>,
    log: Mutex<(File, u64)>,
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let shape = options.shape();
    let span = Duration::from_secs_f64(options.span.seconds);
    if options.mix == Mix::Oltp {
        return oltp::run(&options.dir, shape, span);
    }
    let fileset = Fileset::open(&options.dir, shape)?;
    let steps = options.mix.steps();
    let start = Instant::now();
    let until = start + span;
    let counts: Vec<anyhow::Result<u64>> = std::thread::scope(|scope| {
        let thread = |number: usize| {
            let (fileset, steps) = (&fileset, &steps);
            scope.spawn(move || fileset.work(steps, number, until))
        };
        let threads: Vec<_> = (0..shape.threads).map(thread).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"));
        joined.collect()
    });
    let operations = counts.into_iter().sum::<anyhow::Result<u64>>()?;
    print(operations, start.elapsed());
    Ok(())
}

/// Prints what all mixes tell.
pub fn print(operations: u64, took: Duration) {
    let each_s = operations as f64 / took.as_secs_f64();
    println!(
        "{}",
        serde_json::json!({"operations": operations, "seconds": took.as_secs_f64(), "operations_per_s": each_s})
    );
}

impl Fileset {
    /// Makes the tree, or finds out what is there.
    pub fn open(dir: &Path, shape: Shape) -> anyhow::Result<Fileset> {
        let fresh = !dir.exists();
        std::fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join("log"))?;
        let names = Names {
            idle: Vec::new(),
            absent: Vec::new(),
        };
        let fileset = Fileset {
            dir: dir.to_owned(),
            shape,
            names: Mutex::new(names),
            log: Mutex::new((log, LOG_MOST)),
        };
        let block = vec![5; shape.at_once as usize];
        for number in 0..shape.files {
            let path = fileset.path(number);
            let mut there = path.exists();
            if fresh {
                std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
                there = number % 100 < shape.there;
                if there {
                    fileset.write_whole(&mut File::create(path)?, number, &block)?;
                }
            }
            fileset.give_back(number, there);
        }
        Ok(fileset)
    }

    /// Directories hold as many directories as files.
    fn path(&self, number: u64) -> PathBuf {
        let mut dirs = Vec::new();
        let mut left = number / self.shape.width;
        let mut all = self.shape.files.div_ceil(self.shape.width);
        while all > 1 {
            dirs.push(format!("d{}", left % self.shape.width));
            left /= self.shape.width;
            all = all.div_ceil(self.shape.width);
        }
        let mut path = self.dir.clone();
        path.extend(dirs.iter().rev());
        path.join(format!("f{number}"))
    }

    /// Returns how large a file is when it is written whole: the same each time.
    fn bytes(&self, number: u64) -> u64 {
        let mut random = Random(number);
        let mut unit = || (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        // Gamma of shape 1.5: an exponential and half the square of a normal one.
        let exponential = -unit().ln();
        let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        let gamma = exponential + normal * normal / 2.0;
        (gamma / 1.5 * self.shape.mean_bytes as f64).max(1.0) as u64
    }

    fn take(&self, random: &mut Random, there: bool) -> Option<u64> {
        let mut names = self.names.lock().expect("nobody panics");
        let list = if there {
            &mut names.idle
        } else {
            &mut names.absent
        };
        if list.is_empty() {
            return None;
        }
        let at = random.below(list.len() as u64) as usize;
        Some(list.swap_remove(at))
    }

    fn give_back(&self, number: u64, there: bool) {
        let mut names = self.names.lock().expect("nobody panics");
        let list = if there {
            &mut names.idle
        } else {
            &mut names.absent
        };
        list.push(number);
    }

    /// Writes as much as the file has, from `block`, which is as long as what is written at a time.
    fn write_whole(&self, file: &mut File, number: u64, block: &[u8]) -> anyhow::Result<()> {
        let mut left = self.bytes(number);
        while left > 0 {
            let now = left.min(self.shape.at_once);
            file.write_all(&block[..now as usize])?;
            left -= now;
        }
        Ok(())
    }

    fn append_log(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut log = self.log.lock().expect("nobody panics");
        let (file, len) = &mut *log;
        *len += bytes.len() as u64;
        if *len > LOG_MOST {
            file.set_len(0)?;
            *len = bytes.len() as u64;
        }
        Ok(file.write_all(bytes)?)
    }

    /// Does the work of a thread until the time is over; returns the operations done.
    fn work(&self, steps: &[Step], thread: usize, until: Instant) -> anyhow::Result<u64> {
        let mut worker = Worker {
            fileset: self,
            random: Random(thread as u64 + 1),
            open: None,
            buffer: vec![6; self.shape.at_once as usize],
            done: 0,
        };
        while Instant::now() < until {
            for step in steps {
                worker.step(*step)?;
            }
        }
        Ok(worker.done)
    }
}

/// A thread.
struct Worker<'a> {
    fileset: &'a Fileset,
    random: Random,
    open: Option<(u64, File)>,
    buffer: Vec<u8>,
    done: u64,
}

impl Worker<'_> {
    /// Counts it if it was done: where all names are taken there is nothing to make or delete.
    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        if self.try_step(step)?.is_some() {
            self.done += 1;
        }
        Ok(())
    }

    fn try_step(&mut self, step: Step) -> anyhow::Result<Option<()>> {
        match step {
            Step::Create => return self.hold(false, |path| File::create_new(path)),
            Step::Open => {
                return self.hold(true, |path| {
                    OpenOptions::new().read(true).append(true).open(path)
                });
            }
            Step::Close => return Ok(self.close()),
            Step::Delete => return self.delete(),
            Step::Look => return self.look(),
            Step::Log(most) => {
                let bytes = self.some(most);
                self.fileset.append_log(&self.buffer[..bytes])?;
                return Ok(Some(()));
            }
            Step::WriteWhole | Step::ReadWhole | Step::Append(_) | Step::Sync => {}
        }
        let Some((number, mut file)) = self.open.take() else {
            return Ok(None);
        };
        match step {
            Step::WriteWhole => self.fileset.write_whole(&mut file, number, &self.buffer)?,
            Step::ReadWhole => while file.read(&mut self.buffer)? > 0 {},
            Step::Append(most) => {
                let bytes = self.some(most);
                file.write_all(&self.buffer[..bytes])?;
            }
            _ => file.sync_all()?,
        }
        self.open = Some((number, file));
        Ok(Some(()))
    }

    fn some(&mut self, most: u64) -> usize {
        self.random.below(most) as usize + 1
    }

    fn hold(
        &mut self,
        there: bool,
        open: impl FnOnce(&Path) -> std::io::Result<File>,
    ) -> anyhow::Result<Option<()>> {
        self.close();
        let Some(number) = self.fileset.take(&mut self.random, there) else {
            return Ok(None);
        };
        let path = self.fileset.path(number);
        let file = open(&path).with_context(|| path.display().to_string())?;
        self.open = Some((number, file));
        Ok(Some(()))
    }

    fn close(&mut self) -> Option<()> {
        let (number, file) = self.open.take()?;
        drop(file);
        self.fileset.give_back(number, true);
        Some(())
    }

    fn delete(&mut self) -> anyhow::Result<Option<()>> {
        let Some(number) = self.fileset.take(&mut self.random, true) else {
            return Ok(None);
        };
        std::fs::remove_file(self.fileset.path(number))?;
        self.fileset.give_back(number, false);
        Ok(Some(()))
    }

    fn look(&mut self) -> anyhow::Result<Option<()>> {
        let Some(number) = self.fileset.take(&mut self.random, true) else {
            return Ok(None);
        };
        std::fs::metadata(self.fileset.path(number))?;
        self.fileset.give_back(number, true);
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            files: 450,
            there: 80,
            mean_bytes: 4096,
            width: 20,
            at_once: 1 << 20,
            threads: 1,
        }
    }

    fn files(dir: &Path) -> usize {
        let entries = std::fs::read_dir(dir).unwrap().flatten();
        let count = |entry: std::fs::DirEntry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => usize::from(path.file_name().unwrap().to_string_lossy().starts_with('f')),
        };
        entries.map(count).sum()
    }

    #[test]
    fn the_tree_is_as_asked_for_and_is_found_again() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("set");
        let fileset = Fileset::open(&dir, shape()).unwrap();
        // 80 of each 100, and 50 of the last 50.
        assert_eq!(files(&dir), 4 * 80 + 50);
        let mean = (0..450).map(|number| fileset.bytes(number)).sum::<u64>() / 450;
        assert!((3400..4800).contains(&mean), "{mean}");
        let top = std::fs::read_dir(&dir).unwrap().count();
        assert_eq!(top, 3, "two directories of up to twenty, and the log");
        let mut worker = Random(1);
        let gone = fileset.take(&mut worker, true).unwrap();
        std::fs::remove_file(fileset.path(gone)).unwrap();
        let again = Fileset::open(&dir, shape()).unwrap();
        assert_eq!(again.names.lock().unwrap().idle.len(), 369);
        assert_eq!(again.names.lock().unwrap().absent.len(), 81);
    }

    #[test]
    fn the_log_does_not_grow_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let fileset = Fileset::open(&place.path().join("set"), shape()).unwrap();
        let mib = vec![0; 1 << 20];
        let log = place.path().join("set/log");
        let len = || std::fs::metadata(&log).unwrap().len();
        for _ in 0..LOG_MOST >> 20 {
            fileset.append_log(&mib).unwrap();
        }
        assert_eq!(len(), LOG_MOST);
        fileset.append_log(&mib[..7]).unwrap();
        assert_eq!(len(), 7);
    }

    /// Goal: operations are counted as they are done. Method: each mix once, by hand.
    #[test]
    fn mixes_run_and_are_counted() {
        for mix in [Mix::Fileserver, Mix::Webserver, Mix::Webproxy, Mix::Varmail] {
            let place = tempfile::tempdir().unwrap();
            let fileset = Fileset::open(&place.path().join("set"), shape()).unwrap();
            let steps = mix.steps();
            let mut worker = Worker {
                fileset: &fileset,
                random: Random(7),
                open: None,
                buffer: vec![0; 1 << 20],
                done: 0,
            };
            for step in &steps {
                worker.step(*step).unwrap();
            }
            assert_eq!(worker.done, steps.len() as u64, "{mix:?}");
            let there = files(&place.path().join("set"));
            let names = fileset.names.lock().unwrap();
            assert_eq!(there, names.idle.len(), "{mix:?}");
            assert_eq!(
                there,
                4 * 80 + 50,
                "one made for one deleted in {mix:?}, or none"
            );
        }
    }
}
