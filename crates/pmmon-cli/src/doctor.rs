//! `pmmon doctor`: which backends work here.

use std::path::Path;
use std::process::ExitCode;

use pm_cli::Failure;
use pmmon::proc;
use pmmon_cli::commands::Doctor;
use pmmon_sys::{ClockTicks, Finder, Stray, calibrate, has_soft_dirty, probe_pages};
use serde::Serialize;

use crate::NOTHING;

/// The description of the CPU's own counters, which virtual machines mostly lack.
const PMU: &str = "/sys/bus/event_source/devices/cpu";

#[derive(Serialize)]
struct Finding {
    backend: &'static str,
    works: bool,
    says: String,
    remedy: Option<&'static str>,
}

pub(crate) fn run(arguments: &Doctor) -> Result<ExitCode, Failure> {
    let findings = [watch(), clock(), pebs(), engine(), pages()];
    pm_cli::print(arguments.json, &findings, |findings| {
        let line = |finding: &Finding| {
            let works = if finding.works { "works" } else { "lacks" };
            let remedy = finding.remedy.map_or(String::new(), |it| format!("; {it}"));
            format!("{:<6} {works}  {}{remedy}", finding.backend, finding.says)
        };
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    let works = findings.iter().any(|finding| finding.works);
    Ok(ExitCode::from(if works { 0 } else { NOTHING }))
}

fn watch() -> Finding {
    let probe = calibrate();
    let is_stray =
        |error: &std::io::Error| error.get_ref().is_some_and(|cause| cause.is::<Stray>());
    let remedy = match probe.as_ref().is_err_and(is_stray) {
        true => "take clock, or another machine",
        false => {
            "let no debugger hold the debug registers, and see /proc/sys/kernel/perf_event_paranoid"
        }
    };
    let says = |cost: f64| format!("bytes and accesses; a trap costs {:.1} us", cost / 1e3);
    finding("watch", probe.map(says), remedy)
}

fn clock() -> Finding {
    finding(
        "clock",
        ClockTicks::probe().map(|()| "times of threads within accesses".to_owned()),
        "see /proc/sys/kernel/perf_event_paranoid, and let no seccomp refuse perf_event_open",
    )
}

fn pebs() -> Finding {
    let says = match Path::new(PMU).exists() {
        true => "this version does not read the PMU's samples",
        false => "no PMU on this machine, and this version does not read one",
    };
    let error = std::io::Error::other(says);
    finding("pebs", Err(error), "take watch")
}

/// Where no pool is in use there is nothing to count.
fn engine() -> Finding {
    let mut finder = Finder::default();
    let mut uses = |pid: u32| finder.pools(pid).is_ok_and(|pools| !pools.is_empty());
    let users = proc::all().unwrap_or_default().into_iter();
    let found = match users.filter(|pid| uses(*pid)).count() {
        0 => Err(std::io::Error::other(
            "no process that may be looked at has a pool",
        )),
        users => Ok(format!(
            "calls on pools, exactly; processes with a pool: {users}"
        )),
    };
    finding("engine", found, "let a program have a pool, or be its user")
}

/// Soft-dirty bits are told of and not used: who clears them takes them from all others.
fn pages() -> Finding {
    let soft_dirty = match has_soft_dirty() {
        Ok(true) => {
            "soft-dirty bits are here, and are left to others, whom clear_refs would disturb"
        }
        Ok(false) => "this kernel has no soft-dirty bits",
        Err(_) => "whether there are soft-dirty bits is not known",
    };
    match probe_pages() {
        Ok(()) => {
            let what = "written pages, no bytes and no threads, of programs that ask for it";
            finding("pages", Ok(format!("{what}; {soft_dirty}")), "")
        }
        Err(lacking) => {
            let error = std::io::Error::other(format!("{}; {soft_dirty}", lacking.cause));
            finding("pages", Err(error), lacking.remedy)
        }
    }
}

fn finding(backend: &'static str, probe: std::io::Result<String>, remedy: &'static str) -> Finding {
    match probe {
        Ok(says) => Finding {
            backend,
            works: true,
            says,
            remedy: None,
        },
        Err(error) => Finding {
            backend,
            works: false,
            says: error.to_string(),
            remedy: Some(remedy),
        },
    }
}
