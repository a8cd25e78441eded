//! Open files, open counts, file locks, and slots for children.

use super::{Answer, Scene, Stage, Wrong, must, nothing};
use crate::files::pool::{LARGE_POOL_BYTES, NODE, POOL_BYTES, pattern};
use crate::kill::shared;
use crate::stopper::Stop;
use pmem::record::bad_buffer;
use pmfs::{
    DataMode, Error, FallocateMode, Fs, LockClass, LockKind, LockOwner, LockRange, ROOT_INO,
};
use pmfs_admin::Admin;
use std::cell::Cell;
use std::sync::LazyLock;

pub(super) const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

pub(super) const BOTH: &[Stop] = &[Stop::Kill, Stop::Pause];
pub(super) const KILL: &[Stop] = &[Stop::Kill];
const PAUSE: &[Stop] = &[Stop::Pause];

pub(super) fn all() -> Vec<Scene> {
    let mut all = open_files();
    all.extend(file_locks());
    all.extend(programs());
    all.extend(programs_of_guests());
    all
}

pub(super) type Call = fn(&Stage) -> Answer;

pub(super) fn scene(
    name: &'static str,
    stops: &'static [Stop],
    prepare: fn(&mut Stage) -> Answer,
    (first, other): (Call, Call),
    judge: Call,
) -> Scene {
    Scene {
        name,
        pool_bytes: POOL_BYTES,
        stops,
        prepare,
        first,
        other,
        judge,
    }
}

fn open_files() -> Vec<Scene> {
    vec![
        scene(
            "two reads at the offset of one open file",
            PAUSE,
            |stage| {
                stage.file_of(b"0123456789abcdef")?;
                stage.file = Some(stage.first().open_file(stage.ino, 0)?);
                Ok(())
            },
            (read_four, read_four),
            |stage| {
                let mut notes = stage.notes();
                notes.sort();
                must(notes == [b"0123", b"4567"], "each reads what follows")
            },
        ),
        scene(
            "a nameless file that two have open, let go by one",
            BOTH,
            |stage| {
                stage.file_of(&pattern(9000, 1))?;
                stage.first().hold(stage.ino)?;
                stage.other.hold(stage.ino)?;
                Ok(stage.other.unlink(ROOT_INO, b"file")?)
            },
            (
                |stage| Ok(stage.first().release(stage.ino)?),
                |stage| fill(&stage.other, 20, &pattern(9000, 2)),
            ),
            |stage| {
                has(&stage.other, stage.ino, &pattern(9000, 1))?;
                Ok(stage.other.release(stage.ino)?)
            },
        ),
        scene(
            "a file opened while its last name goes",
            BOTH,
            |stage| {
                stage.file_of(&pattern(300, 1))?;
                stage.found = Some(stage.other.getattr(stage.ino)?);
                Ok(())
            },
            (opened, |stage| {
                stage.other.unlink(ROOT_INO, b"file")?;
                // A process that begins to look for a free number at the first gets that one.
                pmfs::prefer_lane(0);
                fill(&stage.other, 20, b"another")
            }),
            |stage| match &stage.first {
                Some(first) if !stage.notes().is_empty() => has(first, stage.ino, &pattern(300, 1)),
                _ => Ok(()),
            },
        ),
        scene(
            "more nameless files open than a line of the table has room for",
            PAUSE,
            |stage| many(stage),
            (nothing, nothing),
            |stage| {
                fill(&stage.other, 20, b"others'")?;
                each_is_its_own(stage)
            },
        ),
    ]
}

