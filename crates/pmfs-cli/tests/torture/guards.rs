//! File locks. A counter that one guards must not lose a count, and what stands in a
//! range stays while somebody has a lock of it; and an offset that a process shares with
//! its child. Locks of the dead are gone; nobody waits for one lock while he has another.

use std::time::{Duration, Instant};

use pmfs::{LockClass, LockKind};
use rustix::io::Errno;

use crate::face::{Done, Face, Handle, Range};
use crate::model::content;
use crate::op::{GUARDS, LOCKS, Op, RANGES, WORKERS};
use crate::shared::increment;
use crate::worker::Worker;

/// A lock that one waits for longer than this is lost: who has it counts up once.
const WAIT_MAX: Duration = Duration::from_secs(20);

const RANGED: &str = "guards/ranges";

/// Makes what is locked.
pub fn lay_out(face: &dyn Face) -> Done<()> {
    face.mkdir("guards", 0o755)?;
    for path in ["guards/flock", "guards/whole", "guards/parts", RANGED] {
        face.create(path, 0o644)?;
    }
    for worker in 0..WORKERS {
        face.create(&forked_path(worker), 0o644)?;
    }
    for range in 0..RANGES {
        face.write(RANGED, range_of(range).0, &1u64.to_le_bytes())?;
    }
    Ok(())
}

fn forked_path(worker: usize) -> String {
    format!("guards/forked-{worker}")
}

pub fn call(worker: &Worker<'_>, op: &Op) -> Done<u64> {
    match *op {
        Op::Guarded {
            guard,
            waits,
            closes,
        } => count_up(worker, guard, waits, closes),
        Op::TakeRange { range, alone } => take(worker, range, alone),
        Op::CheckRange => check(worker).map(|()| 0),
        Op::GiveRange => give(worker).map(|()| 0),
        Op::Forked { records } => {
            let path = forked_path(worker.orders.worker);
            let bytes = content(worker.state.number, 72);
            let face = worker.face.as_ref();
            face.write_with_child(&path, &bytes, records as u64)
                .map(|()| 0)
        }
        _ => unreachable!("{op:?} is on own files"),
    }
}

/// 1 if the lock could be had.
fn count_up(worker: &Worker<'_>, guard: usize, waits: bool, closes: bool) -> Done<u64> {
    let face = worker.face.as_ref();
    let (path, lock, start, len) = GUARDS[guard];
    let handle = face.open(path)?;
    let since = Instant::now();
    match face.lock(handle, lock, LockKind::Write, (start, len), waits) {
        Err(Errno::AGAIN) if !waits => return face.close(handle).map(|()| 0),
        locked => locked?,
    }
    let waited = since.elapsed();
    let name = worker.name();
    assert!(waited < WAIT_MAX, "{name}: {path}: waited for {waited:?}");
    increment(worker, LOCKS + guard)?;
    if !closes {
        face.unlock(handle, lock, (start, len))?;
    }
    face.close(handle)?;
    Ok(1)
}

/// Some in one block, one across two.
fn range_of(range: usize) -> Range {
    (4096 - 8 * 3 - 4 + 8 * range as u64, 8)
}

fn lock_of(range: usize) -> LockClass {
    match range % 2 {
        0 => LockClass::Posix,
        _ => LockClass::File,
    }
}

fn word(worker: &Worker<'_>, handle: Handle, range: usize) -> Done<u64> {
    let (start, len) = range_of(range);
    let bytes = worker.face.read_open(handle, start, len as usize)?;
    let bytes = bytes.try_into().expect("eight bytes stand there");
    Ok(u64::from_le_bytes(bytes))
}

/// Returns what stands there then; 0 if others have it. A worker that has it alone writes what
/// nobody else does.
fn take(worker: &Worker<'_>, range: usize, alone: bool) -> Done<u64> {
    let face = worker.face.as_ref();
    let handle = face.open(RANGED)?;
    let kind = if alone {
        LockKind::Write
    } else {
        LockKind::Read
    };
    match face.lock(handle, lock_of(range), kind, range_of(range), false) {
        Err(Errno::AGAIN) => return face.close(handle).map(|()| 0),
        locked => locked?,
    }
    worker.ranges.set(Some(handle));
    if alone {
        let mine = (worker.orders.worker as u64 + 1) << 48 | worker.state.number;
        face.write_open(handle, range_of(range).0, &mine.to_le_bytes())?;
    }
    word(worker, handle, range)
}

fn check(worker: &Worker<'_>) -> Done<()> {
    let handle = worker.ranges.get().expect("it has a range");
    let (range, should) = worker.state.range.expect("it has a range");
    let is = word(worker, handle, range)?;
    let name = worker.name();
    assert_eq!(
        is, should,
        "{name}: range {range} is another's too: {is:#x}"
    );
    Ok(())
}

fn give(worker: &Worker<'_>) -> Done<()> {
    check(worker)?;
    let handle = worker.ranges.take().expect("it has a range");
    let (range, should) = worker.state.range.expect("it has a range");
    // Half of the time by closing the file.
    if should % 2 == 0 {
        worker
            .face
            .unlock(handle, lock_of(range), range_of(range))?;
    }
    worker.face.close(handle)
}
