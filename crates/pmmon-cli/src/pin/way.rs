//! The ways to change masks, one of which is chosen at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use pmmon::Tid;
use pmmon::group::{Affinity, Cores};
use pmmon_sys::{Cpusets, Masks, Threaded, Undo};

/// A way.
#[derive(Debug)]
pub(crate) enum Way {
    /// sched_setaffinity(2).
    Masks,
    /// A cpuset of version 1 for each group.
    Cpusets(Cpusets),
    /// The same of version 2, and the refusals that were told.
    Threaded(Threaded, BTreeSet<String>),
    /// No mask changes; these are the ones that would have been set.
    Dry(BTreeMap<Tid, Cores>),
}

impl Way {
    /// Cpusets, by the version that is there.
    pub fn cpusets(name: &str, groups: &[&Cores]) -> io::Result<Self> {
        match Cpusets::are_there() {
            true => Cpusets::make(name, groups).map(Self::Cpusets),
            false => {
                let threaded = Threaded::open(name, groups)?;
                Ok(Self::Threaded(threaded, BTreeSet::new()))
            }
        }
    }

    /// The cpusets that it has made.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self {
            Self::Cpusets(cpusets) => cpusets.folders(),
            Self::Masks | Self::Threaded(..) | Self::Dry(_) => Vec::new(),
        }
    }

    /// The changes for a thread that are to be taken back, beside its mask.
    pub fn undo(&self, tid: Tid) -> io::Result<Option<Undo>> {
        match self {
            Self::Threaded(threaded, _) => threaded.undo(&threaded.home(tid)?).map(Some),
            Self::Masks | Self::Cpusets(_) | Self::Dry(_) => Ok(None),
        }
    }

    /// The cpuset to which a thread goes back. `None` where it does not leave its own.
    pub fn home(&self, tid: Tid) -> io::Result<Option<PathBuf>> {
        match self {
            Self::Cpusets(cpusets) => cpusets.home(tid).map(Some),
            Self::Threaded(threaded, _) => threaded.home(tid).map(Some),
            Self::Masks | Self::Dry(_) => Ok(None),
        }
    }
}

impl Affinity for Way {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        match self {
            Self::Cpusets(cpusets) => cpusets.get(tid),
            Self::Threaded(threaded, _) => threaded.get(tid),
            Self::Masks => Masks.get(tid),
            Self::Dry(wanted) => wanted.get(&tid).cloned().map_or_else(|| Masks.get(tid), Ok),
        }
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.set(tid, cores),
            Self::Threaded(threaded, told) => threaded.set(tid, cores).inspect_err(|error| {
                // All threads of a home have the same cause.
                if error.kind() == ErrorKind::Unsupported && told.insert(error.to_string()) {
                    eprintln!("pmmon: --by cpuset: {error}");
                }
            }),
            Self::Masks => Masks.set(tid, cores),
            Self::Dry(wanted) => {
                wanted.insert(tid, cores.clone());
                Ok(())
            }
        }
    }

    fn adopt(&mut self, tid: Tid, parent: Tid) {
        match self {
            Self::Cpusets(cpusets) => cpusets.adopt(tid, parent),
            Self::Threaded(threaded, _) => threaded.adopt(tid, parent),
            Self::Masks | Self::Dry(_) => {}
        }
    }

    fn forget(&mut self, tid: Tid) {
        match self {
            Self::Cpusets(cpusets) => cpusets.forget(tid),
            Self::Threaded(threaded, _) => threaded.forget(tid),
            Self::Masks => {}
            Self::Dry(wanted) => {
                wanted.remove(&tid);
            }
        }
    }
}
