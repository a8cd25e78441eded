//! Attaching as a matter between processes: the attach lock, telling runs apart, taking a slot
//! (docs/adr/0030-first-and-last.md).

use crate::error::{Error, Result};
use crate::share::cleaning::Undone;
use crate::share::freeze::is_frozen;
use crate::share::holder;
use crate::share::lock_bytes::{BYTE_ATTACH, holder_pid};
use crate::share::member::Share;
use crate::share::rescue;
use crate::share::waits::Waits;
use pmem::slots::{ByteLock, Probe, Prober};
use pmfs_format::RunRecordRaw;
use pmfs_format::runtime::LAYOUT;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The longest wait of an attaching process for another one that attaches or leaves.
const ATTACH_PATIENCE: Duration = Duration::from_secs(60);
/// First pause between two looks.
const NAP_FIRST: Duration = Duration::from_millis(1);
/// Longest pause.
const NAP_MAX: Duration = Duration::from_millis(64);
/// Waits until no other process attaches or leaves. Many may wait: each asks less and less often,
/// and not all at once.
///
/// # Errors
/// [`Error::Held`] if that takes too long.
pub(crate) fn attach_lock(path: &Path) -> Result<ByteLock> {
    attach_lock_by(&Prober::open(path)?)
}

/// As [`attach_lock`], of the pool that the prober asks about.
///
/// # Errors
/// As there.
pub(crate) fn attach_lock_by(prober: &Prober) -> Result<ByteLock> {
    let since = Instant::now();
    let mut nap = NAP_FIRST;
    loop {
        if prober.probe(BYTE_ATTACH)? == Probe::Free
            && let Some(lock) = prober.try_exclusive(BYTE_ATTACH)?
        {
            return Ok(lock);
        }
        if since.elapsed() > ATTACH_PATIENCE {
            return Err(Error::Held {
                pid: holder_pid(prober.path()),
            });
        }
        let spread = since.elapsed().subsec_nanos() ^ std::process::id() << 8;
        std::thread::sleep(nap / 2 + nap * (spread % 1024) / 1024);
        nap = (nap * 2).min(NAP_MAX);
    }
}

impl Share {
    /// The attach lock, for leaving: the program may have closed the prober's descriptor. `None`:
    /// there is no file.
    ///
    /// # Errors
    /// As [`attach_lock`].
    pub(crate) fn lock_to_leave(&self) -> Result<Option<ByteLock>> {
        let Some(prober) = &self.prober else {
            return Ok(None);
        };
        let locked = match attach_lock_by(prober) {
            Err(Error::Held { pid }) => Err(Error::Held { pid }),
            Err(_) => attach_lock(prober.path()),
            locked => locked,
        };
        locked.map(Some)
    }

    /// The attach lock, for one who takes a slot for a successor.
    ///
    /// # Errors
    /// As [`attach_lock`].
    pub(crate) fn lock_to_prepare(&self, path: &Path) -> Result<ByteLock> {
        match &self.prober {
            Some(prober) => attach_lock_by(prober),
            None => attach_lock(path),
        }
    }
}

/// Waits until nobody copies the pool: it was left by the one who was asked to stand still for it.
pub(crate) fn wait_for_copier(prober: &Prober) -> Result<()> {
    let since = Instant::now();
    while is_frozen(prober) {
        if since.elapsed() > ATTACH_PATIENCE {
            return Err(Error::Frozen);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Returns whether two records are of one boot, one file, and builds with the same places of
/// tables.
pub(crate) fn is_same_run(last: &RunRecordRaw, ours: &RunRecordRaw) -> bool {
    (last.boot_id, last.dev, last.ino, last.layout)
        == (ours.boot_id, ours.dev, ours.ino, ours.layout)
}

/// This run's record: who we are, and how often that has been.
pub(crate) fn identity_of(share: &Share, last: Option<RunRecordRaw>, others: bool) -> RunRecordRaw {
    let identity = share.pm.mapping().identity();
    RunRecordRaw {
        // Others' locks are seen in the boot that they are held in.
        boot_id: match last {
            Some(last) if others => last.boot_id,
            _ => boot_id(),
        },
        dev: identity.dev,
        ino: identity.ino,
        layout: LAYOUT,
        runs: last.map_or(0, |last| last.runs).wrapping_add(1),
        recoveries: last.map_or(0, |last| last.recoveries),
        crc: 0,
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

/// Takes a slot, if need be one that has become free by cleaning up after the dead, for which the
/// last slot is kept.
pub(crate) fn occupy(waits: Waits<'_>, path: Option<&Path>) -> Result<Undone> {
    let share = waits.share;
    let mut undone = Undone::default();
    let usable = 0..share.geometry.slot_count - 1;
    let mut taken = share.take_slot(path, usable.clone(), false);
    if matches!(taken, Err(Error::TooManyProcesses { .. })) {
        let last = usable.end..usable.end + 1;
        let Ok(kept) = share.take_slot(path, last, false) else {
            return taken.map(|_| undone);
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

/// Refuses a pool that others have, or may have, by means that don't meet ours: unlike builds,
/// whose tables stand elsewhere; another device node, mount or container, through which locks are
/// not the same (docs/adr/0025-life-of-a-process.md).
pub(crate) fn keep_apart(
    last: &RunRecordRaw,
    ours: &RunRecordRaw,
    others: bool,
    adopt: bool,
) -> Result<()> {
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
