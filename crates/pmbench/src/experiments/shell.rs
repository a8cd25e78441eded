//! A shell command: its output, its time, and its end when the time is over or the run is to stop.
//!
//! Each command is the leader of a process group, so that its children end with it. The exit code
//! 77 says that the command can't be run here, as in automake's tests: its output is the reason.

use super::needs::search_path;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time between two checks whether the run is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The length of what is kept of a failed command's output.
const SAID_MAX: usize = 600;
/// The exit status of a command that can't do here what it is to do.
pub const CANNOT: i32 = 77;

/// The command can't be run here.
#[derive(Debug)]
pub struct Cannot(pub String);

impl std::fmt::Display for Cannot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cannot {}

/// Set when the run is to stop.
pub type Stop = Arc<AtomicBool>;

/// The result of a command.
pub struct Ran {
    /// Standard output, then standard error.
    pub output: String,
    /// From its start to its end.
    pub seconds: f64,
}

/// Runs a command.
pub fn run(command: &str, timeout: Duration, stop: &Stop) -> anyhow::Result<Ran> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let mut shell = Command::new("/bin/sh");
    shell.args(["-ec", command]).process_group(0);
    shell
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("RUST_BACKTRACE", "0");
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let child = shell.spawn().context("/bin/sh can't be run")?;
    let group = Pid::from_child(&child);
    let (ended, ends) = channel::<()>();
    let watch = {
        let stop = Arc::clone(stop);
        std::thread::spawn(move || watch(group, timeout, &stop, &ends))
    };
    let output = child.wait_with_output();
    let seconds = start.elapsed().as_secs_f64();
    drop(ended);
    let killed = watch.join().unwrap_or(None);
    let output = output?;
    if let Some(why) = killed {
        bail!("{why}: {command}");
    }
    if output.status.code() == Some(CANNOT) {
        return Err(Cannot(said(&output)).into());
    }
    if !output.status.success() {
        bail!("{}: {command}\n{}", output.status, said(&output));
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Ran {
        output: text,
        seconds,
    })
}

/// Kills the group if it has to; says why.
fn watch(
    group: Pid,
    timeout: Duration,
    stop: &AtomicBool,
    ends: &std::sync::mpsc::Receiver<()>,
) -> Option<String> {
    let until = Instant::now() + timeout;
    loop {
        match ends.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return None,
        }
        let late = Instant::now() >= until;
        if late || stop.load(Ordering::Relaxed) {
            let _ = kill_process_group(group, Signal::KILL);
            return Some(match late {
                true => format!("not done after {} s", timeout.as_secs()),
                false => "interrupted".into(),
            });
        }
    }
}

fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stdout));
    let text = text.trim();
    match text.char_indices().nth_back(SAID_MAX) {
        Some((at, _)) => format!("...{}", &text[at..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(command: &str, timeout_ms: u64) -> anyhow::Result<Ran> {
        run(command, Duration::from_millis(timeout_ms), &Stop::default())
    }

    #[test]
    fn output_and_time_are_told() {
        let ran = go("echo out; sleep 0.05; echo err >&2", 5000).unwrap();
        assert_eq!(ran.output, "out\nerr\n");
        assert!(ran.seconds >= 0.05 && ran.seconds < 5.0);
    }

    #[test]
    fn a_failure_tells_the_command_and_what_it_said() {
        let why = go("echo sorry >&2; false; true", 5000)
            .map(|_| ())
            .unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("sorry") && why.contains("false; true"),
            "{why}"
        );
    }

    #[test]
    fn what_cannot_be_done_is_told_from_what_failed() {
        let cannot = |command: &str| {
            let why = go(command, 5000).map(|_| ()).unwrap_err();
            let why = why.context("before");
            why.downcast_ref::<Cannot>().map(ToString::to_string)
        };
        let why = cannot("echo no keys; exit 77");
        assert_eq!(why.as_deref(), Some("no keys"));
        assert_eq!(cannot("echo no keys; exit 76"), None);
    }

    /// Programs that a command started must not outlive it: their output would be waited for.
    #[test]
    fn a_command_without_end_is_ended_with_its_children() {
        let start = Instant::now();
        let why = go("sleep 60 & sleep 60", 200).map(|_| ()).unwrap_err();
        assert!(why.to_string().contains("not done after"), "{why}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn nothing_starts_when_the_run_is_to_stop() {
        let stop = Stop::default();
        stop.store(true, Ordering::Relaxed);
        assert!(run("true", Duration::from_secs(5), &stop).is_err());
    }
}
