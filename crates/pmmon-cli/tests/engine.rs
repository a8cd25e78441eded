//! Goal: `pmmon` with the backend `engine` tells exactly what each thread has read and written by
//! calls on a pool, of a user of the library, of unmodified programs below `pmfs run`, and of
//! callers of a mount; and nothing is left of whoever is killed. Method: programs whose threads
//! say what they have done. The program `pmfs` is the one beside `pmmon`, if there is one.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
use pmmon::proc;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const MONITOR: &str = env!("CARGO_BIN_EXE_pmmon");
const WRITER: &str = env!("CARGO_BIN_EXE_pmm-writer");
const NOBODY: u32 = 65_534;
/// Has [`library_user`] use this pool.
const POOL: &str = "PMMON_TEST_POOL";
const THREADS: &str = "PMMON_TEST_THREADS";
/// Has it start so many threads one after the other, a thousand a second.
const CHURN: &str = "PMMON_TEST_CHURN";

/// Bytes written and read by thread.
type Truth = BTreeMap<u64, (u64, u64)>;

/// A pool in memory.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let bench = Self { dir };
        let options = pmfs_admin::MkfsOptions {
            size: Some(64 << 20),
            ..Default::default()
        };
        pmfs_admin::mkfs(&bench.pool(), &options).expect("a pool");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pool(&self) -> PathBuf {
        self.path("pool")
    }

    /// A folder in which a mount may be.
    fn place(&self) -> PathBuf {
        let place = self.path("place");
        fs::create_dir_all(&place).unwrap();
        place
    }

    /// A program that anybody may start. This process does not write it: a child that another
    /// thread starts meanwhile would have it open for writing, and it could not be executed.
    fn copied(&self, program: &Path) -> PathBuf {
        let copy = self.path(program.file_name().unwrap().to_str().unwrap());
        let run = Command::new("cp").arg(program).arg(&copy).status().unwrap();
        assert!(run.success(), "{} is copied", program.display());
        copy
    }

    /// The program `pmfs` with its library, if it is built.
    fn pmfs(&self) -> Option<PathBuf> {
        let beside = Path::new(MONITOR).with_file_name("pmfs");
        let library = "libpmfs_shim.so";
        let deps = std::env::current_exe().unwrap().with_file_name(library);
        let libraries = [beside.with_file_name(library), deps];
        let library = libraries.iter().find(|path| path.exists());
        let (true, Some(library)) = (beside.exists(), library) else {
            eprintln!("skipped: there is no {} with its library", beside.display());
            return None;
        };
        self.copied(library);
        Some(self.copied(&beside))
    }

    /// Mounts the pool.
    fn mounted(&self, pmfs: &Path) -> Option<Mounted> {
        let (pool, place) = (self.pool(), self.place());
        let run = Command::new(pmfs)
            .arg("mount")
            .args([&pool, &place])
            .output();
        let run = run.unwrap();
        if !run.status.success() {
            eprintln!("skipped: {run:?}");
            return None;
        }
        let pmfs = pmfs.to_path_buf();
        Some(Mounted { pmfs, place })
    }

    fn user(&self, threads: u64) -> User {
        User::start(user_command(
            &std::env::current_exe().unwrap(),
            &self.pool(),
            threads,
        ))
    }

    fn record(&self, arguments: &[&str]) -> Recording {
        Recording::start(Command::new(MONITOR), self.path("recording"), arguments)
    }
}

/// A mount, unmounted when this goes.
struct Mounted {
    pmfs: PathBuf,
    place: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut command = Command::new(&self.pmfs);
        let _ = command.arg("umount").arg(&self.place).output();
    }
}

fn user_command(program: &Path, pool: &Path, threads: u64) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "library_user", "--nocapture"]);
    command.env(POOL, pool).env(THREADS, threads.to_string());
    command
}

