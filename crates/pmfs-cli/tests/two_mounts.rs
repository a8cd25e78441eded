//! Two mounts of one pool, by two daemons, and a program that uses the library beside them: each
//! sees at once what the others do, locks exclude among all, and one that dies holds nobody up.

mod bench;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;

use bench::actor::Actor;
use bench::{Bench, is_daemon, wait_until};
use pmfs::{
    Error, Fs, LockClass, LockKind, LockOwner, LockRange, NewNode, OpenOptions as Attach, ROOT_INO,
};
use rustix::fs::{RenameFlags, XattrFlags, getxattr, renameat_with, setxattr, statvfs};
use rustix::process::{Pid, Signal, kill_process};

struct Both {
    bench: Bench,
    /// Process numbers of the two daemons.
    daemons: [u64; 2],
}

/// One pool on `mnt` and on `other`.
fn both() -> Option<Both> {
    let mut bench = Bench::mounted(&[])?;
    fs::create_dir(bench.path("other")).unwrap();
    let first = bench.daemon().as_raw_nonzero().get() as u64;
    let report = bench.mount_on("other", "pool", &[]);
    let second = report["pid"].as_u64().unwrap();
    assert_ne!(first, second);
    Some(Both {
        bench,
        daemons: [first, second],
    })
}

impl Both {
    fn first(&self, name: &str) -> PathBuf {
        self.bench.path("mnt").join(name)
    }

    fn second(&self, name: &str) -> PathBuf {
        self.bench.path("other").join(name)
    }

    fn kill_first(&self) {
        let pid = Pid::from_raw(self.daemons[0] as i32).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        wait_until("it is gone", || !is_daemon(self.daemons[0] as u32));
    }

    fn library(&self) -> Fs {
        Fs::open(&self.bench.path("pool"), &Attach::default()).unwrap()
    }

    /// Ends both; the pool has to be clean and sound then.
    fn end(self) {
        for dir in ["mnt", "other"] {
            // A child that another test of this process forks meanwhile may hold a file
            // for a moment.
            wait_until("unmounted", || {
                self.bench.run(&["umount", dir]).status.success()
            });
        }
        let report = self.bench.json(&["fsck", "--json", "pool"]);
        assert_eq!(report["clean"], true, "{report}");
    }
}

const NODE: NewNode = NewNode {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
};

const WHOLE: LockRange = LockRange {
    start: 0,
    end: u64::MAX,
};

/// Goal: the next call sees it. Method: each change through one mount, looked at through
/// the other, which has looked at the same name before and would remember it, if it did.
#[test]
fn what_one_does_the_other_sees() {
    let Some(both) = both() else { return };
    let (here, there) = (both.first("a"), both.second("a"));
    assert!(!there.exists());
    fs::write(&here, "one").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"one");
    let open = File::open(&there).unwrap();
    let mut appending = OpenOptions::new().append(true).open(&here).unwrap();
    for n in 2..20 {
        appending.write_all(b"-").unwrap();
        assert_eq!(open.metadata().unwrap().len(), n + 2);
        assert_eq!(fs::metadata(&there).unwrap().len(), n + 2);
    }
    // Appends from both sides, each at the true end.
    fs::write(&here, "").unwrap();
    for _ in 0..5 {
        appending.write_all(b"x").unwrap();
        let mut other = OpenOptions::new().append(true).open(&there).unwrap();
        other.write_all(b"y").unwrap();
    }
    assert_eq!(fs::read(&here).unwrap(), b"xyxyxyxyxy");
    File::options()
        .write(true)
        .open(&here)
        .unwrap()
        .set_len(3)
        .unwrap();
    assert_eq!(open.metadata().unwrap().len(), 3);
    let mut text = [0; 8];
    assert_eq!(open.read_at(&mut text, 0).unwrap(), 3);

    fs::set_permissions(&here, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o600);
    setxattr(&here, "user.k", b"v", XattrFlags::empty()).unwrap();
    let mut value = [0; 8];
    assert_eq!(getxattr(&there, "user.k", &mut value).unwrap(), 1);

    fs::rename(&here, both.first("b")).unwrap();
    assert!(!there.exists());
    assert_eq!(fs::metadata(both.second("b")).unwrap().len(), 3);
    fs::hard_link(both.second("b"), both.second("c")).unwrap();
    assert_eq!(fs::metadata(both.first("b")).unwrap().nlink(), 2);
    fs::remove_file(both.first("b")).unwrap();
    assert!(!both.second("b").exists());
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    drop((open, appending));
    both.end();
}

/// Goal: open(2) with O_CREAT opens what somebody beside the mount has made since the
/// kernel looked. Method: both sides open and remove one name as fast as they can;
/// nobody is told that it exists.
#[test]
fn files_made_on_both_sides_at_once() {
    let Some(both) = both() else { return };
    let told: Vec<Option<i32>> = thread::scope(|scope| {
        let sides = [both.first("a"), both.second("a")].map(|path| {
            scope.spawn(move || {
                let mut told = Vec::new();
                for _ in 0..400 {
                    let mut how = OpenOptions::new();
                    if let Err(error) = how.write(true).create(true).truncate(false).open(&path) {
                        told.push(error.raw_os_error());
                    }
                    let _ = fs::remove_file(&path);
                }
                told
            })
        });
        let ended = sides.map(|side| side.join().unwrap());
        ended.concat()
    });
    let stale = Some(rustix::io::Errno::STALE.raw_os_error());
    assert!(told.iter().all(|number| *number == stale), "{told:?}");
    assert!(told.len() < 80, "{}", told.len());
    both.end();
}

