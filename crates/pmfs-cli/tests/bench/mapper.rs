//! A process of its own that maps files and works on them as it is told, line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// `WORD NAME ...`, answered by one line: "ok", what was asked for in hexadecimal, or the name of
/// the error. `count` adds to a number of eight bytes, `how` is `flock`, or `alone` where the
/// bytes are this process's own; `hammer` stores to all pages until a file of that name is there.
const SCRIPT: &str = "
import errno, fcntl, mmap, os, struct, sys
files, maps = {}, {}
def do(word, name, rest):
    if word == 'map':
        path, mode, length = rest
        writing = mode == 'rw'
        files[name] = os.open(path, os.O_RDWR if writing else os.O_RDONLY)
        how = mmap.PROT_READ | (mmap.PROT_WRITE if writing else 0)
        maps[name] = mmap.mmap(files[name], int(length), mmap.MAP_SHARED, how)
        return 'ok'
    file, memory = files[name], maps[name]
    if word == 'close':
        memory.close()
        os.close(file)
    elif word == 'store':
        memory[int(rest[0])] = int(rest[1])
    elif word == 'load':
        at, length = map(int, rest)
        return memory[at:at + length].hex()
    elif word == 'read':
        at, length = map(int, rest)
        return os.pread(file, length, at).hex()
    elif word == 'write':
        os.pwrite(file, rest[1].encode(), int(rest[0]))
    elif word == 'sync':
        memory.flush()
    elif word == 'count':
        at, steps, how = int(rest[0]), int(rest[1]), rest[2]
        for _ in range(steps):
            if how == 'flock': fcntl.flock(file, fcntl.LOCK_EX)
            now, = struct.unpack_from('<Q', memory, at)
            struct.pack_into('<Q', memory, at, now + 1)
            if how == 'flock': fcntl.flock(file, fcntl.LOCK_UN)
    elif word == 'hammer':
        step = 0
        while not os.path.exists(rest[0]):
            for page in range(0, len(memory), 4096):
                memory[page] = step % 251
            step += 1
    return 'ok'
while line := sys.stdin.readline():
    word, name, *rest = line.split()
    try:
        said = do(word, name, rest)
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(said, flush=True)
";

/// Killed when it goes.
pub struct Mapper {
    child: Child,
    told: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Mapper {
    pub fn start() -> Mapper {
        Mapper::start_as(Command::new("python3"))
    }

    /// `python3` as this command runs it.
    pub fn start_as(mut python: Command) -> Mapper {
        let mut child = python
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let told = child.stdin.take().expect("a pipe");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Mapper { child, told, said }
    }

    /// With the file mapped as `f`; `mode` is "r" or "rw".
    pub fn of(path: &Path, mode: &str, len: usize) -> Mapper {
        let mut mapper = Mapper::start();
        mapper.does(&format!("map f {} {mode} {len}", path.display()));
        mapper
    }

    /// The same below `pmfs run`.
    pub fn below_run(mut run: Command, path: &Path, mode: &str, len: usize) -> Mapper {
        run.args(["--", "python3"]);
        let mut mapper = Mapper::start_as(run);
        mapper.does(&format!("map f {} {mode} {len}", path.display()));
        mapper
    }

    /// Returns where its memory comes from, by the names of files.
    pub fn maps(&self) -> String {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let mut all = String::new();
        for thread in threads.expect("it runs").flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            for pid in children.unwrap_or_default().split_whitespace() {
                all += &std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            }
        }
        all + &std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("it runs")
    }

    /// Tells it to do something and does not wait for the answer.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.told, "{what}").expect("it listens");
    }

    /// The next answer of the process; empty when the process has ended.
    pub fn says(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a pipe");
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.says()
    }

    /// Has to work.
    pub fn does(&mut self, what: &str) {
        assert_eq!(self.ask(what), "ok", "{what}");
    }

    /// Returns what its mapping shows.
    pub fn load(&mut self, at: usize, len: usize) -> Vec<u8> {
        let text = self.ask(&format!("load f {at} {len}"));
        let digits = text.as_bytes().chunks_exact(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = digits.map(byte).collect();
        assert_eq!(bytes.len(), len, "{text}");
        bytes
    }

    /// Returns how it ended.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