fn file_locks() -> Vec<Scene> {
    vec![
        scene(
            "file locks beside another's",
            BOTH,
            |stage| {
                stage.file_of(b"locked")?;
                Ok(lock(&stage.other, stage.ino, LockKind::Read, (0, 9))?)
            },
            (locks, |stage| {
                lock(&stage.other, stage.ino, LockKind::Read, (100, 110))?;
                let range = LockRange {
                    start: 100,
                    end: 110,
                };
                Ok(stage.other.unlock(stage.ino, POSIX, range)?)
            }),
            |stage| {
                let own = stage.other.locked();
                let there = own.iter().map(|lock| (lock.range.start, lock.range.end));
                must(there.eq([(0, 9)]), "the other's lock is there, and no more")?;
                lock(&stage.other, stage.ino, LockKind::Write, (0, u64::MAX))?;
                stage.other.unlock_all(stage.ino, POSIX)?;
                must(stage.other.locked().is_empty(), "all locks are given up")
            },
        ),
        scene(
            "a wait for a file lock",
            KILL,
            |stage| {
                stage.file_of(b"locked")?;
                Ok(lock(&stage.other, stage.ino, LockKind::Write, (0, 9))?)
            },
            (wait, nothing),
            |stage| {
                must(stage.other.locked().len() == 1, "nobody waits any more")?;
                Ok(stage.other.unlock_all(stage.ino, POSIX)?)
            },
        ),
    ]
}

fn programs() -> Vec<Scene> {
    vec![
        scene(
            "a program made ready that is not to be",
            KILL,
            has_all,
            (
                |stage| {
                    let ready = stage.first().before_exec()?;
                    stage.first().cancel_exec(ready);
                    must(stage.first().processes().len() == 2, "its slot is free")?;
                    crate::files::usage::sound(stage.first())?;
                    Ok(())
                },
                nothing,
            ),
            nothing_of_others,
        ),
        scene(
            "a program made ready, and become",
            KILL,
            has_all,
            (
                |stage| {
                    let ready = stage.first().before_exec()?;
                    stage.note(ready.to_string().as_bytes());
                    // Its descriptors are the next program's.
                    std::mem::forget(ready);
                    Ok(())
                },
                become_it,
            ),
            the_next_program_has_all,
        ),
        Scene {
            pool_bytes: LARGE_POOL_BYTES,
            ..scene(
                "a write into a large leaf from memory that ends, and others' writes",
                KILL,
                |stage| {
                    stage.file_of(b"")?;
                    let keep = FallocateMode::KEEP_SIZE;
                    stage.other.fallocate(stage.ino, keep, 0, 2 << 20)?;
                    stage.other.write(stage.ino, 0, &pattern(100_000, 5))?;
                    Ok(())
                },
                (write_from_nowhere, |stage| {
                    fill(&stage.other, 300, &[0xee; 16384])
                }),
                |stage| has(&stage.other, stage.ino, &pattern(100_000, 5)),
            )
        },
    ]
}

/// Returns scenes like [`programs`], of a child that shares its parent's memory until then (vfork).
fn programs_of_guests() -> Vec<Scene> {
    vec![
        scene(
            "a program of a child that shares memory, that is not to be",
            KILL,
            guest_has_locks,
            (
                |stage| {
                    let ready = stage.first().before_exec_of_guest(&[], GUEST)?;
                    stage.first().cancel_exec(ready);
                    stage.first().end_lock_owner(GUEST)?;
                    let left = stage.first().locked();
                    must(left.len() == 1, "its parent's lock is left, alone")
                },
                nothing,
            ),
            nothing_of_others,
        ),
        scene(
            "a program of a child that shares memory, and become",
            KILL,
            guest_has_locks,
            (
                |stage| {
                    let ready = stage.first().before_exec_of_guest(&[], GUEST)?;
                    stage.note(ready.to_string().as_bytes());
                    std::mem::forget(ready);
                    Ok(())
                },
                become_it,
            ),
            the_next_program_has_the_guests,
        ),
    ]
}

fn read_four(stage: &Stage) -> Answer {
    let mut four = [0; 4];
    let file = stage.file.ok_or("an open file")?;
    stage.first().read_file(file, &mut four)?;
    stage.note(&four);
    Ok(())
}

