//! The processes that have a pool, what they have open and what is locked, for `pmfs info --open
//! --locks`. The picture is read from the pool's tables, which go on changing, without asking the
//! processes.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use pmfs::types::mode;
use pmfs::{Fs, Ino, LockClass, LockKind, ROOT_INO};
use pmfs_admin::{Inspector, Process};
use serde::Serialize;

use crate::pool;
use crate::time::utc;
use pm_cli::escaped;

/// The parts that were asked for; others are left out.
#[derive(Serialize)]
pub struct Holders {
    processes: Vec<ProcessReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<Vec<OpenReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locks: Option<Vec<LockReport>>,
}

/// A process, as all reports name it.
#[derive(Clone, Serialize)]
pub struct ProcessReport {
    pub pid: u64,
    pub command: String,
    pub slot: u64,
    pub since_ns: i64,
    /// false: the process died, and the next one that meets its locks cleans up.
    pub alive: bool,
    /// Calls that it is in the middle of.
    pub calls: u64,
}

#[derive(Serialize)]
struct OpenReport {
    pid: u64,
    command: String,
    inode: Ino,
    /// The file's path in the pool; none if it has no name, or could not be searched for.
    path: Option<String>,
    /// The number of times that it is open.
    count: u64,
    /// A mount's kernel may hold pages of it, for a mapping.
    mapped: bool,
    /// The offset of an open file that has one.
    offset: Option<u64>,
}

#[derive(Serialize)]
struct LockReport {
    pid: Option<u64>,
    command: Option<String>,
    inode: Ino,
    path: Option<String>,
    /// posix, ofd, flock.
    class: &'static str,
    /// read, write.
    kind: &'static str,
    start: u64,
    /// Last byte; none: to the end of the file.
    end: Option<u64>,
    waiting: bool,
}

impl From<&Process> for ProcessReport {
    fn from(process: &Process) -> ProcessReport {
        ProcessReport {
            pid: process.pid,
            command: process.command.clone(),
            slot: process.slot,
            since_ns: process.since_ns,
            alive: process.is_alive,
            calls: process.calls,
        }
    }
}

impl Holders {
    /// Looks at a pool that may be in use.
    pub fn of(look: &Inspector, path: &Path, open: bool, locks: bool) -> Holders {
        let processes: Vec<ProcessReport> = look.processes().iter().map(Into::into).collect();
        let (holdings, locked) = (look.holdings(), look.locked());
        let mut wanted = HashSet::new();
        if open {
            wanted.extend(holdings.iter().map(|holding| holding.ino));
        }
        if locks {
            wanted.extend(locked.iter().map(|lock| lock.ino));
        }
        let names = names_of(path, wanted);
        let process = |slot: u64| processes.iter().find(|process| process.slot == slot);
        let open = open.then(|| {
            let report = |holding: &pmfs_admin::Holding| OpenReport {
                pid: process(holding.slot).map_or(0, |process| process.pid),
                command: process(holding.slot)
                    .map_or_else(String::new, |found| found.command.clone()),
                inode: holding.ino,
                path: names.get(&holding.ino).cloned(),
                count: holding.count,
                mapped: holding.is_mapped,
                offset: holding.file.map(|(_, offset)| offset),
            };
            holdings.iter().map(report).collect()
        });
        let locks = locks.then(|| {
            let report = |lock: &pmfs_admin::Locked| {
                let holder = lock.slot.and_then(process);
                LockReport {
                    pid: match lock.pid {
                        0 => holder.map(|process| process.pid),
                        pid => Some(pid.into()),
                    },
                    command: holder.map(|process| process.command.clone()),
                    inode: lock.ino,
                    path: names.get(&lock.ino).cloned(),
                    class: match lock.class {
                        LockClass::Posix => "posix",
                        LockClass::File => "ofd",
                        LockClass::Flock => "flock",
                    },
                    kind: match lock.kind {
                        LockKind::Read => "read",
                        LockKind::Write => "write",
                    },
                    start: lock.range.start,
                    end: Some(lock.range.end).filter(|&end| end != u64::MAX),
                    waiting: lock.is_waiting,
                }
            };
            locked.iter().map(report).collect()
        });
        Holders {
            processes,
            open,
            locks,
        }
    }

    /// The lines for people to read.
    pub fn text(&self) -> Vec<String> {
        let mut lines = vec![format!("processes   {}", self.processes.len())];
        for process in &self.processes {
            lines.push(format!(
                "  {:>7} {:<15} since {} UTC{}{}",
                process.pid,
                escaped(process.command.as_bytes()),
                utc(process.since_ns),
                if process.calls > 0 { ", in a call" } else { "" },
                if process.alive { "" } else { ", dead" },
            ));
        }
        let named = |path: &Option<String>, inode: Ino| match path {
            Some(path) => escaped(path.as_bytes()),
            None => format!("inode {inode} without a name"),
        };
        if let Some(open) = &self.open {
            lines.push(format!("open        {}", open.len()));
            for held in open {
                lines.push(format!(
                    "  {:>7} {:<15} {}{}{}",
                    held.pid,
                    escaped(held.command.as_bytes()),
                    named(&held.path, held.inode),
                    if held.mapped { ", mapped" } else { "" },
                    held.offset
                        .map_or_else(String::new, |offset| format!(", at byte {offset}")),
                ));
            }
        }
        if let Some(locks) = &self.locks {
            lines.push(format!("locks       {}", locks.len()));
            for lock in locks {
                let pid = lock
                    .pid
                    .map_or_else(|| "-".to_owned(), |pid| pid.to_string());
                let end = lock
                    .end
                    .map_or_else(|| "the end".to_owned(), |end| end.to_string());
                lines.push(format!(
                    "  {pid:>7} {:<15} {} {}, bytes {} to {end} of {}{}",
                    escaped(lock.command.as_deref().unwrap_or("-").as_bytes()),
                    lock.class,
                    lock.kind,
                    lock.start,
                    named(&lock.path, lock.inode),
                    if lock.waiting { ", waiting" } else { "" },
                ));
            }
        }
        lines
    }
}

/// Paths of inodes, one each, by a walk through the tree; as far as this user may
/// attach to the pool and others let him.
fn names_of(path: &Path, wanted: HashSet<Ino>) -> HashMap<Ino, String> {
    if wanted.is_empty() {
        return HashMap::new();
    }
    let named = pool::with(path, &pool::for_reading(), |fs| Ok(walk(fs, wanted)));
    named.unwrap_or_default()
}

fn walk(fs: &Fs, mut wanted: HashSet<Ino>) -> HashMap<Ino, String> {
    let mut found = HashMap::new();
    if wanted.remove(&ROOT_INO) {
        found.insert(ROOT_INO, "/".to_owned());
    }
    let mut dirs = vec![(ROOT_INO, String::new())];
    while let Some((dir, above)) = dirs.pop()
        && !wanted.is_empty()
    {
        // A directory that goes away meanwhile has nothing to show.
        let _ = fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let name = format!("{above}/{}", String::from_utf8_lossy(entry.name));
                if entry.kind == mode::S_IFDIR {
                    dirs.push((entry.ino, name.clone()));
                }
                if wanted.remove(&entry.ino) {
                    found.insert(entry.ino, name);
                }
            }
            true
        });
    }
    found
}
