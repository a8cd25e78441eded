//! Goal: a saved snapshot comes out as it was, by what differs from another one that the other pool
//! has; what is damaged, or fits nowhere, changes nothing. Method: trees of two pools compared;
//! flipped bits and missing ends; pools without room.

#[path = "../../pmfs/tests/scratch/mod.rs"]
mod scratch;
mod tree;

use pmfs::types::mode;
use pmfs::{Error, Fs, Ino, ROOT_INO, RenameFlags, Result, SetAttr, XattrFlags};
use pmfs_admin::{Admin, ReceiveReport, SNAPSHOTS, SendReport};
use scratch::{NODE, Scratch};
use tree::{dir, file, names, open, tree};

const SIZE: u64 = 64 << 20;

fn planted(fs: &Fs) -> Ino {
    let top = dir(fs, ROOT_INO, "src", 0o755);
    let below = dir(fs, top, "dir", 0o2750);
    for number in 0..100 {
        file(fs, below, &format!("{number}"), &[number; 9000]);
    }
    let one = file(fs, top, "large", &vec![1; 5 << 20]);
    fs.link(one, below, b"second name").unwrap();
    fs.setxattr(one, b"user.a", b"value", XattrFlags::empty())
        .unwrap();
    let holes = file(fs, top, "holes", b"begin");
    fs.write(holes, 3 << 20, b"end").unwrap();
    fs.symlink(top, b"link", b"large", &NODE).unwrap();
    fs.mknod(top, b"fifo", &NODE, mode::S_IFIFO, 0).unwrap();
    fs.mknod(top, b"null", &NODE, mode::S_IFCHR, 0x103).unwrap();
    dir(fs, top, "empty", 0o755);
    top
}

/// Changes of each kind.
fn change(fs: &Fs, top: Ino) {
    let below = fs.lookup(top, b"dir").unwrap().ino;
    let large = fs.lookup(top, b"large").unwrap().ino;
    fs.write(large, 1 << 20, b"changed").unwrap();
    fs.append(fs.lookup(below, b"1").unwrap().ino, b"more")
        .unwrap();
    fs.rename(below, b"2", top, b"moved", RenameFlags::empty())
        .unwrap();
    fs.unlink(below, b"3").unwrap();
    let shorter = SetAttr {
        size: Some(4100),
        mode: Some(0o600),
        ..SetAttr::default()
    };
    fs.setattr(fs.lookup(below, b"4").unwrap().ino, &shorter)
        .unwrap();
    fs.rmdir(top, b"empty").unwrap();
    fs.unlink(top, b"link").unwrap();
    fs.symlink(top, b"link", b"holes", &NODE).unwrap();
    file(fs, top, "new", &[3; 5000]);
    // A file in place of a directory's name, and the other way round.
    file(fs, top, "empty", b"a file now");
}

fn sent(fs: &Fs, name: &str, base: Option<&str>) -> (Vec<u8>, SendReport) {
    let snapshot = fs.snapshot(name.as_bytes()).unwrap();
    let base = base.map(|base| fs.snapshot(base.as_bytes()).unwrap());
    let mut bytes = Vec::new();
    let report = fs.send_snapshot(&snapshot, base.as_ref(), &mut bytes, &mut |_, _| {});
    let report = report.unwrap();
    assert_eq!(report.bytes, bytes.len() as u64);
    (bytes, report)
}

fn received(fs: &Fs, mut bytes: &[u8]) -> Result<ReceiveReport> {
    fs.receive_snapshot(&mut bytes, &mut |_, _| {})
}

fn are_alike(one: &Fs, other: &Fs, name: &str) {
    let [one, other] = [one, other].map(|fs| {
        let snapshot = fs.snapshot(name.as_bytes()).unwrap();
        assert!(fs.is_of_snapshot(snapshot.ino).unwrap());
        (snapshot.id, snapshot.origin, tree(fs, snapshot.ino))
    });
    assert_eq!((one.0, one.1), (other.0, other.1), "{name}");
    let paths: Vec<[&String; 2]> = one
        .2
        .keys()
        .zip(other.2.keys())
        .map(<[_; 2]>::from)
        .collect();
    assert!(paths.iter().all(|[one, other]| one == other), "{paths:?}");
    for (path, seen) in &one.2 {
        assert_eq!(seen, &other.2[path], "{name}: {path}");
    }
    assert_eq!(one.2.len(), other.2.len());
}

