//! Bad surroundings.
//!
//! Goal: each ends in one line that names the cause and a way out, or at worst in EIO;
//! never in a signal, a hang or a mount that can't be taken away. Method: each is made,
//! if need be in a mount namespace of its own, and the words and codes are looked at.

mod bench;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::{Bench, text};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

/// In a namespace of its own, with what scripts use. `as_user` runs a copy of the
/// program as nobody.
fn in_a_namespace(bench: &Bench, script: &str) -> Output {
    let before = r#"
        chmod 755 . && cp "$PMFS" copy && chown nobody . mnt
        fuse() { mknod -m "$1" fuse c 10 229 && mount --bind fuse /dev/fuse; }
        as_user() { setpriv --reuid nobody --regid nogroup --clear-groups ./copy "$@"; }
        as_user mkfs -s 64M pool >/dev/null
        trap 'umount -l mnt 2>/dev/null || true' EXIT
    "#;
    Command::new("unshare")
        .args(["-m", "sh", "-euc", &format!("{before}\n{script}")])
        .env("PMFS", env!("CARGO_BIN_EXE_pmfs"))
        .current_dir(bench.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The script's last command fails with code 1, in one line with these words.
fn fails_in_a_namespace(script: &str, words: &[&str]) {
    fails_in_a_namespace_with(1, script, words);
}

fn fails_in_a_namespace_with(code: i32, script: &str, words: &[&str]) {
    if !bench::can_mount() {
        return;
    }
    let bench = Bench::empty();
    let output = in_a_namespace(&bench, script);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    has(&said, words);
}

fn has(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said:?}");
    }
}

#[test]
fn mount_points() {
    let mut bench = Bench::pool();
    let said = bench.fails(1, &["mount", "pool", "absent"]);
    has(&said, &["no directory absent", "mkdir"]);
    File::create(bench.path("file")).unwrap();
    let said = bench.fails(1, &["mount", "pool", "file"]);
    has(&said, &["file is not a directory"]);
    if !bench::can_mount() {
        return;
    }
    // The directory's contents, and those who are in it, come back after the mount, as with every
    // file system.
    fs::write(bench.file("hidden"), "x").unwrap();
    let bystander = bench.bystander();
    bench.mount(&[]);
    assert!(!bench.file("hidden").exists());
    let said = bench.fails(1, &["mount", "pool", "mnt"]);
    has(&said, &["pool is mounted on", "pmfs umount"]);
    bench.umount();
    drop(bystander);
    assert!(bench.file("hidden").exists());
}

#[test]
fn a_pool_that_is_in_use() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let pid = format!("process {}", bench.daemon().as_raw_nonzero());
    let dir = bench.path("mnt").display().to_string();
    for (code, arguments) in [
        (8, &["fsck", "pool"][..]),
        (1, &["mkfs", "--force", "pool"]),
    ] {
        let said = bench.fails(code, arguments);
        has(&said, &["pool is in use by", &pid, &dir, "pmfs umount"]);
    }
}

#[test]
fn a_pool_that_may_not_be_written() {
    fails_in_a_namespace(
        "fuse 666; chmod 444 pool; as_user mount pool mnt -o ro",
        &[
            "pool may not be written by this user; chmod",
            "even with -o ro",
        ],
    );
    fails_in_a_namespace(
        "fuse 666; chmod 000 pool; as_user mount pool mnt",
        &[
            "pool: Permission denied",
            "check the path and its permissions",
        ],
    );
    fails_in_a_namespace(
        "mkdir ro && mount --bind . ro && mount -o remount,bind,ro ro && \"$PMFS\" mount ro/pool mnt",
        &["pool is on a file system that is mounted read-only; remount"],
    );
}

#[test]
fn no_dev_fuse() {
    fails_in_a_namespace(
        r#"mkdir dev && mount -t tmpfs tmpfs dev && mkdir dev/shm
        mknod -m 666 dev/null c 1 3 && mount --rbind /dev/shm dev/shm && mount --rbind dev /dev
        "$PMFS" mount pool mnt"#,
        &["/dev/fuse is not there; load it with `modprobe fuse`"],
    );
}

#[test]
fn a_dev_fuse_that_is_closed() {
    fails_in_a_namespace(
        "fuse 600; as_user mount pool mnt",
        &["/dev/fuse may not be opened by this user; run as root, or `chmod 666 /dev/fuse`"],
    );
}

