//! `pmfs list`: which pools and heaps there are, and in what state.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmem::Identity;
use pmfs_admin::{Inspector, PoolState};
use pmfs_fuse::mounts::{self, PoolMount};
use pmfs_fuse::{presence, served};
use pmlib::State;
use serde::Serialize;

use crate::Outcome;
use crate::cli::List;
use crate::failure::Failure;
use crate::report;
use pm_cli::Size;

#[derive(Serialize)]
struct ListReport {
    pools: Vec<Listed>,
    heaps: Vec<ListedHeap>,
}

#[derive(Serialize)]
struct ListedHeap {
    heap: String,
    size_bytes: Option<u64>,
    state: &'static str,
    /// The reason why it can't be looked into.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    pool: String,
    /// Unknown for a pool that can't be inspected.
    size_bytes: Option<u64>,
    medium: Option<String>,
    state: &'static str,
    mounted_on: Vec<String>,
    /// The daemon of a mount.
    pid: Option<u32>,
    /// The reason why the pool can't be inspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub fn run(arguments: &List) -> Outcome {
    let mounts = mounts::pool_mounts()?;
    let mounts: Vec<Mounted> = mounts.into_iter().map(Mounted::new).collect();
    let mut found = Found::default();
    if arguments.dirs.is_empty() {
        for mount in &mounts {
            found.add(&mount.pool);
        }
        let usual = ["/dev/shm".into(), ".".into()];
        for dir in usual.into_iter().chain(mounts::memory_mounts()?) {
            // Some of these are not ours to look into.
            let _ = found.inspect(&dir);
        }
    }
    for dir in &arguments.dirs {
        let failed = |error| {
            Failure::new(
                format!("{}: {error}", dir.display()),
                "name directories that you may read",
            )
        };
        if fs::metadata(dir).map_err(failed)?.is_dir() {
            found.inspect(dir).map_err(failed)?;
        } else if pmfs_admin::is_pool(dir).map_err(failed)? {
            found.add(dir);
        } else if pmlib::is_heap(dir).map_err(failed)? {
            found.add_heap(dir);
        } else {
            return Err(Failure::new(
                format!("{} is not a pool", dir.display()),
                "name directories, or files of pools or heaps",
            ));
        }
    }
    let mut pools = found.paths;
    pools.sort();
    found.heaps.sort();
    let report = ListReport {
        heaps: found.heaps.iter().map(|heap| listed_heap(heap)).collect(),
        pools: pools.iter().map(|pool| listed(pool, &mounts)).collect(),
    };
    report::print(arguments.json, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

/// A mount, and the pool that it serves.
struct Mounted {
    dir: PathBuf,
    /// The pool by its present name.
    pool: PathBuf,
    /// `None`: its daemon does not say.
    file: Option<Identity>,
}

impl Mounted {
    fn new(mount: PoolMount) -> Mounted {
        let served = mount.served();
        let pool = match &served {
            None => mount.pool,
            Some(served) => served.pool.clone().unwrap_or_else(|| {
                // No other file is to pass for it.
                let mut gone = mount.pool.into_os_string();
                gone.push(" (deleted)");
                gone.into()
            }),
        };
        Mounted {
            dir: mount.dir,
            pool,
            file: served.map(|served| served.file),
        }
    }

    fn serves(&self, pool: &Path) -> bool {
        match (self.file, served::identity_of(pool)) {
            (Some(file), Some(other)) => file == other,
            _ => self.pool == pool,
        }
    }
}

/// Pool files, each once under any number of names.
#[derive(Default)]
struct Found {
    paths: Vec<PathBuf>,
    heaps: Vec<PathBuf>,
    seen: HashSet<(u64, u64)>,
}

impl Found {
    fn add(&mut self, pool: &Path) {
        let path = pool.canonicalize().unwrap_or_else(|_| pool.to_owned());
        let new = match fs::metadata(&path) {
            Ok(file) => self.seen.insert((file.dev(), file.ino())),
            Err(_) => !self.paths.contains(&path),
        };
        if new {
            self.paths.push(path);
        }
    }

    fn add_heap(&mut self, heap: &Path) {
        let path = heap.canonicalize().unwrap_or_else(|_| heap.to_owned());
        let is_new =
            fs::metadata(&path).is_ok_and(|file| self.seen.insert((file.dev(), file.ino())));
        if is_new {
            self.heaps.push(path);
        }
    }

    fn inspect(&mut self, dir: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(dir)?.flatten() {
            // A FIFO would be waited for, and a device changed by being opened.
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            if pmfs_admin::is_pool(&entry.path()).unwrap_or(false) {
                self.add(&entry.path());
            } else if pmlib::is_heap(&entry.path()).unwrap_or(false) {
                self.add_heap(&entry.path());
            }
        }
        Ok(())
    }
}

fn listed_heap(heap: &Path) -> ListedHeap {
    let (state, problem) = match State::of(heap) {
        Ok(State::Clean) => ("clean", None),
        Ok(State::InUse) => ("in use", None),
        Ok(State::NeedsRecovery) => ("needs recovery", None),
        Err(error @ pmlib::Error::Medium(_)) => ("unreadable", Some(error.to_string())),
        Err(error) => ("damaged", Some(error.to_string())),
    };
    ListedHeap {
        heap: heap.display().to_string(),
        size_bytes: fs::metadata(heap).ok().map(|file| file.len()),
        state,
        problem,
    }
}

fn listed(pool: &Path, mounts: &[Mounted]) -> Listed {
    let mounted_on: Vec<String> = mounts
        .iter()
        .filter(|mount| mount.serves(pool))
        .map(|mount| mount.dir.display().to_string())
        .collect();
    let mut listed = Listed {
        pool: pool.display().to_string(),
        size_bytes: fs::metadata(pool).ok().map(|file| file.len()),
        medium: None,
        state: "damaged",
        pid: presence::holder(pool),
        mounted_on,
        problem: None,
    };
    match Inspector::open(pool) {
        Ok(look) => {
            let info = look.info();
            listed.size_bytes = Some(info.size);
            listed.medium = Some(info.medium_kind.to_string());
            listed.state = match look.state() {
                PoolState::InUse if listed.mounted_on.is_empty() => "in use",
                PoolState::InUse => "mounted",
                _ if !look.is_whole() => "damaged",
                PoolState::Clean => "clean",
                PoolState::NeedsRecovery => "needs recovery",
            };
            if !look.is_whole() {
                listed.problem = Some("one of its two superblocks is damaged".to_owned());
            }
        }
        Err(error) => {
            if !pool.exists() && !listed.mounted_on.is_empty() {
                listed.state = "mounted";
            } else if matches!(error, pmfs::Error::Media(_)) {
                listed.state = "unreadable";
            }
            listed.problem = Some(error.to_string());
        }
    }
    listed
}

fn text(report: &ListReport) -> String {
    let mut lines = Vec::new();
    match report.pools.is_empty() {
        true if report.heaps.is_empty() => {
            return "no pools found; `pmfs mkfs --size 1G /dev/shm/pool` makes one".to_owned();
        }
        true => {}
        false => lines.push(pools_text(report)),
    }
    for heap in &report.heaps {
        let size = heap
            .size_bytes
            .map_or("?".to_owned(), |bytes| Size(bytes).to_string());
        let problem = heap.problem.as_ref().map(|problem| format!(": {problem}"));
        let problem = problem.unwrap_or_default();
        lines.push(format!(
            "{}  {size}  heap  {}{problem}",
            heap.heap, heap.state
        ));
    }
    lines.join("\n")
}

fn pools_text(report: &ListReport) -> String {
    let row = |listed: &Listed| {
        let mut state = listed.state.to_owned();
        for dir in &listed.mounted_on {
            state.push_str(&format!(" on {dir}"));
        }
        if let Some(pid) = listed.pid {
            state.push_str(&format!(" (process {pid})"));
        }
        if let Some(problem) = &listed.problem {
            state.push_str(&format!(": {problem}"));
        }
        [
            listed.pool.clone(),
            listed
                .size_bytes
                .map_or("?".to_owned(), |bytes| Size(bytes).to_string()),
            listed.medium.clone().unwrap_or("?".to_owned()),
            state,
        ]
    };
    let heads = ["POOL", "SIZE", "MEDIUM", "STATE"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(heads)
        .chain(report.pools.iter().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths = [0, 1, 2].map(|column| width(column).unwrap_or(0));
    let line = |row: &[String; 4]| {
        let [pool, size, medium] = widths;
        format!(
            "{:pool$}  {:>size$}  {:medium$}  {}",
            row[0], row[1], row[2], row[3]
        )
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    lines.join("\n")
}