/// This program again, as a user of the library.
struct User {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl User {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut user = Self { child, to, from };
        user.lines_to("ready");
        user
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn lines_to(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.from.read_line(&mut line).unwrap();
            assert!(read > 0, "no {last}: {lines:?}");
            if line.trim() == last {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Has all threads work once. Bytes by thread.
    fn work(&mut self) -> Truth {
        let to = self.to.as_mut().unwrap();
        writeln!(to, "go").unwrap();
        let lines = self.lines_to("done");
        let truth = lines.iter().filter_map(|line| {
            let (_, told) = line.split_once("truth ")?;
            let numbers: Vec<u64> = told
                .split_whitespace()
                .map(|it| it.parse().unwrap())
                .collect();
            Some((numbers[0], (numbers[1], numbers[2])))
        });
        truth.collect()
    }

    /// Has it end.
    fn end(mut self) {
        self.to = None;
        self.child.wait().unwrap();
    }

    fn publishes(&self) -> bool {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let mut links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        links.any(|link| link.to_string_lossy().starts_with("/memfd:pmfs-calls"))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test of its own: the program that [`User`] starts. Each word on stdin has threads work, of
/// which thread `i` writes and reads bytes in numbers that no other one does.
#[test]
fn library_user() {
    let Some(pool) = std::env::var_os(POOL) else {
        return;
    };
    let threads: u64 = std::env::var(THREADS).unwrap().parse().unwrap();
    let fs = Fs::open(Path::new(&pool), &OpenOptions::default()).unwrap();
    println!("\nready");
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "go");
        if let Ok(count) = std::env::var(CHURN) {
            churn(&fs, count.parse().unwrap());
            println!("done");
            continue;
        }
        std::thread::scope(|scope| {
            for number in 0..threads {
                let fs = &fs;
                scope.spawn(move || work(fs, number));
            }
        });
        println!("done");
    }
    fs.close().unwrap();
}

fn work(fs: &Fs, number: u64) {
    let node = NewNode {
        umask: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let name = format!("{tid}");
    let file = fs.create(ROOT_INO, name.as_bytes(), &node).unwrap().ino;
    let data = vec![7; 100 * (number as usize + 1)];
    let (mut written, mut read) = (0, 0);
    for _ in 0..37 + number {
        let (_, more) = fs.append(file, &data).unwrap();
        written += more as u64;
    }
    let mut buffer = vec![0; 5000];
    for at in 0..21 + number {
        // The last ones are shorter than what is asked for.
        read += fs.read(file, at * 200, &mut buffer).unwrap() as u64;
    }
    fs.unlink(ROOT_INO, name.as_bytes()).unwrap();
    println!("truth {tid} {written} {read}");
}

/// Threads that come, write once, and go.
fn churn(fs: &Fs, count: u64) {
    let node = NewNode {
        umask: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let file = fs.create(ROOT_INO, b"churn", &node).unwrap().ino;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || fs.write(file, 0, &[7; 64]).unwrap());
            let due = Duration::from_millis(number);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    });
    fs.unlink(ROOT_INO, b"churn").unwrap();
    println!("truth {} {} 0", begin.elapsed().as_millis(), 64 * count);
}

/// A recording that goes on.
struct Recording {
    child: Child,
    file: PathBuf,
}

impl Recording {
    fn start(mut monitor: Command, file: PathBuf, arguments: &[&str]) -> Self {
        let _ = fs::remove_file(&file);
        // The last one counts.
        monitor.args(["record", "--backend", "engine", "-o"]);
        monitor.arg(&file).args(arguments).stderr(Stdio::null());
        let child = monitor.stdout(Stdio::piped()).spawn().unwrap();
        Self { child, file }
    }

    /// Waits until the processes are asked, as they are before the first event of one is told.
    fn ready(self) -> Self {
        let is_there = || fs::read_to_string(&self.file).is_ok_and(|text| text.contains("process"));
        wait_until("a process in the recording", is_there);
        self
    }

    /// Ends it if it goes on, and tells the report by thread.
    fn report(mut self) -> Value {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().unwrap();
        self.read()
    }

    /// Waits for the end.
    fn ended(mut self) -> Value {
        self.child.wait().unwrap();
        self.read()
    }

