//! A process of its own that opens and locks files as it is told, line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

/// `WORD NAME ...`, answered by one line: "ok", what was asked for, or the name of the
/// error. `ofd` are the locks of an open file. SIGUSR1 interrupts.
const SCRIPT: &str = "
import errno, fcntl, os, signal, struct, sys
class Interrupted(Exception): pass
def interrupted(*_): raise Interrupted
signal.signal(signal.SIGUSR1, interrupted)
KINDS = {'sh': fcntl.F_RDLCK, 'ex': fcntl.F_WRLCK, 'un': fcntl.F_UNLCK}
COMMANDS = {'posix': (fcntl.F_SETLK, fcntl.F_SETLKW), 'ofd': (37, 38)}
files = {}
def ranged(command, file, kind, start, length):
    lock = struct.pack('hhqqi4x', KINDS[kind], 0, int(start), int(length), 0)
    return struct.unpack('hhqqi4x', fcntl.fcntl(file, command, lock))
def do(word, name, rest):
    if word == 'open':
        files[name] = os.open(rest[0], os.O_RDWR)
    elif word == 'close':
        os.close(files.pop(name))
    elif word == 'read':
        return os.pread(files[name], 100, 0).decode()
    elif word == 'flock':
        how = {'sh': fcntl.LOCK_SH, 'ex': fcntl.LOCK_EX, 'un': fcntl.LOCK_UN}[rest[0]]
        fcntl.flock(files[name], how | (0 if rest[1:] == ['wait'] else fcntl.LOCK_NB))
    elif word == 'get':
        kind, _, start, length, pid = ranged(fcntl.F_GETLK, files[name], *rest)
        if kind == fcntl.F_UNLCK: return 'free'
        return f'{next(k for k in KINDS if KINDS[k] == kind)} {start} {length} {pid}'
    else:
        command = COMMANDS[word][rest[3:] == ['wait']]
        ranged(command, files[name], *rest[:3])
    return 'ok'
while line := sys.stdin.readline():
    word, name, *rest = line.split()
    try:
        said = do(word, name, rest)
    except Interrupted:
        said = 'interrupted'
    except OSError as error:
        said = 'EDEADLK' if error.errno == errno.EDEADLK else errno.errorcode[error.errno]
    print(said, flush=True)
";

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Killed when it goes.
pub struct Actor {
    child: Child,
    told: ChildStdin,
    said: Receiver<String>,
}

impl Actor {
    pub fn start() -> Actor {
        let mut child = Command::new("python3")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let told = child.stdin.take().expect("a pipe");
        let pipe = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, said) = channel();
        thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Actor { child, told, said }
    }

    /// With the file open as `f`.
    pub fn with(path: &Path) -> Actor {
        let mut actor = Actor::start();
        assert_eq!(actor.ask(&format!("open f {}", path.display())), "ok");
        actor
    }

    /// Tells it to do something and does not wait for the answer.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.told, "{what}").expect("it listens");
    }

    /// The next answer of the process; empty when the process has ended.
    pub fn says(&mut self) -> String {
        match self.said.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing"),
        }
    }

    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.says()
    }

    /// Has to work.
    pub fn does(&mut self, what: &str) {
        assert_eq!(self.ask(what), "ok", "{what}");
    }

    /// Tells it to wait for a lock that somebody has, and waits until it does.
    pub fn waits(&mut self, what: &str) {
        self.tell(what);
        let syscall = format!("/proc/{}/syscall", self.child.id());
        // fcntl and flock.
        wait_until("it waits for a lock", || {
            let text = std::fs::read_to_string(&syscall).unwrap_or_default();
            text.starts_with("72 ") || text.starts_with("73 ")
        });
        thread::sleep(Duration::from_millis(50));
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it; how long it took to end.
    pub fn killed(&mut self) -> Duration {
        let since = Instant::now();
        self.signal(Signal::KILL);
        wait_until("it ends", || {
            self.child.try_wait().expect("a child").is_some()
        });
        since.elapsed()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
