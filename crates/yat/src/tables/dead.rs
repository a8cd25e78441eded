//! Cleaning up after the dead, itself cut short, or done by two at once.

use super::scenes::POSIX;
use super::{Answer, Scene, Stage, must};
use crate::files::pool::{NODE, POOL_BYTES, pattern};
use crate::kill::shared;
use crate::stopper::{Killed, Marked, OFF, Stop, Stopper};
use pmfs::{DataMode, Fs, LockClass, LockKind, LockRange, ROOT_INO};
use pmfs_admin::Admin;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

pub(super) fn all() -> Vec<Scene> {
    let scene = |name, prepare| Scene {
        name,
        pool_bytes: POOL_BYTES,
        stops: &[Stop::Kill, Stop::Pause],
        prepare,
        first: |stage| Ok(stage.first().recover_dead().map(drop)?),
        other: |stage| Ok(stage.other.recover_dead().map(drop)?),
        judge: nothing_is_left,
    };
    vec![
        scene(
            "cleaning up after one who had a bit of everything",
            |stage| {
                has_a_bit_of_everything(stage, None)?;
                Ok(())
            },
        ),
        scene("cleaning up after one who died early in a call", |stage| {
            has_a_bit_of_everything(stage, Some(15))
        }),
        scene("cleaning up after one who died later in a call", |stage| {
            has_a_bit_of_everything(stage, Some(40))
        }),
    ]
}

/// A process that has files open, with names and without, locks and pages, and dies, perhaps before
/// a step of an append.
fn has_a_bit_of_everything(stage: &mut Stage, step: Option<u64>) -> Answer {
    stage.file_of(&pattern(5000, 1))?;
    let (stopper, _is_stopped) = Stopper::new(Stop::Kill);
    let mut options = shared(DataMode::Atomic, 3_000_000);
    options.observer = Some(stopper.clone());
    let dead = Fs::open(&stage.path, &options)?;
    dead.tell_of_pages();
    let ino = stage.ino;
    let file = dead.open_file(ino, 0)?;
    dead.lock_file(file, LockClass::Flock, LockKind::Write, LockRange::WHOLE)?;
    dead.lock(
        ino,
        POSIX,
        LockKind::Read,
        LockRange { start: 3, end: 9 },
        1,
    )?;
    let orphan = dead.tmpfile(ROOT_INO, &NODE)?.ino;
    dead.write(orphan, 0, &pattern(9000, 4))?;
    let through_a_file = dead.create(ROOT_INO, b"gone", &NODE)?.ino;
    dead.open_file(through_a_file, 0)?;
    dead.unlink(ROOT_INO, b"gone")?;
    dead.note_kernel_read(ino, &|| true)?;
    if let Some(step) = step {
        let marked = Marked::new();
        stopper.left.store(step, Ordering::SeqCst);
        let call = catch_unwind(AssertUnwindSafe(|| dead.append(ino, &pattern(9000, 2))));
        drop(marked);
        match call {
            Err(payload) if payload.is::<Killed>() => {}
            Err(payload) => resume_unwind(payload),
            Ok(_) => return Err("the call was over before".into()),
        }
    }
    // The process drops it in this way. Its stopper stays dead, or nothing was stopped.
    drop(dead);
    stopper.left.store(OFF, Ordering::SeqCst);
    Ok(())
}

fn nothing_is_left(stage: &Stage) -> Answer {
    let fs = &stage.other;
    let living = 1 + usize::from(stage.first.is_some());
    must(fs.processes().len() == living, "the dead have no slot")?;
    must(fs.holdings().is_empty(), "the dead have nothing open")?;
    must(fs.locked().is_empty(), "the dead have no locks")?;
    must(fs.kernel_copies().is_empty(), "the dead have no pages")?;
    let size = fs.getattr(stage.ino)?.size;
    must(size == 5000 || size == 14_000, "a call is whole or was not")?;
    fs.append(stage.ino, b"more")?;
    Ok(())
}
