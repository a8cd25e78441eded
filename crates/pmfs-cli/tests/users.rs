//! `pmfs run` on a directory that others use, too: the mount lasts as long as any run does; and pools that change their names.

mod bench;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use bench::installed::install;
use bench::{Bench, can_mount, text, wait_until};
use pmfs_fuse::mounts::pool_mount_at;
use rustix::process::{Pid, Signal, kill_process};

struct Runs {
    bench: Bench,
    pmfs: PathBuf,
}

/// A pool that is not mounted, and the command with its library.
fn runs() -> Option<Runs> {
    let bench = can_mount().then(Bench::pool)?;
    let pmfs = install(&bench.path("bin"));
    Some(Runs { bench, pmfs })
}

impl Runs {
    fn run(&self, script: &str) -> Command {
        let mut command = Command::new(&self.pmfs);
        command
            .args([
                "run", "--pool", "pool", "--at", "mnt", "--", "sh", "-c", script,
            ])
            .current_dir(self.bench.path(""))
            .stdin(Stdio::null());
        command
    }

    /// One that goes on until `go` is there, as soon as it has begun.
    fn begun(&self, name: &str, go: &str) -> Child {
        let script =
            format!("echo > {name}; for i in $(seq 900); do [ -e {go} ] && exit; sleep 0.02; done");
        let child = self
            .run(&script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("it begins", || self.bench.path(name).exists());
        child
    }

    fn says(&self, name: &str) {
        fs::write(self.bench.path(name), "").unwrap();
    }

    fn is_mounted(&self) -> bool {
        pool_mount_at(&self.bench.path("mnt")).unwrap().is_some()
    }

    fn is_taken_away(&self) {
        wait_until("it is taken away", || !self.is_mounted());
        assert_eq!(self.bench.json(&["fsck", "--json", "pool"])["clean"], true);
    }
}

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// The first that began ends first; what another runs that the library is not loaded into finds its files all the time.
#[test]
fn the_last_run_takes_the_mount_away() {
    let Some(runs) = runs() else { return };
    let mut first = runs.begun("one", "end-one");
    let mut second = runs.begun("two", "end-two");
    runs.says("end-one");
    assert!(first.wait().unwrap().success());
    // As long as a keeper may take to see it.
    thread::sleep(Duration::from_millis(500));
    assert!(runs.is_mounted(), "the second run goes on");
    let third = output(&mut runs.run("grep -c ' '\"$PWD\"'/mnt ' /proc/mounts"));
    assert_eq!(text(&third.stdout), "1\n");
    assert!(runs.is_mounted());
    runs.says("end-two");
    assert!(second.wait().unwrap().success());
    runs.is_taken_away();
}

/// Whoever is killed, its programs go on, and the mount goes with the last of them.
#[test]
fn killed_runs_keep_nothing_but_their_programs() {
    let Some(runs) = runs() else { return };
    let mut first = runs.begun("one", "end-one");
    let mut second = runs.begun("two", "end-two");
    for run in [&mut first, &mut second] {
        run.kill().unwrap();
        run.wait().unwrap();
    }
    thread::sleep(Duration::from_millis(500));
    assert!(runs.is_mounted(), "their programs go on");
    runs.says("end-one");
    thread::sleep(Duration::from_millis(500));
    assert!(runs.is_mounted(), "one of them goes on");
    runs.says("end-two");
    runs.is_taken_away();
}

/// Goal: runs that come and go at the same time find their mount, always. Method: several one after another, in several threads.
#[test]
fn runs_that_come_as_others_go() {
    let Some(runs) = runs() else { return };
    output(&mut runs.run("echo there > mnt/file"));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    // By a static program, or what stands for it: without the library.
                    let said = output(&mut runs.run("env -u LD_PRELOAD cat mnt/file"));
                    assert_eq!(text(&said.stdout), "there\n");
                }
            });
        }
    });
    runs.is_taken_away();
}

/// A mount whose daemon is killed is taken away by the run, or replaced by the next.
#[test]
fn a_killed_daemon_leaves_no_mount() {
    let Some(runs) = runs() else { return };
    let daemon = || {
        let report = runs.bench.json(&["info", "--json", "pool"]);
        report["pid"].as_u64().unwrap() as u32
    };
    let mut first = runs.begun("one", "end-one");
    kill(daemon());
    runs.says("end-one");
    first.wait().unwrap();
    runs.is_taken_away();
    let second = runs.begun("two", "end-two");
    let end = runs.begun("other", "end-two");
    let there = daemon();
    for mut run in [second, end] {
        run.kill().unwrap();
        run.wait().unwrap();
    }
    kill(there);
    let after = output(&mut runs.run("echo > mnt/after && ls mnt"));
    assert!(text(&after.stdout).contains("after"));
    runs.says("end-two");
    runs.is_taken_away();
}

