//! Trees that are cloned, and snapshots, while another process changes something.

use super::scenes::{BOTH, scene};
use super::{Answer, Scene, Stage, Wrong, must};
use crate::files::pool::NODE;
use pmfs::{Error, Fs, Ino, ROOT_INO, XattrFlags};
use pmfs_admin::{Admin, SNAPSHOTS};

/// An attribute that says that a file is written.
const MARK: &[u8] = b"user.written";

pub(super) fn all() -> Vec<Scene> {
    vec![cloned(), made(), deleted()]
}

/// A tree of two files.
fn tree(stage: &mut Stage) -> Answer {
    stage.ino = stage.other.mkdir(ROOT_INO, b"tree", &NODE)?.ino;
    for name in [b"one", b"two"] {
        let file = stage.other.create(stage.ino, name, &NODE)?.ino;
        stage.other.write(file, 0, b"0")?;
    }
    Ok(())
}

/// Changes the file first that a clone comes to first; of a file, what the clone takes first.
fn change(stage: &Stage) -> Answer {
    for file in files(&stage.other, stage.ino)? {
        stage.other.write(file, 0, b"1")?;
        let flags = XattrFlags::empty();
        stage.other.setxattr(file, MARK, b"", flags)?;
    }
    Ok(())
}

fn cloned() -> Scene {
    scene(
        "a tree cloned while two of its files change",
        BOTH,
        tree,
        (
            |stage| {
                let cloned = stage.first().clone_tree(stage.ino, ROOT_INO, b"copy");
                Ok(cloned.map(drop)?)
            },
            change,
        ),
        |stage| {
            let fs = &stage.other;
            match fs.lookup(ROOT_INO, b"copy") {
                Ok(copy) => is_of_one_instant(fs, copy.ino)?,
                Err(Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            fs.clone_tree(stage.ino, ROOT_INO, b"later")?;
            has_no_staging(fs, ROOT_INO)
        },
    )
}

fn made() -> Scene {
    scene(
        "a snapshot made while two of its files change",
        BOTH,
        tree,
        (
            |stage| {
                let made = stage.first().create_snapshot(stage.ino, b"/tree", b"one");
                Ok(made.map(drop)?)
            },
            change,
        ),
        |stage| {
            let fs = &stage.other;
            for snapshot in fs.snapshots()? {
                is_of_one_instant(fs, snapshot.ino)?;
            }
            are_fixed(fs)?;
            fs.create_snapshot(stage.ino, b"/tree", b"later")?;
            has_no_staging(fs, fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes())?.ino)
        },
    )
}

fn deleted() -> Scene {
    scene(
        "a snapshot deleted while another is made",
        BOTH,
        |stage| {
            tree(stage)?;
            stage.other.create_snapshot(stage.ino, b"/tree", b"one")?;
            Ok(())
        },
        (
            |stage| Ok(stage.first().delete_snapshot(b"one")?),
            |stage| {
                let made = stage.other.create_snapshot(stage.ino, b"/tree", b"two");
                Ok(made.map(drop)?)
            },
        ),
        |stage| {
            let fs = &stage.other;
            are_fixed(fs)?;
            let home = fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes())?.ino;
            match fs.delete_snapshot(b"one") {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            let two = fs.snapshot(b"two")?;
            is_of_one_instant(fs, two.ino)?;
            fs.delete_snapshot(b"two")?;
            has_no_staging(fs, home)
        },
    )
}

/// All that has a name among the snapshots is whole, and can't be changed.
fn are_fixed(fs: &Fs) -> Answer {
    let home = match fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes()) {
        Err(Error::NotFound) => return Ok(()),
        home => home?.ino,
    };
    let mut names = Vec::new();
    fs.readdir(home, 0, &mut |entry| {
        if !entry.name.starts_with(b".") {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    for name in names {
        let top = fs.lookup(home, &name)?.ino;
        let inside = files(fs, top)?;
        must(inside.len() == 2, "a snapshot is whole")?;
        let made = fs.create(top, b"new", &NODE).map(drop);
        let written = inside.iter().map(|&file| fs.write(file, 0, b"2").map(drop));
        let mut all = written.chain([made]);
        must(
            all.all(|answer| matches!(answer, Err(Error::OfSnapshot))),
            "a snapshot does not change",
        )?;
    }
    Ok(())
}

/// The next call has removed what one has left that was killed.
fn has_no_staging(fs: &Fs, dir: Ino) -> Answer {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    let is_left = names.iter().any(|name| name.starts_with(b".pmfs"));
    must(!is_left, "the next one removes what one has left")
}

/// The files of a directory, in the order in which it is listed.
fn files(fs: &Fs, dir: Ino) -> Result<Vec<Ino>, Wrong> {
    let mut files = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            files.push(entry.ino);
        }
        true
    })?;
    Ok(files)
}

fn is_of_one_instant(fs: &Fs, dir: Ino) -> Answer {
    let mut steps = Vec::new();
    for file in files(fs, dir)? {
        let mut byte = [b' '];
        fs.read(file, 0, &mut byte)?;
        steps.push(byte == *b"1");
        steps.push(!fs.listxattr(file)?.is_empty());
    }
    let is_in_order = steps.is_sorted_by(|before, after| before >= after);
    must(
        is_in_order && steps.len() == 4,
        "the clone is of one instant",
    )
}
