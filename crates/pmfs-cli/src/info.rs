//! `pmfs info`: the facts of a pool. A clean pool, and one in use, are only read; one that was left
//! by a crash is recovered first, as its free space is unknown before that.

use std::path::Path;
use std::process::ExitCode;

use pmfs::{Fs, Ino, OpenOptions};
use pmfs_admin::{Admin, Inspector, PoolDetails, PoolInfo, PoolState};
use pmfs_fuse::{presence, served};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Info;
use crate::failure::Failure;
use crate::holders::Holders;
use crate::names::Names;
use crate::report::{self, PoolReport};
use crate::time::utc;
use crate::{pool, progress::Watch};
use pm_cli::Size;

#[derive(Serialize)]
struct InfoReport {
    #[serde(flatten)]
    pool: PoolReport,
    /// clean, mounted, in use, recovered.
    state: &'static str,
    mounted_on: Option<String>,
    /// The daemon of the mount.
    pid: Option<u32>,
    /// The work of the recovery, if one was needed.
    recovery: Option<String>,
    made_ns: i64,
    runs: u64,
    recoveries: u64,
    attached: u64,
    reserve_blocks: u64,
    free_4k_pages: u64,
    free_2m_pages: u64,
    free_1g_pages: u64,
    /// The share of the free space that is in whole pages of that size.
    free_2m_share: f64,
    free_1g_share: f64,
    regions: Vec<Region>,
    /// Slower media that processes emulate.
    emulated: Vec<Emulated>,
    #[serde(flatten)]
    holders: Option<Holders>,
}

#[derive(Serialize)]
struct Emulated {
    medium: String,
    processes: u64,
}

#[derive(Serialize)]
struct Region {
    name: &'static str,
    start: u64,
    bytes: u64,
}

/// The facts that the report is made of.
struct Found {
    state: &'static str,
    recovery: Option<String>,
    info: PoolInfo,
    details: PoolDetails,
    emulated: Vec<Emulated>,
    holders: Option<Holders>,
}

/// By which pages a file is held.
#[derive(Serialize)]
struct FileReport {
    pool: String,
    path: String,
    size_bytes: u64,
    /// Bytes in pages of 4 KiB, 2 MiB and 1 GiB; what the file has past its end is counted too.
    in_4k_pages_bytes: u64,
    in_2m_pages_bytes: u64,
    in_1g_pages_bytes: u64,
    /// Bytes in blocks that other files, or other places of this one, have too.
    shared_bytes: u64,
}

/// Extents that are looked at together.
const EXTENTS: usize = 1024;

/// Bytes of a file in blocks that others have too.
fn shared_bytes(fs: &Fs, ino: Ino) -> pmfs::Result<u64> {
    let (mut at, mut bytes) = (0, 0);
    loop {
        let (extents, is_end) = fs.extents(ino, at, u64::MAX - at, EXTENTS)?;
        let shared = extents.iter().filter(|extent| extent.shared);
        bytes += shared.map(|extent| extent.len).sum::<u64>();
        match extents.last() {
            Some(last) if !is_end => at = last.at + last.len,
            _ => return Ok(bytes),
        }
    }
}

