//! flock and POSIX locks on a mount: they exclude, a waiter can be killed or interrupted, and a holder's death
//! frees what it held. Each case runs for both kinds.

mod bench;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench::{Bench, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Opens the file, says "ready", takes the lock, says "locked", and stays. SIGUSR1 interrupts a wait.
const LOCKER: &str = "
import fcntl, os, signal, sys, time
class Interrupted(Exception): pass
def interrupted(*_): raise Interrupted
signal.signal(signal.SIGUSR1, interrupted)
file = open(sys.argv[2], 'r+')
take = fcntl.flock if sys.argv[1] == 'flock' else fcntl.lockf
print('ready', flush=True)
try:
    take(file, fcntl.LOCK_EX)
    print('locked', flush=True)
    time.sleep(1000)
except Interrupted:
    print('interrupted', flush=True)
";

/// A process that takes a lock; killed when it goes.
struct Locker {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Locker {
    fn start(bench: &Bench, kind: &str) -> Locker {
        let mut child = Command::new("python3")
            .args(["-c", LOCKER, kind])
            .arg(bench.path("mnt/file"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut locker = Locker { child, said };
        assert_eq!(locker.line(), "ready");
        locker
    }

    /// The next line it says; empty when it has ended.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until it sleeps in the kernel.
    fn blocked(&self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        wait_until("the waiter sleeps", || {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" S"))
        });
        std::thread::sleep(Duration::from_millis(50));
    }

    fn ends(&mut self) {
        let since = Instant::now();
        wait_until("it ends", || {
            self.child.try_wait().expect("a child").is_some()
        });
        assert!(since.elapsed() < Duration::from_secs(10));
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mounted() -> Option<Bench> {
    let bench = Bench::mounted(&[])?;
    std::fs::write(bench.path("mnt/file"), "locked by many").unwrap();
    Some(bench)
}

/// One that has the lock, and one that waits for it.
fn contended(bench: &Bench, kind: &str) -> (Locker, Locker) {
    let mut holder = Locker::start(bench, kind);
    assert_eq!(holder.line(), "locked");
    let waiter = Locker::start(bench, kind);
    waiter.blocked();
    (holder, waiter)
}

const KINDS: [&str; 2] = ["flock", "posix"];

#[test]
fn a_killed_holder_lets_the_waiter_in() {
    let Some(bench) = mounted() else { return };
    for kind in KINDS {
        let (mut holder, mut waiter) = contended(&bench, kind);
        kill_process(holder.pid(), Signal::KILL).unwrap();
        holder.ends();
        assert_eq!(waiter.line(), "locked");
    }
}

#[test]
fn a_waiter_can_be_killed() {
    let Some(bench) = mounted() else { return };
    for kind in KINDS {
        let (_holder, mut waiter) = contended(&bench, kind);
        kill_process(waiter.pid(), Signal::KILL).unwrap();
        waiter.ends();
        assert_eq!(waiter.line(), "", "it never had the lock");
    }
}

#[test]
fn a_signal_interrupts_a_waiter() {
    let Some(bench) = mounted() else { return };
    for kind in KINDS {
        let (_holder, mut waiter) = contended(&bench, kind);
        kill_process(waiter.pid(), Signal::USR1).unwrap();
        assert_eq!(waiter.line(), "interrupted");
        waiter.ends();
    }
}