#[test]
fn no_fusermount3() {
    fails_in_a_namespace(
        r#"fuse 666; mkdir up && mount -t tmpfs tmpfs up && mkdir up/over up/work
        mount -t overlay overlay -o lowerdir=/usr/bin,upperdir=up/over,workdir=up/work /usr/bin
        rm /usr/bin/fusermount3 && as_user mount pool mnt"#,
        &["fusermount3 is needed to mount without being root; install the package fuse3"],
    );
}

/// Locks of a device belong to the node that it was opened by, so one with several names could have
/// several first openers. A thing that isn't DAX is no pool, whatever its node.
#[test]
fn nodes_of_a_block_device() {
    for command in ["mkfs --force --size 64M", "mount", "fsck", "ls"] {
        let mount_point = if command == "mount" { "mnt" } else { "" };
        fails_in_a_namespace_with(
            if command == "fsck" { 8 } else { 1 },
            &format!("mknod one b 7 0; mknod two b 7 0; \"$PMFS\" {command} two {mount_point}"),
            &["two", "neither a regular file nor a DAX character device"],
        );
    }
}

/// The same pool below an overlay, in another container: another file to the kernel,
/// whose locks are others.
#[test]
fn a_pool_below_an_overlay() {
    let overlay = |pool| {
        format!(
            r#"mkdir low up work merged && mv pool {pool}
            mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=work merged
            "$PMFS" mount {pool} mnt >/dev/null
            trap '"$PMFS" umount mnt' EXIT
            unshare -m -p --fork "$PMFS" ls merged/pool"#
        )
    };
    fails_in_a_namespace(
        &overlay("up/pool"),
        &["merged/pool", "under another name", "pmfs fsck"],
    );
}

/// `doctor` sees what mounting then runs into.
#[test]
fn doctor_says_what_is_missing() {
    let bench = Bench::empty();
    let output = bench.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = i32::from(report["ready"] == false);
    assert_eq!(output.status.code(), Some(expected), "{report}");
    assert!(report["needs"].as_array().unwrap().len() > 8);
    if !bench::can_mount() {
        return;
    }
    assert_eq!(report["ready"], true);
    let output = in_a_namespace(&bench, "fuse 600; as_user doctor");
    assert_eq!(output.status.code(), Some(1));
    has(
        &text(&output.stdout),
        &[
            "\nmissing   /dev/fuse",
            "sudo chmod 666 /dev/fuse",
            "can't be mounted here yet",
        ],
    );
    let output = in_a_namespace(&Bench::empty(), "fuse 666; as_user doctor");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

/// Goal: a dead daemon's directory is recognized, even while the kernel still caches its
/// attributes, for a second.
#[test]
fn a_daemon_that_is_gone() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::metadata(bench.path("mnt")).unwrap();
    let daemon = bench.daemon();
    kill_process(daemon, Signal::KILL).unwrap();
    let pid = daemon.as_raw_nonzero().get() as u32;
    bench::wait_until("the end of the daemon", || !bench::is_daemon(pid));
    let report = bench.json(&["umount", "--json", "mnt"]);
    assert_eq!(report["daemon_was_gone"], true, "{report}");
    assert_eq!(bench.mount(&[])["recovery"]["kind"], "slots");
    bench.umount();
}

fn is_eio<T: std::fmt::Debug>(result: std::io::Result<T>) {
    let error = result.expect_err("the pool is broken");
    assert_eq!(
        error.raw_os_error(),
        Some(Errno::IO.raw_os_error()),
        "{error}"
    );
}

/// The medium goes away under a running mount.
#[test]
fn a_pool_that_is_truncated_under_its_mount() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("a"), vec![7; 20 << 20]).unwrap();
    let mut held = File::open(bench.file("a")).unwrap();
    let pool = OpenOptions::new().write(true).open(bench.path("pool"));
    pool.unwrap().set_len(1 << 20).unwrap();
    is_eio(held.read_to_end(&mut Vec::new()));
    is_eio(fs::write(bench.file("b"), "x"));
    is_eio(fs::metadata(bench.file("a")));
    assert!(bench::is_daemon(
        bench.daemon().as_raw_nonzero().get() as u32
    ));
    drop(held);
    bench.umount();
    let said = bench.fails(8, &["fsck", "pool"]);
    has(
        &said,
        &[
            "pool was truncated",
            "shorter than the pool",
            "fsck --repair",
        ],
    );
    let said = bench.fails(1, &["mount", "pool", "mnt"]);
    has(&said, &["pool was truncated", "truncate -s SIZE"]);
    // The way out that it names.
    let pool = OpenOptions::new().write(true).open(bench.path("pool"));
    pool.unwrap().set_len(64 << 20).unwrap();
    let code = bench.run(&["fsck", "--repair", "pool"]).status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    bench.ok(&["fsck", "pool"]);
    bench.mount(&[]);
    fs::write(bench.file("c"), "x").unwrap();
    bench.umount();
}