fn file(path: &Path, name: &Path, json: bool) -> Outcome {
    let report = pool::with(path, &pool::for_reading(), |fs| {
        let names = Names { fs, pool: path };
        let attr = names.find(name, true)?;
        let pages = fs.pages(attr.ino);
        let pages = pages.map_err(|error| names.failed(name, &error))?;
        let shared = shared_bytes(fs, attr.ino);
        let shared = shared.map_err(|error| names.failed(name, &error))?;
        Ok(FileReport {
            pool: path.display().to_string(),
            path: format!("/{}", name.display()).replace("//", "/"),
            size_bytes: attr.size,
            in_4k_pages_bytes: pages.small << 12,
            in_2m_pages_bytes: pages.large << 21,
            in_1g_pages_bytes: pages.huge << 30,
            shared_bytes: shared,
        })
    })?;
    report::print(json, &report, |report| {
        let parts = [
            ("4 KiB", report.in_4k_pages_bytes),
            ("2 MiB", report.in_2m_pages_bytes),
            ("1 GiB", report.in_1g_pages_bytes),
        ];
        let whole = parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let lines = parts.iter().map(|&(page, bytes)| {
            let share = report::percent(bytes, whole.max(1));
            format!("in pages of {page}  {} ({share})", Size(bytes))
        });
        let size = format!("{}  {}", report.path, Size(report.size_bytes));
        let share = report::percent(report.shared_bytes, whole.max(1));
        let shared = format!("shared  {} ({share})", Size(report.shared_bytes));
        let lines = std::iter::once(size).chain(lines).chain([shared]);
        let lines: Vec<String> = lines.collect();
        lines.join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(arguments: &Info) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    if let Some(name) = &arguments.path {
        return file(&path, name, arguments.json);
    }
    let found = find(&path, arguments)?;
    let mounted = served::mounts_of(&path)?.pop();
    let held = found.state == "in use";
    let mounted_on = mounted
        .filter(|_| held)
        .map(|mount| mount.dir.display().to_string());
    let free = found.details.free;
    let report = InfoReport {
        pool: PoolReport::new(&path, &found.info),
        state: if mounted_on.is_some() {
            "mounted"
        } else {
            found.state
        },
        mounted_on,
        pid: if held { presence::holder(&path) } else { None },
        recovery: found.recovery,
        made_ns: found.details.crtime_ns,
        runs: found.details.runs,
        recoveries: found.details.recoveries,
        attached: found.details.attached,
        reserve_blocks: found.details.reserve_blocks,
        free_4k_pages: free.small,
        free_2m_pages: free.large,
        free_1g_pages: free.huge,
        free_2m_share: (free.large << 9) as f64 / free.small.max(1) as f64,
        free_1g_share: (free.huge << 18) as f64 / free.small.max(1) as f64,
        regions: found
            .details
            .regions
            .iter()
            .map(|&(name, start, bytes)| Region { name, start, bytes })
            .collect(),
        emulated: found.emulated,
        holders: found.holders,
    };
    report::print(arguments.json, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn find(path: &Path, arguments: &Info) -> Result<Found, Failure> {
    let look = Inspector::open(path).map_err(|error| Failure::engine(path, &error))?;
    let state = match look.state() {
        PoolState::Clean => "clean",
        PoolState::InUse => "in use",
        PoolState::NeedsRecovery => {
            drop(look);
            let _watch = Watch::spin(arguments.json, "recovering");
            return pool::with(path, &OpenOptions::default(), |fs| {
                Ok(Found {
                    state: "recovered",
                    recovery: Some(fs.recovery().to_string()),
                    info: fs.info(),
                    details: fs.details(),
                    emulated: Vec::new(),
                    holders: None,
                })
            });
        }
    };
    let asked = arguments.open || arguments.locks;
    let holders = asked.then(|| Holders::of(&look, path, arguments.open, arguments.locks));
    Ok(Found {
        state,
        recovery: None,
        info: look.info(),
        details: look.details(),
        emulated: emulated(&look),
        holders,
    })
}

/// The media that processes emulate, and the number of processes of each.
fn emulated(look: &Inspector) -> Vec<Emulated> {
    let mut all: Vec<Emulated> = Vec::new();
    let live = look
        .processes()
        .into_iter()
        .filter(|process| process.is_alive);
    for process in live.filter(|process| !process.emulates.is_off()) {
        let medium = process.emulates.to_string();
        match all.iter_mut().find(|other| other.medium == medium) {
            Some(known) => known.processes += 1,
            None => all.push(Emulated {
                medium,
                processes: 1,
            }),
        }
    }
    all
}

fn text(report: &InfoReport) -> String {
    let mut lines = vec![report.pool.text()];
    let state = match (&report.mounted_on, report.pid, &report.recovery) {
        (Some(dir), Some(pid), _) => {
            format!("mounted on {dir} (process {pid}): only looked at, figures move")
        }
        (Some(dir), None, _) => format!("mounted on {dir}: only looked at, figures move"),
        (None, _, Some(recovery)) => format!("clean now: {recovery}"),
        (None, ..) if report.state == "in use" => {
            "in use by a program: only looked at, figures move".to_owned()
        }
        (None, ..) => report.state.to_owned(),
    };
    lines.push(format!("state       {state}"));
    lines.push(format!(
        "history     made {} UTC, opened {} times, {} of them after a crash",
        utc(report.made_ns),
        report.runs,
        report.recoveries
    ));
    let share = |pages: u64| report::percent(pages, report.free_4k_pages);
    lines.push(format!(
        "free pages  {} of 4 KiB, as {} of 2 MiB ({}), as {} of 1 GiB ({})",
        report.free_4k_pages,
        report.free_2m_pages,
        share(report.free_2m_pages << 9),
        report.free_1g_pages,
        share(report.free_1g_pages << 18)
    ));
    lines.push(format!(
        "reserve     {} kept for calls that free or overwrite",
        Size(report.reserve_blocks * 4096)
    ));
    for one in &report.emulated {
        lines.push(format!(
            "emulated    {}, by {} of {} processes",
            one.medium, one.processes, report.attached
        ));
    }
    for region in &report.regions {
        lines.push(format!(
            "at {:#014x}  {} ({})",
            region.start,
            region.name,
            Size(region.bytes)
        ));
    }
    if let Some(holders) = &report.holders {
        lines.extend(holders.text());
    }
    lines.join("\n")
}
