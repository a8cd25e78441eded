//! The journal of changed masks: a folder with a file for each thread whose mask is not its own.
//!
//! A file is there before its thread's mask changes, so that whoever finds the folder after a kill
//! can give the thread its own mask back. The folder's `lock` is held by the process that keeps
//! the journal, and is free when that has ended, however it has: the guardian, a child in a process
//! group of its own, waits for it. A pipe in its place would be held open by every other child.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use pmmon::group::{Affinity, Cores};
use pmmon::{Tid, proc};
use pmmon_sys::{Masks, Undo, disable, move_to, threads_in};
use serde::{Deserialize, Serialize};

use super::way::Way;

/// The names of journals begin so.
const PREFIX: &str = "pin-";
const LOCK: &str = "lock";
/// Cpusets to remove, a line each, and cgroups that are not to give cpusets to their children.
const CPUSETS: &str = "cpusets";
const ENABLED: &str = "enabled ";

/// A thread whose mask is or may be changed.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    tid: Tid,
    /// Numbers of threads are used anew.
    start_ns: u64,
    original: Cores,
    /// The mask that was asked for.
    wanted: Cores,
    /// The mask as the kernel showed it then; without one, the change may not have come about.
    applied: Option<Cores>,
    /// The cpuset in which it was.
    home: Option<PathBuf>,
}

/// A way to change masks, and the journal of its changes.
#[derive(Debug)]
pub(crate) struct Journal {
    way: Way,
    dir: PathBuf,
    /// The lines of [`CPUSETS`].
    cpusets: BTreeSet<String>,
    _lock: File,
}

impl Journal {
    /// Begins a journal in a run directory, after it has undone what killed ones have left.
    pub fn begin(run_dir: &Path, way: impl FnOnce(&str) -> io::Result<Way>) -> io::Result<Self> {
        own_dir(run_dir)?;
        sweep(run_dir)?;
        let name = format!("{PREFIX}{}", std::process::id());
        let dir = run_dir.join(&name);
        own_dir(&dir)?;
        let lock = File::create(dir.join(LOCK))?;
        lock.lock()?;
        let way = way(&format!("pmmon-{name}"))?;
        let folders = way.folders();
        let mut journal = Self {
            way,
            dir,
            cpusets: BTreeSet::new(),
            _lock: lock,
        };
        journal.note(folders.iter().map(|one| one.display().to_string()))?;
        Ok(journal)
    }

    /// Notes what is to be taken back, as lines of [`CPUSETS`].
    fn note(&mut self, lines: impl Iterator<Item = String>) -> io::Result<()> {
        let lines = lines.filter(|line| self.cpusets.insert(line.clone()));
        let text: String = lines.flat_map(|line| [line, "\n".to_owned()]).collect();
        let mut options = File::options();
        let mut file = options
            .create(true)
            .append(true)
            .open(self.dir.join(CPUSETS))?;
        file.write_all(text.as_bytes())
    }

    /// Notes what changes for a thread beside its mask.
    fn note_undo(&mut self, undo: Option<Undo>) -> io::Result<()> {
        let Some(Undo { folders, enabled }) = undo else {
            return Ok(());
        };
        // The cgroup gives cpusets to these folders by now, if they are known.
        let is_known = |folder: &PathBuf| self.cpusets.contains(&folder.display().to_string());
        let enabled = enabled.filter(|_| !folders.iter().all(is_known));
        let folders = folders
            .into_iter()
            .map(|folder| folder.display().to_string());
        let enabled = enabled.map(|home| format!("{ENABLED}{}", home.display()));
        self.note(folders.chain(enabled))
    }

