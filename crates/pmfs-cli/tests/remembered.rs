//! The kernel's memory of a mount that is alone in its pool (docs/adr/0015-leases.md); nothing of
//! it outlives that.

mod bench;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bench::{Bench, is_daemon, wait_until};
use pmfs::{Fs, INODE_NAME, Ino, NewNode, OpenOptions, ROOT_INO, RenameFlags, SetAttr};
use pmfs_admin::Inspector;
use rustix::process::{Signal, kill_process};

const NODE: NewNode = NewNode {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// Names in the directory that all looks are at.
const NAMES: [&str; 6] = ["longer", "mode", "gone", "from", "to", "new"];

/// Returns how often the mount was asked to look, so far.
fn asked(bench: &Bench) -> u64 {
    let daemon = bench.daemon().as_raw_nonzero().get() as u64;
    let processes = Inspector::open(&bench.path("pool")).unwrap().processes();
    let mount = processes.iter().find(|process| process.pid == daemon);
    mount.expect("the mount is attached").totals.reads
}

/// Returns whether the kernel remembers the directory and a file in it, by how often it asks.
fn remembers(bench: &Bench) -> bool {
    const LOOKS: u64 = 1000;
    let before = asked(bench);
    for _ in 0..LOOKS {
        fs::metadata(bench.file("d/longer")).unwrap();
    }
    asked(bench) - before < LOOKS / 2
}

fn library(bench: &Bench) -> Fs {
    Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap()
}

/// A mount with a file to look at.
fn mounted(options: &[&str]) -> Option<Bench> {
    let bench = Bench::mounted(options)?;
    fs::create_dir(bench.file("d")).unwrap();
    fs::write(bench.file("d/longer"), "text").unwrap();
    Some(bench)
}

fn end(bench: Bench) {
    wait_until("unmounted", || {
        bench.run(&["umount", "mnt"]).status.success()
    });
    let report = bench.json(&["fsck", "--json", "pool"]);
    assert_eq!(report["clean"], true, "{report}");
}

#[test]
fn only_who_is_alone_is_remembered() {
    let Some(bench) = mounted(&[]) else { return };
    wait_until("the kernel remembers", || remembers(&bench));
    let other = library(&bench);
    for _ in 0..3 {
        assert!(!remembers(&bench));
    }
    other.close().unwrap();
    wait_until("the kernel remembers again", || remembers(&bench));
    end(bench);
}

#[test]
fn nothing_is_remembered_with_nocache() {
    let Some(bench) = mounted(&["-o", "nocache"]) else {
        return;
    };
    for _ in 0..5 {
        assert!(!remembers(&bench));
        thread::sleep(std::time::Duration::from_millis(300));
    }
    end(bench);
}

/// Sets it when it goes, however that happens.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes the changes of somebody who has come, and checks what the mount shows then.
fn change_and_look(bench: &Bench, round: u64) {
    let library = library(bench);
    let dir = library.walk(b"/d", true).unwrap().ino;
    let number = |name: &[u8]| library.lookup(dir, name).unwrap().ino;
    library.write(number(b"longer"), 4, b" and more").unwrap();
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    library.setattr(number(b"mode"), &mode).unwrap();
    library.unlink(dir, b"gone").unwrap();
    let from = number(b"from");
    let plain = RenameFlags::empty();
    library.rename(dir, b"from", dir, b"to", plain).unwrap();
    let new = library.create(dir, b"new", &NODE).unwrap().ino;

    let look = |name: &str| fs::metadata(bench.file("d").join(name));
    assert_eq!(look("longer").unwrap().len(), 13, "round {round}");
    assert_eq!(look("mode").unwrap().mode() & 0o777, 0o600, "round {round}");
    assert!(
        look("gone").is_err() && look("from").is_err(),
        "round {round}"
    );
    assert_eq!(look("to").unwrap().ino(), from, "round {round}");
    assert_eq!(look("new").unwrap().ino(), new, "round {round}");
    assert_eq!(look("").unwrap().nlink(), 2, "round {round}");
    library.close().unwrap();
}

/// Goal: what somebody changes who has just come, the mount shows at once. Method:
/// programs look at all names all the time, so that the kernel remembers them, those
/// that are absent too, and answers are on their way at any moment.
#[test]
fn what_was_remembered_is_not_believed() {
    let Some(bench) = mounted(&[]) else { return };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for name in NAMES {
                        let _ = fs::metadata(bench.file("d").join(name));
                    }
                }
            });
        }
        for round in 0..8 {
            for name in ["longer", "mode", "gone", "from"] {
                fs::write(bench.file("d").join(name), "text").unwrap();
            }
            for name in ["to", "new"] {
                let _ = fs::remove_file(bench.file("d").join(name));
            }
            wait_until("the kernel remembers", || remembers(&bench));
            change_and_look(&bench, round);
        }
    });
    end(bench);
}

/// A mount that is killed while its kernel remembers holds nobody up.
#[test]
fn a_dead_mount_has_no_lease() {
    let Some(bench) = mounted(&[]) else { return };
    wait_until("the kernel remembers", || remembers(&bench));
    let daemon = bench.daemon();
    kill_process(daemon, Signal::KILL).unwrap();
    let number = daemon.as_raw_nonzero().get() as u32;
    wait_until("it is gone", || !is_daemon(number));
    let library = library(&bench);
    assert_eq!(library.walk(b"/d/longer", true).unwrap().size, 4);
    library.close().unwrap();
    end(bench);
}

/// A file that the mount's kernel has looked up, by its name.
fn seen(bench: &Bench, library: &Fs, name: &str) -> Ino {
    fs::write(bench.file(name), name).unwrap();
    library.lookup(ROOT_INO, name.as_bytes()).unwrap().ino
}

/// Goal: what has lost its last name goes when nobody has it open any more, also where
/// the kernel has looked it up by its number, as programs below `pmfs run` do that map
/// it. Method: such a look, before the name is taken away, and after; open meanwhile.
#[test]
fn a_name_by_number_keeps_nothing() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let library = Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let by_number = |ino: Ino| {
        let name = [INODE_NAME, ino.to_string().as_bytes()].concat();
        bench.file("").join(OsStr::from_bytes(&name))
    };
    let inos = ["before", "after"].map(|name| seen(&bench, &library, name));
    drop(fs::read(by_number(inos[0])).unwrap());
    let open = fs::File::open(bench.file("after")).unwrap();
    for name in ["before", "after"] {
        fs::remove_file(bench.file(name)).unwrap();
    }
    assert_eq!(fs::read(by_number(inos[1])).unwrap(), b"after");
    wait_until("the first is gone", || library.getattr(inos[0]).is_err());
    // More looks than it takes.
    thread::sleep(Duration::from_secs(3));
    assert!(library.getattr(inos[1]).is_ok(), "it is open");
    drop(open);
    wait_until("and the second", || library.getattr(inos[1]).is_err());
    library.close().unwrap();
}

/// The same holds where others have moved a name that the kernel has kept.
#[test]
fn a_name_that_others_moved_keeps_nothing() {
    if !knows_to_prune() {
        eprintln!("skipped: needs Linux 6.18");
        return;
    }
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let library = Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let ino = seen(&bench, &library, "old");
    let none = RenameFlags::empty();
    library
        .rename(ROOT_INO, b"old", ROOT_INO, b"new", none)
        .unwrap();
    fs::remove_file(bench.file("new")).unwrap();
    wait_until("it is gone", || library.getattr(ino).is_err());
    library.close().unwrap();
}

/// FUSE_NOTIFY_PRUNE.
fn knows_to_prune() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten()) >= (Some(6), Some(18))
}
