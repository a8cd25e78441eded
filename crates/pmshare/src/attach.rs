//! Attaching, as far as it concerns other processes: the attach lock, the distinction of runs, and
//! taking a slot (docs/adr/0030-first-and-last.md).

use crate::cleaning::Undone;
use crate::error::{Error, Result};
use crate::holder;
use crate::layout::Shared;
use crate::lock_bytes::{BYTE_ATTACH, BYTE_FREEZE};
use crate::member::Share;
use crate::owner::mapper::mapper_pid;
use crate::owner::stalled::tell_of_attaching;
use crate::rescue;
use crate::waits::Waits;
use pmem::Identity;
use pmem::slots::{ByteLock, Probe, Prober};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The longest wait of an attaching process for another one that attaches or leaves, if nothing
/// else is said.
pub const ATTACH_PATIENCE: Duration = Duration::from_secs(60);
/// The time after which such a process says for whom it waits.
const ATTACH_SILENCE: Duration = Duration::from_secs(1);
/// First pause between two looks.
const NAP_FIRST: Duration = Duration::from_millis(1);
/// Longest pause.
const NAP_MAX: Duration = Duration::from_millis(64);
/// Waits until no other process attaches or leaves. Many may wait, so each probes less and less
/// often, and not all at once.
///
/// # Errors
/// [`Error::Held`] if that takes too long.
pub fn attach_lock(path: &Path) -> Result<ByteLock> {
    attach_lock_by(&Prober::open(path)?)
}

/// Takes the lock as [`attach_lock`] does, for the prober's pool.
///
/// # Errors
/// Those of [`attach_lock`].
pub fn attach_lock_by(prober: &Prober) -> Result<ByteLock> {
    attach_lock_within(prober, "pmfs", ATTACH_PATIENCE)
}

/// Takes the lock as [`attach_lock_by`] does, within `patience`. After a second it says in the name
/// of `program` for which process it waits.
///
/// # Errors
/// Those of [`attach_lock`].
pub fn attach_lock_within(prober: &Prober, program: &str, patience: Duration) -> Result<ByteLock> {
    let since = Instant::now();
    let mut nap = NAP_FIRST;
    let mut is_told = false;
    loop {
        if prober.probe(BYTE_ATTACH)? == Probe::Free
            && let Some(lock) = prober.try_exclusive(BYTE_ATTACH)?
        {
            return Ok(lock);
        }
        if since.elapsed() > patience {
            return Err(Error::Held {
                pid: mapper_pid(prober.path()),
            });
        }
        if since.elapsed() > ATTACH_SILENCE && !is_told {
            is_told = true;
            tell_of_attaching(program, mapper_pid(prober.path()));
        }
        let spread = since.elapsed().subsec_nanos() ^ std::process::id() << 8;
        std::thread::sleep(nap / 2 + nap * (spread % 1024) / 1024);
        nap = (nap * 2).min(NAP_MAX);
    }
}

impl<S: Shared> Share<S> {
    /// Takes the attach lock for leaving, when the program may have closed the prober's descriptor.
    /// `None`: there is no file.
    ///
    /// # Errors
    /// Those of [`attach_lock`].
    pub fn lock_to_leave(&self) -> Result<Option<ByteLock>> {
        let Some(prober) = &self.prober else {
            return Ok(None);
        };
        let locked = match attach_lock_within(prober, S::PROGRAM, ATTACH_PATIENCE) {
            Err(Error::Held { pid }) => Err(Error::Held { pid }),
            Err(_) => attach_lock(prober.path()),
            locked => locked,
        };
        locked.map(Some)
    }

    /// Takes the attach lock, for a process that takes a slot for a successor.
    ///
    /// # Errors
    /// Those of [`attach_lock`].
    pub fn lock_to_prepare(&self, path: &Path) -> Result<ByteLock> {
        match &self.prober {
            Some(prober) => attach_lock_by(prober),
            None => attach_lock(path),
        }
    }
}

/// Waits until no process copies the pool: the process that was asked to freeze it has left.
pub fn wait_for_copier(prober: &Prober) -> Result<()> {
    let since = Instant::now();
    while is_frozen(prober) {
        if since.elapsed() > ATTACH_PATIENCE {
            return Err(Error::Frozen);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Returns whether a process holds the freeze.
pub fn is_frozen(prober: &Prober) -> bool {
    matches!(prober.probe(BYTE_FREEZE), Ok(Probe::HeldBy(_)))
}

/// One time for which the words of a file belong to its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The boot of the machine: locks of other processes are visible only in the boot in which they
    /// are held.
    pub boot_id: [u8; 16],
    /// The file's device.
    pub dev: u64,
    /// Its inode there.
    pub ino: u64,
    /// Names the places of the shared words.
    pub layout: u64,
}

impl Run {
    /// The run that this process begins or joins.
    #[must_use]
    pub fn of(file: Identity, layout: u64) -> Run {
        let Identity { dev, ino } = file;
        let boot_id = boot_id();
        Run {
            boot_id,
            dev,
            ino,
            layout,
        }
    }
}

fn boot_id() -> [u8; 16] {
    static BOOT_ID: LazyLock<[u8; 16]> = LazyLock::new(read_boot_id);
    *BOOT_ID
}

fn read_boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or("0");
        *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    id
}

/// Takes a slot. If all are taken, it cleans up after dead processes, for which the last slot is
/// reserved.
pub fn occupy<S: Shared>(
    waits: Waits<'_, S>,
    path: Option<&Path>,
) -> std::result::Result<Undone, S::Error> {
    let share = waits.share;
    let mut undone = Undone::default();
    let usable = 0..share.layout().slot_count - 1;
    let mut taken = share.take_slot(path, usable.clone(), false);
    if matches!(taken, Err(Error::TooManyProcesses { .. })) {
        let last = usable.end..usable.end + 1;
        let Ok(kept) = share.take_slot(path, last, false) else {
            return Ok(taken.map(|_| undone)?);
        };
        share.mark_slot(kept.holder, 0);
        share.held_as.store(kept.holder);
        undone = rescue::recover_dead(waits)?;
        taken = share.take_slot(path, usable, false);
        share.free_slot(kept.holder.slot);
    }
    let taken = taken?;
    holder::this_thread_lives();
    share.mark_slot(taken.holder, 0);
    share.held_as.store(taken.holder);
    share.wait_for_lease();
    taken
        .lock
        .into_iter()
        .for_each(|lock| share.keep_lock(lock));
    Ok(undone)
}

/// Refuses a pool that others have, or may have, in a way whose locks don't meet ours: other
/// builds, whose tables are elsewhere; another device node, mount or container
/// (docs/adr/0025-life-of-a-process.md).
pub fn keep_apart(last: &Run, ours: &Run, others: bool, adopt: bool) -> Result<()> {
    if others && last.layout != ours.layout {
        return Err(Error::UnlikeBuild {
            theirs: last.layout,
        });
    }
    let elsewhere = (last.dev, last.ino) != (ours.dev, ours.ino);
    if elsewhere && (others || last.boot_id == ours.boot_id && !adopt) {
        return Err(Error::Elsewhere);
    }
    Ok(())
}
