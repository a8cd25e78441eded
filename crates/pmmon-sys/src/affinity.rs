//! Masks of threads: by sched_setaffinity(2), or by cpusets whose `tasks` a thread moves to.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pmmon::Tid;
use pmmon::group::{Affinity, Cores, listed};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where cpusets of version 1 are mounted.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

/// Masks by sched_setaffinity(2). The same user suffices.
#[derive(Debug, Default)]
pub struct Masks;

fn pid(tid: Tid) -> io::Result<Pid> {
    let raw = i32::try_from(tid).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))
}

impl Affinity for Masks {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        let set = sched_getaffinity(Some(pid(tid)?))?;
        let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
        Ok(cores.filter_map(|core| u32::try_from(core).ok()).collect())
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        let mut set = CpuSet::new();
        for core in cores {
            let core = *core as usize;
            if core >= CpuSet::MAX_CPU {
                return Err(io::Error::from(ErrorKind::InvalidInput));
            }
            set.set(core);
        }
        Ok(sched_setaffinity(Some(pid(tid)?), &set)?)
    }
}

/// Masks by cpusets of version 1, one for each group of cores, whose threads are in `tasks`.
#[derive(Debug)]
pub struct Cpusets {
    groups: Vec<(Cores, PathBuf)>,
    homes: HashMap<Tid, PathBuf>,
}

impl Cpusets {
    /// They are mounted.
    #[must_use]
    pub fn are_there() -> bool {
        Path::new(CPUSETS).join("cpuset.cpus").exists()
    }

    /// Makes a cpuset for each set of cores below the root, named `NAME-0`, `NAME-1` and so on.
    ///
    /// # Errors
    /// No cpusets of version 1 are mounted, they may not be written, or a core is not there.
    pub fn make(name: &str, groups: &[&Cores]) -> io::Result<Self> {
        let mut made = Self {
            groups: Vec::new(),
            homes: HashMap::new(),
        };
        for (number, cores) in groups.iter().enumerate() {
            let dir = Path::new(CPUSETS).join(format!("{name}-{number}"));
            fs::create_dir(&dir)?;
            made.groups.push(((*cores).clone(), dir.clone()));
            let memory = fs::read_to_string(Path::new(CPUSETS).join("cpuset.mems"))?;
            let set = fs::write(dir.join("cpuset.cpus"), listed(cores))
                .and_then(|()| fs::write(dir.join("cpuset.mems"), memory.trim()));
            if let Err(error) = set {
                made.remove();
                return Err(error);
            }
        }
        Ok(made)
    }

    /// The cpusets' folders.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        self.groups.iter().map(|(_, dir)| dir.clone()).collect()
    }

    /// Removes the cpusets; threads that are left in them keep them.
    pub fn remove(&self) {
        for (_, dir) in &self.groups {
            let _ = fs::remove_dir(dir);
        }
    }

    /// The folder of a thread's own cpuset.
    ///
    /// # Errors
    /// The thread is gone, or has no cpuset.
    pub fn home(&self, tid: Tid) -> io::Result<PathBuf> {
        match self.homes.get(&tid) {
            Some(home) => Ok(home.clone()),
            None => cpuset_of(tid),
        }
    }
}

fn cpuset_of(tid: Tid) -> io::Result<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{tid}/cgroup"))?;
    let found = text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_cpuset = controllers.split(',').any(|one| one == "cpuset");
        is_cpuset.then(|| Path::new(CPUSETS).join(path.trim_start_matches('/')))
    });
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the thread has no cpuset"))
}

/// Moves a thread to a cpuset of either version.
///
/// # Errors
/// The thread is gone, or the cpuset is or may not be written.
pub fn move_to(tid: Tid, cpuset: &Path) -> io::Result<()> {
    let threads = cpuset.join("cgroup.threads");
    let list = if threads.exists() {
        threads
    } else {
        cpuset.join("tasks")
    };
    fs::write(list, tid.to_string())
}

impl Affinity for Cpusets {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        Masks.get(tid)
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        let group = self.groups.iter().find(|(of, _)| of == cores);
        if let Some((_, dir)) = group {
            let home = self.home(tid)?;
            move_to(tid, dir)?;
            self.homes.insert(tid, home);
            return Ok(());
        }
        if let Some(home) = self.homes.remove(&tid) {
            move_to(tid, &home)?;
        }
        Masks.set(tid, cores)
    }

    fn adopt(&mut self, tid: Tid, parent: Tid) {
        if let Some(home) = self.homes.get(&parent).cloned() {
            self.homes.insert(tid, home);
        }
    }

    fn forget(&mut self, tid: Tid) {
        self.homes.remove(&tid);
    }
}
