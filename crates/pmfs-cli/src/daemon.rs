//! The background process of a mount.
//!
//! `pmfs mount` runs itself once more with a hidden flag and a pipe as its stdout. The new process
//! makes a session of its own, attaches the pool, mounts it, writes one line into the pipe (its
//! mount, or the error), and serves. The first process ends when it has read the line and seen the
//! mount answer; so its exit code can be trusted. (A plain fork would need unsafe code.)

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};

use pmfs_fuse::Stop;
use serde::{Deserialize, Serialize};

use crate::cli::Mount;
use crate::failure::Failure;
use crate::logger::{self, Target};
use crate::mount::{Attached, MountReport, Request};
use crate::{Outcome, keeper, signals, temp};

/// The line in the pipe.
#[derive(Serialize, Deserialize)]
enum Status {
    Ready(Box<MountReport>),
    Failed { message: String, lacks_fuse: bool },
}

/// Runs this program once more. By its name, for ps; through /proc if that is gone, as
/// after an upgrade.
pub fn this_program(subcommand: &str) -> Command {
    let program = env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
    command.arg0("pmfs").arg(subcommand);
    command
}

/// Starts the background process and waits until the mount answers.
pub fn start(arguments: &Mount, request: &Request) -> Result<MountReport, Failure> {
    let mut command = this_program("mount");
    command.arg("--daemon");
    for (wanted, flag) in [
        (arguments.while_used, "--while-used"),
        (arguments.by_mount8, "--by-mount8"),
    ] {
        command.args(wanted.then_some(flag));
    }
    for list in &arguments.options {
        command.arg("-o").arg(list);
    }
    for path in &arguments.and_remove {
        command.arg("--and-remove").arg(path);
    }
    if let Some(medium) = &arguments.emulate {
        command.arg("--emulate").arg(medium.to_string());
    }
    if let Some(mode) = &arguments.protect {
        command.arg("--protect").arg(mode.to_string());
    }
    if let Some(log) = &arguments.log {
        command.arg("--log").arg(path::absolute(log)?);
    }
    command.arg("--").arg(&request.pool).arg(&request.dir);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::new(format!("starting the daemon: {error}"), "try with -f"))?;
    let report = match status(&mut child)? {
        Status::Ready(report) => *report,
        Status::Failed {
            message,
            lacks_fuse,
        } => {
            // The child ends at once: leave no zombie to the parent of this process.
            let _ = child.wait();
            return Err(Failure::whole(message).with_lack_of_fuse(lacks_fuse));
        }
    };
    fs::metadata(&request.dir).map_err(|error| {
        Failure::new(
            format!(
                "the mount on {} does not answer: {error}",
                request.dir.display()
            ),
            "try with -f to see its log",
        )
    })?;
    Ok(report)
}

fn status(child: &mut Child) -> Result<Status, Failure> {
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe).read_line(&mut line)?;
    }
    match serde_json::from_str(&line) {
        Ok(status) => Ok(status),
        Err(_) => {
            let end = child.wait()?;
            Err(Failure::new(
                format!("the daemon ended before the mount was there ({end})"),
                "try with -f to see why",
            ))
        }
    }
}

/// The background process itself.
pub fn run(arguments: &Mount) -> Outcome {
    let attached = attach(arguments);
    let status = match &attached {
        Ok((_, report, _)) => serde_json::to_string(&Status::Ready(Box::new(report.clone()))),
        Err(failure) => serde_json::to_string(&Status::Failed {
            message: failure.to_string(),
            lacks_fuse: failure.lacks_fuse(),
        }),
    };
    let told = writeln!(io::stdout(), "{}", status.map_err(io::Error::from)?);
    let Ok((attached, _, mut stop)) = attached else {
        // The first process reports it.
        return Ok(ExitCode::FAILURE);
    };
    if told.is_err() {
        // Interrupted while the parent waited: no process wants the mount then.
        let (sender, at_once) = channel();
        let _ = sender.send(Stop::soon("the process that asked for the mount has ended"));
        stop = at_once;
    }
    let_go_of_terminal()?;
    let ended = attached.serve(stop);
    temp::remove(&arguments.and_remove);
    ended
}

type Started = (Attached, MountReport, Receiver<Stop>);

fn attach(arguments: &Mount) -> Result<Started, Failure> {
    let (stopping, stop) = signals::as_messages()?;
    let request = Request::new(arguments)?;
    if let Some(log) = &arguments.log {
        logger::start(&Target::File(log))?;
    }
    let system = |errno| Failure::new(format!("leaving the terminal: {errno}"), "try with -f");
    rustix::process::setsid().map_err(system)?;
    // A working directory of its own would keep that file system busy.
    rustix::process::chdir("/").map_err(system)?;
    let (attached, report) = Attached::new(&request)?;
    if arguments.while_used {
        keeper::listen(attached.name(), stopping)?;
    }
    Ok((attached, report, stop))
}

/// Closes the terminal, so that no reader of our output waits for the end of the mount.
fn let_go_of_terminal() -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    Ok(())
}
