//! `pmkv top` from outside, beside processes that use the heap: this program is run again as them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use pmkv::{Change, Expect, Kind};
use pmlib::{Heap, Options};
use serde_json::{Value, json};

/// The work of a process that this program is run as: a heap's path.
const ROLE: &str = "PMKV_TOP_ROLE";
/// Threads of such a process, more than have lines of their own in a heap of 1 MiB.
const THREADS: u64 = 20;

fn heap_in(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 1 << 20, &Options::default()).expect("a heap");
    heap.close().expect("closed");
    path
}

fn pmkv(words: &[&str], heap: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
    command.arg("top").arg(heap).args(words);
    command.output().expect("the program")
}

fn text(heap: &Path, words: &[&str]) -> String {
    let output = pmkv(words, heap);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    String::from_utf8(output.stdout).expect("text")
}

/// The processes of one round.
fn processes(heap: &Path) -> Vec<Value> {
    let line = text(heap, &["--json", "--count", "1"]);
    let round: Value = serde_json::from_str(&line).expect("JSON");
    round["processes"].as_array().expect("a list").clone()
}

fn of_pid(heap: &Path, pid: u32) -> Value {
    let mut all = processes(heap).into_iter();
    all.find(|process| process["pid"] == pid).expect("a row")
}

/// The totals that are counts of calls.
fn calls(process: &Value) -> Value {
    let mut totals = process["totals"].clone();
    let fields = totals.as_object_mut().expect("an object");
    fields.retain(|name, _| !["waits", "waited_ns", "recoveries"].contains(&&name[..]));
    totals
}

/// The totals of a worker after so many rounds.
fn expected(rounds: u64) -> Value {
    json!({
        "gets": 4 * rounds,
        "puts": 3 * rounds,
        "deletes": 3 * rounds,
        "scans": rounds,
        "batches": rounds,
        // A get, a pinned one, and a walk over two keys.
        "got_bytes": (7 + 7 + 7 + 30) * rounds,
        "put_bytes": (7 + 100 + 30) * rounds,
    })
}

/// Each kind of call, by a thread that has its own engine.
fn work(heap: &Heap, thread: u64) {
    let (kind, name) = match thread % 2 {
        0 => (Kind::Hash, format!("hash {thread}")),
        _ => (Kind::Tree, format!("tree {thread}")),
    };
    let kv = kind.open(heap, &name).expect("an engine");
    kv.put(b"a", b"1234567").expect("room");
    kv.put(b"b", &[1; 100]).expect("room");
    assert!(kv.get(b"a").expect("a value").is_some());
    assert!(kv.get(b"missing").expect("nothing").is_none());
    let reader = kv.reader(Duration::from_secs(10)).expect("a session");
    assert!(reader.get(b"a").expect("a value").is_some());
    drop(reader);
    assert!(!kv.put_if(b"a", Expect::Missing, b"x").expect("a look"));
    assert!(kv.delete(b"b").expect("a key") && !kv.delete(b"missing").expect("none"));
    kv.batch(&[Change::Put(b"c", &[2; 30]), Change::Delete(b"d")])
        .expect("room");
    assert_eq!(kv.entries().count(), 2);
}

/// No test: the processes that the tests run. A line of stdin has it do a round.
#[test]
fn as_another_process() {
    let Ok(path) = std::env::var(ROLE) else {
        return;
    };
    let heap = Heap::open(Path::new(&path), &Options::default()).expect("the heap");
    for line in std::io::stdin().lines() {
        match line.expect("a line").as_str() {
            "one" => work(&heap, 0),
            _ => std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let heap = &heap;
                    scope.spawn(move || work(heap, thread));
                }
            }),
        }
        std::io::stdout().write_all(b"done\n").expect("a reader");
    }
    heap.close().expect("closed");
}

struct Worker {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Worker {
    fn start(heap: &Path) -> Worker {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "as_another_process", "--nocapture"])
            .env(ROLE, heap)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Worker { child, out }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn work(&mut self, how: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{how}").expect("a reader");
        let mut line = String::new();
        while !line.ends_with("done\n") {
            line.clear();
            assert!(self.out.read_line(&mut line).expect("a line") > 0, "ended");
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success());
    }
}

/// Goal: each process has a row with what it has done and nothing else; a killed one keeps its
/// counts until it is cleaned up after, and the next owner of its slot has none of them. Method:
/// processes do known calls on one heap, one of them by many threads, and one is killed.
#[test]
fn totals_are_what_each_process_did() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let heap = heap_in(&dir);
    let mut workers: Vec<Worker> = (0..2).map(|_| Worker::start(&heap)).collect();
    workers[0].work("one");
    workers[0].work("one");
    workers[1].work("all");
    let shown = of_pid(&heap, workers[0].pid());
    assert_eq!(calls(&shown), expected(2));
    assert_eq!(shown["alive"], true);
    assert_eq!(calls(&of_pid(&heap, workers[1].pid())), expected(THREADS));
    // Its threads are gone: others go on in their place.
    workers[1].work("all");
    let shown = of_pid(&heap, workers[1].pid());
    assert_eq!(calls(&shown), expected(2 * THREADS));

    let (mut killed, slot) = (workers.pop().expect("a worker"), shown["slot"].clone());
    killed.child.kill().expect("killed");
    killed.child.wait().expect("its end");
    let dead = of_pid(&heap, killed.pid());
    assert_eq!(
        (&dead["alive"], calls(&dead)),
        (&json!(false), expected(2 * THREADS))
    );
    let lines = text(&heap, &[]);
    assert!(lines.contains("  dead\n"), "{lines}");

    // The first one cleans up, and the second one has the slot.
    let mut next: Vec<Worker> = Vec::new();
    for _ in 0..2 {
        next.push(Worker::start(&heap));
        next.last_mut().expect("a worker").work("one");
    }
    let shown = of_pid(&heap, next[1].pid());
    assert_eq!((&shown["slot"], calls(&shown)), (&slot, expected(1)));
    assert_eq!(processes(&heap).len(), 3);
    assert_eq!(calls(&of_pid(&heap, workers[0].pid())), expected(2));
    workers.into_iter().chain(next).for_each(Worker::end);
    assert!(processes(&heap).is_empty());
}

/// Goal: rounds come as asked for, with rates of the time between them; what can't be shown is
/// told. Method: the text and the JSON of two rounds, a heap without users, files that are none.
#[test]
fn rounds_and_refusals() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let heap = heap_in(&dir);
    let shown = text(&heap, &[]);
    assert!(shown.contains(": 0 processes; each second:\n"), "{shown}");
    let mut worker = Worker::start(&heap);
    worker.work("one");
    let shown = text(&heap, &["--count", "2", "--interval", "0.05"]);
    assert_eq!(
        shown.matches("1 process; each second:").count(),
        2,
        "{shown}"
    );
    assert_eq!(shown.matches("in total").count(), 2, "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");
    let lines = text(&heap, &["--json", "--count", "2", "--interval", "0"]);
    let rounds: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rounds.len(), 2);
    let rate = |round: usize| rounds[round]["processes"][0]["rates"]["puts"].as_f64();
    assert!(rate(0).expect("a rate") > 0.0);
    assert_eq!(rate(1), Some(0.0), "nothing was put between them");
    worker.end();

    let output = pmkv(&["--interval", "nan"], &heap);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("not a number"), "{error}");

    for (name, content) in [("none", None), ("text", Some([b'x'; 1 << 16]))] {
        let path = dir.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).expect("a file");
        }
        let output = pmkv(&[], &path);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
