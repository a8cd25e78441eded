//! Goal: a snapshot is its source as it was, nobody can change it, and it goes as a whole. Method:
//! each call that changes something, on each kind of inode of one; two attachments; counts of free
//! inodes, and checks.

#[path = "../../pmfs/tests/scratch/mod.rs"]
mod scratch;
mod tree;

use pmfs::types::mode;
use pmfs::{
    Error, FallocateMode, Fs, Ino, OpenOptions, ROOT_INO, RenameFlags, Result, SetAttr, XattrFlags,
};
use pmfs_admin::{Admin, SNAPSHOTS};
use scratch::{NODE, Scratch};
use tree::{dir, file, names, open, tree};

const NO_FLAGS: XattrFlags = XattrFlags::empty();

/// A tree with all kinds of inodes: its top.
fn planted(fs: &Fs) -> Ino {
    let top = dir(fs, ROOT_INO, "src", 0o755);
    let below = dir(fs, top, "dir", 0o700);
    let one = file(fs, top, "file", &[1; 10_000]);
    file(fs, below, "below", b"below");
    fs.link(one, below, b"second name").unwrap();
    fs.setxattr(one, b"user.a", b"value", NO_FLAGS).unwrap();
    fs.symlink(top, b"link", b"file", &NODE).unwrap();
    fs.mknod(top, b"fifo", &NODE, mode::S_IFIFO, 0).unwrap();
    dir(fs, top, "empty", 0o755);
    top
}

fn find(fs: &Fs, dir: Ino, path: &str) -> Ino {
    path.split('/').fold(dir, |dir, name| {
        fs.lookup(dir, name.as_bytes()).unwrap().ino
    })
}