    fn read(&self) -> Value {
        let mut report = Command::new(MONITOR);
        report.arg("report").arg(&self.file);
        let run = report.args(["--by", "thread", "--json"]).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        serde_json::from_slice(&run.stdout).unwrap()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "no {what} in 20 s"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The bytes by thread that a report has of a process. Its intervals have no width.
fn told(report: &Value, pid: u32) -> Truth {
    assert_eq!(report["backend"][0], "engine");
    let rows = report["processes"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"] == pid);
    let row = row.unwrap_or_else(|| panic!("no {pid}: {report}"));
    let mut sums = (0, 0);
    let threads = row["threads"].as_array().unwrap();
    let of = |row: &Value, way: &str| {
        let ends = ["bytes", "low", "high"].map(|end| row[way][end].as_f64().unwrap());
        assert!(ends.iter().all(|end| *end == ends[0]), "{row}");
        ends[0] as u64
    };
    let found: Truth = threads
        .iter()
        .map(|thread| {
            let bytes = (of(thread, "written"), of(thread, "read"));
            assert_eq!(thread["calls"]["written_bytes"], bytes.0);
            sums = (sums.0 + bytes.0, sums.1 + bytes.1);
            (thread["tid"].as_u64().unwrap(), bytes)
        })
        .collect();
    assert_eq!((of(row, "written"), of(row, "read")), sums, "{row}");
    found
}

/// Threads that have done nothing may be there or not.
fn busy(truth: Truth) -> Truth {
    truth
        .into_iter()
        .filter(|(_, bytes)| *bytes != (0, 0))
        .collect()
}

#[test]
fn a_user_of_the_library() {
    for threads in 1..=4 {
        let bench = Bench::new();
        let mut user = bench.user(threads);
        let pid = user.pid();
        // Earlier calls are not told.
        user.work();
        assert!(!user.publishes(), "nobody asks");
        // The kernel tells starts by ticks of 10 ms.
        std::thread::sleep(Duration::from_millis(30));
        let recording = bench.record(&["--pid", &pid.to_string()]).ready();
        let mut truth = user.work();
        assert!(user.publishes(), "it is asked");
        truth.extend(user.work());
        user.end();
        let report = recording.ended();
        assert_eq!(truth.len() as u64, 2 * threads);
        assert_eq!(busy(told(&report, pid)), truth, "{report}");
        let cause = &report["not_seen"][0]["cause"];
        assert_eq!(cause, "accesses before the monitor began");
    }
}

/// Goal: two monitors at once, of which one begins later and neither knows the process.
#[test]
fn two_monitors() {
    let bench = Bench::new();
    let mut user = bench.user(2);
    let pool = bench.pool();
    let pool = pool.to_str().unwrap();
    let pid = user.pid();
    let first = bench.record(&["--pid", &pid.to_string()]).ready();
    let mut all = user.work();
    let second = Command::new(MONITOR);
    let all_of_it = ["--pool", pool, "--seconds", "2"];
    let second = Recording::start(second, bench.path("second"), &all_of_it);
    // It does not tell a process that has done nothing.
    std::thread::sleep(Duration::from_millis(1000));
    let more = user.work();
    all.extend(more.clone());
    assert_eq!(busy(told(&second.ended(), pid)), more);
    user.end();
    assert_eq!(busy(told(&first.ended(), pid)), all);
}

/// Goal: what a program had counted when it was killed is told, and nothing is left of it.
#[test]
fn a_killed_program() {
    let bench = Bench::new();
    let mut user = bench.user(3);
    let pid = user.pid();
    let recording = bench.record(&["--pid", &pid.to_string()]).ready();
    let truth = user.work();
    user.child.kill().unwrap();
    user.child.wait().unwrap();
    assert_eq!(busy(told(&recording.ended(), pid)), truth);
    let fs = Fs::open(&bench.pool(), &OpenOptions::default()).unwrap();
    fs.close().unwrap();
    // The next one, in the same slot, is not asked.
    let mut next = bench.user(1);
    next.work();
    assert!(!next.publishes());
}

/// Goal: a process stops to publish soon after its monitor was killed, or has ended.
#[test]
fn a_killed_monitor() {
    let bench = Bench::new();
    let mut user = bench.user(1);
    let pid = user.pid().to_string();
    for is_killed in [true, false] {
        let mut recording = bench.record(&["--pid", &pid]).ready();
        user.work();
        assert!(user.publishes());
        match is_killed {
            true => recording.child.kill().unwrap(),
            false => drop(recording.report()),
        }
        std::thread::sleep(Duration::from_millis(3100));
        user.work();
        assert!(!user.publishes(), "killed: {is_killed}");
    }
    // It begins again.
    let recording = bench.record(&["--pid", &pid]).ready();
    let pid = user.pid();
    let truth = user.work();
    user.end();
    assert_eq!(busy(told(&recording.ended(), pid)), truth);
}

/// Goal: an ordinary user may look at his programs, without any capability, and others are told
/// that they may not.
#[test]
fn an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: who is not root can be nobody else");
        return;
    }
    let bench = Bench::new();
    fs::set_permissions(bench.dir.path(), Permissions::from_mode(0o755)).unwrap();
    chown(bench.pool(), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(bench.pool(), Permissions::from_mode(0o600)).unwrap();
    let program = bench.copied(&std::env::current_exe().unwrap());
    let monitor = bench.copied(MONITOR.as_ref());
    let place = bench.place();
    chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = user_command(&program, &bench.pool(), 2);
    command.uid(NOBODY).gid(NOBODY);
    let mut user = User::start(command);
    let pid = user.pid();
    let record = |uid: u32, name: &str| {
        let mut command = Command::new(&monitor);
        command.uid(uid).gid(uid);
        Recording::start(command, place.join(name), &["--pid", &pid.to_string()]).ready()
    };
    let recording = record(NOBODY, "own");
    let truth = user.work();
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    let stranger = record(NOBODY - 1, "other");
    user.work();
    let report = stranger.report();
    let row = &report["processes"][0];
    assert!(row["written"].is_null() && row["read"].is_null(), "{row}");
    let causes = report["not_seen"].to_string();
    assert!(
        causes.contains("permission denied") && causes.contains("same user"),
        "{causes}"
    );
    drop(recording);
    let recording = record(NOBODY, "again");
    let more = user.work();
    user.end();
    assert_eq!(busy(told(&recording.ended(), pid)), more);
    assert_eq!(truth.len(), more.len());
}

/// The counts of `pmm-writer`, of which each thread writes by pwrite(2) what it is told.
fn written(mut command: Command, file: &Path, threads: u64, bench: &Bench) -> (Value, u32, Truth) {
    command
        .arg(file)
        .args(["--size", "1536K", "--total", "3M", "--access", "256"]);
    command.args(["--calls", "pwrite", "--wait", "--json", "--threads"]);
    command.arg(threads.to_string());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    let pid = u32::try_from(ready["pid"].as_u64().unwrap()).unwrap();
    let recording = bench.record(&["--pid", &pid.to_string()]).ready();
    // By now a mount is asked, too.
    std::thread::sleep(Duration::from_millis(50));
    writeln!(child.stdin.as_ref().unwrap()).unwrap();
    line.clear();
    from.read_line(&mut line).unwrap();
    let done: Value = serde_json::from_str(&line).unwrap();
    assert!(child.wait().unwrap().success());
    let threads = done["threads"].as_array().unwrap().iter();
    let truth = threads.map(|thread| {
        let bytes = thread["written_bytes"].as_u64().unwrap();
        (thread["tid"].as_u64().unwrap(), (bytes, 0))
    });
    (recording.ended(), pid, truth.collect())
}

#[test]
fn an_unmodified_program_below_run() {
    for threads in 1..=4 {
        let bench = Bench::new();
        let Some(pmfs) = bench.pmfs() else { return };
        let place = bench.place();
        let mut command = Command::new(pmfs);
        command
            .arg("run")
            .arg("--pool")
            .arg(bench.pool())
            .arg("--at")
            .arg(&place);
        command.arg("--").arg(WRITER);
        let (report, pid, truth) = written(command, &place.join("load"), threads, &bench);
        assert_eq!(truth.len() as u64, threads);
        assert_eq!(busy(told(&report, pid)), truth, "{report}");
    }
}

/// Goal: a caller of a mount has what it has written through it, by thread, also one that has
/// ended; the mount itself is not told where it is not asked for.
#[test]
fn a_caller_of_a_mount() {
    let bench = Bench::new();
    let Some(pmfs) = bench.pmfs() else { return };
    let Some(mounted) = bench.mounted(&pmfs) else {
        return;
    };
    for threads in 1..=4 {
        let file = mounted.place.join(format!("load{threads}"));
        let (report, pid, truth) = written(Command::new(WRITER), &file, threads, &bench);
        assert_eq!(truth.len() as u64, threads);
        assert_eq!(busy(told(&report, pid)), truth, "{report}");
        assert_eq!(report["processes"].as_array().unwrap().len(), 1, "{report}");
    }
}

/// Goal: a program that forks, and one that becomes another, have their own figures. Method: `dd`
/// as a child of a shell, and in the shell's place, with input that is late.
#[test]
fn fork_and_exec() {
    let bench = Bench::new();
    let Some(pmfs) = bench.pmfs() else { return };
    let place = bench.place();
    let script = "\
        late() { sleep 0.3; head -c $1 /dev/zero; sleep 0.3; }; \
        late 7000 | dd bs=1000 iflag=fullblock of=a; \
        late 4500 | (exec dd bs=500 iflag=fullblock of=b)";
    let pool = bench.pool();
    let program = [
        &pmfs,
        &"run".into(),
        &"--pool".into(),
        &pool,
        &"--at".into(),
        &place,
    ];
    let program = program.map(|word| word.to_str().unwrap());
    let script = script.replace("of=", &format!("of={}/", place.display()));
    let recording =
        bench.record(&[&["--"][..], &program[..], &["--", "sh", "-c", &script]].concat());
    let report = recording.ended();
    let rows = report["processes"].as_array().unwrap().iter();
    let writes = rows.filter(|row| row["written"]["bytes"].as_f64() > Some(0.0));
    let writes: Vec<(u32, u64)> = writes
        .map(|row| {
            assert_eq!(row["command"], "dd", "{row}");
            let accesses = row["written"]["accesses"]["value"].as_f64().unwrap();
            assert!(accesses >= 7.0, "{row}");
            let pid = u32::try_from(row["pid"].as_u64().unwrap()).unwrap();
            (pid, told(&report, pid).values().map(|bytes| bytes.0).sum())
        })
        .collect();
    let bytes: Vec<u64> = writes.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(bytes, [7000, 4500], "{report}");
}

/// Goal: a program in a container, whose numbers of processes and threads are its own, is told by
/// the numbers here, by thread.
#[test]
fn a_program_in_a_container() {
    let boxed = ["--fork", "--pid", "--mount", "--mount-proc"];
    let tried = Command::new("unshare").args(boxed).arg("true").output();
    if !tried.as_ref().is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: no namespaces: {tried:?}");
        return;
    }
    let bench = Bench::new();
    let mut command = Command::new("unshare");
    command.args(boxed).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "library_user", "--nocapture"]);
    command.env(POOL, bench.pool()).env(THREADS, "3");
    let mut user = User::start(command);
    let [pid] = proc::children(user.pid())[..] else {
        panic!("one child")
    };
    let recording = bench.record(&["--pid", &pid.to_string()]).ready();
    // Threads that have ended are the process's others, unless they were seen while they lived.
    let truth = user.work();
    user.to = None;
    user.child.wait().unwrap();
    let report = recording.ended();
    assert_eq!(report["processes"][0]["inner_pid"], 1, "{report}");
    let sum = |truth: Truth| {
        let bytes = truth.values();
        bytes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    assert_eq!(sum(told(&report, pid)), sum(truth), "{report}");
}

/// The seconds of CPU time that a process has taken.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    // The third field is the first here, and the kernel tells hundredths.
    (ticks(11) + ticks(12)) / 100.0
}

/// The descriptors that a process keeps: the fewest of some looks, as it opens others for a moment.
fn descriptors(pid: u32) -> usize {
    let looks = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(3));
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    });
    looks.min().unwrap_or(0)
}