#[test]
fn directories_and_kinds_of_file() {
    let Some(both) = both() else { return };
    let names = |dir: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    fs::create_dir_all(both.first("d/e")).unwrap();
    assert_eq!(names(both.second("d")), ["e"]);
    fs::write(both.second("d/e/f"), "f").unwrap();
    assert_eq!(names(both.first("d/e")), ["f"]);
    // A directory that moves under who has looked into it.
    fs::rename(both.first("d/e"), both.first("g")).unwrap();
    assert!(names(both.second("d")).is_empty());
    assert_eq!(fs::read(both.second("g/f")).unwrap(), b"f");
    fs::remove_file(both.second("g/f")).unwrap();
    fs::remove_dir(both.first("g")).unwrap();
    assert!(!both.second("g").exists());
    // The same name, another kind each time.
    symlink("d", both.first("n")).unwrap();
    assert_eq!(fs::read_link(both.second("n")).unwrap(), PathBuf::from("d"));
    fs::remove_file(both.second("n")).unwrap();
    fs::create_dir(both.first("n")).unwrap();
    assert!(fs::symlink_metadata(both.second("n")).unwrap().is_dir());
    fs::remove_dir(both.second("n")).unwrap();
    fs::write(both.first("n"), "file").unwrap();
    assert_eq!(fs::read(both.second("n")).unwrap(), b"file");
    fs::write(both.second("m"), "other").unwrap();
    let exchange = RenameFlags::EXCHANGE;
    let cwd = rustix::fs::CWD;
    renameat_with(cwd, both.second("n"), cwd, both.second("m"), exchange).unwrap();
    assert_eq!(fs::read(both.first("n")).unwrap(), b"other");
    both.end();
}

/// Numbers of inodes come back soon; what one mount remembers of an old one must not be
/// taken for the new.
#[test]
fn numbers_that_come_back() {
    let Some(both) = both() else { return };
    for round in 0..200 {
        let text = format!("{round}");
        let name = format!("n{}", round % 3);
        fs::write(both.first(&name), &text).unwrap();
        assert_eq!(fs::read_to_string(both.second(&name)).unwrap(), text);
        let found = fs::metadata(both.second(&name)).unwrap();
        assert_eq!(found.len(), text.len() as u64);
        if round % 2 == 0 {
            fs::remove_file(both.first(&name)).unwrap();
        } else {
            fs::remove_file(both.second(&name)).unwrap();
        }
        assert!(!both.second(&name).exists() && !both.first(&name).exists());
    }
    both.end();
}

