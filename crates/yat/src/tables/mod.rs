//! The tables that processes share in the runtime area: open files, open counts, file locks, pages
//! of mounts, slots for children. The tree says nothing of them, so each scene says itself what has
//! to come out.
//!
//! In a scene two processes do a call each. The first one's is stopped before each of its stores,
//! flushes and fences: killed, and the other one comes before anybody has cleaned up; or paused
//! until the other one is done or sleeps. It is also done whole, after which its process dies. In
//! the end the tables have to be at rest, and what is seen of the pool must be there after a
//! reboot.

mod annexes;
mod dead;
mod pages;
mod scenes;
mod trees;

use crate::files::{pool, tree, usage};
use crate::kill::shared;
use crate::quiet::quietly;
use crate::stopper::{DEAD, Killed, Marked, OFF, Stop, Stopper};
use pmem::Pmem;
use pmfs::{Attr, DataMode, FileId, Fs, Ino, ROOT_INO};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The fault, in words.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl From<pmfs::Error> for Wrong {
    fn from(error: pmfs::Error) -> Wrong {
        Wrong(error.to_string())
    }
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong(text)
    }
}

impl From<&str> for Wrong {
    fn from(text: &str) -> Wrong {
        Wrong(text.to_owned())
    }
}

type Answer = Result<(), Wrong>;

/// An error with this text, unless it holds.
fn must(holds: bool, text: &str) -> Answer {
    if holds { Ok(()) } else { Err(text.into()) }
}

/// The two processes and what they speak of.
pub(crate) struct Stage {
    /// The pool's file.
    path: PathBuf,
    /// `None` once it is dead.
    first: Option<Fs>,
    other: Fs,
    /// The instance that came later.
    third: Mutex<Option<Fs>>,
    ino: Ino,
    found: Option<Attr>,
    file: Option<FileId>,
    /// The notes of what calls found.
    notes: Mutex<Vec<Vec<u8>>>,
}

impl Stage {
    fn first(&self) -> &Fs {
        self.first.as_ref().expect("it lives")
    }

    fn note(&self, found: &[u8]) {
        let mut notes = self.notes.lock().expect("no panic while it is held");
        notes.push(found.to_vec());
    }

    fn notes(&self) -> Vec<Vec<u8>> {
        let notes = self.notes.lock().expect("no panic while it is held");
        notes.clone()
    }

    /// A file with this content.
    fn file_of(&mut self, content: &[u8]) -> Answer {
        self.ino = self.other.create(ROOT_INO, b"file", &pool::NODE)?.ino;
        self.other.write(self.ino, 0, content)?;
        Ok(())
    }

    /// One more process.
    fn come(&self) -> Result<Fs, Wrong> {
        Ok(Fs::open(&self.path, &shared(DataMode::Atomic, 7_000_000))?)
    }
}

/// A scene of what two processes do.
#[derive(Clone, Copy)]
pub struct Scene {
    /// The scene in words.
    pub name: &'static str,
    pool_bytes: u64,
    /// Ways in which the first one's call is stopped.
    stops: &'static [Stop],
    prepare: fn(&mut Stage) -> Answer,
    first: fn(&Stage) -> Answer,
    other: fn(&Stage) -> Answer,
    judge: fn(&Stage) -> Answer,
}

/// All scenes.
#[must_use]
pub fn scenes() -> Vec<Scene> {
    let mut all = scenes::all();
    all.extend(pages::all());
    all.extend(annexes::all());
    all.extend(dead::all());
    all.extend(trees::all());
    all
}

fn nothing(_: &Stage) -> Answer {
    Ok(())
}

impl Scene {
    fn stage(&self, dir: &Path, stopper: &Arc<Stopper>) -> Result<Stage, Wrong> {
        let path = dir.join("scene");
        let mut mkfs = pool::mkfs_options(self.pool_bytes);
        mkfs.force = true;
        pmfs_admin::mkfs(&path, &mkfs)?;
        let open = |start| {
            let mut options = shared(DataMode::Atomic, start);
            options.observer = Some(stopper.clone());
            Fs::open(&path, &options)
        };
        let mut stage = Stage {
            other: open(5_000_000)?,
            first: Some(open(1_000_000)?),
            third: Mutex::new(None),
            path,
            ino: 0,
            found: None,
            file: None,
            notes: Mutex::default(),
        };
        pmfs::prefer_lane(1);
        (self.prepare)(&mut stage)?;
        Ok(stage)
    }

