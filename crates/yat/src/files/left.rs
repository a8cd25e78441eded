//! Calls on what a dead process has left: blocks past the end that it would have freed.

use super::kinds::{Kind, Prepared, size};
use super::pool::POOL_BYTES;
use super::{Attached, FileSystem, Steps};
use crate::program::Program;
use crate::stopper::die;
use crate::third::Release;
use crate::trace::Place;
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{FallocateMode, Fs, LargePages, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DEAD: u64 = u64::MAX;

/// Ends a process at its first step after so many fences.
struct Doom {
    left: AtomicU64,
    release: Release,
}

impl Doom {
    fn is_dead(&self) -> bool {
        match self.left.load(Ordering::Relaxed) {
            DEAD => true,
            0 => {
                self.left.store(DEAD, Ordering::Relaxed);
                die();
            }
            _ => false,
        }
    }
}

impl Observer for Doom {
    fn store(&self, _mem: &Pmem, _off: u64, _: &[u8], _: StoreKind, _at: Place) -> Verdict {
        match self.is_dead() {
            true => Verdict::Skip,
            false => Verdict::Do,
        }
    }

    fn flush(&self, _mem: &Pmem, _line: u64, _asked: (u64, u64), _at: Place) {
        self.is_dead();
    }

    fn fence(&self, _mem: &Pmem, _at: Place) {
        if !self.is_dead() {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn wait(&self, _mem: &Pmem, _off: u64) {
        self.release.release();
    }
}

impl FileSystem {
    /// Has a process prepare the pool, make the kind's doomed call and die in it; `survivor` cleans
    /// up. A wait of the process releases the third call. `None`: this is no such kind.
    pub(crate) fn leave_dead(
        &self,
        path: &Path,
        survivor: &Fs,
        release: Release,
    ) -> Result<Option<Prepared>, String> {
        let Steps::Kind(kind) = &self.steps else {
            return Ok(None);
        };
        let Some(call) = kind.doomed else {
            return Ok(None);
        };
        let words = |error: pmfs::Error| error.to_string();
        let doom = Arc::new(Doom {
            left: AtomicU64::new(DEAD - 1),
            release,
        });
        let options = OpenOptions {
            observer: Some(doom.clone()),
            ..self.options(1_000_000)
        };
        let mut attached = Attached::to(Fs::open(path, &options).map_err(words)?);
        self.prepare(&mut attached)?;
        let prepared = attached.prepared.expect("just prepared");
        doom.left.store(1, Ordering::Relaxed);
        let made = catch_unwind(AssertUnwindSafe(|| call(&attached.fs, &prepared)));
        if made.is_ok() {
            return Err("the doomed call came to its end".to_owned());
        }
        // Dropped as a process drops it: nothing is stored.
        drop(attached);
        survivor.recover_dead().map_err(words)?;
        Ok(Some(prepared))
    }
}

macro_rules! kinds {
    ($( $name:literal, $overwrites:literal, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: POOL_BYTES, first: |_, _| Ok(()),
            call: |$fs, $p| { $body; Ok(()) }, overwrites: $overwrites, in_place: false,
            // The size is durable behind its first fence, and no block is free yet.
            doomed: Some(|fs, p| fs.setattr(p.large, &size(5000)).map(drop)),
            large: LargePages::Grow,
        } ),+ ]
    };
}

pub fn kinds() -> Vec<Kind> {
    // A checker of power loss makes no doomed call: there the write is inside the file.
    kinds! {
        "truncate up over blocks of the dead", false, |fs, p| fs.setattr(p.large, &size(20_000))?;
        "write past blocks of the dead", true, |fs, p| fs.write(p.large, 17_000, b"far")?;
        "append over blocks of the dead", false, |fs, p| fs.append(p.large, &[b'a'; 9000])?;
        "allocation over blocks of the dead", false, |fs, p|
            fs.fallocate(p.large, FallocateMode::empty(), 0, 20_000)?;
    }
}
