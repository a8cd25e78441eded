//! The work of a thread.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pm_cli::Failure;
use pmmon_cli::writer::{Cli, Plan, Work};
use pmmon_sys::{Compiled, Mapping, Op, TrackedPages, run};

use crate::counts::{Board, Counts};
use crate::places::Places;

/// Accesses between two looks at the time, at signals, and two publications of counts.
const BATCH: u64 = 4096;
/// The longest sleep: a signal is seen within it.
const SLEEP: Duration = Duration::from_millis(50);

/// The load that all threads share.
#[derive(Debug)]
pub(crate) struct Load {
    plan: Plan,
    target: Target,
    board: Board,
    stop: Arc<AtomicBool>,
    _tracked: Option<TrackedPages>,
}

#[derive(Debug)]
enum Target {
    Mapped(Mapping),
    Compiled {
        mapping: Mapping,
        read: Option<Compiled>,
        write: Option<Compiled>,
    },
    Calls(File),
}

impl Load {
    pub fn new(
        cli: &Cli,
        plan: &Plan,
        file: File,
        board: Board,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                format!("{}: {error}", cli.file.display()),
                "take a file that can be mapped, or a smaller --size",
            )
        };
        let bytes = usize::try_from(cli.size.0).unwrap_or(usize::MAX);
        let mut tracked = None;
        let target = if cli.calls.is_some() {
            Target::Calls(file)
        } else {
            let mapping = Mapping::new(&file, bytes).map_err(failed)?;
            if cli.pages {
                let start = mapping.address();
                let pages = TrackedPages::of(&(start..start + mapping.bytes() as u64));
                tracked = Some(pages.map_err(|lacking| Failure::whole(lacking.to_string()))?);
            }
            if cli.jit {
                compiled(plan, mapping)?
            } else {
                Target::Mapped(mapping)
            }
        };
        Ok(Self {
            plan: *plan,
            target,
            board,
            stop,
            _tracked: tracked,
        })
    }

    /// Ends all threads before they begin.
    pub fn halt_if(&self, failed: bool) {
        if failed {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The work of the `number`-th thread.
    pub fn run(&self, number: u32, tid: u32) -> Result<Counts, Failure> {
        let plan = &self.plan;
        let mut counts = Counts {
            tid,
            ..Counts::default()
        };
        self.board.publish(number, &counts)?;
        let mut places = Places::new(plan.order, number, plan.part, plan.access);
        let mut batch = vec![0; BATCH as usize];
        let mut left = plan.accesses;
        let begin = Instant::now();
        while left > 0 && !self.is_stopped() {
            let length = left.min(BATCH);
            let batch = &mut batch[..length as usize];
            places.fill(batch);
            self.make(batch, &mut counts)?;
            left -= length;
            self.board.publish(number, &counts)?;
            self.pace(begin, &counts);
        }
        Ok(counts)
    }

    fn make(&self, batch: &[u32], counts: &mut Counts) -> Result<(), Failure> {
        let (reads, writes) = match self.plan.work {
            Work::Read => (batch, &[][..]),
            Work::Write => (&[][..], batch),
            Work::Mix => batch.split_at(batch.len() / 2),
        };
        let (bytes, kind) = (self.plan.access, self.plan.kind);
        match &self.target {
            Target::Mapped(mapping) => {
                if !reads.is_empty() {
                    run(mapping, Op::Read, bytes, reads);
                }
                if !writes.is_empty() {
                    run(mapping, Op::Write(kind), bytes, writes);
                }
            }
            Target::Compiled {
                mapping,
                read,
                write,
            } => {
                for (compiled, places) in [(read, reads), (write, writes)] {
                    if let Some(compiled) = compiled {
                        compiled.run(mapping, places);
                    }
                }
            }
            Target::Calls(file) => {
                let data = [0x5a; 256];
                for at in writes {
                    file.write_all_at(&data[..bytes as usize], u64::from(*at))
                        .map_err(|error| {
                            Failure::new(format!("pwrite: {error}"), "make space for the file")
                        })?;
                }
            }
        }
        counts.read_accesses += reads.len() as u64;
        counts.read_bytes += reads.len() as u64 * u64::from(bytes);
        counts.written_accesses += writes.len() as u64;
        counts.written_bytes += writes.len() as u64 * u64::from(bytes);
        Ok(())
    }

    /// Waits until as much as was done is due.
    fn pace(&self, begin: Instant, counts: &Counts) {
        let Some(rate) = self.plan.rate else { return };
        let done = (counts.read_bytes + counts.written_bytes) as f64;
        while !self.is_stopped() {
            let early = done / rate - begin.elapsed().as_secs_f64();
            if early <= 0.0 {
                return;
            }
            std::thread::sleep(Duration::from_secs_f64(early.min(SLEEP.as_secs_f64())));
        }
    }
}

/// Makes the loops, and tells where they are as compilers at run time do.
fn compiled(plan: &Plan, mapping: Mapping) -> Result<Target, Failure> {
    let make = |op| {
        Compiled::new(op, plan.access)
            .map_err(|error| Failure::new(format!("--jit: {error}"), "leave it out"))
    };
    let read = match plan.work {
        Work::Write => None,
        Work::Read | Work::Mix => Some(make(Op::Read)?),
    };
    let write = match plan.work {
        Work::Read => None,
        Work::Write | Work::Mix => Some(make(Op::Write(plan.kind))?),
    };
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let names = [(&read, "pmm_writer_read"), (&write, "pmm_writer_write")];
    // A map that can not be written costs a name, and nothing else.
    if let Ok(mut file) = File::create_new(&path) {
        for (compiled, name) in names {
            if let Some(range) = compiled.as_ref().map(Compiled::range) {
                let length = range.end - range.start;
                let _ = writeln!(file, "{:x} {length:x} {name}", range.start);
            }
        }
    }
    Ok(Target::Compiled {
        mapping,
        read,
        write,
    })
}
