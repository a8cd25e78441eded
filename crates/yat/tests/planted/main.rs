//! Goal: the checker finds every bug that the engine can be given on purpose, and nothing when it has none.
//! Method: each bug of `pmfs::planted::BUGS` is selected in turn; calls are tried until the first violation, under
//! power loss, then under kills. What one call can't show has a small search of its own: a second crash during
//! recovery or in the call after it, a call stopped while another one runs, a pool cut short while it is made.
#![cfg(feature = "planted-bugs")]

mod pairs;
#[path = "../../src/planted.rs"]
mod planted;
mod sequences;

use pmfs::DataMode;
use pmfs::planted::{BUGS, Bug, Needs, select};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use yat::explore::explore;
use yat::kill::kill_everywhere;
pub(crate) use yat::{tree, workload};

const MODES: [DataMode; 2] = [DataMode::Atomic, DataMode::Ordered];

/// How a search went on: what it tried, and the violation it ended with.
#[derive(Default)]
pub(crate) struct Search {
    /// Images, kills or rounds without violation before the one that has it.
    pub tried: u64,
    /// Which search, and the violation's first line.
    pub found: Option<String>,
}

impl Search {
    /// Counts one step; `true` if it ended the search. A panic is a violation; that something can't be enumerated is
    /// none.
    pub fn step(&mut self, what: &str, step: impl FnOnce() -> Result<u64, String>) -> bool {
        let answer = catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            Err(format!("panic: {}", text.unwrap_or("?")))
        });
        match answer {
            Ok(count) => self.tried += count,
            Err(text) if text.contains("not exhaustive") => {}
            Err(text) => {
                let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                let line = lines.next().unwrap_or_default().to_owned();
                let more: Vec<&str> = lines.take(4).collect();
                let more = more.join(" ");
                self.found = Some(format!("{what}: {line} {more}"));
            }
        }
        self.found.is_some()
    }
}

fn power() -> Search {
    let mut search = Search::default();
    for mode in MODES {
        for workload in workload::one_call()
            .into_iter()
            .chain(planted::more_calls())
        {
            let explored = || explore(&workload, mode).map(|counts| counts.images);
            if search.step(&format!("power, {mode:?}"), explored) {
                return search;
            }
        }
    }
    search
}

fn kills(dir: &Path) -> Search {
    let mut search = Search::default();
    for mode in MODES {
        for workload in workload::one_call()
            .into_iter()
            .chain(planted::more_calls())
        {
            let killed = || kill_everywhere(&workload, mode, dir).map(|kills| kills.kills);
            if search.step(&format!("kill, {mode:?}"), killed) {
                return search;
            }
        }
    }
    search
}

/// The searches that a bug may take, cheapest first, up to its own.
fn search(needs: Needs, dir: &Path) -> Search {
    match needs {
        Needs::OneCall => power(),
        Needs::Kill => kills(dir),
        Needs::TwoCalls | Needs::Recovery => sequences::search(),
        Needs::Pair => pairs::search(dir),
        Needs::Mkfs => sequences::mkfs(),
    }
}

fn hunt(bug: &Bug, dir: &Path) -> Option<String> {
    select(Some(bug.name));
    let search = search(bug.needs, dir);
    select(None);
    match search.found {
        Some(text) => {
            println!("{}: after {}: {text}", bug.name, search.tried);
            None
        }
        None => Some(format!("{}: not found in {}", bug.name, search.tried)),
    }
}

/// Panics are expected by the dozen: only their texts count.
fn quiet() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// One test, for what is selected is the process's.
#[test]
fn each_is_found_and_nothing_else() {
    let only = std::env::var("YAT_BUG").ok();
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    quiet();
    let mut failures = Vec::new();
    for bug in BUGS {
        if only
            .as_ref()
            .is_none_or(|only| bug.name.contains(only.as_str()))
        {
            failures.extend(hunt(bug, dir.path()));
        }
    }
    for needs in [
        Needs::OneCall,
        Needs::Kill,
        Needs::Recovery,
        Needs::Pair,
        Needs::Mkfs,
    ] {
        if only
            .as_ref()
            .is_none_or(|only| *only == format!("none {needs:?}"))
        {
            let search = search(needs, dir.path());
            println!("no bug: {needs:?}: {} tried", search.tried);
            failures.extend(search.found.map(|text| format!("no bug, but {text}")));
        }
    }
    drop(std::panic::take_hook());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