    /// Kills the first one before a step, or after its call. False: there is no such step.
    fn killed(&self, step: u64, dir: &Path) -> Result<bool, Wrong> {
        let (stopper, _is_stopped) = Stopper::new(Stop::Kill);
        let mut stage = self.stage(dir, &stopper)?;
        pmfs::prefer_lane(0);
        let marked = Marked::new();
        stopper.left.store(step, Ordering::SeqCst);
        let call = catch_unwind(AssertUnwindSafe(|| (self.first)(&stage)));
        let reached = match call {
            Err(payload) if payload.is::<Killed>() => true,
            Err(payload) => resume_unwind(payload),
            Ok(answer) => {
                answer?;
                false
            }
        };
        // Dropped as a process drops it: its locks go, nothing is stored.
        stage.first = None;
        drop(marked);
        stopper.left.store(OFF, Ordering::SeqCst);
        pmfs::prefer_lane(1);
        (self.other)(&stage)?;
        stage.other.recover_dead()?;
        (self.judge)(&stage)?;
        is_at_rest(&stage)?;
        Ok(reached)
    }

    /// Pauses the first one before a step, and lets the other one run until it is done or sleeps.
    /// False: there is no such step.
    fn paused(&self, step: u64, dir: &Path) -> Result<bool, Wrong> {
        let (stopper, is_stopped) = Stopper::new(Stop::Pause);
        let stage = self.stage(dir, &stopper)?;
        let (reached, done) = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                pmfs::prefer_lane(0);
                let marked = Marked::new();
                stopper.left.store(step, Ordering::SeqCst);
                let done = quietly(|| (self.first)(&stage));
                drop(marked);
                let reached = stopper.left.swap(OFF, Ordering::SeqCst) == DEAD;
                let _ = stopper.stopped.try_send(());
                (reached, done)
            });
            let _ = is_stopped.recv();
            pmfs::prefer_lane(1);
            let other = quietly(|| (self.other)(&stage));
            let _ = stopper.may_go.try_send(());
            let (reached, first) = first.join().expect("its panics are caught");
            (reached, [first, other])
        });
        for done in done {
            done??;
        }
        (self.judge)(&stage)?;
        is_at_rest(&stage)?;
        Ok(reached)
    }
}

/// Nothing is left of the dead, and a reboot with everything written back changes nothing that can
/// be seen.
fn is_at_rest(stage: &Stage) -> Answer {
    let fs = &stage.other;
    fs.recover_dead()?;
    usage::sound(fs)?;
    let live = tree::read(fs)?;
    let image = fs.mapping().snapshot_image();
    let mem = Pmem::private(image.len() as u64);
    mem.poke(0, &image);
    let options = pool::open_options(DataMode::Atomic, 9_000_000);
    let rebooted = Fs::open_private(mem, &options)?;
    usage::sound(&rebooted).map_err(|text| format!("after a reboot: {text}"))?;
    let seen = tree::read(&rebooted)?;
    match tree::difference(&seen, &live, &tree::Exceptions::default()) {
        None => Ok(()),
        Some(text) => Err(format!("after a reboot: {text}").into()),
    }
}

/// Plays a scene with the first call stopped everywhere; the pool files are made in `dir`. Adds to
/// `stops` those that left nothing wrong.
///
/// # Errors
/// The first violation.
pub fn play(scene: &Scene, dir: &Path, stops: &mut u64) -> Result<(), String> {
    for &how in scene.stops {
        for step in 1.. {
            let round = quietly(|| match how {
                Stop::Kill => scene.killed(step, dir),
                Stop::Pause => scene.paused(step, dir),
            });
            match round {
                Ok(Ok(true)) => *stops += 1,
                Ok(Ok(false)) => break,
                Ok(Err(Wrong(text))) | Err(text) => {
                    return Err(format!("{}: {how:?} at step {step}: {text}", scene.name));
                }
            }
        }
        // The call that came to its end.
        *stops += 1;
    }
    Ok(())
}
