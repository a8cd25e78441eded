//! `pmfs run` on a directory that others use, too: the mount lasts as long as any run
//! does; and pools that change their names.

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

/// The first that began ends first; what another runs that the library is not loaded
/// into finds its files all the time.
#[test]
fn the_last_run_takes_the_mount_away() {
    let Some(runs) = runs() else { return };
    let mut first = runs.begun("one", "end-one");
    let mut second = runs.begun("two", "end-two");
    runs.says("end-one");
    assert!(first.wait().unwrap().success());
    // The pause is as long as a keeper may take to see it.
    thread::sleep(Duration::from_millis(500));
    assert!(runs.is_mounted(), "the second run goes on");
    let third = output(&mut runs.run("grep -c ' '\"$PWD\"'/mnt ' /proc/mounts"));
    assert_eq!(text(&third.stdout), "1\n");
    assert!(runs.is_mounted());
    runs.says("end-two");
    assert!(second.wait().unwrap().success());
    runs.is_taken_away();
}

/// Programs go on when a run is killed, and the mount goes with the last of them.
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

/// Goal: runs that come and go at the same time find their mount, always. Method:
/// several one after another, in several threads.
#[test]
fn runs_that_come_as_others_go() {
    let Some(runs) = runs() else { return };
    output(&mut runs.run("echo there > mnt/file"));
    let source = "#include <stdio.h>\nint main(int n, char **names) { FILE *file = fopen(names[1], \"r\"); char line[9]; \
        return !file || !fgets(line, 9, file) || fputs(line, stdout) < 0; }";
    fs::write(runs.bench.path("static.c"), source).unwrap();
    let mut build = Command::new("cc");
    build.args(["-static", "-o", "static", "static.c"]);
    output(build.current_dir(runs.bench.path("")));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    // By a static program: the library is put back into the environment
                    // of others. Late: when others have gone.
                    let said = output(&mut runs.run("sleep 0.03; ./static mnt/file"));
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

/// Goal: a pool is the file that was mounted, whatever it is called. Method: it is
/// renamed, and another is made by its name.
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

/// A user that names the pool where the directory is meant is told which.
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

/// A command without a pool is told in words how to get one, where nothing is mounted that could be
/// meant.
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

/// Returns what stands below a directory, by name.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs that make their pool, in `on`, and have `tmp` for temporary files.
struct Temporary {
    runs: Runs,
    before: Vec<String>,
}

impl Temporary {
    fn new() -> Option<Temporary> {
        let runs = runs()?;
        for dir in ["on", "tmp"] {
            fs::create_dir(runs.bench.path(dir)).unwrap();
        }
        let before = names(&runs.bench.path(""));
        Some(Temporary { runs, before })
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let bench = &self.runs.bench;
        let mut command = Command::new(&self.runs.pmfs);
        command.args(["run", "--temp", "32M"]).args(options);
        command
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null());
        command
            .env("TMPDIR", bench.path("tmp"))
            .current_dir(bench.path(""));
        command
    }

    /// One that has begun, and says nothing.
    fn begun(&self, options: &[&str], script: &str) -> Child {
        let mut command = self.run(options, &format!("echo > begun; {script}"));
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = self.runs.bench.path("begun");
        wait_until("it begins", || begun.exists());
        fs::remove_file(begun).unwrap();
        child
    }

    fn made(&self) -> usize {
        names(&self.runs.bench.path("on")).len()
    }

    fn is_clean(&self, what: &str) {
        let names = |dir: &str| names(&self.runs.bench.path(dir));
        wait_until(what, || names("on").is_empty() && names("tmp").is_empty());
        wait_until(what, || names("") == self.before);
    }
}

/// Goal: nothing is left of a pool for a run, however it ends. Method: runs that end
/// well, badly, and by a signal to them or to their program, with a mount and without.
#[test]
fn a_pool_for_the_time_of_a_run() {
    let Some(all) = Temporary::new() else { return };
    let tmp = all.runs.bench.path("tmp/pmfs-temp-").display().to_string();
    for face in [&[][..], &["--no-mount"]] {
        let with = |options: &[&'static str]| [face, &["--on", "on"][..], options].concat();
        let said = output(&mut all.run(&with(&[]), "mktemp && ls $TMPDIR"));
        assert!(
            text(&said.stdout).starts_with(&tmp),
            "{}",
            text(&said.stdout)
        );
        all.is_clean("a directory of its own");
        let script = "echo > some/where/file && ls -d some/where/file";
        output(&mut all.run(&with(&["--at", "some/where"]), script));
        all.is_clean("a directory that was not there");
        let failed = all.run(&with(&["--at", "mnt"]), "exit 7").status().unwrap();
        assert_eq!(failed.code(), Some(7));
        all.is_clean("a program that fails");
        all.run(&with(&["--at", "mnt"]), "kill -9 $$")
            .status()
            .unwrap();
        all.is_clean("a program that is killed");
        let mut child = all.begun(&with(&["--at", "mnt"]), "exec sleep 60");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        child.wait().unwrap();
        all.is_clean("SIGTERM");
    }
}

/// A run that is killed: its programs go on, and what it made goes with them, or with the next run.
#[test]
fn what_killed_runs_have_made_goes_too() {
    let Some(all) = Temporary::new() else { return };
    let script = "for i in $(seq 900); do [ -e end ] && break; sleep 0.02; done; echo > done";
    let mut child = all.begun(&["--on", "on"], script);
    child.kill().unwrap();
    child.wait().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(all.made(), 1);
    all.runs.says("end");
    wait_until("it ends", || all.runs.bench.path("done").exists());
    for file in ["end", "done"] {
        fs::remove_file(all.runs.bench.path(file)).unwrap();
    }
    all.is_clean("a run that was killed");
    // Without a mount nobody is left to see to it.
    let mut child = all.begun(&["--on", "on", "--no-mount"], "exec sleep 60");
    let program = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    kill(program.trim().parse().unwrap());
    assert_eq!(all.made(), 1);
    output(&mut all.run(&["--on", "on"], "true"));
    all.is_clean("what others left");
}

#[test]
fn what_is_to_be_kept_is() {
    let Some(all) = Temporary::new() else { return };
    let bench = &all.runs.bench;
    output(&mut all.run(
        &["--keep", "kept", "--at", "some"],
        "echo hello > some/file",
    ));
    assert!(!bench.path("some").exists());
    assert_eq!(bench.ok(&["get", "kept", "file", "-"]), "hello\n");
    let again = all
        .run(&["--keep", "kept", "--at", "mnt"], "true")
        .output()
        .unwrap();
    assert!(text(&again.stderr).contains("exists and is not empty"));
}