/// Goal: a pool is the file that was mounted, whatever it is called. Method: it is renamed, and another is made by its name.
#[test]
fn a_pool_is_not_its_name() {
    let Some(runs) = runs() else { return };
    let bench = &runs.bench;
    let path = |name: &str| bench.path(name).display().to_string();
    bench.ok(&["mount", "pool", "mnt"]);
    fs::write(bench.file("old"), "").unwrap();
    fs::rename(bench.path("pool"), bench.path("renamed")).unwrap();
    bench.ok(&["mkfs", "--size", "64M", "pool"]);
    // Not the new one below the old one's mount.
    let refused = runs.run("ls mnt").output().unwrap();
    assert_eq!(text(&refused.stdout), "");
    let stderr = text(&refused.stderr);
    assert!(
        stderr.contains(&format!("{} is mounted on", path("renamed"))),
        "{stderr}"
    );
    let around = output(
        Command::new(&runs.pmfs)
            .args(["run", "--", "ls"])
            .current_dir(bench.path("mnt")),
    );
    assert_eq!(text(&around.stdout), "old\n");

    assert_eq!(bench.json(&["info", "--json", "pool"])["state"], "clean");
    let info = bench.json(&["info", "--json", "renamed"]);
    assert_eq!(
        (info["state"].as_str(), info["mounted_on"].as_str()),
        (Some("mounted"), Some(&*path("mnt")))
    );
    let list = bench.json(&["list", "--json", &path("")]);
    let state = |name: &str| -> Vec<String> {
        let pools = list["pools"].as_array().unwrap();
        let of = pools.iter().filter(|pool| pool["pool"] == path(name));
        of.map(|pool| format!("{} {}", pool["state"], pool["mounted_on"]))
            .collect()
    };
    assert_eq!(state("pool"), ["\"clean\" []"]);
    assert_eq!(
        state("renamed"),
        [format!("\"mounted\" [{:?}]", path("mnt"))]
    );
    let said = bench.fails(1, &["rm", "renamed"]);
    assert!(said.contains("is mounted on"), "{said}");
    bench.ok(&["save", "renamed", "saved"]);
    let said = bench.fails(8, &["fsck", "renamed"]);
    assert!(said.contains("which has it mounted on"), "{said}");
    bench.ok(&["rm", "pool"]);
    let said = bench.ok(&["umount", "mnt"]);
    assert!(
        said.contains("renamed from") && said.contains("the pool is closed"),
        "{said}"
    );
    bench.ok(&["fsck", "renamed"]);
    // Without any name.
    bench.ok(&["mount", "renamed", "mnt"]);
    fs::remove_file(bench.path("renamed")).unwrap();
    let list = bench.ok(&["list"]);
    assert!(
        list.contains(&format!("{} (deleted)", path("renamed"))),
        "{list}"
    );
    let said = bench.ok(&["umount", "mnt"]);
    assert!(said.contains("the pool is closed"), "{said}");
}

/// A program that begins after its pool was renamed is not served another one.
#[test]
fn a_run_stays_with_its_pool() {
    let Some(runs) = runs() else { return };
    let script = "echo 1 > mnt/file && mv pool renamed && \"$PMFS\" mkfs --size 64M pool > out && cat mnt/file && echo 2 > mnt/other";
    let said = output(runs.run(script).env("PMFS", &runs.pmfs));
    assert_eq!(text(&said.stdout), "1\n");
    runs.is_taken_away();
    assert_eq!(runs.bench.ok(&["ls", "renamed"]), "file\nother\n");
    assert_eq!(runs.bench.ok(&["ls", "pool"]), "");
}

/// Who names the pool where the directory is meant is told which.
#[test]
fn umount_says_where_a_pool_is_mounted() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let said = bench.fails(1, &["umount", "pool"]);
    assert!(
        said.contains(&format!("pmfs umount {}", bench.path("mnt").display())),
        "{said}"
    );
    bench.umount();
    let said = bench.fails(1, &["umount", "pool"]);
    assert!(said.contains("not mounted"), "{said}");
}

/// What a program by a description in words is told, where nothing is mounted that could be meant.
#[test]
fn who_has_no_pool_is_told_how_to_get_one() {
    let Some(runs) = runs() else { return };
    let said = |arguments: &[&str]| {
        let mut command = Command::new(&runs.pmfs);
        let output = command
            .args(arguments)
            .current_dir(runs.bench.path(""))
            .output();
        text(&output.unwrap().stderr)
    };
    // Others of this machine may have one mounted.
    let none = Command::new("unshare")
        .args([
            "-m",
            "sh",
            "-c",
            "umount -alt fuse.pmfs; exec \"$0\" run -- true",
        ])
        .arg(&runs.pmfs)
        .output();
    let none = text(&none.unwrap().stderr);
    assert!(
        none.contains("pmfs run --temp 1G -- PROGRAM") && none.lines().count() == 1,
        "{none}"
    );
    let absent = said(&["run", "--pool", "pool", "--at", "absent", "--", "true"]);
    assert!(
        absent.contains("create it first: mkdir -p absent"),
        "{absent}"
    );
    let absent = said(&["run", "--pool", "absent", "--at", "mnt", "--", "true"]);
    assert!(
        absent.contains("make it first: pmfs mkfs --size 1G absent"),
        "{absent}"
    );
}

