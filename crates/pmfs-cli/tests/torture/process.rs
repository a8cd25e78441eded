//! A worker's process, and the one that makes its calls if that is another.

use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::calls;
use crate::face::Way;

/// From one look to the next.
const POLL: Duration = Duration::from_micros(100);

/// None yet, or dead, if there is no child.
pub struct Process {
    pub worker: usize,
    pub way: Way,
    pub incarnation: u32,
    said: PathBuf,
    child: Option<Child>,
    /// The program that has the pool open, with [`Way::C`] and [`Way::Run`].
    calls: Option<Child>,
    started: Instant,
}

/// A test that fails leaves no process.
impl Drop for Process {
    fn drop(&mut self) {
        for child in [&mut self.calls, &mut self.child] {
            if let Some(mut child) = child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Until the child has ended, or that is over.
pub fn wait(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        let end = child.try_wait().expect("wait");
        if end.is_some() || Instant::now() > deadline {
            return end;
        }
        thread::sleep(POLL);
    }
}

/// Reaps what was killed; `meanwhile` is called again and again while it stands.
pub fn reap(child: &mut Child, mut meanwhile: impl FnMut()) -> ExitStatus {
    loop {
        if let Some(end) = child.try_wait().expect("wait") {
            return end;
        }
        meanwhile();
        thread::sleep(POLL);
    }
}

pub fn was_killed(end: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    end.signal() == Some(9)
}

impl Process {
    pub fn new(dir: &Path, worker: usize, way: Way) -> Process {
        Process {
            worker,
            way,
            incarnation: 0,
            said: dir.join(format!("w{worker}.said")),
            child: None,
            calls: None,
            started: Instant::now(),
        }
    }

    /// Starts it; the command is the worker's.
    pub fn start(&mut self, dir: &Path, mut command: Command) {
        let said = File::create(&self.said).expect("a file");
        let append = || OpenOptions::new().append(true).open(&self.said);
        drop(said);
        let mut stdin = Stdio::null();
        let calls = match self.way {
            Way::C => Some(calls::command(dir)),
            Way::Run(mount) => Some(calls::intercepted(dir, mount)),
            Way::Library | Way::Mount(_) => None,
        };
        if let Some(mut calls) = calls {
            let (theirs, ours) = UnixStream::pair().expect("a socket");
            let calls = calls
                .stdin(OwnedFd::from(theirs))
                .stdout(Stdio::null())
                .stderr(append().expect("a file"))
                .spawn();
            self.calls = Some(calls.expect("calls"));
            stdin = Stdio::from(OwnedFd::from(ours));
        }
        let child = command
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(append().expect("a file"))
            .spawn();
        self.child = Some(child.expect("a worker"));
        self.started = Instant::now();
    }

    /// How long ago it was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("started")
    }

    /// The process that has the pool open; `None` if that is a mount's daemon.
    pub fn caller(&self) -> Option<u32> {
        let caller = match self.way {
            Way::Library => &self.child,
            Way::C | Way::Run(_) => &self.calls,
            Way::Mount(_) => &None,
        };
        caller.as_ref().map(Child::id)
    }

    /// Kills the process at once.
    pub fn kill(&mut self) {
        for child in [&mut self.calls, &mut self.child].into_iter().flatten() {
            child.kill().expect("kill");
        }
    }

    /// Reaps what was killed.
    pub fn reap(&mut self, mut meanwhile: impl FnMut()) {
        for child in [self.calls.take(), self.child.take()] {
            let Some(mut child) = child else { continue };
            let end = reap(&mut child, &mut meanwhile);
            if !was_killed(end) && !self.was_not_started(end) {
                self.fail(end);
            }
        }
    }

    /// `pmfs run` says so, of a mount whose daemon has just been killed.
    fn was_not_started(&self, end: ExitStatus) -> bool {
        let is_run = matches!(self.way, Way::Run(_));
        is_run && end.code() == Some(1) && self.said().starts_with("pmfs: ")
    }

    pub fn assert_runs(&mut self) {
        let mut ended = Vec::new();
        for child in [&mut self.calls, &mut self.child] {
            if let Some(child) = child
                && let Some(end) = child.try_wait().expect("wait")
            {
                ended.push(end);
            }
        }
        if let Some(end) = ended.first() {
            self.fail(*end);
        }
    }

    /// Waits for its end, which is its own and successful.
    pub fn join(&mut self, deadline: Instant) {
        for mut child in [self.child.take(), self.calls.take()].into_iter().flatten() {
            match wait(&mut child, deadline) {
                Some(end) if end.success() => {}
                Some(end) => self.fail(end),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("worker {} does not end: {}", self.worker, self.said());
                }
            }
        }
    }

    fn said(&self) -> String {
        // The last words of the process may be under way.
        thread::sleep(Duration::from_millis(200));
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    fn fail(&self, end: ExitStatus) -> ! {
        let (worker, said) = (self.worker, self.said());
        panic!("worker {worker} ended by itself: {end}: {said}");
    }
}
