//! Attaching to a pool and leaving it: first opener, last closer (DECISIONS 12).

use crate::error::{Error, Result};
use crate::freeze::FreezeProbe;
use crate::geometry::Geometry;
use crate::info::{RecoveryKind, RecoveryReport};
use crate::options::OpenOptions;
use crate::owner::Holder;
use crate::persist::Restore;
use crate::pool::{
    BYTE_ATTACH, BYTE_POOL, Pool, SLOT_INCARNATION, SLOT_PID, SLOT_STATE, holder_pid,
};
use crate::superblock::{self, Health, State};
use crate::{recovery, walk};
use pmem::Pmem;
use pmem::slots::{ByteLock, Prober};
use pmfs_format::RunRecordRaw;
use pmfs_format::runtime::{LAYOUT, SLOT_FREE, SLOT_LIVE};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long an attaching process waits for another one that attaches or leaves.
const ATTACH_PATIENCE: Duration = Duration::from_secs(30);

/// Opens and attaches: recovers whatever the last holders left.
///
/// # Errors
/// Everything that can be wrong with a pool; see [`Error`].
pub(crate) fn attach(path: &Path, options: &OpenOptions) -> Result<(Pool, RecoveryReport)> {
    if options.map.read_only {
        // Locks and counts live in the pool: whoever attaches stores to it.
        return Err(Error::Invalid(
            "a pool is attached writable; read_only refuses changes to files",
        ));
    }
    let mem = observed(Pmem::open(path, &options.map)?, options);
    let (raw, health) = superblock::load(&mem)?;
    let geometry = Geometry::of(&raw, mem.len())?;
    let entry = attach_lock(path)?;
    wait_for_copier(path)?;
    let pool_lock = if options.shared {
        ByteLock::try_shared(path, BYTE_POOL)?
    } else {
        ByteLock::try_exclusive(path, BYTE_POOL)?
    };
    let Some(pool_lock) = pool_lock else {
        return Err(Error::Held {
            pid: holder_pid(path),
        });
    };
    let prober = Prober::open(path)?;
    let mut pool = Pool::new(mem, raw, geometry, Some(prober), options);
    let report = enter(&mut pool, Origin::File(path), health)?;
    pool.locks.lock().expect("not poisoned").push(pool_lock);
    drop(entry);
    Ok((pool, report))
}

/// Attaches to a mapping without a file: a crash image, or a test's memory.
///
/// # Errors
/// As [`attach`].
pub(crate) fn attach_private(mem: Pmem, options: &OpenOptions) -> Result<(Pool, RecoveryReport)> {
    let mem = observed(mem, options);
    let (raw, health) = superblock::load(&mem)?;
    let geometry = Geometry::of(&raw, mem.len())?;
    let mut pool = Pool::new(mem, raw, geometry, None, options);
    let report = enter(&mut pool, origin_of(options), health)?;
    Ok((pool, report))
}

/// What a pool was before somebody attaches.
#[derive(Clone, Copy)]
enum Origin<'a> {
    /// A file, whose identity and locks tell whether somebody has it open.
    File(&'a Path),
    /// Some image: nothing of its runtime area is believed.
    Image,
    /// What the last machine that had it left; nobody has it open.
    #[cfg(feature = "record")]
    Rebooted,
}

impl<'a> Origin<'a> {
    fn path(self) -> Option<&'a Path> {
        match self {
            Origin::File(path) => Some(path),
            _ => None,
        }
    }
}

#[cfg(feature = "record")]
fn origin_of(options: &OpenOptions) -> Origin<'static> {
    if options.rebooted {
        Origin::Rebooted
    } else {
        Origin::Image
    }
}

#[cfg(not(feature = "record"))]
fn origin_of(_options: &OpenOptions) -> Origin<'static> {
    Origin::Image
}

#[cfg(feature = "record")]
fn observed(mut mem: Pmem, options: &OpenOptions) -> Pmem {
    if options.observer.is_some() {
        mem.observe(options.observer.clone());
    }
    mem
}

#[cfg(not(feature = "record"))]
fn observed(mem: Pmem, _options: &OpenOptions) -> Pmem {
    mem
}

