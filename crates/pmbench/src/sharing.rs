//! The scaling of several processes on one pool: on files and directories of their own and on the
//! same ones, beside a plain copy loop that shares nothing, in the same rounds. Losses of the copy
//! loop are the machine's, not the file system's.

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool;
use crate::random::Random;
use anyhow::{Context, bail};
use pmfs::{AtimeMode, Fs, Ino, OpenOptions, ROOT_INO};
use pmfs_admin::MkfsOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The numbers of processes at once.
const PROCESSES: [usize; 4] = [1, 2, 4, 8];
/// The time that a worker works in a round.
const SPAN: Duration = Duration::from_millis(150);
const BLOCK: usize = 4096;
/// Blocks of a worker's own file, and of the one that all share.
const BLOCKS: u64 = 4096;

/// The work of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// 4 KiB copied in memory of the process: no pool.
    Copy,
    /// 4 KiB written at random into a file of its own.
    WriteOwn,
    /// 4 KiB written at random into one file.
    WriteShared,
    /// 4 KiB read at random from one file.
    ReadShared,
    /// A name made and removed in a directory of its own.
    NamesOwn,
    /// A name made and removed in one directory.
    NamesShared,
}

const ALL: [Work; 6] = [
    Work::Copy,
    Work::WriteOwn,
    Work::WriteShared,
    Work::ReadShared,
    Work::NamesOwn,
    Work::NamesShared,
];

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Copy => "copy of 4 KiB, no pool",
            Work::WriteOwn => "write 4 KiB, own files",
            Work::WriteShared => "write 4 KiB, one file",
            Work::ReadShared => "read 4 KiB, one file",
            Work::NamesOwn => "create + unlink, own directories",
            Work::NamesShared => "create + unlink, one directory",
        }
    }
}

