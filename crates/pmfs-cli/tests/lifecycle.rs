//! The begin and the end of mounts: options, busy mounts, signals, a daemon that is killed.

mod bench;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use bench::{Bench, Bystander, is_daemon, wait_until};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::thread;
use std::time::Duration;

#[test]
fn mounted_means_it_answers_and_unmounted_that_the_pool_is_free() {
    if !bench::can_mount() {
        return;
    }
    let mut bench = Bench::pool();
    for round in 0..5 {
        let report = bench.mount(&[]);
        assert_eq!(report["recovery"]["kind"], "none", "round {round}");
        assert_eq!(fs::metadata(bench.path("mnt")).unwrap().ino(), 2);
        let report = bench.json(&["umount", "--json", "mnt"]);
        assert_eq!(
            (&report["released"], &report["daemon_was_gone"]),
            (&true.into(), &false.into())
        );
        assert_ne!(fs::metadata(bench.path("mnt")).unwrap().ino(), 2);
    }
    bench.ok(&["fsck", "pool"]);
    let text = bench.ok(&["mount", "pool", "mnt"]);
    assert!(
        text.contains("mounted ") && text.contains("\nrecovery: "),
        "{text}"
    );
    bench.umount();
}

/// Unmounts as `umount` does. A child that another test's thread has just forked holds this
/// process's descriptors until it executes its program: busy for that long.
fn unmounted(dir: &std::path::Path) {
    wait_until("the mount to be free", || {
        let done = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::empty());
        assert!(matches!(done, Ok(()) | Err(Errno::BUSY)), "{done:?}");
        done.is_ok()
    });
}

#[test]
fn plain_umount_does_too() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("a"), "x").unwrap();
    unmounted(&bench.path("mnt"));
    // At once: mount waits for the daemon that is just ending.
    let report = bench.mount(&[]);
    assert_eq!(report["recovery"]["kind"], "none");
    assert_eq!(fs::read(bench.file("a")).unwrap(), b"x");
}

#[test]
fn a_directory_has_one_mount() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let error = bench.fails(1, &["mount", "pool", "mnt"]);
    assert!(
        error.contains("mounted on") && error.contains("umount"),
        "{error}"
    );
    bench.ok(&["mkfs", "--size", "64M", "pool2"]);
    let error = bench.fails(1, &["mount", "pool2", "mnt"]);
    assert!(error.contains("mounted on"), "{error}");
    let error = bench.fails(8, &["fsck", "pool"]);
    assert!(
        error.contains("in use") && error.contains(&bench.daemon().as_raw_nonzero().to_string()),
        "{error}"
    );
    bench.fails(1, &["mkfs", "--force", "pool"]);
    assert!(fs::read_dir(bench.path("mnt")).is_ok());
}

#[test]
fn busy_names_who_uses_it() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let bystander = bench.bystander();
    let error = bench.fails(1, &["umount", "mnt"]);
    assert!(
        error.contains(&format!("sleep[{}]", bystander.0.id())),
        "{error}"
    );
    assert!(error.contains("--lazy"), "{error}");
    assert_eq!(bench.mounts().len(), 1);
    let report = bench.json(&["umount", "--lazy", "--json", "mnt"]);
    assert_eq!(report["released"], false);
    assert!(bench.mounts().is_empty());
    drop(bystander);
    wait_until("the daemon to end", || {
        !is_daemon(bench.daemon().as_raw_nonzero().get() as u32)
    });
    bench.ok(&["fsck", "pool"]);
}

/// A command of pmfs that looks at a mount keeps it busy for that moment, also one by another path.
#[test]
fn a_command_that_passes_by_does_not_keep_a_mount() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let copy = bench.path("pmfs");
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_pmfs"))
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let mut passing = Command::new(copy)
        .args(["load", "-", bench.path("new").to_str().unwrap()])
        .current_dir(bench.path("mnt"))
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = passing.stdin.take().unwrap();
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(400));
        drop(end);
        passing.wait().unwrap();
    });
    bench.umount();
    ends.join().unwrap();
}