/// A program that the library is not loaded into is in the log, the first as any other.
#[test]
fn the_log_says_who_goes_through_the_mount() {
    let Some(runs) = runs() else { return };
    let bench = &runs.bench;
    fs::write(bench.path("static.c"), "int main(void) { return 0; }").unwrap();
    let built = Command::new("cc")
        .args(["-static", "-o", "static", "static.c"])
        .current_dir(bench.path(""))
        .status();
    assert!(built.unwrap().success());
    let log = bench.path("log");
    for program in [&["./static"][..], &["sh", "-c", "./static; true"]] {
        let _ = fs::remove_file(&log);
        let mut command = Command::new(&runs.pmfs);
        command
            .args(["run", "--pool", "pool", "--at", "mnt", "--"])
            .args(program);
        output(command.env("PMFS_LOG", &log).current_dir(bench.path("")));
        let said = fs::read_to_string(&log).unwrap();
        assert!(
            said.contains("static is linked statically; the mount serves it"),
            "{said}"
        );
    }
}

/// What stands below a directory, by name.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Goal: nothing is left of a pool for a run but what was asked for, however it ends. Method: runs that end well, badly, by a signal to them, to their
/// program and to both, with a mount and without.
#[test]
fn a_pool_for_the_time_of_a_run() {
    let Some(runs) = runs() else { return };
    let bench = &runs.bench;
    for dir in ["on", "tmp"] {
        fs::create_dir(bench.path(dir)).unwrap();
    }
    let before = names(&bench.path(""));
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new(&runs.pmfs);
        command
            .args(["run", "--temp", "32M"])
            .args(options)
            .args(["--", "sh", "-c", script]);
        command
            .env("TMPDIR", bench.path("tmp"))
            .current_dir(bench.path(""))
            .stdin(Stdio::null());
        command
    };
    let is_clean = |what: &str| {
        wait_until(what, || {
            names(&bench.path("on")).is_empty() && names(&bench.path("tmp")).is_empty()
        });
        wait_until(what, || names(&bench.path("")) == before);
    };
    for face in [&[][..], &["--no-mount"]] {
        let with = |options: &[&'static str]| [face, &["--on", "on"][..], options].concat();
        let said = output(&mut run(
            &with(&[]),
            "mktemp && df --output=size -B1M $TMPDIR | tail -n 1",
        ));
        let said = text(&said.stdout);
        assert!(
            said.starts_with(&bench.path("tmp/pmfs-temp-").display().to_string()),
            "{said}"
        );
        is_clean("a directory of its own");
        output(&mut run(
            &with(&["--at", "some/where"]),
            "echo > some/where/file && ls -d some/where/file",
        ));
        is_clean("a directory that was not there");
        let failed = run(&with(&["--at", "mnt"]), "exit 7").status().unwrap();
        assert_eq!(failed.code(), Some(7));
        is_clean("a program that fails");
        run(&with(&["--at", "mnt"]), "kill -9 $$").status().unwrap();
        is_clean("a program that is killed");
        let mut child = run(&with(&["--at", "mnt"]), "echo > begun; exec sleep 60")
            .spawn()
            .unwrap();
        wait_until("it begins", || bench.path("begun").exists());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        child.wait().unwrap();
        fs::remove_file(bench.path("begun")).unwrap();
        is_clean("SIGTERM");
    }
    // Killed: its programs go on, and what it made goes with them.
    let script = "echo > begun; while [ ! -e end ]; do sleep 0.02; done; echo > tmp/../done";
    let mut child = run(&["--on", "on"], script)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it begins", || bench.path("begun").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(names(&bench.path("on")).len(), 1);
    runs.says("end");
    wait_until("it ends", || bench.path("done").exists());
    for file in ["begun", "end", "done"] {
        fs::remove_file(bench.path(file)).unwrap();
    }
    is_clean("a run that was killed");
    // Without a mount nobody is left to see to it, but for the next run.
    let mut child = run(&["--on", "on", "--no-mount"], "echo > begun; exec sleep 60")
        .spawn()
        .unwrap();
    wait_until("it begins", || bench.path("begun").exists());
    let program = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    kill(program.trim().parse().unwrap());
    fs::remove_file(bench.path("begun")).unwrap();
    assert_eq!(names(&bench.path("on")).len(), 1);
    output(&mut run(&["--on", "on"], "true"));
    is_clean("what others left");
    // What is to be kept is.
    output(&mut run(
        &["--keep", "kept", "--at", "some"],
        "echo hello > some/file",
    ));
    assert!(!bench.path("some").exists());
    assert_eq!(bench.ok(&["get", "kept", "file", "-"]), "hello\n");
    let again = run(&["--keep", "kept", "--at", "mnt"], "true")
        .output()
        .unwrap();
    assert!(text(&again.stderr).contains("exists and is not empty"));
}