#[test]
fn what_differs_comes_out() {
    let scratches = [Scratch::new(SIZE), Scratch::new(SIZE)];
    let [from, to] = [open(&scratches[0]), open(&scratches[1])];
    let top = planted(&from);
    from.create_snapshot(top, b"/src", b"one").unwrap();
    let (bytes, report) = sent(&from, "one", None);
    assert!(
        report.content > 5 << 20 && report.unchanged == 0,
        "{report:?}"
    );
    received(&to, &bytes).unwrap();
    are_alike(&from, &to, "one");

    change(&from, top);
    from.create_snapshot(top, b"/src", b"two").unwrap();
    let (bytes, report) = sent(&from, "two", Some("one"));
    // A large page is split for the change, and the rest of it is the base's.
    assert!(
        report.content < 64 << 10 && bytes.len() < 96 << 10,
        "{report:?}"
    );
    assert!(report.unchanged > 95 && report.same > 4 << 20, "{report:?}");
    let done = received(&to, &bytes).unwrap();
    assert_eq!(
        (&done.name[..], done.base.as_deref()),
        (&b"two"[..], Some(&b"one"[..]))
    );
    assert_eq!(done.names, report.names);
    are_alike(&from, &to, "two");
    are_alike(&from, &to, "one");

    // Nothing differs.
    from.create_snapshot(top, b"/src", b"three").unwrap();
    let (bytes, report) = sent(&from, "three", Some("two"));
    assert_eq!(report.content, 0, "{report:?}");
    assert!(bytes.len() < 2000, "{}", bytes.len());
    received(&to, &bytes).unwrap();
    are_alike(&from, &to, "three");
    // The copies share their blocks as the originals do.
    let [used, copy] = [&from, &to].map(|fs| {
        let all = fs.statfs().unwrap();
        all.blocks - all.blocks_free
    });
    assert!(
        copy < used + 64,
        "{copy} blocks, {used} where they come from"
    );
    drop((from, to));
    assert!(scratches.iter().all(Scratch::is_sound));
}

#[test]
fn what_fits_nowhere_changes_nothing() {
    let scratches = [
        Scratch::new(SIZE),
        Scratch::new(SIZE),
        Scratch::new(4 << 20),
    ];
    let [from, to, small] = [&scratches[0], &scratches[1], &scratches[2]].map(open);
    let top = planted(&from);
    from.create_snapshot(top, b"/src", b"one").unwrap();
    change(&from, top);
    from.create_snapshot(top, b"/src", b"two").unwrap();
    let (difference, _) = sent(&from, "two", Some("one"));
    let (whole, _) = sent(&from, "one", None);
    let is_empty = |fs: &Fs| {
        let home = fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes());
        home.is_err() || names(fs, home.unwrap().ino).is_empty()
    };
    let Err(Error::NoBase(missing)) = received(&to, &difference) else {
        panic!("the base is missing");
    };
    assert_eq!(missing.name, "one");
    assert!(matches!(received(&small, &whole), Err(Error::NoSpace)));
    assert!(is_empty(&to) && is_empty(&small));

    received(&to, &whole).unwrap();
    assert!(matches!(received(&to, &whole), Err(Error::Exists)));
    let step = difference.len() * 8 / 200;
    for bit in (0..difference.len() * 8).step_by(step) {
        let mut flipped = difference.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let answer = received(&to, &flipped);
        assert!(
            matches!(answer, Err(Error::BadImage(_))),
            "{bit}: {answer:?}"
        );
    }
    for end in (0..difference.len()).step_by(step / 8 + 1) {
        let answer = received(&to, &difference[..end]);
        assert!(
            matches!(answer, Err(Error::BadImage(_))),
            "{end}: {answer:?}"
        );
    }
    let home = to.lookup(ROOT_INO, SNAPSHOTS.as_bytes()).unwrap().ino;
    assert_eq!(names(&to, home), ["one"]);
    received(&to, &difference).unwrap();
    are_alike(&from, &to, "two");
    drop((from, to, small));
    assert!(scratches.iter().all(Scratch::is_sound));
}

/// A tree that was restored and changed has another base than its copy; a base of another tree
/// only makes the stream longer.
#[test]
fn any_snapshot_can_be_the_base() {
    let scratches = [Scratch::new(SIZE), Scratch::new(SIZE)];
    let [from, to] = [open(&scratches[0]), open(&scratches[1])];
    let top = planted(&from);
    let other = dir(&from, ROOT_INO, "other", 0o700);
    file(&from, other, "large", &vec![9; 1 << 20]);
    from.create_snapshot(other, b"/other", b"other").unwrap();
    from.create_snapshot(top, b"/src", b"one").unwrap();
    received(&to, &sent(&from, "other", None).0).unwrap();
    let (bytes, report) = sent(&from, "one", Some("other"));
    assert_eq!(report.unchanged, 0);
    received(&to, &bytes).unwrap();
    are_alike(&from, &to, "one");
    // The base may be the later one.
    change(&from, top);
    from.create_snapshot(top, b"/src", b"two").unwrap();
    received(&to, &sent(&from, "two", Some("one")).0).unwrap();
    to.delete_snapshot(b"one").unwrap();
    received(&to, &sent(&from, "one", Some("two")).0).unwrap();
    are_alike(&from, &to, "one");
}
