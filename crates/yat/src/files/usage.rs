//! A recovered pool must be fit for use: names are made and removed, files extended, everything
//! deleted, and then the allocator has to balance with the trees.

use super::pool::NODE;
use pmfs::{Error, Fs, Ino, ROOT_INO, SetAttr};
use pmfs_admin::{Admin, SNAPSHOTS};

/// Free blocks below which a call may be refused for lack of space: what a name in a directory that
/// splits, an inode and 9,000 bytes need.
const SHORT_BLOCKS: u64 = 16;

/// Checks the pool.
///
/// # Errors
/// The findings, in words.
pub(crate) fn sound(fs: &Fs) -> Result<u64, String> {
    let report = fs.check().map_err(|error| format!("check: {error}"))?;
    if report.is_clean() {
        Ok(report.inodes)
    } else {
        Err(format!("check: {:#?}", report.findings))
    }
}

/// Uses the pool, until nothing is left in it.
///
/// # Errors
/// The failure, in words.
pub(crate) fn use_up(fs: &Fs) -> Result<(), String> {
    delete_snapshots(fs).map_err(|error| format!("deleting snapshots: {error}"))?;
    let mut names = Vec::new();
    let mut full = false;
    use_directory(fs, ROOT_INO, &mut names, &mut full).map_err(|error| error.to_string())?;
    for (dir, name, is_dir) in names.into_iter().rev() {
        let removed = if is_dir {
            fs.rmdir(dir, &name)
        } else {
            fs.unlink(dir, &name)
        };
        let name = String::from_utf8_lossy(&name);
        removed.map_err(|error| format!("deleting {name}: {error}"))?;
    }
    if full {
        write_a_name(fs, ROOT_INO).map_err(|error| format!("all deleted: {error}"))?;
    }
    let left = sound(fs).map_err(|text| format!("all deleted, {text}"))?;
    if left == 1 {
        Ok(())
    } else {
        Err(format!("all deleted, and {left} inodes are live"))
    }
}

/// Deletes all snapshots, and has the last one clean up what a crash has left beside them.
fn delete_snapshots(fs: &Fs) -> pmfs::Result<()> {
    let Ok(home) = fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes()) else {
        return Ok(());
    };
    for snapshot in fs.snapshots()? {
        fs.delete_snapshot(&snapshot.name)?;
    }
    let dir = fs.mkdir(ROOT_INO, b"for the last", &NODE)?.ino;
    fs.create_snapshot(dir, b"", b"last")?;
    fs.delete_snapshot(b"last")?;
    fs.rmdir(ROOT_INO, b"for the last")?;
    let mut left = Vec::new();
    fs.readdir(home.ino, 0, &mut |entry| {
        left.push(entry.name.to_vec());
        true
    })?;
    left.retain(|name| name != b"." && name != b"..");
    assert!(left.is_empty(), "beside the snapshots are left: {left:?}");
    fs.rmdir(ROOT_INO, SNAPSHOTS.as_bytes())
}

/// Returns the answer of a call; `None` if it was refused because the pool is full.
fn unless_full<T>(fs: &Fs, done: pmfs::Result<T>) -> pmfs::Result<Option<T>> {
    match done {
        Err(Error::NoSpace) if fs.statfs()?.blocks_free < SHORT_BLOCKS => Ok(None),
        done => done.map(Some),
    }
}

/// A name made, written and removed.
fn write_a_name(fs: &Fs, dir: Ino) -> pmfs::Result<()> {
    let name = b"used after the crash";
    let made = fs.create(dir, name, &NODE)?.ino;
    let written = fs.write(made, 0, &[1; 5000]);
    fs.unlink(dir, name)?;
    written.map(drop)
}

/// A name in a directory, and its files extended; then the same below it. Collects the names, those
/// of a directory after its own.
fn use_directory(
    fs: &Fs,
    dir: Ino,
    names: &mut Vec<(Ino, Vec<u8>, bool)>,
    full: &mut bool,
) -> pmfs::Result<()> {
    *full |= unless_full(fs, write_a_name(fs, dir))?.is_none();
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            entries.push((entry.ino, entry.kind, entry.name.to_vec()));
        }
        true
    })?;
    for (ino, kind, name) in entries {
        names.push((dir, name, kind == 0o040_000));
        match kind {
            0o040_000 => use_directory(fs, ino, names, full)?,
            0o100_000 => *full |= !extend(fs, ino)?,
            _ => {}
        }
    }
    Ok(())
}

/// Bytes past the end are undefined until exposed: extended, they must read as zeros. Answers
/// whether there was room.
fn extend(fs: &Fs, file: Ino) -> pmfs::Result<bool> {
    let old = fs.getattr(file)?.size;
    let set = SetAttr {
        size: Some(old + 9000),
        ..SetAttr::default()
    };
    if unless_full(fs, fs.setattr(file, &set))?.is_none() {
        return Ok(false);
    }
    let mut tail = vec![1; 9000];
    fs.read(file, old, &mut tail)?;
    assert!(
        tail.iter().all(|&byte| byte == 0),
        "what an extended file exposes is zero"
    );
    Ok(true)
}