fn opened(stage: &Stage) -> Answer {
    let found = stage.found.as_ref().ok_or("looked up")?;
    match stage.first().open_found(found, 0) {
        Ok(_) => stage.note(b"open"),
        Err(Error::Stale | Error::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Makes so many files, or as many as there is room for, who would get what is free by mistake.
fn fill(fs: &Fs, files: usize, content: &[u8]) -> Answer {
    let dir = fs.mkdir(ROOT_INO, b"others", &NODE)?.ino;
    for name in 0..files {
        let made = fs
            .create(dir, format!("{name}").as_bytes(), &NODE)
            .and_then(|made| fs.write(made.ino, 0, content));
        match made {
            Ok(_) => {}
            Err(Error::NoSpace | Error::NoInodes) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn has(fs: &Fs, ino: u64, content: &[u8]) -> Answer {
    let mut found = vec![0; content.len() + 1];
    let read = fs.read(ino, 0, &mut found)?;
    must(
        &found[..read] == content,
        "a file has what was written to it",
    )
}

/// Files for [`many`]: some lines of the open table get more than they have room for.
const MANY: u8 = 90;

fn many(stage: &Stage) -> Answer {
    let fs = stage.first();
    for number in 0..MANY {
        let name = format!("{number}");
        let ino = fs.create(ROOT_INO, name.as_bytes(), &NODE)?.ino;
        fs.write(ino, 0, &[number])?;
        fs.hold(ino)?;
        stage.note(&ino.to_le_bytes());
    }
    for number in 0..MANY {
        let name = format!("{number}");
        stage.other.unlink(ROOT_INO, name.as_bytes())?;
    }
    Ok(())
}

fn each_is_its_own(stage: &Stage) -> Answer {
    for (number, ino) in stage.notes().iter().enumerate() {
        let ino = u64::from_le_bytes(ino.as_slice().try_into().expect("eight bytes"));
        has(stage.first(), ino, &[number as u8])?;
    }
    Ok(())
}

pub(super) fn lock(
    fs: &Fs,
    ino: u64,
    kind: LockKind,
    (start, end): (u64, u64),
) -> pmfs::Result<()> {
    fs.lock(ino, POSIX, kind, LockRange { start, end }, 1)
}

/// Every way in which a record changes.
fn locks(stage: &Stage) -> Answer {
    let (fs, ino) = (stage.first(), stage.ino);
    for range in [(20, 30), (40, 50), (25, 45)] {
        lock(fs, ino, LockKind::Read, range)?;
    }
    lock(fs, ino, LockKind::Write, (28, 32))?;
    fs.unlock(ino, POSIX, LockRange { start: 35, end: 40 })?;
    Ok(fs.unlock_all(ino, POSIX)?)
}

fn wait(stage: &Stage) -> Answer {
    let asked = Cell::new(0);
    let interrupted = || asked.replace(asked.get() + 1) > 0;
    let range = LockRange { start: 5, end: 6 };
    let first = stage.first();
    match first.lock_wait(stage.ino, POSIX, LockKind::Write, range, 1, &interrupted) {
        Err(Error::Interrupted) => Ok(()),
        other => Err(format!("a wait that was interrupted: {other:?}").into()),
    }
}

/// The first one has an open file without a name, twice, with a lock, and a lock of its own on it.
fn has_all(stage: &mut Stage) -> Answer {
    stage.file_of(b"0123456789")?;
    let first = stage.first();
    let file = first.open_file(stage.ino, 0)?;
    first.dup_file(file)?;
    first.lock_file(file, LockClass::Flock, LockKind::Write, LockRange::WHOLE)?;
    lock(first, stage.ino, LockKind::Write, (0, 3))?;
    first.unlink(ROOT_INO, b"file")?;
    stage.file = Some(file);
    Ok(())
}

/// A child that shares the first one's memory, as an owner of locks.
const GUEST: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 7,
};

/// Two files: of one the first has locked a part, and such a child another, of the other the child
/// alone.
fn guest_has_locks(stage: &mut Stage) -> Answer {
    stage.file_of(b"0123456789")?;
    let first = stage.first();
    lock(first, stage.ino, LockKind::Write, (0, 3))?;
    let range = LockRange { start: 5, end: 8 };
    first.lock(stage.ino, GUEST, LockKind::Write, range, 2)?;
    let another = first.create(ROOT_INO, b"another", &NODE)?.ino;
    Ok(first.lock(another, GUEST, LockKind::Read, range, 2)?)
}

/// The locks of the child went over exec, and its parent's did not. A parent that was killed
/// meanwhile has nothing.
fn the_next_program_has_the_guests(stage: &Stage) -> Answer {
    let next = stage
        .third
        .lock()
        .expect("no panic while it is held")
        .take();
    let Some(next) = next else {
        return nothing_of_others(stage);
    };
    let barred = |locked| matches!(locked, Err(Error::WouldBlock));
    must(
        barred(lock(&stage.other, stage.ino, LockKind::Read, (5, 5))),
        "the child's lock went over exec",
    )?;
    let parents = lock(&next, stage.ino, LockKind::Write, (0, 3));
    must(
        barred(parents) == (stage.first.is_some()),
        "its parent's lock is its parent's",
    )?;
    let another = next.lookup(ROOT_INO, b"another")?.ino;
    must(
        barred(lock(&stage.other, another, LockKind::Write, (5, 8))),
        "so is that on the other file",
    )?;
    next.unlock_all(stage.ino, POSIX)?;
    next.unlock_all(another, POSIX)?;
    if let Some(first) = &stage.first {
        must(first.locked().len() == 1, "its parent's lock is left")?;
        first.unlock_all(stage.ino, POSIX)?;
    }
    nothing_of(&next, stage)
}

fn nothing_of_others(stage: &Stage) -> Answer {
    let fs = &stage.other;
    must(fs.processes().len() == 1, "one process is there")?;
    must(fs.holdings().is_empty(), "nobody has anything open")?;
    must(fs.locked().is_empty(), "nobody has a lock")
}

fn become_it(stage: &Stage) -> Answer {
    let Some(handed) = stage.notes().pop() else {
        return Ok(());
    };
    let handed = String::from_utf8_lossy(&handed).into_owned();
    let next = Fs::open_after_exec(&stage.path, &shared(DataMode::Atomic, 8_000_000), &handed)?;
    let mut third = stage.third.lock().expect("no panic while it is held");
    *third = Some(next);
    Ok(())
}

fn the_next_program_has_all(stage: &Stage) -> Answer {
    let next = stage
        .third
        .lock()
        .expect("no panic while it is held")
        .take();
    let Some(next) = next else {
        return nothing_of_others(stage);
    };
    let file = stage.file.ok_or("an open file")?;
    let mut four = [0; 4];
    next.read_file(file, &mut four)?;
    must(&four == b"0123", "its file is open")?;
    let barred = |locked| matches!(locked, Err(Error::WouldBlock));
    must(
        barred(lock(&stage.other, stage.ino, LockKind::Read, (2, 2))),
        "its lock went over exec",
    )?;
    next.unlock_all(stage.ino, POSIX)?;
    next.close_file(file)?;
    next.close_file(file)?;
    nothing_of(&next, stage)
}

fn nothing_of(next: &Fs, stage: &Stage) -> Answer {
    next.detach()?;
    nothing_of_others(stage)
}

/// Writes as a program does that tells the wrong length.
fn write_from_nowhere(stage: &Stage) -> Answer {
    static BUFFER: LazyLock<&[u8]> =
        LazyLock::new(|| bad_buffer(&pattern(5000, 3), 9000).expect("memory"));
    match stage.first().write(stage.ino, 70_001, &BUFFER) {
        Err(Error::BadAddress) => Ok(()),
        other => Err(Wrong::from(format!("a write from nowhere: {other:?}"))),
    }
}
