//! Goal: `pmmon pin --by cpuset` works by cgroup version 2 as by version 1, and refusals are told.
//! Method: a cgroup of the test's own, in which the writer runs, where the kernel has cpusets in
//! version 2; everywhere, what is told where it has not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pmmon_sys::Cpusets;
use tempfile::TempDir;

use super::pin::{End, World, check_in};

/// A mount of cgroups of version 2, and a cgroup in it, both taken away at the end.
struct Cgroup {
    root: TempDir,
    dir: PathBuf,
    gave: String,
}

impl Cgroup {
    fn new() -> Option<Self> {
        let table = fs::read_to_string("/proc/cgroups").unwrap_or_default();
        let line = table.lines().find(|line| line.starts_with("cpuset\t"));
        let is_unused = line.is_some_and(|line| line.split_whitespace().nth(1) == Some("0"));
        if Cpusets::are_there() || !is_unused {
            eprintln!("skipped: cpusets of version 2: version 1 has them, or nobody ({line:?})");
            return None;
        }
        let root = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "cgroup2", "none"]).arg(root.path());
        let mounted = mount.output().unwrap();
        if !mounted.status.success() {
            eprintln!("skipped: cgroups of version 2: {mounted:?}");
            return None;
        }
        let control = root.path().join("cgroup.subtree_control");
        let gave = fs::read_to_string(&control).unwrap();
        let dir = root.path().join(format!("test-{}", std::process::id()));
        let cgroup = Self { root, dir, gave };
        fs::create_dir(&cgroup.dir).unwrap();
        if let Err(error) = fs::write(&control, "+cpuset +memory") {
            eprintln!("skipped: cpusets of version 2: {error}");
            return None;
        }
        Some(cgroup)
    }

    fn take(&self, world: &World) {
        let pid = world.load.child.id().to_string();
        fs::write(self.dir.join("cgroup.procs"), pid).unwrap();
    }

    fn control(&self, text: &str) {
        fs::write(self.dir.join("cgroup.subtree_control"), text).unwrap();
    }

    fn made(&self) -> usize {
        let entries = fs::read_dir(&self.dir).unwrap();
        let folders = entries.filter(|entry| entry.as_ref().unwrap().path().is_dir());
        folders.count()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let procs = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines() {
            let _ = fs::write(self.root.path().join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.dir);
        for controller in ["cpuset", "memory"] {
            if !self.gave.split_whitespace().any(|one| one == controller) {
                let control = self.root.path().join("cgroup.subtree_control");
                let _ = fs::write(control, format!("-{controller}"));
            }
        }
        let _ = Command::new("umount").arg(self.root.path()).status();
    }
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn cgroups_are_left_after_each_end() {
    let Some(cgroup) = Cgroup::new() else { return };
    for end in [End::Terminated, End::Killed, End::BothKilled] {
        let Some(world) = World::new() else { return };
        cgroup.take(&world);
        world.set_own();
        check_in(&world, "cpuset", end, |_| cgroup.made() == 2);
        assert_eq!(read(&cgroup.dir, "cgroup.subtree_control"), "");
        assert_eq!(read(&cgroup.dir, "cgroup.type"), "domain");
        let pid = world.load.child.id().to_string();
        assert!(
            read(&cgroup.dir, "cgroup.procs")
                .lines()
                .any(|one| one == pid)
        );
    }
}

/// Goal: a process in a cgroup whose threads can't be apart is refused, with the way out.
#[test]
fn cgroups_that_can_not_are_told() {
    let Some(cgroup) = Cgroup::new() else { return };
    let Some(world) = World::new() else { return };
    let refused = || {
        let mut command = world.command(&["--by", "cpuset", "--seconds", "2"]);
        command.stdout(Stdio::null()).output().unwrap()
    };
    let says = |run: Output, cause: &str| {
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            said.contains(cause) && said.contains("--by affinity"),
            "{run:?}"
        );
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert_eq!(fs::read_dir(world.run_dir()).unwrap().count(), 0);
    };
    // The kernel refuses what would have processes beside children with memory.
    cgroup.control("+memory");
    let inner = cgroup.dir.join("inner");
    fs::create_dir(&inner).unwrap();
    let pid = world.load.child.id().to_string();
    fs::write(inner.join("cgroup.procs"), &pid).unwrap();
    says(refused(), "no cpusets in this cgroup");
    fs::write(cgroup.root.path().join("cgroup.procs"), &pid).unwrap();
    fs::remove_dir(&inner).unwrap();
    cgroup.control("-memory");
}

/// Goal: where there are no cpusets at all, that is said. Method: the monitor in a mount namespace
/// without cgroups.
#[test]
fn machines_without_cpusets_are_told() {
    let Some(world) = World::new() else { return };
    let pin = world.command(&["--by", "cpuset", "--seconds", "2"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("umount -R -l /sys/fs/cgroup 2>/dev/null; exec \"$@\"");
    command
        .arg("sh")
        .arg(pin.get_program())
        .args(pin.get_args());
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    if said.starts_with("unshare:") {
        eprintln!("skipped: {said}");
        return;
    }
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(
        said.contains("neither by cgroup version 1 nor by version 2")
            && said.contains("take --by affinity"),
        "{said}"
    );
}
