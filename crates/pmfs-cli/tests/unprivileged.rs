//! The mount without being root, through fusermount3. Run by root, as user nobody.

mod bench;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use bench::{Bench, text};

const NOBODY: u32 = 65534;

/// A directory of nobody's, with a copy of the program that nobody can reach.
fn bench() -> Option<Bench> {
    if !bench::fuse_is_open() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, fusermount3, and a /dev/fuse that is open to all");
        return None;
    }
    let bench = Bench::empty();
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for path in ["", "mnt"] {
        chown(bench.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Not by this process: a child that another test forks meanwhile would keep the copy open for
    // writing, and so from being run.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_pmfs"))
        .arg(bench.path("pmfs"))
        .status();
    assert!(copied.unwrap().success());
    Some(bench)
}

fn as_nobody(bench: &Bench, script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .current_dir(bench.path(""))
        .uid(NOBODY)
        .gid(NOBODY);
    shell.stdin(Stdio::null()).output().unwrap()
}

fn succeeds(bench: &Bench, script: &str) -> String {
    let output = as_nobody(bench, script);
    assert!(
        output.status.success(),
        "{script}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn mounted_used_and_unmounted() {
    let Some(bench) = bench() else { return };
    // A comma in the name must not become a mount option.
    succeeds(
        &bench,
        "./pmfs mkfs --size 64M 'po,ol' && ./pmfs mount 'po,ol' mnt",
    );
    assert_eq!(bench.mounts().len(), 1);
    succeeds(
        &bench,
        "mkdir mnt/d && echo hi > mnt/d/a && mv mnt/d/a mnt/b && cat mnt/b",
    );
    assert!(
        fs::metadata(bench.file("b")).is_err(),
        "root is another user"
    );
    let busy = as_nobody(&bench, "cd mnt && ../pmfs umount ../mnt");
    assert_eq!(busy.status.code(), Some(1));
    assert!(
        text(&busy.stderr).contains("busy"),
        "{}",
        text(&busy.stderr)
    );
    let said = succeeds(&bench, "./pmfs umount mnt");
    assert!(said.contains("closed"), "{said}");
    assert!(bench.mounts().is_empty());
    succeeds(
        &bench,
        "./pmfs mount 'po,ol' mnt && cat mnt/b && ./pmfs umount mnt",
    );
    succeeds(&bench, "./pmfs fsck 'po,ol'");
}

#[test]
fn what_only_root_may_is_refused() {
    let Some(bench) = bench() else { return };
    succeeds(&bench, "./pmfs mkfs --size 64M pool");
    let refused = as_nobody(&bench, "./pmfs mount -o suid pool mnt");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("belong to root"),
        "{}",
        text(&refused.stderr)
    );
    let fuse_conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !fuse_conf
        .lines()
        .any(|line| line.trim() == "user_allow_other")
    {
        let refused = as_nobody(&bench, "./pmfs mount -o allow_other pool mnt");
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            text(&refused.stderr).contains("user_allow_other"),
            "{}",
            text(&refused.stderr)
        );
    }
    // Nothing was left behind that would keep the pool.
    succeeds(&bench, "./pmfs info pool");
    assert!(bench.mounts().is_empty());
}

#[test]
fn sigterm_unmounts_through_the_helper() {
    let Some(bench) = bench() else { return };
    succeeds(&bench, "./pmfs mkfs --size 64M pool");
    let report = succeeds(&bench, "./pmfs mount --json pool mnt && echo x > mnt/a");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let pid = report["pid"].as_u64().unwrap() as u32;
    succeeds(&bench, &format!("kill {pid}"));
    bench::wait_until("the daemon to end", || !bench::is_daemon(pid));
    assert!(bench.mounts().is_empty());
    let again = succeeds(
        &bench,
        "./pmfs mount --json pool mnt && cat mnt/a >&2; ./pmfs umount mnt",
    );
    assert!(again.contains("\"kind\":\"none\""), "{again}");
}