/// A change, by the name of its call.
type Changes = Vec<(&'static str, Result<()>)>;

/// Each call that changes an inode itself.
fn changes_of(fs: &Fs, ino: Ino) -> Changes {
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    vec![
        ("setattr", fs.setattr(ino, &mode).map(drop)),
        ("setattr_by", fs.setattr_by(ino, &|_| mode).map(drop)),
        ("setxattr", fs.setxattr(ino, b"user.b", b"", NO_FLAGS)),
        ("removexattr", fs.removexattr(ino, b"user.a")),
        ("link", fs.link(ino, ROOT_INO, b"linked").map(drop)),
    ]
}

/// Each call that changes a file's content.
fn changes_of_content(fs: &Fs, ino: Ino, other: Ino) -> Changes {
    let shorter = SetAttr {
        size: Some(5),
        ..SetAttr::default()
    };
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    let (before, out_of) = ((other, 0), (ino, 0));
    vec![
        ("truncate", fs.setattr(ino, &shorter).map(drop)),
        ("write", fs.write(ino, 0, b"x").map(drop)),
        ("append", fs.append(ino, b"x").map(drop)),
        ("write_at_end", fs.write_at_end(ino, 10_000, b"x").map(drop)),
        ("write_back", fs.write_back(ino, 0, b"x")),
        ("write_pages", fs.write_pages(ino, &[(0, &[1; 4096])])),
        (
            "fallocate",
            fs.fallocate(ino, FallocateMode::empty(), 0, 20_000),
        ),
        ("punch", fs.fallocate(ino, punch, 0, 4096)),
        ("collapse_range", fs.collapse_range(ino, 0, 4096)),
        ("insert_range", fs.insert_range(ino, 0, 4096)),
        ("clone_range", fs.clone_range(before, out_of, 4096)),
        (
            "dedupe_range",
            fs.dedupe_range(before, out_of, 4096).map(drop),
        ),
        (
            "copy_range",
            fs.copy_range(other, 0, ino, 0, 4096).map(drop),
        ),
        ("pin to write", fs.pin(ino, true)),
        ("open to write", fs.open_file(ino, 1).map(drop)),
        ("open to read and write", fs.open_file(ino, 2).map(drop)),
    ]
}

/// Each call that changes the names of a directory with `file` and the empty directory `empty`.
fn changes_of_names(fs: &Fs, ino: Ino) -> Changes {
    let plain = RenameFlags::empty();
    let whiteout = RenameFlags::WHITEOUT;
    let there = |name: &'static [u8]| (ROOT_INO, name);
    let rename =
        |from: (Ino, &[u8]), to: (Ino, &[u8]), flags| fs.rename(from.0, from.1, to.0, to.1, flags);
    vec![
        ("create", fs.create(ino, b"new", &NODE).map(drop)),
        ("mkdir", fs.mkdir(ino, b"new", &NODE).map(drop)),
        (
            "mknod",
            fs.mknod(ino, b"new", &NODE, mode::S_IFIFO, 0).map(drop),
        ),
        ("symlink", fs.symlink(ino, b"new", b"a", &NODE).map(drop)),
        ("tmpfile", fs.tmpfile(ino, &NODE).map(drop)),
        ("unlink", fs.unlink(ino, b"file")),
        ("rmdir", fs.rmdir(ino, b"empty")),
        (
            "link into",
            fs.link(find(fs, ROOT_INO, "other"), ino, b"new").map(drop),
        ),
        ("rename in", rename(there(b"other"), (ino, b"new"), plain)),
        (
            "rename over",
            rename(there(b"other"), (ino, b"file"), plain),
        ),
        ("rename out", rename((ino, b"file"), there(b"new"), plain)),
        (
            "rename within",
            rename((ino, b"file"), (ino, b"new"), plain),
        ),
        ("whiteout", rename((ino, b"file"), there(b"new"), whiteout)),
        (
            "exchange",
            rename((ino, b"file"), there(b"other"), RenameFlags::EXCHANGE),
        ),
    ]
}

fn all_refused(of: &str, changes: Changes) {
    for (call, answer) in changes {
        assert!(
            matches!(answer, Err(Error::OfSnapshot)),
            "{call} of {of}: {answer:?}"
        );
    }
}

#[test]
fn no_call_changes_one() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    let other = file(&fs, ROOT_INO, "other", &[1; 4096]);
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    let top = fs.snapshot(b"one").unwrap().ino;
    let before = tree(&fs, top);
    // By an attachment that did not make it, too.
    let second = open(&scratch);
    for fs in [&fs, &second] {
        for path in [
            "file",
            "dir",
            "link",
            "fifo",
            "empty",
            "dir/below",
            "dir/second name",
        ] {
            all_refused(path, changes_of(fs, find(fs, top, path)));
        }
        all_refused(
            "the top",
            changes_of(fs, top)
                .into_iter()
                .filter(|(call, _)| *call != "link")
                .collect(),
        );
        all_refused("file", changes_of_content(fs, find(fs, top, "file"), other));
        all_refused("the top", changes_of_names(fs, top));
        let home = find(fs, ROOT_INO, SNAPSHOTS);
        let away = fs.rename(home, b"one", ROOT_INO, b"mine", RenameFlags::empty());
        let gone = fs.rmdir(home, b"one");
        assert!(matches!(away, Err(Error::OfSnapshot)), "{away:?}");
        assert!(matches!(gone, Err(Error::NotEmpty)), "{gone:?}");
    }
    assert_eq!(tree(&fs, top), before);
    drop((fs, second));
    assert!(scratch.is_sound());
}

/// An empty snapshot can't be removed by rmdir, nor be replaced or exchanged.
#[test]
fn an_empty_one_stays() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = dir(&fs, ROOT_INO, "src", 0o755);
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    let home = find(&fs, ROOT_INO, SNAPSHOTS);
    let plain = RenameFlags::empty();
    let over = fs.rename(ROOT_INO, b"src", home, b"one", plain);
    let exchanged = fs.rename(ROOT_INO, b"src", home, b"one", RenameFlags::EXCHANGE);
    for answer in [fs.rmdir(home, b"one"), over, exchanged] {
        assert!(matches!(answer, Err(Error::OfSnapshot)), "{answer:?}");
    }
    fs.delete_snapshot(b"one").unwrap();
    assert!(names(&fs, home).is_empty());
}