/// A process that works when it is told to.
struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(pool: &Path, number: usize) -> anyhow::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(pool)
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Worker {
            orders: child.stdin.take().context("a pipe")?,
            answers: BufReader::new(child.stdout.take().context("a pipe")?),
            child,
        })
    }

    fn order(&mut self, work: Work) -> anyhow::Result<()> {
        writeln!(self.orders, "{}", work as u8)?;
        Ok(())
    }

    /// Operations a second.
    fn answer(&mut self) -> anyhow::Result<f64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let rate = line.trim().parse();
        rate.with_context(|| format!("a worker ended: it said {line:?}"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures and prints.
pub fn run(report: &Report) -> anyhow::Result<()> {
    let ground = Ground::new(4)?;
    let path = ground.path().join("pool");
    let fs = make(&path)?;
    let shared = fs.create(ROOT_INO, b"shared", &pool::NODE)?.ino;
    fill(&fs, shared)?;
    fs.mkdir(ROOT_INO, b"shared-dir", &pool::NODE)?;
    let most = PROCESSES[PROCESSES.len() - 1];
    for number in 0..most {
        let own = fs.create(ROOT_INO, format!("own-{number}").as_bytes(), &pool::NODE)?;
        fill(&fs, own.ino)?;
        fs.mkdir(ROOT_INO, format!("dir-{number}").as_bytes(), &pool::NODE)?;
    }
    let started = (0..most).map(|number| Worker::start(&path, number));
    let mut workers = started.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rates = vec![vec![Figures::default(); PROCESSES.len()]; ALL.len()];
    for _ in 0..report.rounds {
        for (at, &count) in PROCESSES.iter().enumerate() {
            for (row, &work) in ALL.iter().enumerate() {
                for worker in &mut workers[..count] {
                    worker.order(work)?;
                }
                let mut total = 0.0;
                for worker in &mut workers[..count] {
                    total += worker.answer()?;
                }
                rates[row][at].0.push(total);
            }
        }
    }
    drop(workers);
    fs.close()?;
    print(report, &rates);
    Ok(())
}

/// Prints for each round how many times as much as one process does so many do, and what share that
/// is of what copying gains.
fn print(report: &Report, rates: &[Vec<Figures>]) {
    let gain = |row: usize, at: usize| {
        let pairs = rates[row][at].0.iter().zip(&rates[row][0].0);
        Figures(pairs.map(|(many, one)| many / one).collect())
    };
    let share = |row: usize, at: usize| {
        let pairs = gain(row, at).0.into_iter().zip(gain(0, at).0);
        Figures(pairs.map(|(own, copy)| own / copy).collect())
    };
    if !report.json {
        println!(
            "{:<34} {:>12}  gain with 2, 4, 8 processes (share of what the copy loop gains)",
            "", "one, ops/s"
        );
    }
    for (row, work) in ALL.iter().enumerate() {
        let one = rates[row][0].median();
        let cells: Vec<_> = (1..PROCESSES.len())
            .map(|at| (gain(row, at), share(row, at)))
            .collect();
        if report.json {
            let gains: Vec<f64> = cells.iter().map(|cell| cell.0.median()).collect();
            let shares: Vec<f64> = cells.iter().map(|cell| cell.1.median()).collect();
            let name = work.name();
            println!(
                "{{\"row\":\"{name}\",\"one_per_s\":{one:.0},\"gain\":{gains:?},\"share\":{shares:?}}}"
            );
            continue;
        }
        let text: Vec<String> = cells
            .iter()
            .map(|(gain, share)| format!("{:.2} ({:.2})", gain.median(), share.median()))
            .collect();
        println!("{:<34} {one:>12.0}  {}", work.name(), text.join("   "));
    }
}

fn make(path: &Path) -> anyhow::Result<Fs> {
    let options = MkfsOptions {
        size: Some(2 << 30),
        map: pool::map_options(),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(path, &options)?;
    open(path)
}

fn open(path: &Path) -> anyhow::Result<Fs> {
    let options = OpenOptions {
        map: pool::map_options(),
        atime: AtimeMode::Noatime,
        ..OpenOptions::default()
    };
    Ok(Fs::open(path, &options)?)
}

fn fill(fs: &Fs, ino: Ino) -> anyhow::Result<()> {
    let piece = vec![7; 1 << 20];
    for at in 0..(BLOCKS * BLOCK as u64) >> 20 {
        fs.write(ino, at << 20, &piece)?;
    }
    Ok(())
}

/// The files and the memory of a worker.
struct Desk {
    fs: Fs,
    number: usize,
    own: Ino,
    shared: Ino,
    own_dir: Ino,
    shared_dir: Ino,
    random: Random,
    memory: Vec<u8>,
}

/// The process of a worker: for each line that it reads it works, and answers its rate.
pub fn worker(path: &Path, number: usize) -> anyhow::Result<()> {
    let fs = open(path)?;
    let ino = |name: String| fs.lookup(ROOT_INO, name.as_bytes()).map(|attr| attr.ino);
    let mut desk = Desk {
        number,
        own: ino(format!("own-{number}"))?,
        shared: ino("shared".into())?,
        own_dir: ino(format!("dir-{number}"))?,
        shared_dir: ino("shared-dir".into())?,
        random: Random(number as u64 + 1),
        memory: vec![1; 64 << 20],
        fs,
    };
    for line in std::io::stdin().lock().lines() {
        let order: usize = line?.trim().parse()?;
        let Some(&work) = ALL.get(order) else {
            bail!("no such work: {order}");
        };
        let since = Instant::now();
        let mut done = 0u64;
        while since.elapsed() < SPAN {
            for _ in 0..16 {
                desk.step(work, done)?;
                done += 1;
            }
        }
        println!("{}", done as f64 / since.elapsed().as_secs_f64());
    }
    desk.fs.close()?;
    Ok(())
}

impl Desk {
    fn step(&mut self, work: Work, done: u64) -> anyhow::Result<()> {
        let at = self.random.below(BLOCKS) * BLOCK as u64;
        let mut block = [0; BLOCK];
        match work {
            Work::Copy => {
                let half = self.memory.len() / 2;
                let (from, to) = self.memory.split_at_mut(half);
                let (source, goal) = (at as usize, self.random.below(BLOCKS) as usize * BLOCK);
                to[goal..goal + BLOCK].copy_from_slice(&from[source..source + BLOCK]);
            }
            Work::WriteOwn => drop(self.fs.write(self.own, at, &[self.number as u8; BLOCK])?),
            Work::WriteShared => drop(self.fs.write(
                self.shared,
                at,
                &[self.number as u8; BLOCK],
            )?),
            Work::ReadShared => drop(self.fs.read(self.shared, at, &mut block)?),
            Work::NamesOwn | Work::NamesShared => {
                let dir = match work {
                    Work::NamesOwn => self.own_dir,
                    _ => self.shared_dir,
                };
                let name = format!("name-{}-{done}", self.number);
                self.fs.create(dir, name.as_bytes(), &pool::NODE)?;
                self.fs.unlink(dir, name.as_bytes())?;
            }
        }
        std::hint::black_box(&block);
        Ok(())
    }
}