#[test]
fn copies_of_a_mount_keep_the_pool() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let elsewhere = Command::new("unshare")
        .args(["-m", "sh", "-c", "echo; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn();
    let mut elsewhere = Bystander(elsewhere.unwrap());
    let said = elsewhere.0.stdout.as_mut().unwrap();
    said.read_exact(&mut [0]).unwrap();
    let holder = format!("[{}]", elsewhere.0.id());
    let error = bench.fails(1, &["umount", "--wait", "1", "mnt"]);
    assert!(
        error.contains("in the mount namespace of s") && error.contains(&holder),
        "{error}"
    );
    drop(elsewhere);
    wait_until("the daemon to end", || {
        !is_daemon(bench.daemon().as_raw_nonzero().get() as u32)
    });
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn a_mount_that_is_bound_elsewhere_is_named() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bound = bench.path("bound");
    fs::create_dir(&bound).unwrap();
    rustix::mount::mount_bind(bench.path("mnt"), &bound).unwrap();
    let error = bench.fails(1, &["umount", "--wait", "1", "mnt"]);
    assert!(
        error.contains(&format!("stands also at {}", bound.display())),
        "{error}"
    );
    let report = bench.json(&["umount", "--json", "bound"]);
    assert_eq!(report["released"], true);
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn read_only_refuses_changes() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("a"), "x").unwrap();
    bench.umount();
    let report = bench.mount(&["-o", "ro"]);
    assert_eq!(report["read_only"], true);
    assert_eq!(fs::read(bench.file("a")).unwrap(), b"x");
    for error in [
        fs::write(bench.file("a"), "y").unwrap_err(),
        fs::remove_file(bench.file("a")).unwrap_err(),
        fs::create_dir(bench.file("d")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn options_reach_the_kernel() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let flags = |bench: &Bench| -> String {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let dir = bench.path("mnt");
        let line = table
            .lines()
            .find(|line| line.contains(dir.to_str().unwrap()))
            .unwrap();
        format!(
            "{},{}",
            line.split(' ').nth(5).unwrap(),
            line.rsplit(' ').next().unwrap()
        )
    };
    let has = |flags: &str, flag: &str| flags.split(',').any(|f| f == flag);
    let plain = flags(&bench);
    for on in [
        "rw",
        "nosuid",
        "nodev",
        "default_permissions",
        "allow_other",
    ] {
        assert!(has(&plain, on), "{on} in {plain}");
    }
    bench.umount();
    bench.mount(&[
        "-o",
        "suid,dev,noexec",
        "-o",
        "noatime,data=ordered,flush=always",
    ]);
    let asked = flags(&bench);
    assert!(has(&asked, "noexec") && has(&asked, "noatime"), "{asked}");
    assert!(!has(&asked, "nosuid") && !has(&asked, "nodev"), "{asked}");
    bench.umount();

    std::os::unix::fs::chown(bench.path("pool"), Some(65534), None).unwrap();
    let error = bench.fails(1, &["mount", "-o", "suid", "pool", "mnt"]);
    assert!(error.contains("belong to root"), "{error}");
    bench.mount(&[]);
}

/// Goal: nobody else than root says which programs run as root. Method: each way to write to
/// the pool, or to put another in its place, given to others; mounting, and mounting anew.
#[test]
fn a_pool_that_others_can_write_is_not_mounted_with_suid() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let refused = |bench: &Bench, what: &str, options: &str| {
        let error = bench.fails(1, &["mount", "-o", options, "pool", "mnt"]);
        assert!(error.contains("only root can write"), "{what}: {error}");
    };
    let (pool, above) = (bench.path("pool"), bench.path("."));
    let mode = |path: &std::path::Path, bits| {
        fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    };
    mode(&pool, 0o602);
    refused(&bench, "a mount that is there", "remount,suid");
    bench.umount();
    refused(&bench, "everybody", "suid");
    mode(&pool, 0o620);
    chown(&pool, None, Some(65534)).unwrap();
    refused(&bench, "a group", "dev");
    chown(&pool, None, Some(0)).unwrap();
    mode(&pool, 0o600);
    mode(&above, 0o757);
    refused(&bench, "a directory that all can write to", "suid,dev");
    mode(&above, 0o1777);
    bench.mount(&["-o", "suid"]);
    bench.umount();
    mode(&above, 0o700);
    chown(&above, Some(65534), None).unwrap();
    refused(&bench, "a directory of somebody else", "suid");
    chown(&above, Some(0), None).unwrap();
    // An ACL: user 65534 may write, the mask lets him.
    let entry = |tag: u16, bits: u16, id: u32| {
        let [tag, bits] = [tag, bits].map(u16::to_le_bytes);
        [&tag[..], &bits[..], &id.to_le_bytes()].concat()
    };
    let acl = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 6, u32::MAX),
        entry(2, 6, 65534),
        entry(4, 0, u32::MAX),
        entry(16, 6, u32::MAX),
        entry(32, 0, u32::MAX),
    ];
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&pool, "system.posix_acl_access", &acl.concat(), flags).unwrap();
    refused(&bench, "an ACL", "suid");
    rustix::fs::removexattr(&pool, "system.posix_acl_access").unwrap();
    mode(&pool, 0o600);
    bench.mount(&["-o", "suid,dev"]);
}