/// Unlinked through one and open in the other: it is there until closed, and its space
/// comes back then.
#[test]
fn unlinked_and_open() {
    let Some(both) = both() else { return };
    let free = || statvfs(both.first("")).unwrap().f_bfree;
    fs::write(both.first("warm"), "").unwrap();
    let before = free();
    let content: Vec<u8> = (0..8_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(both.first("a"), &content).unwrap();
    let open = File::open(both.second("a")).unwrap();
    fs::remove_file(both.first("a")).unwrap();
    // Others would take its blocks, if they were free.
    fs::write(both.first("b"), vec![0xee; 20 << 20]).unwrap();
    let mut back = vec![0; content.len()];
    open.read_exact_at(&mut back, 0).unwrap();
    assert!(back == content);
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    // The same holds for a file that a library's process removes.
    let fs = both.library();
    let held = File::open(both.first("b")).unwrap();
    fs.unlink(ROOT_INO, b"b").unwrap();
    let mut text = [0; 4];
    held.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(text, [0xee; 4]);
    fs.close().unwrap();
    drop((open, held));
    // The directory and the inode table may have grown by a block.
    wait_until("its space is free", || free() + 8 >= before);
    both.end();
}

#[test]
fn locks_exclude_across() {
    let Some(both) = both() else { return };
    fs::write(both.first("f"), "text").unwrap();
    let mut here = Actor::with(&both.first("f"));
    let mut there = Actor::with(&both.second("f"));
    for (lock, unlock) in [
        ("flock f ex", "flock f un"),
        ("posix f ex 10 5", "posix f un 10 5"),
        ("ofd f ex 10 5", "ofd f un 10 5"),
    ] {
        here.does(lock);
        assert_eq!(there.ask(lock), "EAGAIN");
        there.waits(&format!("{lock} wait"));
        here.does(unlock);
        assert_eq!(there.says(), "ok");
        here.waits(&format!("{lock} wait"));
        here.signal(Signal::USR1);
        assert_eq!(here.says(), "interrupted");
        there.does(unlock);
    }
    here.does("posix f sh 3 4");
    let said = there.ask("get f ex 0 0");
    assert_eq!(said, format!("sh 3 4 {}", here.pid()));
    drop((here, there));
    both.end();
}

/// The same against a process that uses the library.
#[test]
fn locks_exclude_a_library_process() {
    let Some(both) = both() else { return };
    fs::write(both.first("f"), "text").unwrap();
    let library = both.library();
    let ino = library.lookup(ROOT_INO, b"f").unwrap().ino;
    let mut actors = [both.first("f"), both.second("f")].map(|path| Actor::with(&path));
    for (class, lock, unlock) in [
        (LockClass::Flock, "flock f ex", "flock f un"),
        (LockClass::Posix, "posix f ex 0 0", "posix f un 0 0"),
        (LockClass::File, "ofd f ex 0 0", "ofd f un 0 0"),
    ] {
        let owner = LockOwner { class, id: 0 };
        let take = || library.lock(ino, owner, LockKind::Write, WHOLE, std::process::id());
        for actor in &mut actors {
            actor.does(lock);
            assert!(matches!(take(), Err(Error::WouldBlock)), "{lock}");
            actor.does(unlock);
            take().unwrap();
            assert_eq!(actor.ask(lock), "EAGAIN");
            actor.waits(&format!("{lock} wait"));
            library.unlock(ino, owner, WHOLE).unwrap();
            assert_eq!(actor.says(), "ok");
            actor.does(unlock);
        }
    }
    library.close().unwrap();
    drop(actors);
    both.end();
}

/// Goal: a daemon that is killed leaves nothing locked, and the other serves on.
/// Method: who waits through the other gets in, and works.
#[test]
fn one_daemon_is_killed() {
    for (lock, unlock) in [
        ("flock f ex", "flock f un"),
        ("posix f ex 0 0", "posix f un 0 0"),
    ] {
        let Some(both) = both() else { return };
        fs::write(both.first("f"), "text").unwrap();
        let mut holder = Actor::with(&both.first("f"));
        let mut waiter = Actor::with(&both.second("f"));
        holder.does(lock);
        waiter.waits(&format!("{lock} wait"));
        both.kill_first();
        assert_eq!(waiter.says(), "ok");
        fs::write(both.second("after"), "still here").unwrap();
        assert_eq!(fs::read(both.second("f")).unwrap(), b"text");
        waiter.does(unlock);
        drop((holder, waiter));
        both.end();
    }
}

/// A file that only a dead daemon had open gives its space back to who needs it.
#[test]
fn the_dead_hold_no_space() {
    let Some(both) = both() else { return };
    fs::write(both.first("a"), vec![1; 40 << 20]).unwrap();
    let mut reader = Actor::with(&both.first("a"));
    fs::remove_file(both.second("a")).unwrap();
    let full = fs::write(both.second("b"), vec![2; 40 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    fs::remove_file(both.second("b")).unwrap();
    both.kill_first();
    assert!(!reader.ask("read f").starts_with('\u{1}'));
    drop(reader);
    fs::write(both.second("b"), vec![2; 40 << 20]).unwrap();
    both.end();
}

/// Each ends for itself; the last one leaves the pool clean. A directory has one mount at a time.
#[test]
fn each_ends_for_itself() {
    let Some(both) = both() else { return };
    let said = both.bench.fails(1, &["mount", "pool", "other"]);
    assert!(said.contains("is mounted on"), "{said}");
    let report = both.bench.json(&["umount", "--json", "mnt"]);
    assert_eq!(report["released"], true);
    assert_eq!(report["daemon_was_gone"], false);
    wait_until("its daemon ends", || !is_daemon(both.daemons[0] as u32));
    fs::write(both.second("a"), "x").unwrap();
    let library = both.library();
    library.create(ROOT_INO, b"b", &NODE).unwrap();
    assert!(both.second("b").exists());
    library.close().unwrap();
    let said = both.bench.fails(8, &["fsck", "pool"]);
    assert!(said.contains("in use"), "{said}");
    both.bench.ok(&["umount", "other"]);
    assert_eq!(
        both.bench.json(&["info", "--json", "pool"])["state"],
        "clean"
    );
    assert_eq!(both.bench.json(&["fsck", "--json", "pool"])["clean"], true);
}

/// `save` makes both stand still, and refuses what it can't make stand still.
#[test]
fn saved_while_in_use_by_both() {
    let Some(both) = both() else { return };
    fs::write(both.first("a"), "first").unwrap();
    fs::write(both.second("b"), "second").unwrap();
    let library = both.library();
    let said = both.bench.fails(1, &["save", "pool", "image"]);
    assert!(said.contains("beside its mounts"), "{said}");
    library.close().unwrap();
    both.bench.ok(&["save", "pool", "image"]);
    both.bench.ok(&["load", "image", "copy"]);
    assert_eq!(both.bench.ok(&["ls", "copy"]), "a\nb\n");
    fs::write(both.first("c"), "on it goes").unwrap();
    fs::write(both.second("d"), "on it goes").unwrap();
    both.end();
}
