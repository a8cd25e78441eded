//! Cpusets of cgroup version 2. Threads of a process may only be apart below the cgroup in which
//! the process is (its home), so that each home gets a threaded cgroup for each group of cores,
//! when the first of its threads comes to one.
//!
//! [`Threaded::undo`] tells the changes for that before they are made, so that whoever finds them
//! after a kill can take them back.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use pmmon::Tid;
use pmmon::group::{Affinity, Cores, cores, listed};
use rustix::fs::{Access, access};

use crate::affinity::{Masks, move_to};

/// Controllers that threads of one process may have apart.
const OF_THREADS: [&str; 4] = ["cpu", "cpuset", "perf_event", "pids"];
const CONTROL: &str = "cgroup.subtree_control";

/// Masks by threaded cgroups.
#[derive(Debug)]
pub struct Threaded {
    root: PathBuf,
    name: String,
    groups: Vec<Cores>,
    homes: HashMap<Tid, PathBuf>,
    made: HashSet<PathBuf>,
}

/// The changes in a home that are to be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The cgroups.
    pub folders: Vec<PathBuf>,
    /// The home gives cpusets to its children because of these alone.
    pub enabled: Option<PathBuf>,
}

fn refused(home: &Path, cause: &str) -> io::Error {
    io::Error::new(
        ErrorKind::Unsupported,
        format!("{}: {cause}", home.display()),
    )
}

/// The words of a file of the kernel's.
fn words(file: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(file)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

impl Threaded {
    /// Where cgroups of version 2 with cpusets are mounted. Nothing is made yet.
    ///
    /// # Errors
    /// They are not, mostly because version 1 has the cpusets.
    pub fn open(name: &str, groups: &[&Cores]) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let roots = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        });
        let has_cpusets = |root: &PathBuf| {
            let controllers = words(&root.join("cgroup.controllers")).unwrap_or_default();
            controllers.iter().any(|one| one == "cpuset")
        };
        let root = roots.into_iter().find(has_cpusets).ok_or_else(|| {
            let cause = "cpusets are mounted neither by cgroup version 1 nor by version 2";
            io::Error::new(ErrorKind::Unsupported, cause)
        })?;
        Ok(Self::at(root, name, groups))
    }

    /// The same, below a folder that is known.
    #[must_use]
    pub fn at(root: PathBuf, name: &str, groups: &[&Cores]) -> Self {
        Self {
            root,
            name: name.to_owned(),
            groups: groups.iter().map(|cores| (*cores).clone()).collect(),
            homes: HashMap::new(),
            made: HashSet::new(),
        }
    }

    /// The cgroup in which a thread is, or was before it came to a group.
    ///
    /// # Errors
    /// The thread is gone, or its cgroup can not be seen from here.
    pub fn home(&self, tid: Tid) -> io::Result<PathBuf> {
        if let Some(home) = self.homes.get(&tid) {
            return Ok(home.clone());
        }
        let text = fs::read_to_string(format!("/proc/{tid}/cgroup"))?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
        let path = Path::new(path.unwrap_or(".."));
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(refused(&self.root, "the thread's cgroup is outside of it"));
        }
        let is_own = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(&format!("{}-", self.name)))
        };
        // One that was born in a group.
        let path = path.parent().filter(|_| is_own(path)).unwrap_or(path);
        Ok(self.root.join(path))
    }

    fn folder(&self, home: &Path, number: usize) -> PathBuf {
        home.join(format!("{}-{number}", self.name))
    }

    /// The changes in a home when a thread of it comes to a group.
    ///
    /// # Errors
    /// Threads can not be apart there; nothing is changed.
    pub fn undo(&self, home: &Path) -> io::Result<Undo> {
        let has = |file: &str| -> io::Result<bool> {
            Ok(words(&home.join(file))?.iter().any(|one| one == "cpuset"))
        };
        if !has("cgroup.controllers")? {
            let above = home.parent().unwrap_or(home);
            let cause = format!(
                "no cpusets in this cgroup; write +cpuset to {}, as root",
                above.join(CONTROL).display()
            );
            return Err(refused(home, &cause));
        }
        let given = words(&home.join(CONTROL))?;
        let whole = given.iter().find(|one| !OF_THREADS.contains(&one.as_str()));
        if let Some(whole) = whole.filter(|_| home != self.root) {
            let cause = format!("it gives {whole} to its children, which threads can not have");
            return Err(refused(home, &cause));
        }
        access(home, Access::WRITE_OK).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", home.display()))
        })?;
        let numbers = 0..self.groups.len();
        Ok(Undo {
            folders: numbers.map(|number| self.folder(home, number)).collect(),
            enabled: (!given.iter().any(|one| one == "cpuset")).then(|| home.to_owned()),
        })
    }

    /// Makes the cgroups in a home.
    fn make(&mut self, home: &Path) -> io::Result<()> {
        if self.made.contains(home) {
            return Ok(());
        }
        self.undo(home)?;
        let threaded = |dir: &Path| {
            fs::write(dir.join("cgroup.type"), "threaded").map_err(|error| {
                let cause =
                    format!("its threads can not be apart ({error}); has it other children?");
                refused(home, &cause)
            })
        };
        for number in 0..self.groups.len() {
            let dir = self.folder(home, number);
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => threaded(&dir)?,
            }
        }
        fs::write(home.join(CONTROL), "+cpuset")?;
        for (number, wanted) in self.groups.iter().enumerate() {
            let dir = self.folder(home, number);
            fs::write(dir.join("cpuset.cpus"), listed(wanted))?;
            // The kernel takes any list, and leaves out what the home has not.
            let allowed = fs::read_to_string(dir.join("cpuset.cpus.effective"))?;
            let allowed = cores(&allowed).unwrap_or_default();
            if allowed.is_empty() || !allowed.is_subset(wanted) {
                let cause = format!("it has none of the cores {}", listed(wanted));
                return Err(refused(home, &cause));
            }
        }
        self.made.insert(home.to_owned());
        Ok(())
    }
}

/// The threads in a cpuset of either version.
#[must_use]
pub fn threads_in(cpuset: &Path) -> Vec<Tid> {
    let list = ["cgroup.threads", "tasks"].map(|name| fs::read_to_string(cpuset.join(name)));
    let list = list.into_iter().find_map(Result::ok).unwrap_or_default();
    list.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Takes back that a home gives cpusets to its children, unless others of this program use them.
///
/// # Errors
/// The kernel's.
pub fn disable(home: &Path) -> io::Result<()> {
    for entry in fs::read_dir(home)? {
        if entry?.file_name().to_string_lossy().starts_with("pmmon-") {
            return Ok(());
        }
    }
    fs::write(home.join(CONTROL), "-cpuset")
}

impl Affinity for Threaded {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        Masks.get(tid)
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        if let Some(number) = self.groups.iter().position(|of| of == cores) {
            let home = self.home(tid)?;
            self.make(&home)?;
            move_to(tid, &self.folder(&home, number))?;
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
