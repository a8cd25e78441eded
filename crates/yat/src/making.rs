//! Power lost while a pool is made, or made larger. A pool being made is no pool, or a whole one,
//! of which at most the first superblock is torn. A pool being made larger is as before, or as it
//! is to be.

use crate::files::call::{Held, parse};
use crate::files::tree::{self, Tree};
use crate::files::{pool, usage};
use crate::program::{Moment, Program};
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{DataMode, Error, Fs, OpenOptions};
use pmfs_admin::Admin;
use pmfs_format::BLOCK_BYTES;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The one finding that a pool may have which is fit for use all the same.
const TORN: &str = "the superblock is damaged; its copy serves";

/// Bytes that a pool has one after the other. Its layout is another matter once it has grown.
const SIZES: [u64; 3] = [pool::POOL_BYTES, 3 << 20, 5 << 20];
/// The calls that fill a pool that grows.
const FILES: &str = "create foo; write foo 0 9000; mkdir A; create A/bar; write A/bar 0 70000";

/// `mkfs` or `grow`, as a program of one step.
pub struct Making {
    /// The index of the size that it comes to have.
    size: usize,
    /// The first instance does it, those after it find what a crash left.
    done: AtomicBool,
}

/// The thing that is attached to.
pub enum Running {
    /// Memory that is no pool: yet to be made, or cut short; and a pool that is not open.
    Memory(Option<Box<Pmem>>),
    /// A pool.
    Pool(Box<Fs>),
}

impl Making {
    /// A pool that is made, one that grows, and one that grows once more.
    #[must_use]
    pub fn all() -> [Making; SIZES.len()] {
        std::array::from_fn(|size| Making {
            size,
            done: AtomicBool::new(false),
        })
    }
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

fn options() -> OpenOptions {
    pool::open_options(DataMode::Atomic, 9_000_000)
}

/// Memory of a pool's, and what is behind it.
fn memory(image: &[u8], bytes: u64) -> Pmem {
    let mem = Pmem::private(bytes);
    // No one has written to it: not zeros.
    mem.poke(0, &vec![0xdb; bytes as usize]);
    mem.poke(0, image);
    mem
}

/// Puts files in a pool, or finds that they are there, and leaves it clean.
fn visited(mem: Pmem, calls: &str) -> Result<Pmem, String> {
    let fs = Fs::open_private(mem, &options()).map_err(words)?;
    for call in parse(calls)? {
        call.run(&fs, &mut Held::new(), 1).map_err(words)?;
    }
    fs.detach().map_err(words)?;
    Ok(fs.into_mapping())
}

fn grown(mem: Pmem, size: usize) -> Result<Pmem, String> {
    pmfs_admin::grow_private(mem, SIZES[size] / BLOCK_BYTES).map_err(words)
}

impl Program for Making {
    type Running = Running;
    /// The size of the pool, and what is in it. None: no pool.
    type Visible = Option<(u64, Tree)>;

    fn name(&self) -> String {
        match self.size {
            0 => "mkfs".into(),
            size => format!(
                "grow from {} to {} MiB",
                SIZES[size - 1] >> 20,
                SIZES[size] >> 20
            ),
        }
    }

    fn setup(&self) -> Result<Pmem, String> {
        let bytes = SIZES[self.size];
        if self.size == 0 {
            return Ok(memory(&[], bytes));
        }
        let fresh = pool::fresh(SIZES[0]).snapshot_image();
        let mut mem = visited(memory(&fresh, bytes), FILES)?;
        for size in 1..self.size {
            mem = visited(grown(mem, size)?, "")?;
        }
        Ok(mem)
    }

    fn volatile(&self, mem: &Pmem) -> Range<u64> {
        match self.size {
            0 => pool::runtime_range(&pool::fresh(SIZES[0])),
            _ => pool::runtime_range(mem),
        }
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Running, String> {
        if !self.done.swap(true, Ordering::Relaxed) {
            mem.observe(Some(observer));
            return Ok(Running::Memory(Some(Box::new(mem))));
        }
        let options = OpenOptions {
            observer: Some(observer),
            ..options()
        };
        match Fs::open_private(mem, &options) {
            Ok(fs) => Ok(Running::Pool(Box::new(fs))),
            Err(Error::NotAPool(_)) => Ok(Running::Memory(None)),
            Err(error) => Err(format!("opening: {error}")),
        }
    }

    fn steps(&self) -> usize {
        1
    }

    fn step_name(&self, _step: usize) -> String {
        self.name()
    }

    fn step(&self, running: &mut Running, _step: usize) -> Result<(), String> {
        if let Running::Memory(mem) = running {
            let raw = *mem.take().expect("memory to which nothing was done");
            *mem = Some(Box::new(match self.size {
                0 => {
                    pmfs_admin::format_private(raw, &pool::mkfs_options(SIZES[0])).map_err(words)?
                }
                size => grown(raw, size)?,
            }));
        }
        Ok(())
    }

    fn inspect(&self, running: &mut Running) -> Result<Self::Visible, String> {
        let seen = |fs: &Fs| {
            let tree = tree::read(fs).map_err(words)?;
            Ok(Some((fs.info().size, tree)))
        };
        match running {
            Running::Pool(fs) => seen(fs),
            Running::Memory(None) => Ok(None),
            Running::Memory(Some(mem)) => {
                // Opened as a copy: looking stores nothing.
                let copy = memory(&mem.snapshot_image(), SIZES[self.size]);
                match Fs::open_private(copy, &options()) {
                    Ok(fs) => seen(&fs),
                    Err(Error::NotAPool(_)) => Ok(None),
                    Err(error) => Err(words(error)),
                }
            }
        }
    }

    fn check(&self, running: &mut Running) -> Result<(), String> {
        let Running::Pool(fs) = running else {
            return Ok(());
        };
        let report = fs.check().map_err(|error| format!("check: {error}"))?;
        match report.findings.iter().find(|found| found.text != TORN) {
            None => Ok(()),
            Some(found) => Err(format!("check: {}", found.text)),
        }
    }

    fn accepts(
        &self,
        seen: &Self::Visible,
        moment: &Moment<'_, Self::Visible>,
    ) -> Result<(), String> {
        if moment.allowed().contains(seen) {
            return Ok(());
        }
        match seen {
            None if self.size > 0 => Err("the pool is none any more".into()),
            None => Err("mkfs has returned, and there is no pool".into()),
            Some((size, _)) => Err(format!(
                "there is a pool of {size} bytes, and it is not the one that was made"
            )),
        }
    }

    fn go_on(&self, running: &mut Running) -> Result<(), String> {
        match running {
            // Using it up ends with a check, which a torn superblock does not pass.
            Running::Pool(fs) if fs.check().map_err(words)?.is_clean() => usage::use_up(fs),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Making;
    use crate::explore::{Options, explore};
    use crate::program::Program;

    /// Goal: a pool is made wholly or not at all, and grows so. Method: the power-loss model over
    /// mkfs and grow.
    #[test]
    fn a_pool_is_made_or_not() {
        for making in Making::all() {
            let counts = explore(&making, Options::default())
                .expect("it succeeds")
                .unwrap_or_else(|violation| panic!("{violation}"));
            println!("{}: {counts:?}", making.name());
            assert!(counts.points > 3 && counts.states == 2, "{counts:?}");
        }
    }
}
