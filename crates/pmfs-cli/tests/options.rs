//! Mount options, by what they do to files on the mount.

mod bench;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bench::Bench;
use bench::installed::copy_program;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};
use rustix::io::Errno;

/// Returns whether a read changes atime: of a file whose atime is newer than its mtime, of one
/// whose atime is older, and of a directory like that.
fn atimes(bench: &Bench) -> [bool; 3] {
    let past = |seconds| Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    fs::write(bench.file("a"), "text").unwrap();
    fs::create_dir(bench.file("d")).unwrap();
    let now = fs::metadata(bench.file("a")).unwrap().mtime();
    let read = |name, last_access, last_modification| {
        let path = bench.file(name);
        let times = Timestamps {
            last_access: past(last_access),
            last_modification: past(last_modification),
        };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        match name {
            "d" => assert_eq!(fs::read_dir(&path).unwrap().count(), 0),
            _ => drop(fs::read(&path).unwrap()),
        }
        fs::metadata(&path).unwrap().atime() != last_access
    };
    // ctime counts too, and is always now: an atime in the future is newer than that.
    [
        read("a", now + 1000, now),
        read("a", now - 1000, now),
        read("d", now - 1000, now),
    ]
}

#[test]
fn atime_is_updated_as_asked_for() {
    for (option, expected) in [
        ("rw", [false, true, true]),
        ("relatime", [false, true, true]),
        ("strictatime", [true, true, true]),
        ("noatime", [false, false, false]),
        ("nodiratime", [false, true, false]),
    ] {
        let Some(bench) = Bench::mounted(&["-o", option]) else {
            return;
        };
        assert_eq!(atimes(&bench), expected, "{option}");
    }
}

#[test]
fn devices_and_programs() {
    for (option, devices, programs) in [
        ("rw", false, true),
        ("dev,noexec", true, false),
        ("nodev,exec", false, true),
    ] {
        let Some(bench) = Bench::mounted(&["-o", option]) else {
            return;
        };
        let null = bench.file("null");
        let number = rustix::fs::makedev(1, 3);
        mknodat(
            CWD,
            &null,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            number,
        )
        .unwrap();
        assert_eq!(fs::write(&null, "x").is_ok(), devices, "{option}");
        let program = bench.file("true");
        copy_program(Path::new("/bin/true"), &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let run = Command::new(&program).status();
        assert_eq!(
            run.is_ok_and(|status| status.success()),
            programs,
            "{option}"
        );
    }
}

/// Options that mean nothing here are taken all the same, from the command line and from fstab.
#[test]
fn harmless_ones_are_taken() {
    let list = "sync,dirsync,async,nodiratime,default_permissions,allow_other,defaults,nosuid";
    let Some(bench) = Bench::mounted(&["-o", list]) else {
        return;
    };
    fs::write(bench.file("a"), "x").unwrap();
    bench.ok(&["mount", "-o", "remount,ro,sync,nodiratime", "pool", "mnt"]);
    let refused = fs::write(bench.file("a"), "y").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    assert!(Path::new(&bench.file("a")).exists());
}

/// The daemon goes on as a remount wants it, not as it was mounted.
#[test]
fn a_remount_reaches_the_daemon() {
    for (options, expected) in [
        ("remount,noatime", [false, false, false]),
        ("remount,strictatime", [true, true, true]),
        ("remount,nodiratime", [false, true, false]),
    ] {
        let Some(bench) = Bench::mounted(&["-o", "relatime"]) else {
            return;
        };
        bench.ok(&["mount", "-o", options, "pool", "mnt"]);
        assert_eq!(atimes(&bench), expected, "{options}");
    }
}

/// A mount that began read-only can be written when it is remounted, and the other way round.
#[test]
fn read_only_comes_and_goes() {
    let Some(bench) = Bench::mounted(&["-o", "ro"]) else {
        return;
    };
    assert!(fs::write(bench.file("a"), "x").is_err());
    bench.ok(&["mount", "-o", "remount,rw", "pool", "mnt"]);
    fs::write(bench.file("a"), "text").unwrap();
    bench.ok(&["mount", "-o", "remount,ro,strictatime", "pool", "mnt"]);
    let before = fs::metadata(bench.file("a")).unwrap().atime_nsec();
    std::thread::sleep(Duration::from_millis(5));
    fs::read(bench.file("a")).unwrap();
    assert_eq!(fs::metadata(bench.file("a")).unwrap().atime_nsec(), before);
    assert!(fs::write(bench.file("a"), "y").is_err());
}

/// Goal: an option that a run has no use for is refused before anything is made.
/// Method: options of remounts, and of a table of mounts, with a mount and without.
#[test]
fn a_run_refuses_what_is_for_mounts_alone() {
    let bench = Bench::pool();
    for option in ["remount", "nofail", "ro,x-mount.mkdir", "user_id=0"] {
        for more in [&[][..], &["--no-mount"]] {
            let mut arguments = vec!["run", "-o", option];
            arguments.extend(more);
            arguments.extend(["--temp", "64M", "--at", "made", "--", "true"]);
            let said = bench.fails(1, &arguments);
            let name = option.trim_start_matches("ro,");
            assert!(said.contains(&format!("option '{name}'")), "{said}");
            assert!(!bench.path("made").exists(), "{option}");
        }
    }
}
