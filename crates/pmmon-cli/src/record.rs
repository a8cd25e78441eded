//! `pmmon record`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use pm_cli::Failure;
use pmmon::{Event, recording};
use pmmon_cli::commands::Record;

use crate::session::{Session, sampler};

/// The time that is meant by "until it ends".
const FOREVER: Duration = Duration::from_secs(1 << 40);
/// A program that was started is seen to have ended within this time.
const ROUND: Duration = Duration::from_millis(20);

pub(crate) fn run(arguments: &Record) -> Result<ExitCode, Failure> {
    let path = arguments.output.display();
    let failed = |error: std::io::Error| {
        Failure::new(
            format!("{path}: {error}"),
            "name a file that may be written",
        )
    };
    let mut file = BufWriter::new(File::create(&arguments.output).map_err(failed)?);
    let mut look = arguments.look.clone();
    // Before the program, whose first accesses would be missed otherwise.
    let backed = sampler(&look)?;
    let counts_itself = backed.counts_calls();
    let mut child = start(&arguments.program, counts_itself)?;
    look.pid.extend(child.as_ref().map(Child::id));
    let mut session = Session::with(&look, backed)?;
    let mut counts = (0, 0);
    let mut take = |events: Vec<Event>| {
        for event in &events {
            if let Event::Batch {
                samples, drained, ..
            } = event
            {
                counts.0 += samples.len() as u64;
                counts.1 += drained.lost;
            }
        }
        // A recording that is killed keeps what was told.
        recording::write(&events, &mut file)
            .and_then(|()| file.flush())
            .map_err(|error| {
                Failure::new(format!("{path}: {error}"), "make space for the recording")
            })
    };
    let mut left = arguments.seconds.map_or(FOREVER, Duration::from_secs_f64);
    let mut status = None;
    while !left.is_zero() {
        let round = ROUND.min(left);
        left = left.saturating_sub(round);
        if !session.run(round, &mut take)? {
            break;
        }
        if let Some(child) = &mut child
            && let Ok(Some(ended)) = child.try_wait()
        {
            status = Some(ended);
        }
    }
    take(session.end())?;
    eprintln!("pmmon: {path}: {} samples, {} lost", counts.0, counts.1);
    let Some(mut child) = child else {
        return Ok(ExitCode::SUCCESS);
    };
    let status = match status {
        Some(status) => status,
        None => child.wait().map_err(|error| {
            Failure::new(
                format!("waiting for the program: {error}"),
                "look for it by ps",
            )
        })?,
    };
    // A shell tells signals so.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
}

/// Starts the program. One that counts its calls itself begins at once, and not when it is asked.
fn start(program: &[std::ffi::OsString], counts_itself: bool) -> Result<Option<Child>, Failure> {
    let Some((name, arguments)) = program.split_first() else {
        return Ok(None);
    };
    let mut command = Command::new(name);
    command.args(arguments);
    if counts_itself {
        command.env("PMFS_MONITOR", "wait");
    }
    let child = command.spawn();
    child.map(Some).map_err(|error| {
        Failure::new(
            format!("{}: {error}", name.display()),
            "name a program that can be run",
        )
    })
}
