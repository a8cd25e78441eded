//! The ways to change masks, one of which is chosen at the start.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use pmmon::Tid;
use pmmon::group::{Affinity, Cores};
use pmmon_sys::{Cpusets, Masks};

/// A way.
#[derive(Debug)]
pub(crate) enum Way {
    /// sched_setaffinity(2).
    Masks,
    /// A cpuset for each group.
    Cpusets(Cpusets),
    /// No mask changes; these are the ones that would have been set.
    Dry(BTreeMap<Tid, Cores>),
}

impl Way {
    /// The cpusets that it has made.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self {
            Self::Cpusets(cpusets) => cpusets.folders(),
            Self::Masks | Self::Dry(_) => Vec::new(),
        }
    }

    /// The cpuset to which a thread goes back. `None` where it does not leave its own.
    pub fn home(&self, tid: Tid) -> io::Result<Option<PathBuf>> {
        match self {
            Self::Cpusets(cpusets) => cpusets.home(tid).map(Some),
            Self::Masks | Self::Dry(_) => Ok(None),
        }
    }
}

impl Affinity for Way {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        match self {
            Self::Cpusets(cpusets) => cpusets.get(tid),
            Self::Masks => Masks.get(tid),
            Self::Dry(wanted) => wanted.get(&tid).cloned().map_or_else(|| Masks.get(tid), Ok),
        }
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        match self {
            Self::Cpusets(cpusets) => cpusets.set(tid, cores),
            Self::Masks => Masks.set(tid, cores),
            Self::Dry(wanted) => {
                wanted.insert(tid, cores.clone());
                Ok(())
            }
        }
    }

    fn adopt(&mut self, tid: Tid, parent: Tid) {
        if let Self::Cpusets(cpusets) = self {
            cpusets.adopt(tid, parent);
        }
    }

    fn forget(&mut self, tid: Tid) {
        match self {
            Self::Cpusets(cpusets) => cpusets.forget(tid),
            Self::Masks => {}
            Self::Dry(wanted) => {
                wanted.remove(&tid);
            }
        }
    }
}