/// A sparse pool beside a file that takes all but so many pages of the rest; then calls
/// that need more.
fn full_up(bench: &mut Bench, pages: u64) {
    bench.ok(&["mkfs", "--force", "--sparse", "--size", "64M", "full/pool"]);
    bench.mount_pool("full/pool", &[]);
    fs::write(bench.file("before"), "kept").unwrap();
    let mut filler = File::create(bench.path("full/filler")).unwrap();
    while filler.write(&[1; 4096]).is_ok() {}
    filler
        .set_len(filler.metadata().unwrap().len() - pages * 4096)
        .unwrap();
    let allowed = [Some(Errno::NOSPC.raw_os_error())];
    let mut failed = false;
    for n in 0..200 {
        let made = fs::create_dir(bench.file(&format!("d{n}")));
        let made = made.and_then(|()| fs::write(bench.file(&format!("d{n}/f")), [7; 9000]));
        if let Err(error) = made {
            assert!(allowed.contains(&error.raw_os_error()), "{error}");
            failed = true;
            break;
        }
    }
    let big = File::create(bench.file("big"));
    let error = big.and_then(|big| big.write_all_at(&vec![1; 40 << 20], 0));
    let error = error.expect_err("there is no room");
    assert!(allowed.contains(&error.raw_os_error()), "{error}");
    assert!(bench::is_daemon(
        bench.daemon().as_raw_nonzero().get() as u32
    ));
    // Room that is given up can be had again. Nobody has lost anything, and with room again all
    // goes on.
    fs::remove_file(bench.file("d0/f")).unwrap();
    fs::write(bench.file("d0/again"), [3; 4096]).unwrap();
    assert_eq!(fs::read_to_string(bench.file("before")).unwrap(), "kept");
    fs::remove_file(bench.path("full/filler")).unwrap();
    drop(filler);
    fs::write(bench.file("after"), vec![2; 4 << 20]).unwrap();
    bench.umount();
    // The pool is sound: what failed was not done, or undone.
    let said = bench.run(&["fsck", "full/pool"]);
    let text = text(&said.stdout);
    assert_eq!(
        said.status.code(),
        Some(0),
        "{pages} pages, failed {failed}: {text}"
    );
    bench.mount_pool("full/pool", &[]);
    assert_eq!(fs::read_to_string(bench.file("before")).unwrap(), "kept");
    bench.umount();
}

/// Goal: a sparse pool on a full tmpfs, whose space other files have taken, is handled.
#[test]
fn a_sparse_pool_on_a_full_tmpfs() {
    if !bench::can_mount() {
        return;
    }
    let mut bench = Bench::empty();
    // Not with a namespace: the daemon has to be seen from here. Taken away by hand,
    // and by the guard.
    struct Full(std::path::PathBuf);
    impl Drop for Full {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    fs::create_dir(bench.path("full")).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=24m", "pmfs-test"])
        .arg(bench.path("full"))
        .status();
    assert!(mounted.unwrap().success());
    let full = Full(bench.path("full"));
    // The room left when the pool wants more decides what fails first: data, a node, an inode, a
    // name.
    for pages in [0, 1, 2, 3, 5, 9, 20, 300] {
        full_up(&mut bench, pages);
    }
    drop(full);
}

/// A program of this name in a directory, which says this.
fn fake(dir: &Path, name: &str, says: &str) {
    fs::write(dir.join(name), format!("#!/bin/sh\necho '{says}'\n")).unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_compiler_that_is_too_old() {
    let bench = Bench::empty();
    let dir = bench.path("");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bootstrap.sh");
    for name in ["apt-get", "cargo", "sudo"] {
        fake(&dir, name, "");
    }
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    for (version, code) in [("1.94.9", 1), ("1.9.0", 1), ("1.95.0", 0), ("1.100.1", 0)] {
        fake(&dir, "rustc", &format!("rustc {version} (abc 2026-01-01)"));
        let output = Command::new("sh").arg(&script).env("PATH", &path).output();
        let output = output.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{version}: {said}");
        if code == 1 {
            let cause = format!("rustc is {version}; PMFS needs 1.95 or later");
            has(&said, &[&cause, "rustup update stable"]);
        }
    }
}
