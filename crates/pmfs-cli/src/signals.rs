//! Signals that end a mount, as messages; and one that a program is to get in place of who waits for it.

use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use pmfs_fuse::Stop;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::failure::Failure;

/// From now on SIGTERM, SIGINT and SIGHUP arrive as [`Stop`]. To be called before any thread is
/// started: threads inherit the mask, and one that had them unblocked would end the process.
pub fn as_messages() -> Result<Receiver<Stop>, Failure> {
    let set = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    set.thread_block()
        .map_err(|errno| Failure::new(format!("blocking signals: {errno}"), "report this"))?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        while let Ok(signal) = set.wait() {
            if sender
                .send(Stop(format!("signal {}", signal.as_str())))
                .is_err()
            {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Starts a program that this process waits for, and that ends when this process is asked to: SIGTERM is passed on. (A terminal sends its
/// signals to both.) To be called while there is one thread.
pub fn start(command: &mut Command) -> std::io::Result<Child> {
    let set = SigSet::from_iter([Signal::SIGTERM]);
    // The program does not inherit it: `Command` gives it an empty mask.
    set.thread_block()?;
    let child = command.spawn();
    let by = child.as_ref().ok().map(Pid::from_child);
    // By this no other process can be meant, later.
    let Some(Ok(program)) = by.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        set.thread_unblock()?;
        return child;
    };
    thread::spawn(move || {
        while set.wait().is_ok() {
            let _ = pidfd_send_signal(&program, rustix::process::Signal::TERM);
        }
    });
    child
}
