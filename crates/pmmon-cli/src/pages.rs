//! `pmmon top --backend pages`: which pages were written in a round, of programs that ask for it.
//!
//! A page is taken by the look that tells it, so that a second monitor of one program misses it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pm_cli::{Failure, escaped};
use pmmon::proc;
use pmmon::regions::Region;
use pmmon_cli::commands::{Look, Top};
use pmmon_sys::{Finder, PAGE, WrittenPages, probe_pages};
use serde::Serialize;

use crate::NOTHING;
use crate::session::{check, finder, now_ns, stop_at_signals};
use crate::top::has_no_reader;

/// The time between two looks for processes and mappings.
const LOOK: Duration = Duration::from_millis(100);

/// A round.
#[derive(Serialize)]
struct Round {
    schema: u32,
    time_ns: u64,
    seconds: f64,
    backend: [&'static str; 1],
    page_bytes: u64,
    processes: Vec<Row>,
    not_seen: Vec<NotSeen>,
}

#[derive(Serialize)]
struct Row {
    pid: u32,
    start_ns: u64,
    command: String,
    files: Vec<Pages>,
}

/// The pages of a file that a process has written.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Pages {
    path: String,
    /// In this round.
    written_pages: u64,
    /// In all rounds; a page counts once in each.
    sum_pages: u64,
    tracked_pages: u64,
}

#[derive(Serialize)]
struct NotSeen {
    pid: u32,
    cause: &'static str,
    remedy: &'static str,
}

/// A mapping that is asked about.
struct Tracked {
    region: Region,
    round: u64,
    sum: u64,
}

struct Process {
    start_ns: u64,
    command: String,
    pages: WrittenPages,
    /// By the first address.
    tracked: BTreeMap<u64, Tracked>,
    has_regions: bool,
    has_ended: bool,
}

