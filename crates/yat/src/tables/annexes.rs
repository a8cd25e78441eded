//! Open files and file locks for which tables get more room.

use super::scenes::{BOTH, KILL, POSIX, lock, scene};
use super::{Answer, Scene, Stage, must};
use pmfs::{Error, Fs, LockKind, LockRange};
use pmfs_admin::Admin;
use std::io::SeekFrom;

/// More open files than the smallest tables have room for: these go into the first annex.
const FILES: u64 = 34;
/// More locks than the smallest tables have room for.
const LOCKS: u64 = 17;

pub(super) fn all() -> Vec<Scene> {
    vec![
        scene(
            "the first open file that a table has no room for",
            BOTH,
            |stage| fill(stage, 32),
            (opens, opens_as_other),
            others_are_there,
        ),
        scene(
            "one more open file in an annex, and its end",
            BOTH,
            |stage| fill(stage, FILES),
            (opens, opens_as_other),
            others_are_there,
        ),
        scene(
            "the first file lock that a table has no room for",
            KILL,
            |stage| lock_all(stage, 14),
            (splits, |stage| locked_as_other(stage, 300)),
            |stage| locks_are_there(stage, 15),
        ),
        scene(
            "one more file lock in an annex, and its end",
            KILL,
            |stage| lock_all(stage, LOCKS),
            (splits, |stage| locked_as_other(stage, 300)),
            |stage| locks_are_there(stage, LOCKS + 1),
        ),
    ]
}

/// The other one has so many open files.
fn fill(stage: &mut Stage, count: u64) -> Answer {
    stage.file_of(b"content")?;
    for at in 0..count {
        let file = stage.other.open_file(stage.ino, 0)?;
        stage.other.seek_file(file, SeekFrom::Start(at))?;
        stage.note(&file.number().to_le_bytes());
    }
    Ok(())
}

fn opens(stage: &Stage) -> Answer {
    open_two(stage.first(), stage.ino)
}

fn opens_as_other(stage: &Stage) -> Answer {
    open_two(&stage.other, stage.ino)
}

fn open_two(fs: &Fs, ino: u64) -> Answer {
    let files = [fs.open_file(ino, 0)?, fs.open_file(ino, 0)?];
    for (at, file) in (77..).zip(files) {
        fs.seek_file(file, SeekFrom::Start(at))?;
        must(fs.file(file)?.offset == at, "an offset is a file's own")?;
        fs.close_file(file)?;
    }
    Ok(())
}

/// Checks that all that the other one has is there, and no more.
fn others_are_there(stage: &Stage) -> Answer {
    let notes = stage.notes();
    for (at, number) in notes.iter().enumerate() {
        let number = u64::from_le_bytes(number.as_slice().try_into().expect("eight bytes"));
        let file = pmfs::FileId::from_number(number);
        must(
            stage.other.file(file)?.offset == at as u64,
            "each has its offset",
        )?;
    }
    let open = stage.other.details().open_files;
    must(open == notes.len() as u64, "no more files are open")
}

fn lock_all(stage: &mut Stage, count: u64) -> Answer {
    stage.file_of(b"content")?;
    for at in 0..count {
        locked_as_other(stage, at * 4)?;
    }
    Ok(())
}

fn locked_as_other(stage: &Stage, start: u64) -> Answer {
    Ok(lock(
        &stage.other,
        stage.ino,
        LockKind::Write,
        (start, start + 2),
    )?)
}

/// Takes a lock, gives up its middle, and then the rest.
fn splits(stage: &Stage) -> Answer {
    let (fs, ino) = (stage.first(), stage.ino);
    lock(fs, ino, LockKind::Write, (1000, 1010))?;
    let range = |start, end| LockRange { start, end };
    fs.unlock(ino, POSIX, range(1004, 1005))?;
    must(
        fs.locked()
            .iter()
            .filter(|lock| lock.range.start >= 1000)
            .count()
            == 2,
        "both rests",
    )?;
    Ok(fs.unlock(ino, POSIX, range(1000, 1010))?)
}

fn locks_are_there(stage: &Stage, count: u64) -> Answer {
    must(
        stage.other.locked().len() as u64 == count,
        "the other's locks, and no more",
    )?;
    let again = lock(&stage.other, stage.ino, LockKind::Write, (1000, 1010));
    must(!matches!(again, Err(Error::WouldBlock)), "nobody has it")?;
    Ok(stage.other.unlock_all(stage.ino, POSIX)?)
}
