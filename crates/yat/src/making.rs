//! Power lost while a pool is made: then it is no pool, or a whole one, whose first superblock at most is torn.

use crate::files::tree::{self, Tree};
use crate::files::{pool, usage};
use crate::program::{Moment, Program};
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{DataMode, Error, Fs};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The one finding that a pool may have which is fit for use all the same.
const TORN: &str = "the superblock is damaged; its copy serves";

/// `mkfs`, as a program of one step.
#[derive(Default)]
pub struct Making {
    /// The first instance makes the pool, those after it find what a crash left.
    made: AtomicBool,
}

/// What is attached to.
pub enum Running {
    /// Memory that is no pool: yet to be made, or cut short; and made, but not opened.
    Memory(Option<Pmem>),
    /// A pool.
    Pool(Box<Fs>),
}

/// Memory that no one has written to: not zeros.
fn unmade() -> Pmem {
    let mem = Pmem::private(pool::POOL_BYTES);
    mem.poke(0, &vec![0xdb; pool::POOL_BYTES as usize]);
    mem
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

impl Program for Making {
    type Running = Running;
    /// None: no pool.
    type Visible = Option<Tree>;

    fn name(&self) -> String {
        "mkfs".into()
    }

    fn setup(&self) -> Result<Pmem, String> {
        Ok(unmade())
    }

    fn volatile(&self, _mem: &Pmem) -> Range<u64> {
        pool::runtime_range(&pool::fresh(pool::POOL_BYTES))
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Running, String> {
        if !self.made.swap(true, Ordering::Relaxed) {
            mem.observe(Some(observer));
            return Ok(Running::Memory(Some(mem)));
        }
        let mut options = pool::open_options(DataMode::Atomic, 9_000_000);
        options.observer = Some(observer);
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
        "mkfs".into()
    }

    fn step(&self, running: &mut Running, _step: usize) -> Result<(), String> {
        if let Running::Memory(mem) = running {
            let raw = mem.take().expect("memory that is not yet a pool");
            let made = Fs::format_private(raw, &pool::mkfs_options(pool::POOL_BYTES));
            *mem = Some(made.map_err(words)?);
        }
        Ok(())
    }

    fn look(&self, running: &mut Running) -> Result<Option<Tree>, String> {
        match running {
            Running::Pool(fs) => tree::read(fs).map(Some).map_err(words),
            Running::Memory(None) => Ok(None),
            Running::Memory(Some(mem)) => {
                // Opened as a copy: looking stores nothing.
                let copy = Pmem::private(pool::POOL_BYTES);
                copy.poke(0, &mem.snapshot_image());
                let options = pool::open_options(DataMode::Atomic, 9_000_000);
                match Fs::open_private(copy, &options) {
                    Ok(fs) => tree::read(&fs).map(Some).map_err(words),
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
        seen: &Option<Tree>,
        moment: &Moment<'_, Option<Tree>>,
    ) -> Result<(), String> {
        if moment.allowed().contains(seen) {
            return Ok(());
        }
        match seen {
            None => Err("mkfs has returned, and there is no pool".into()),
            Some(_) => Err("there is a pool, and it is not the one that was made".into()),
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

    /// Goal: a pool is made wholly or not at all. Method: the power-loss model over mkfs.
    #[test]
    fn a_pool_is_made_or_not() {
        let counts = explore(&Making::default(), Options::default())
            .expect("mkfs succeeds")
            .unwrap_or_else(|violation| panic!("{violation}"));
        println!("{counts:?}");
        assert!(counts.points > 3 && counts.states == 2, "{counts:?}");
    }
}