    /// Tells whether threads of a process can come to groups.
    pub fn check(&self, pid: u32) -> io::Result<()> {
        self.way.undo(pid).map(|_| ())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Gives all threads of the journal their masks back, and removes it.
    pub fn end(self) -> io::Result<()> {
        restore(&self.dir)
    }

    fn file(&self, tid: Tid) -> PathBuf {
        self.dir.join(tid.to_string())
    }

    fn read(&self, tid: Tid) -> Option<Record> {
        read(&self.file(tid))
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.dir.join("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        fs::rename(new, self.file(record.tid))
    }
}

fn read(file: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

impl Affinity for Journal {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        self.way.get(tid)
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        let start_ns = proc::stat(tid)?.start_ns;
        let known = self.read(tid).filter(|known| known.start_ns == start_ns);
        let is_new = known.is_none();
        let mut record = match known {
            Some(record) => record,
            None => Record {
                tid,
                start_ns,
                original: self.get(tid)?,
                wanted: Cores::new(),
                applied: None,
                home: self.way.home(tid)?,
            },
        };
        record.wanted.clone_from(cores);
        record.applied = None;
        if is_new && let Ok(undo) = self.way.undo(tid) {
            // A refusal comes back from the change itself.
            self.note_undo(undo)?;
        }
        self.write(&record)?;
        let set = self.way.set(tid, cores);
        // Without cpusets, a thread with its own mask is where it was.
        let is_back = set.is_ok() && *cores == record.original && record.home.is_none();
        if is_back || set.is_err() && is_new {
            fs::remove_file(self.file(tid))?;
            return set;
        }
        record.applied = self.get(tid).ok();
        self.write(&record)?;
        set
    }

    fn adopt(&mut self, tid: Tid, parent: Tid) {
        self.way.adopt(tid, parent);
        // A thread that has ended needs no record.
        if let Some(record) = self.read(parent)
            && let Ok(stat) = proc::stat(tid)
            && let Ok(mask) = self.get(tid)
        {
            let _ = self.write(&Record {
                tid,
                start_ns: stat.start_ns,
                applied: Some(mask),
                ..record
            });
        }
    }

    fn forget(&mut self, tid: Tid) {
        self.way.forget(tid);
        let _ = fs::remove_file(self.file(tid));
    }
}

/// Makes a folder for this user alone, or takes one that is.
fn own_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let data = fs::symlink_metadata(dir)?;
    let user = rustix::process::geteuid().as_raw();
    if !data.is_dir() || data.uid() != user || data.mode() & 0o022 != 0 {
        let cause = format!("{}: not a folder of this user alone", dir.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, cause));
    }
    Ok(())
}

/// Undoes what is in journals whose keepers have ended.
pub(crate) fn sweep(run_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(run_dir)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            // Killed before its lock was there: it has changed nothing.
            let _ = fs::remove_dir(entry.path());
            continue;
        };
        if lock.try_lock().is_ok() {
            restore(&entry.path())?;
        }
    }
    Ok(())
}

/// Waits until the keeper of a journal has ended, and undoes what is left in it.
pub(crate) fn guard(dir: &Path) -> io::Result<()> {
    let Ok(lock) = File::open(dir.join(LOCK)) else {
        return Ok(());
    };
    lock.lock()?;
    match restore(dir) {
        // Another has undone it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Gives the threads of a journal their masks back, unless their program has set others since, and
/// removes the journal.
fn restore(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_thread = entry.file_name().to_string_lossy().parse::<Tid>().is_ok();
        if is_thread && let Some(record) = read(&entry.path()) {
            undo(&record);
        }
    }
    let cpusets = fs::read_to_string(dir.join(CPUSETS)).unwrap_or_default();
    let is_folder = |line: &&str| !line.starts_with(ENABLED);
    for cpuset in cpusets.lines().filter(is_folder).map(Path::new) {
        // Threads that were born meanwhile and are not in the journal.
        let home = cpuset.parent().unwrap_or(cpuset);
        for tid in threads_in(cpuset) {
            let _ = move_to(tid, home);
        }
        let _ = fs::remove_dir(cpuset);
    }
    for home in cpusets
        .lines()
        .filter_map(|line| line.strip_prefix(ENABLED))
    {
        // A cgroup that is gone gives nothing.
        let _ = disable(Path::new(home));
    }
    fs::remove_dir_all(dir)
}

fn undo(record: &Record) {
    let is_same = proc::stat(record.tid).is_ok_and(|stat| stat.start_ns == record.start_ns);
    let Ok(now) = Masks.get(record.tid) else {
        return;
    };
    let is_ours = match &record.applied {
        Some(applied) => now == *applied,
        None => now.is_subset(&record.wanted),
    };
    if !is_same || !is_ours {
        return;
    }
    if let Some(home) = &record.home {
        let _ = move_to(record.tid, home);
    }
    let _ = Masks.set(record.tid, &record.original);
}
