//! `pmfs doctor`: what this machine has of what PMFS needs or can use, and for each
//! that it lacks the one command that mends it. Only looks; changes nothing.

mod machine;
mod needs;

use std::process::ExitCode;

use serde::Serialize;

use crate::Outcome;
use crate::cli::Doctor;
use crate::report;
use machine::Machine;

/// The state of one need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// The need is met.
    Ok,
    /// The need is not met, and without it this user can't mount pools.
    Missing,
    /// The need is not met, and would be of use.
    Optional,
}

/// A thing that PMFS needs or can use.
#[derive(Debug, Serialize)]
struct Need {
    name: &'static str,
    state: State,
    /// The finding, and its meaning.
    found: String,
    /// A command for the shell.
    mend: Option<String>,
}

#[derive(Serialize)]
struct DoctorReport {
    /// Pools can be made and mounted by this user.
    ready: bool,
    /// Pools can't be mounted, but `pmfs run` serves programs all the same, without a mount.
    mountless: bool,
    needs: Vec<Need>,
}

pub fn run(arguments: &Doctor) -> Outcome {
    let needs = needs::all(&Machine::this());
    let ready = needs.iter().all(|need| need.state != State::Missing);
    let mountless = needs::only_fuse_is_missing(&needs);
    let report = DoctorReport {
        ready,
        mountless,
        needs,
    };
    report::print(arguments.json, &report, text)?;
    Ok(if ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(report: &DoctorReport) -> String {
    let mut lines = Vec::new();
    for need in &report.needs {
        let state = match need.state {
            State::Ok => "ok",
            State::Missing => "missing",
            State::Optional => "optional",
        };
        lines.push(format!("{state:<9} {:<17} {}", need.name, need.found));
        if let Some(mend) = &need.mend {
            lines.push(format!("{:28}{mend}", ""));
        }
    }
    lines.push(match report.ready {
        true => "Pools can be made and mounted here.".to_owned(),
        false => "Pools can't be mounted here yet: see what is missing.".to_owned(),
    });
    if report.mountless {
        lines.push(
            "`pmfs run` works without a mount, for programs that it can be loaded into.".to_owned(),
        );
    }
    lines.join("\n")
}