pub(crate) fn run(arguments: &Top) -> Result<ExitCode, Failure> {
    let look = &arguments.look;
    if arguments.threads || look.calls || look.media || look.reads {
        let cause = "--backend pages tells of no threads, calls, media or loads";
        let way_out = "leave --threads, --calls, --media and --reads out";
        return Err(Failure::new(cause, way_out).with_code(2));
    }
    check(look)?;
    probe_pages().map_err(|lacking| Failure::whole(lacking.to_string()).with_code(NOTHING))?;
    let stop = stop_at_signals()?;
    let mut looks = Looks {
        pids: look.pid.clone(),
        finder: finder(look)?,
        processes: BTreeMap::new(),
    };
    let rounds = arguments.count.unwrap_or(match arguments.json {
        true => u64::MAX,
        false => rounds_of_lines(),
    });
    looks.find(look)?;
    for _ in 0..rounds {
        let begin = Instant::now();
        let time = Duration::from_secs_f64(arguments.interval);
        while begin.elapsed() < time && !stop.load(Relaxed) {
            std::thread::sleep(LOOK.min(time.saturating_sub(begin.elapsed())));
            looks.find(look)?;
            if has_no_reader() {
                stop.store(true, Relaxed);
            }
        }
        let round = looks.round(begin.elapsed().as_secs_f64());
        pm_cli::print(arguments.json, &round, Round::text)?;
        if stop.load(Relaxed) || !look.pid.is_empty() && looks.processes.is_empty() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One into a pipe, as of the other backends.
fn rounds_of_lines() -> u64 {
    match std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        true => u64::MAX,
        false => 1,
    }
}

struct Looks {
    pids: Vec<u32>,
    finder: Finder,
    processes: BTreeMap<u32, Process>,
}

impl Looks {
    /// Looks for processes and mappings. New ones are taken once, because all their pages are told.
    fn find(&mut self, look: &Look) -> Result<(), Failure> {
        let is_asked = !self.pids.is_empty();
        let pids = match is_asked {
            true => self.pids.clone(),
            false => proc::all().unwrap_or_default(),
        };
        for process in self.processes.values_mut() {
            process.has_ended = true;
        }
        for pid in pids {
            let stat = proc::stat(pid).ok().filter(|stat| !stat.is_zombie);
            let Some(stat) = stat else { continue };
            let regions = match self.finder.find(pid) {
                Ok((regions, _)) => regions,
                Err(error) if is_asked && proc::stat(pid).is_ok() => {
                    let cause = format!("--pid {pid}: {error}");
                    return Err(Failure::new(cause, "be its user, or have CAP_SYS_PTRACE"));
                }
                Err(_) => continue,
            };
            if regions.is_empty() && !look.pid.contains(&pid) {
                continue;
            }
            let known = self.processes.get_mut(&pid);
            let known = known.filter(|known| known.start_ns == stat.start_ns);
            if let Some(known) = known {
                known.has_ended = false;
                known.take_new(regions);
            } else if let Ok(pages) = WrittenPages::open(pid) {
                let mut process = Process {
                    start_ns: stat.start_ns,
                    command: stat.command,
                    pages,
                    tracked: BTreeMap::new(),
                    has_regions: false,
                    has_ended: false,
                };
                process.take_new(regions);
                self.processes.insert(pid, process);
            }
        }
        Ok(())
    }

    /// Ends a round.
    fn round(&mut self, seconds: f64) -> Round {
        let mut round = Round {
            schema: pmmon::event::SCHEMA,
            time_ns: now_ns(),
            seconds,
            backend: ["pages"],
            page_bytes: PAGE,
            processes: Vec::new(),
            not_seen: Vec::new(),
        };
        for (pid, process) in &mut self.processes {
            process.take();
            if !process.tracked.is_empty() {
                round.processes.push(process.row(*pid));
                continue;
            }
            let (cause, remedy) = match process.has_regions {
                true => (
                    "does not ask the kernel to track its pages",
                    "pmm-writer --pages does; other programs: pmmon_sys::TrackedPages",
                ),
                false => (
                    "has no persistent memory mapped",
                    "name files by --as-pm that count as such",
                ),
            };
            round.not_seen.push(NotSeen {
                pid: *pid,
                cause,
                remedy,
            });
        }
        self.processes.retain(|_, process| !process.has_ended);
        round
    }
}

impl Process {
    fn take_new(&mut self, regions: Vec<Region>) {
        self.has_regions = !regions.is_empty();
        let is_there = |region: &Region| regions.contains(region);
        self.tracked.retain(|_, tracked| is_there(&tracked.region));
        for region in regions {
            let range = region.range();
            let is_known = self.tracked.contains_key(&range.start);
            if is_known || !self.pages.are_tracked(&range).unwrap_or(false) {
                continue;
            }
            if self.pages.take(&range).is_ok() {
                let (round, sum) = (0, 0);
                let tracked = Tracked { region, round, sum };
                self.tracked.insert(range.start, tracked);
            }
        }
    }

    /// Takes what was written in the round.
    fn take(&mut self) {
        for tracked in self.tracked.values_mut() {
            // A process that has ended has no pages any more.
            let written = self.pages.take(&tracked.region.range());
            let written = written.unwrap_or_default().into_iter();
            tracked.round = written.map(|range| (range.end - range.start) / PAGE).sum();
            tracked.sum += tracked.round;
        }
    }

    fn row(&self, pid: u32) -> Row {
        let mut files: BTreeMap<&str, Pages> = BTreeMap::new();
        for Tracked { region, round, sum } in self.tracked.values() {
            let pages = files.entry(&region.path).or_insert_with(|| Pages {
                path: region.path.clone(),
                written_pages: 0,
                sum_pages: 0,
                tracked_pages: 0,
            });
            pages.written_pages += round;
            pages.sum_pages += sum;
            pages.tracked_pages += (region.end - region.start) / PAGE;
        }
        Row {
            pid,
            start_ns: self.start_ns,
            command: self.command.clone(),
            files: files.into_values().collect(),
        }
    }
}

impl Round {
    fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "pages of {PAGE} bytes that were written in {:.1} s, which are neither bytes nor threads",
                self.seconds
            ),
            format!(
                "{:>8}  {:<16} {:>12} {:>12}  FILE",
                "PID", "COMMAND", "WRITTEN", "OF"
            ),
        ];
        for row in &self.processes {
            lines.extend(row.files.iter().map(|file| {
                let (pid, command) = (row.pid, escaped(row.command.as_bytes()));
                let (written, all) = (file.written_pages, file.tracked_pages);
                format!(
                    "{pid:>8}  {command:<16} {written:>12} {all:>12}  {}",
                    escaped(file.path.as_bytes())
                )
            }));
        }
        lines.extend(self.not_seen.iter().map(|one| {
            format!(
                "not seen: process {}: {}; {}",
                one.pid, one.cause, one.remedy
            )
        }));
        lines.join("\n")
    }
}