/// Goal: a thousand threads that come and go a second cost less than a tenth of a core, and leave
/// no descriptor, in the monitor nor in the program; and each byte is told. Method: three seconds
/// of them; CPU time is by a thousand threads, as a busy machine may start fewer a second.
#[test]
fn threads_that_come_and_go() {
    let bench = Bench::new();
    let mut command = user_command(&std::env::current_exe().unwrap(), &bench.pool(), 1);
    command.env(CHURN, "3000");
    let mut user = User::start(command);
    let pid = user.pid();
    // The pools of other tests, which come and go, are not looked at.
    let pool = bench.pool();
    let pool = pool.to_str().unwrap();
    let recording = bench
        .record(&["--pid", &pid.to_string(), "--pool", pool])
        .ready();
    let monitor = recording.child.id();
    user.work();
    let before = (descriptors(monitor), descriptors(pid), cpu_seconds(monitor));
    let truth = user.work();
    let cost = (cpu_seconds(monitor) - before.2) / 3.0;
    let (took_ms, (bytes, _)) = truth.first_key_value().unwrap();
    println!(
        "3000 threads in {took_ms} ms: {:.1} % of a core by 1000",
        cost * 100.0
    );
    assert!(cost < 0.1, "{cost} s for a thousand threads");
    let after = (descriptors(monitor), descriptors(pid));
    assert!(
        after.0 <= before.0 && after.1 <= before.1,
        "descriptors: {after:?}, before {before:?}"
    );
    user.end();
    let report = recording.ended();
    let sum: u64 = told(&report, pid).values().map(|bytes| bytes.0).sum();
    assert_eq!(sum, 2 * bytes);
}