/// It is what the source was, whatever that becomes. Reads leave no trace in it.
#[test]
fn it_stays_what_the_source_was() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    let before = tree(&fs, source);
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    let one = find(&fs, source, "file");
    fs.write(one, 100, &[2; 8000]).unwrap();
    fs.unlink(source, b"link").unwrap();
    let snapshot = fs.snapshot(b"one").unwrap();
    assert_eq!(snapshot.origin, b"/src");
    let mut seen = tree(&fs, snapshot.ino);
    let top = seen.get_mut("").unwrap();
    for name in ["user.pmfs.snapshot", "user.pmfs.snapshot.id"] {
        assert!(top.attributes.remove(name).is_some());
    }
    assert_eq!(seen, before);
    drop(fs);

    let strict = OpenOptions {
        atime: pmfs::AtimeMode::Strictatime,
        ..OpenOptions::default()
    };
    let fs = Fs::open(&scratch.path, &strict).unwrap();
    let file = find(&fs, snapshot.ino, "file");
    let before = fs.getattr(file).unwrap();
    fs.read(file, 0, &mut [0; 100]).unwrap();
    assert_eq!(fs.getattr(file).unwrap(), before);
    drop(fs);
    assert!(scratch.is_sound());
}

/// All comes back, in whichever order snapshots go: the check finds no block without an owner.
#[test]
fn deleted_ones_leave_nothing() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    fs.create_snapshot(source, b"/src", b"first").unwrap();
    fs.delete_snapshot(b"first").unwrap();
    // The directory of snapshots stays. The inode table grows, as numbers come back late.
    let before = fs.statfs().unwrap().inodes_free;
    for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
        for name in ["a", "b", "c"] {
            let file = find(&fs, source, "file");
            fs.write(file, 0, name.as_bytes()).unwrap();
            fs.create_snapshot(source, b"/src", name.as_bytes())
                .unwrap();
        }
        let listed = fs.snapshots().unwrap();
        let listed: Vec<&[u8]> = listed.iter().map(|one| &one.name[..]).collect();
        assert_eq!(listed, [b"a", b"b", b"c"]);
        for name in order {
            fs.delete_snapshot(name.as_bytes()).unwrap();
            let again = fs.delete_snapshot(name.as_bytes());
            assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
        }
        assert_eq!(fs.statfs().unwrap().inodes_free, before);
    }
    drop(fs);
    assert!(scratch.is_sound());
}

#[test]
fn a_restored_one_can_be_changed() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    let before = tree(&fs, source);
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    fs.write(find(&fs, source, "file"), 0, b"changed").unwrap();
    let snapshot = fs.snapshot(b"one").unwrap();
    fs.restore_snapshot(&snapshot, (ROOT_INO, b"copy"), false)
        .unwrap();
    let copy = find(&fs, ROOT_INO, "copy");
    assert_eq!(tree(&fs, copy), before);
    fs.write(find(&fs, copy, "file"), 0, b"changed").unwrap();
    fs.unlink(copy, b"file").unwrap();

    let there = fs.restore_snapshot(&snapshot, (ROOT_INO, b"src"), false);
    assert!(matches!(there, Err(Error::Exists)), "{there:?}");
    fs.restore_snapshot(&snapshot, (ROOT_INO, b"src"), true)
        .unwrap();
    assert_eq!(tree(&fs, find(&fs, ROOT_INO, "src")), before);
    assert_eq!(
        names(&fs, ROOT_INO).len(),
        3,
        "nothing is left of what was replaced"
    );
    let home = fs.restore_snapshot(&snapshot, (ROOT_INO, SNAPSHOTS.as_bytes()), true);
    assert!(matches!(home, Err(Error::NotPermitted(_))), "{home:?}");
    drop(fs);
    assert!(scratch.is_sound());
}