/// Waits until no other process attaches or leaves.
///
/// # Errors
/// [`Error::Held`] if that takes too long.
pub(crate) fn attach_lock(path: &Path) -> Result<ByteLock> {
    let since = Instant::now();
    loop {
        if let Some(lock) = ByteLock::try_exclusive(path, BYTE_ATTACH)? {
            return Ok(lock);
        }
        if since.elapsed() > ATTACH_PATIENCE {
            return Err(Error::Held {
                pid: holder_pid(path),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until nobody copies the pool: it was left by the one who was asked to stand still for it.
fn wait_for_copier(path: &Path) -> Result<()> {
    let probe = FreezeProbe::open(path)?;
    let since = Instant::now();
    while probe.held() {
        if since.elapsed() > ATTACH_PATIENCE {
            return Err(Error::Frozen);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Under the attach lock: makes the runtime area trustworthy and takes a slot.
fn enter(pool: &mut Pool, origin: Origin<'_>, health: Health) -> Result<RecoveryReport> {
    let path = origin.path();
    let since = Instant::now();
    let state = superblock::state(pool.pm.mapping());
    let last = superblock::run_record(pool.pm.mapping());
    let mut record = identity_of(pool, last);
    let other_boot = path.is_none() && !matches!(origin, Origin::Image);
    let same = !other_boot
        && last.is_some_and(|last| {
            (last.boot_id, last.dev, last.ino, last.layout)
                == (record.boot_id, record.dev, record.ino, record.layout)
        });
    let others = path.is_some() && any_live(pool);
    let mut report = RecoveryReport::default();
    if !others {
        let whole = match state {
            State::Clean(crc) => runtime_crc(pool)? == crc,
            State::Active => same,
        };
        // A copy that serves may be a later one, of a growing cut short, with its tables elsewhere.
        let vouched = last.is_some_and(|last| last.layout == LAYOUT) && health.primary;
        let trusted = vouched && whole;
        if !trusted || matches!(origin, Origin::Image) {
            report = walk::rebuild(pool)?;
            record.recoveries += 1;
        } else if state != State::Active {
            pool.forget_strays();
        }
        let restore = Restore::new(&pool.pm);
        superblock::set_run_record(&restore, record);
        if !planted!("bug-active-missing") {
            superblock::set_state(&restore, State::Active);
        }
    } else if !same {
        // Somebody has it open under another identity: another container, or a copy of the device node.
        return Err(Error::Held { pid: 0 });
    }
    take_slot(pool, path)?;
    let undone = match recovery::recover_dead(pool) {
        Err(_) if pool.mending => recovery::Undone::default(),
        undone => undone?,
    };
    if pool.mending {
        rebuild_held(pool)?;
    }
    if undone.slots > 0 {
        report.kind = RecoveryKind::Slots;
        report.transactions_undone = undone.transactions;
        report.entries_undone = undone.entries;
        report.calls_interrupted = undone.calls;
        report.intents_settled = undone.intents;
        report.orphans = undone.orphans;
    }
    report.elapsed = since.elapsed();
    Ok(report)
}

fn runtime_crc(pool: &Pool) -> Result<u32> {
    superblock::crc_of_range(pool.pm.mapping(), pool.geometry.runtime.clone())
}

/// Rebuilds the runtime area of a pool that this process has to itself, and takes its slot anew.
///
/// # Errors
/// As [`walk::rebuild`].
pub(crate) fn rebuild_held(pool: &Pool) -> Result<()> {
    pool.damaged.store(false, Ordering::Relaxed);
    pool.read_only.store(false, Ordering::Relaxed);
    pool.flush_strays();
    walk::rebuild(pool)?;
    mark_slot(pool, pool.holder.slot, pool.holder.incarnation);
    Ok(())
}

fn mark_slot(pool: &Pool, slot: u64, incarnation: u64) {
    let off = pool.geometry.slot(slot);
    let runtime = pool.pm.runtime();
    runtime.store(off + SLOT_INCARNATION, incarnation);
    runtime.store(off + SLOT_PID, u64::from(std::process::id()));
    runtime.store(off + SLOT_STATE, SLOT_LIVE);
}

/// This run's record: who we are, and how often that has been.
fn identity_of(pool: &Pool, last: Option<RunRecordRaw>) -> RunRecordRaw {
    let identity = pool.pm.mapping().identity();
    RunRecordRaw {
        boot_id: boot_id(),
        dev: identity.dev,
        ino: identity.ino,
        layout: LAYOUT,
        runs: last.map_or(0, |last| last.runs) + 1,
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

fn any_live(pool: &Pool) -> bool {
    (0..pool.geometry.slot_count).any(|slot| match &pool.prober {
        None => false,
        Some(prober) => {
            let state = pool.pm.load(pool.geometry.slot(slot) + SLOT_STATE);
            state == SLOT_LIVE
                && !matches!(
                    prober.probe(Pool::slot_byte(slot)),
                    Ok(pmem::slots::Probe::Free)
                )
        }
    })
}

fn take_slot(pool: &mut Pool, path: Option<&Path>) -> Result<()> {
    for slot in 0..pool.geometry.slot_count {
        let off = pool.geometry.slot(slot);
        let runtime = pool.pm.runtime();
        if runtime.load(off + SLOT_STATE) != SLOT_FREE {
            continue;
        }
        if let Some(path) = path {
            let Some(lock) = ByteLock::try_exclusive(path, Pool::slot_byte(slot))? else {
                continue;
            };
            pool.locks.lock().expect("not poisoned").push(lock);
        }
        let incarnation = runtime.load(off + SLOT_INCARNATION) + 1;
        mark_slot(pool, slot, incarnation);
        pool.holder = Holder {
            slot,
            incarnation: incarnation & 0xf_ffff,
        };
        return Ok(());
    }
    Err(Error::TooManyOpen)
}

/// Leaves the pool: gives up the slot, and marks the pool clean if nobody else is in it.
///
/// # Errors
/// Locking the pool file for it failed.
pub(crate) fn detach(pool: &Pool) -> Result<()> {
    if pool.shut.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let path = pool.pm.mapping().path().map(Path::to_path_buf);
    let entry = path.as_deref().map(attach_lock).transpose()?;
    recovery::close_for(pool, pool.holder.slot);
    let off = pool.geometry.slot(pool.holder.slot);
    pool.pm.runtime().store(off + SLOT_STATE, SLOT_FREE);
    let occupied = (0..pool.geometry.slot_count)
        .any(|slot| pool.pm.load(pool.geometry.slot(slot) + SLOT_STATE) != SLOT_FREE);
    if !occupied && pool.pm.intact().is_ok() && !pool.damaged.load(Ordering::Relaxed) {
        pool.flush_strays();
        pool.pm.runtime().save();
        let crc = runtime_crc(pool)?;
        superblock::set_state(&Restore::new(&pool.pm), State::Clean(crc));
    }
    pool.locks.lock().expect("not poisoned").clear();
    drop(entry);
    Ok(())
}
