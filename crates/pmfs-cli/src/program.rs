//! The program of `pmfs run`, which is to find itself as if its caller had started it:
//! with the caller's signal mask, ignored signals and closed descriptors, none of which
//! are this process's own by the time that it gets to `main`.
//!
//! Either this process becomes the program, or it starts it, waits, and passes on the
//! signals that are meant for it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread;

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, execvpe};
use pmem::started;
use rustix::fd::OwnedFd;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::preload;

pub const SHELL: &str = "/bin/sh";

/// Signals to this process that are meant for the program. Not those that stop it: a terminal sends
/// them to both, and the parent of this process has to see it stop.
const PASSED: [Signal; 12] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGWINCH,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// The signals that a terminal sends to all of the foreground, so to both.
const OF_TERMINALS: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGWINCH,
];
/// si_code of what the kernel sends itself.
const SI_KERNEL: i32 = 0x80;

/// A program, and what it is started with.
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// The end of the program.
pub enum Ended {
    Code(u8),
    Signal(Signal),
}

impl Program {
    pub fn new(program: &OsStr, rest: &[OsString]) -> Program {
        let words = [&[program.to_owned()], rest].concat();
        Program {
            words,
            environment: env::vars_os().collect(),
        }
    }

    /// Started by a shell, which finds what the kernel does not.
    pub fn by_shell(program: &OsStr, rest: &[OsString]) -> Program {
        let script = ["-c".into(), "exec \"$0\" \"$@\"".into(), program.to_owned()];
        Program::new(OsStr::new(SHELL), &[&script, rest].concat())
    }

    pub fn name(&self) -> &OsStr {
        &self.words[0]
    }

    pub fn unset(&mut self, name: &str) {
        self.environment.retain(|(other, _)| other != name);
    }

    pub fn set(&mut self, name: &str, value: OsString) {
        self.unset(name);
        self.environment.push((name.into(), value));
    }

    /// Becomes it.
    pub fn exec(&self) -> io::Error {
        for number in started::closed() {
            let all = [
                rustix::stdio::stdin(),
                rustix::stdio::stdout(),
                rustix::stdio::stderr(),
            ];
            let _ = fcntl_setfd(all[number as usize], FdFlags::CLOEXEC);
        }
        if started::ignores_broken_pipes() {
            // SIGPIPE stays ignored, as it is here; the standard library would not leave it so.
            let texts = self.texts();
            let execed = texts.and_then(|(words, environment)| {
                Ok(execvpe(&words[0], &words, &environment).map(|never| match never {})?)
            });
            return execed.err().unwrap_or_else(|| Errno::EIO.into());
        }
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        Command::new(&self.words[0])
            .args(&self.words[1..])
            .env_clear()
            .envs(environment)
            .exec()
    }

    /// Starts it. To be called while there is one thread.
    pub fn start(&self) -> io::Result<Pid> {
        let mask = SigSet::thread_get_mask()?;
        let passed = SigSet::from_iter(PASSED);
        // Signals that come from now on wait until there is a program to pass them on to.
        passed.thread_block()?;
        let started = self.spawn(&mask);
        let by = started.as_ref().ok().and_then(|pid| {
            let pid = rustix::process::Pid::from_raw(pid.as_raw())?;
            // By this no other process can be meant, later.
            let program = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            Some((program, SignalFd::new(&passed).ok()?))
        });
        match by {
            Some((program, signals)) => drop(thread::spawn(move || pass_on(&signals, &program))),
            None => mask.thread_set_mask()?,
        }
        Ok(started?)
    }

    fn spawn(&self, mask: &SigSet) -> nix::Result<Pid> {
        let mut actions = PosixSpawnFileActions::init()?;
        for number in started::closed() {
            actions.add_close(number)?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK;
        attributes.set_sigmask(mask)?;
        if !started::ignores_broken_pipes() {
            flags |= PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
            attributes.set_sigdefault(&SigSet::from_iter([Signal::SIGPIPE]))?;
        }
        attributes.set_flags(flags)?;
        let (words, environment) = self.texts().map_err(|_| Errno::EINVAL)?;
        let spawned = posix_spawnp(&words[0], &actions, &attributes, &words, &environment);
        if spawned != Err(Errno::ENOEXEC) {
            return spawned;
        }
        // A script without `#!`, as execvp(3) has it.
        let path = preload::found(self.name()).unwrap_or_else(|| PathBuf::from(self.name()));
        let shell = [text(OsStr::new(SHELL)), text(path.as_os_str())];
        let shell: Result<Vec<CString>, _> = shell.into_iter().collect();
        let words = [&shell.map_err(|_| Errno::EINVAL)?, &words[1..]].concat();
        posix_spawnp(&words[0], &actions, &attributes, &words, &environment)
    }

    /// Words and environment as the kernel takes them.
    fn texts(&self) -> io::Result<(Vec<CString>, Vec<CString>)> {
        let words: io::Result<_> = self.words.iter().map(|word| text(word)).collect();
        let entry = |(name, value): &(OsString, OsString)| {
            text(&[name.as_os_str(), value].join(OsStr::new("=")))
        };
        let environment: io::Result<_> = self.environment.iter().map(entry).collect();
        Ok((words?, environment?))
    }
}

fn text(word: &OsStr) -> io::Result<CString> {
    Ok(CString::new(word.to_owned().into_vec())?)
}

/// Waits for it.
pub fn wait(pid: Pid) -> io::Result<Ended> {
    loop {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(Ended::Code(code as u8)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Ended::Signal(signal)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Ended {
    /// Ends this process so. A shell looks at whether it was SIGINT, to end a script.
    pub fn as_code(&self) -> ExitCode {
        match self {
            Ended::Code(code) => ExitCode::from(*code),
            Ended::Signal(signal) => {
                if *signal == Signal::SIGINT {
                    let interrupt = SigSet::from_iter([Signal::SIGINT]);
                    let _ = raise(Signal::SIGINT);
                    let _ = interrupt.thread_unblock();
                }
                // A shell gives the same: the signal's number and 128.
                ExitCode::from((128 + *signal as i32) as u8)
            }
        }
    }
}

fn pass_on(signals: &SignalFd, program: &OwnedFd) {
    while let Ok(Some(come)) = signals.read_signal() {
        let Ok(signal) = Signal::try_from(come.ssi_signo as i32) else {
            continue;
        };
        if come.ssi_code == SI_KERNEL && OF_TERMINALS.contains(&signal) {
            continue;
        }
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
            let _ = pidfd_send_signal(program, signal);
        }
    }
}
