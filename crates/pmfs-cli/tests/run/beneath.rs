//! The fate of the mount while a program below `pmfs run` works: remounted, taken away, there
//! again.
//!
//! Method: the program does what it is told, a word a line, and answers; this test does
//! to its mount what an administrator may. It is served in its own process, so it goes
//! on; what needs the mount is right, or fails and says so. Afterwards the pool has to
//! be sound and to hold what the program wrote.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::bench::Bench;
use crate::bench::installed::install;
use crate::program::compile;

struct Worker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Worker {
    fn start(bench: &Bench, pmfs: &Path) -> Worker {
        let program = compile("cc", "beneath.c", &[], &bench.path("beneath"));
        let stranger = compile("cc", "stranger.c", &["-static"], &bench.path("stranger"));
        let mut child = Command::new(pmfs)
            .args(["run", "--pool"])
            .arg(bench.path("pool"))
            .arg("--at")
            .arg(bench.path("mnt"))
            .arg("--")
            .arg(program)
            .arg(stranger)
            .arg(bench.path("mnt"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut worker = Worker { child, to, from };
        assert_eq!(worker.line(), "ready");
        worker
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Runs it, requires success, and returns what else it prints.
    fn does(&mut self, what: &str) -> String {
        writeln!(self.to, "{what}").expect("it listens");
        let mut said = String::new();
        loop {
            let line = self.line();
            if line == "done, 0 failures" {
                return said;
            }
            assert!(
                !line.is_empty() && !line.contains("done, "),
                "{what}: {said}{line}"
            );
            said += &line;
            said += "\n";
        }
    }

    fn end(mut self) {
        drop(self.to);
        assert!(self.child.wait().expect("a child").success());
    }
}

const HAS: &str = "it has the file\n";
const HAS_NOT: &str = "it says that it has not\n";

#[test]
fn a_mount_that_changes_beneath_a_program() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let pmfs = install(&bench.path("bin"));
    let mut worker = Worker::start(&bench, &pmfs);
    worker.does("work");
    worker.does("ours");
    assert_eq!(worker.does("stranger"), HAS);

    // Read-only for everybody else: that is not followed (docs/SEMANTICS.md), and
    // strangers have what the mount gives.
    bench.ok(&["mount", "-o", "remount,ro", "pool", "mnt"]);
    worker.does("work");
    worker.does("ours");
    assert_eq!(worker.does("stranger"), HAS_NOT);
    bench.ok(&["mount", "-o", "remount,rw", "pool", "mnt"]);
    assert_eq!(worker.does("stranger"), HAS);

    // Gone: the files are in the process all the same.
    bench.umount();
    for _ in 0..3 {
        worker.does("work");
        worker.does("ours");
    }
    assert_eq!(worker.does("stranger"), HAS_NOT);
    let below = fs::read_dir(bench.path("mnt")).expect("a directory");
    assert_eq!(below.count(), 0, "nothing was written beside the pool");

    // There again, and what was written meanwhile is in it.
    worker.does("work");
    bench.mount(&[]);
    assert_eq!(fs::read(bench.file("kept")).expect("kept"), b"round 0\n");
    worker.does("work");
    assert_eq!(worker.does("stranger"), HAS);

    // The mount's daemon is killed.
    rustix::process::kill_process(bench.daemon(), rustix::process::Signal::KILL).expect("a daemon");
    worker.does("work");
    worker.does("ours");
    assert_eq!(worker.does("stranger"), HAS_NOT);
    worker.end();
    bench.ok(&["umount", "--lazy", "mnt"]);
    bench.ok(&["fsck", "pool"]);
}