#[test]
fn remount_changes_flags() {
    let Some(bench) = Bench::mounted(&["-o", "dev"]) else {
        return;
    };
    fs::write(bench.file("a"), "x").unwrap();
    bench.ok(&["mount", "-o", "remount,ro", "pool", "mnt"]);
    let error = fs::write(bench.file("a"), "y").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    // The command is as mount(8) runs it, with what the kernel's table says.
    let pool = bench.path("pool");
    bench.ok(&[
        pool.to_str().unwrap(),
        "mnt",
        "-o",
        "remount,rw,user_id=0,group_id=0",
    ]);
    fs::write(bench.file("a"), "y").unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(pool.to_str().unwrap()))
        .unwrap();
    assert!(line.contains("nosuid") && !line.contains("nodev"), "{line}");
    bench.umount();
    let error = bench.fails(1, &["mount", "-o", "remount,ro", "pool", "mnt"]);
    assert!(error.contains("not a PMFS mount"), "{error}");
}

#[test]
fn sigterm_unmounts_and_closes() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("a"), "x").unwrap();
    let pid = bench.daemon();
    kill_process(pid, Signal::TERM).unwrap();
    wait_until("the daemon to end", || {
        !is_daemon(pid.as_raw_nonzero().get() as u32)
    });
    assert!(bench.mounts().is_empty());
    assert_eq!(bench.mount(&[])["recovery"]["kind"], "none");
    assert_eq!(fs::read(bench.file("a")).unwrap(), b"x");
}

/// A program with a file open gets errors; the pool is clean all the same.
#[test]
fn sigterm_ends_a_busy_mount() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let mut file = File::create(bench.file("a")).unwrap();
    file.write_all(b"before").unwrap();
    let pid = bench.daemon();
    kill_process(pid, Signal::TERM).unwrap();
    wait_until("the mount to go", || bench.mounts().is_empty());
    wait_until("the daemon to end", || {
        !is_daemon(pid.as_raw_nonzero().get() as u32)
    });
    assert!(file.write_all(b"after").is_err());
    drop(file);
    assert_eq!(bench.mount(&[])["recovery"]["kind"], "none");
    assert_eq!(fs::read(bench.file("a")).unwrap(), b"before");
}

#[test]
fn killed_daemon_is_recovered_from() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let content: Vec<u8> = (0..2_000_000u32).map(|n| (n % 249) as u8).collect();
    fs::create_dir(bench.file("d")).unwrap();
    fs::write(bench.file("d/a"), &content).unwrap();
    let open_unlinked = File::create(bench.file("gone")).unwrap();
    fs::remove_file(bench.file("gone")).unwrap();
    let pid = bench.daemon();
    kill_process(pid, Signal::KILL).unwrap();
    wait_until("the daemon to end", || {
        !is_daemon(pid.as_raw_nonzero().get() as u32)
    });

    let not_connected =
        |error: std::io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    // While the kernel takes leave of the daemon it says ECONNABORTED.
    wait_until("the mount to be dead", || {
        not_connected(fs::read(bench.file("d/a")).unwrap_err())
    });
    let error = bench.fails(1, &["mount", "pool", "mnt"]);
    assert!(
        error.contains("daemon is gone") && error.contains("pmfs umount"),
        "{error}"
    );
    let report = bench.json(&["umount", "--lazy", "--json", "mnt"]);
    assert_eq!(
        (&report["daemon_was_gone"], &report["released"]),
        (&true.into(), &true.into())
    );
    drop(open_unlinked);

    let report = bench.mount(&[]);
    assert_ne!(report["recovery"]["kind"], "none", "{report}");
    assert_eq!(report["recovery"]["orphans"], 1, "{report}");
    assert!(fs::read(bench.file("d/a")).unwrap() == content);
    assert!(!bench.file("gone").exists());
    bench.umount();
    let report = bench.json(&["fsck", "--json", "pool"]);
    assert_eq!(report["clean"], true, "{report}");
}

