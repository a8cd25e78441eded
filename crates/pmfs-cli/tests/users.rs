//! `pmfs run` on a directory that others use, too: the mount lasts as long as any run does; and pools that change their names.

mod bench;

use std::fs;
use std::path::PathBuf;
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
    let list = bench.ok(&["list", &path("")]);
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