/// Goal: calls are counted beside another backend in one recording, by thread and exactly, and the
/// other one's figures are its own. Method: the clock, which tells times and no bytes.
#[test]
fn calls_beside_another_backend() {
    let works = Command::new(MONITOR)
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    if !String::from_utf8_lossy(&works.stdout).contains(r#""clock","works":true"#) {
        eprintln!("skipped: no clock event: {works:?}");
        return;
    }
    let bench = Bench::new();
    let mut user = bench.user(3);
    let pid = user.pid();
    let beside = ["--pid", &pid.to_string(), "--backend", "clock", "--calls"];
    let recording = bench.record(&beside).ready();
    std::thread::sleep(Duration::from_millis(300));
    let truth = user.work();
    user.end();
    let report = recording.ended();
    assert_eq!(report["backend"], serde_json::json!(["clock", "engine"]));
    let rows = report["processes"].as_array().unwrap();
    assert_eq!(
        rows.len(),
        1,
        "one row, though both tell the process: {report}"
    );
    let row = &rows[0];
    assert!(row["written"].is_null() && row["time"].is_object(), "{row}");
    let threads = row["threads"].as_array().unwrap().iter();
    let called = |thread: &&Value| thread["calls"]["changes"].as_u64() > Some(0);
    let found: Truth = threads
        .filter(called)
        .map(|thread| {
            let bytes = |way: &str| thread["calls"][way].as_u64().unwrap();
            (
                thread["tid"].as_u64().unwrap(),
                (bytes("written_bytes"), bytes("read_bytes")),
            )
        })
        .collect();
    assert_eq!(found, truth, "{report}");
    let sum: u64 = truth.values().map(|bytes| bytes.0).sum();
    assert_eq!(row["calls"]["written_bytes"], sum);
}