#[test]
fn foreground_serves_until_interrupted() {
    if !bench::can_mount() {
        return;
    }
    let bench = Bench::pool();
    let mut child = bench
        .command(&["mount", "-f", "pool", "mnt"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("mounted "));
    fs::write(bench.file("a"), "x").unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = bench::text(&output.stderr);
    assert!(log.contains("SIGINT") && log.contains("clean"), "{log}");
    assert!(bench.mounts().is_empty());
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn the_log_goes_where_it_was_told() {
    let Some(bench) = Bench::mounted(&["--log", "log"]) else {
        return;
    };
    bench.umount();
    wait_until("the log", || {
        fs::read_to_string(bench.path("log")).is_ok_and(|log| log.contains("clean"))
    });
}

/// The command must not keep its caller waiting for the daemon's end by an inherited pipe.
#[test]
fn output_ends_with_the_command() {
    if !bench::can_mount() {
        return;
    }
    let bench = Bench::pool();
    let output = bench.run(&["mount", "pool", "mnt"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        bench::text(&output.stderr)
    );
    bench.umount();
}

/// A mount that was detached while in use ends much later; by then the directory may be another's.
#[test]
fn a_detached_mount_leaves_its_successor_alone() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let first = bench.daemon().as_raw_nonzero().get() as u32;
    let bystander = bench.bystander();
    bench.json(&["umount", "--lazy", "--json", "mnt"]);
    bench.ok(&["mkfs", "--size", "64M", "pool2"]);
    bench.mount_pool("pool2", &[]);
    fs::write(bench.file("a"), "second").unwrap();
    drop(bystander);
    wait_until("the first daemon to end", || !is_daemon(first));
    assert_eq!(fs::read(bench.file("a")).unwrap(), b"second");
    // The same with a signal to the first one.
    let second = bench.daemon();
    let bystander = bench.bystander();
    bench.json(&["umount", "--lazy", "--json", "mnt"]);
    bench.mount(&[]);
    kill_process(second, Signal::TERM).unwrap();
    wait_until("the second daemon to end", || {
        !is_daemon(second.as_raw_nonzero().get() as u32)
    });
    drop(bystander);
    assert_eq!(bench.mounts().len(), 1);
    assert_eq!(fs::metadata(bench.path("mnt")).unwrap().ino(), 2);
}

/// A name that is no longer what its hash was made of: found, numbered, and no reason to stop.
#[test]
fn fsck_finds_damage() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("needle-in-a-directory"), "x").unwrap();
    bench.umount();
    let mut pool = fs::read(bench.path("pool")).unwrap();
    let at = pool
        .windows(21)
        .position(|bytes| bytes == b"needle-in-a-directory")
        .unwrap();
    pool[at] = b'b';
    fs::write(bench.path("pool"), &pool).unwrap();
    let output = bench.run(&["fsck", "--json", "pool"]);
    assert_eq!(
        output.status.code(),
        Some(4),
        "{}",
        bench::text(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["clean"], false);
    let finding = &report["findings"][0];
    assert!(
        finding["number"].is_u64() && finding["text"].is_string(),
        "{report}"
    );
    let output = bench.run(&["fsck", "pool"]);
    assert_eq!(output.status.code(), Some(4));
    let text = bench::text(&output.stdout);
    assert!(text.contains("finding"), "{text}");
}
