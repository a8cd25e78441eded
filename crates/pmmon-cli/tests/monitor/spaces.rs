//! Goal: programs in other namespaces of processes, mounts and users are measured from outside, a
//! monitor within one sees its own, and what can not be is answered. Method: `unshare` of
//! util-linux, and a pool that only the namespace has.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use pmmon::proc;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::works;

const NOBODY: u32 = 65_534;
const WRITER: &str = env!("CARGO_BIN_EXE_pmm-writer");
const MONITOR: &str = env!("CARGO_BIN_EXE_pmmon");
/// A new namespace of processes with mounts of its own.
const BOXED: [&str; 4] = ["--fork", "--pid", "--mount", "--mount-proc"];

/// A shell in new namespaces, and what it has started. `None` where there can be none.
struct Boxed(Child);

impl Boxed {
    fn can(options: &[&str], uid: u32) -> bool {
        let mut command = Command::new("unshare");
        let tried = command.args(options).arg("true").uid(uid).gid(uid).output();
        let can = tried.as_ref().is_ok_and(|run| run.status.success()) && works("clock");
        if !can {
            eprintln!("skipped: namespaces {options:?}: {tried:?}");
        }
        can
    }

    fn new(options: &[&str], uid: u32, script: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(options).args(["sh", "-c", script]);
        command.uid(uid).gid(uid).stdin(Stdio::null());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// The load's number here. The shell becomes the load.
    fn load(&self) -> u32 {
        for _ in 0..2000 {
            let own = self.0.id();
            let family = proc::children(own).into_iter().chain([own]);
            let is_load =
                |pid: &u32| proc::stat(*pid).is_ok_and(|stat| stat.command == "pmm-writer");
            if let Some(pid) = family.into_iter().find(is_load) {
                return pid;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no load in 20 s");
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        for pid in proc::children(self.0.id()) {
            let pid = Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn row(round: &Value, pid: u32) -> &Value {
    let rows = round["processes"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"] == pid);
    row.unwrap_or_else(|| panic!("{pid}: {round}"))
}

/// Looks until loads were seen. The row.
fn seen(pid: u32, mut command: impl FnMut() -> Command) -> Value {
    for _ in 0..20 {
        let run = command().output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let round = super::json(&run);
        let row = row(&round, pid).clone();
        if row["time"]["reading"]["value"].as_f64() > Some(0.0) {
            return row;
        }
    }
    panic!("{pid}: no loads in 20 looks");
}

fn top(program: &Path, pid: u32) -> Command {
    let mut command = Command::new(program);
    command.args(["top", "--backend", "clock", "--json", "--count", "1"]);
    command.args(["--interval", "0.5", "--pid", &pid.to_string()]);
    command
}

/// A script that reads a pool which nobody else has, for ever. The load begins with a file that
/// is no pool yet, since it would not take one.
fn script(dir: &Path, writer: &Path) -> String {
    let (dir, writer) = (dir.display(), writer.display());
    format!(
        "mount -t tmpfs none {dir} || exit; \
         (sleep 1; printf PMFSPOOL | dd of={dir}/pool conv=notrunc) 2>/dev/null & \
         exec {writer} {dir}/pool --size 2M --total 64T --access 8 --op read --order random"
    )
}

#[test]
fn a_container_is_seen_from_outside() {
    if !Boxed::can(&BOXED, 0) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let boxed = Boxed::new(&BOXED, 0, &script(dir.path(), WRITER.as_ref()));
    let pid = boxed.load();
    let row = seen(pid, || top(MONITOR.as_ref(), pid));
    assert!(
        !dir.path().join("pool").exists(),
        "the pool is of the namespace alone"
    );
    assert_eq!(row["inner_pid"], 1, "{row}");
    assert_eq!(row["command"], "pmm-writer");
}

/// Goal: an ordinary user may look at what he has started in a user namespace.
#[test]
fn a_container_of_a_user_is_seen_by_him() {
    let options = [&["--user", "--map-root-user"][..], &BOXED].concat();
    if !rustix::process::geteuid().is_root() || !Boxed::can(&options, NOBODY) {
        eprintln!("skipped: who is not root can be nobody else, or users have no namespaces");
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let [writer, monitor] = [WRITER, MONITOR].map(|program| {
        let copy = dir.path().join(Path::new(program).file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        copy
    });
    let place = dir.path().join("place");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    let boxed = Boxed::new(&options, NOBODY, &script(&place, &writer));
    let pid = boxed.load();
    let row = seen(pid, || {
        let mut command = top(&monitor, pid);
        command.uid(NOBODY).gid(NOBODY);
        command
    });
    assert_eq!(row["inner_pid"], 1, "{row}");
    // Another one is told that he may not, and how he may.
    let run = top(&monitor, pid)
        .uid(NOBODY - 1)
        .gid(NOBODY - 1)
        .output()
        .unwrap();
    let round = super::json(&run);
    assert!(
        round["not_seen"][0]["cause"]
            .as_str()
            .unwrap()
            .contains("denied"),
        "{round}"
    );
    assert!(
        round["not_seen"][0]["remedy"]
            .as_str()
            .unwrap()
            .contains("same user"),
        "{round}"
    );
}

fn inside(options: &[&str], script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-c", script]);
    command.output().unwrap()
}

#[test]
fn a_monitor_in_a_container_sees_its_own() {
    if !Boxed::can(&BOXED, 0) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let load = script(dir.path(), WRITER.as_ref());
    let run = inside(
        &BOXED,
        &format!(
            "({load}) >/dev/null & sleep 1; {MONITOR} top --backend clock --json --count 10 --interval 0.5 \
             --pid $!; kill $!"
        ),
    );
    assert!(run.status.success(), "{run:?}");
    let round = super::json(&run);
    let row = &round["processes"][0];
    assert!(row["pid"].as_u64() < Some(100), "{row}");
    assert_eq!(row["command"], "pmm-writer", "{row}");
    assert!(row["inner_pid"].is_null(), "{row}");
    assert!(
        row["time"]["reading"]["value"].as_f64() > Some(0.0),
        "{row}"
    );
    // The test is outside, and has no number there.
    let pid = std::process::id();
    let run = inside(
        &BOXED,
        &format!("{MONITOR} top --backend clock --count 1 --pid {pid}"),
    );
    let says = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        run.status.code() == Some(1) && says.contains("as seen from here"),
        "{run:?}"
    );
}

/// Goal: numbers of one namespace are not taken for those of another.
#[test]
fn a_foreign_proc_is_refused() {
    let options = ["--fork", "--pid"];
    if !Boxed::can(&options, 0) {
        return;
    }
    let pid = std::process::id();
    for more in [format!("--pid {pid}"), String::new()] {
        let script = format!("{MONITOR} top --backend clock --count 1 {more}");
        let run = inside(&options, &script);
        let says = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(77), "{run:?}");
        assert!(
            says.contains("PID namespace") && says.contains("mount -t proc"),
            "{says}"
        );
    }
}