/// Snapshots of all files have no snapshots in them, and a clone of all has none.
#[test]
fn all_files_without_the_snapshots() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    planted(&fs);
    for name in ["a", "b"] {
        fs.create_snapshot(ROOT_INO, b"/", name.as_bytes()).unwrap();
        assert_eq!(
            names(&fs, fs.snapshot(name.as_bytes()).unwrap().ino),
            ["src"]
        );
    }
    let part = find(&fs, ROOT_INO, "src");
    fs.clone_tree(ROOT_INO, part, b"all").unwrap();
    assert_eq!(names(&fs, find(&fs, part, "all")), ["src"]);
}

/// A user's directory of that name is left alone.
#[test]
fn anothers_directory_is_told_of() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    let mine = dir(&fs, ROOT_INO, SNAPSHOTS, 0o755);
    file(&fs, mine, "mine", b"mine");
    for answer in [
        fs.create_snapshot(source, b"/src", b"one").map(drop),
        fs.snapshots().map(drop),
        fs.delete_snapshot(b"mine"),
    ] {
        let Err(Error::NotPermitted(why)) = answer else {
            panic!("{answer:?}");
        };
        assert!(why.to_string().contains("rename it"), "{why}");
    }
    fs.unlink(mine, b"mine").unwrap();
    // One that was killed has made it, and has not marked it.
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    let file = fs.lookup(source, b"file").unwrap().ino;
    let answer = fs.create_snapshot(file, b"/src/file", b"two");
    assert!(matches!(answer, Err(Error::NotDirectory)), "{answer:?}");
}

/// An inode of a snapshot that has lost its flag is found, below a directory that has lost it too.
#[test]
fn a_lost_flag_is_mended() {
    /// The number of the finding.
    const SNAPSHOT: u32 = 37;
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    let top = fs.snapshot(b"one").unwrap().ino;
    let links = fs.getattr(find(&fs, top, "file")).unwrap().links;
    for path in ["dir/below", "dir", "file", "link"] {
        let ino = find(&fs, top, path);
        fs.change(|pool| pool.set_of_snapshot(ino, false)).unwrap();
    }
    let report = fs.check().unwrap();
    let numbers: Vec<u32> = report.findings.iter().map(|found| found.number).collect();
    assert_eq!(numbers, [SNAPSHOT; 4], "{:?}", report.findings);
    let repaired = fs.repair().unwrap();
    assert!(repaired.left.is_clean(), "{:?}", repaired.left.findings);
    let file = fs.getattr(find(&fs, top, "file")).unwrap();
    assert_eq!(file.links, links);
    assert!(fs.is_of_snapshot(file.ino).unwrap());
    assert!(fs.is_of_snapshot(find(&fs, top, "dir/below")).unwrap());
}

/// A flag that was set by damage, of a user's directory, a file or the root, is taken away again.
#[test]
fn a_stray_flag_is_mended() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let source = planted(&fs);
    fs.create_snapshot(source, b"/src", b"one").unwrap();
    for path in ["src/dir", "src/file", "src", ""] {
        let ino = match path {
            "" => ROOT_INO,
            path => find(&fs, ROOT_INO, path),
        };
        fs.change(|pool| pool.set_of_snapshot(ino, true)).unwrap();
        let report = fs.check().unwrap();
        assert!(!report.is_clean(), "{path}");
        let repaired = fs.repair().unwrap();
        assert!(
            repaired.left.is_clean(),
            "{path}: {:?}",
            repaired.left.findings
        );
        assert!(!fs.is_of_snapshot(ino).unwrap(), "{path}");
        fs.create(source, b"new", &NODE).unwrap();
        fs.unlink(source, b"new").unwrap();
    }
    // The snapshot is what it was.
    let top = fs.snapshot(b"one").unwrap().ino;
    let made = fs.create(top, b"new", &NODE);
    assert!(matches!(made, Err(Error::OfSnapshot)), "{made:?}");
}
