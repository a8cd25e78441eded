//! Attaching to a pool and leaving it: first opener, last closer (docs/adr/0030-first-and-last.md).

use crate::options::OpenOptions;
use crate::pool::Pool;
use crate::recovery::{close_for, rebuild, rest};
use crate::types::{RecoveryKind, RecoveryReport};
use pm_journal::error::{Error, Result};
use pm_journal::lane::Lane;
use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::superblock::{self, Health, State};
use pm_store::Restore;
use pmem::Pmem;
use pmem::slots::{Probe, Prober};
use pmfs_format::runtime::LAYOUT;
use pmfs_format::{RunRecordRaw, SuperblockRaw};
use pmshare::attach::{self, Run};
use pmshare::cleaning::Undone;
use pmshare::lock_bytes::{BYTE_POOL, holder_pid};
use pmshare::rescue;
use std::path::Path;
use std::time::Instant;

/// With more processes than this attached, one that comes asks about a part of them only.
const CROWD: usize = 64;

/// Opens and attaches, with the recovery that the pool's state asks for.
///
/// # Errors
/// Everything that can be wrong with a pool; see [`Error`].
pub(crate) fn attach(path: &Path, options: &OpenOptions) -> Result<(Pool, RecoveryReport)> {
    let (mem, raw, health, geometry) = opened(path, options)?;
    let prober = Prober::open(path)?;
    let entry = attach::attach_lock_by(&prober)?;
    attach::wait_for_copier(&prober)?;
    // Every process that has the pool, of whatever build, has this byte.
    let others = prober.probe(BYTE_POOL)? != Probe::Free;
    let pool_lock = if options.exclusive || options.repair {
        prober.try_exclusive(BYTE_POOL)?
    } else {
        prober.try_shared(BYTE_POOL)?
    };
    let Some(pool_lock) = pool_lock else {
        return Err(Error::Held {
            pid: holder_pid(path),
        });
    };
    let pool = Pool::new(mem, raw, geometry, Some(prober), options);
    let origin = Origin::File {
        path,
        others,
        adopt: options.adopt,
    };
    let report = enter(&pool, origin, health)?;
    pool.share_bandwidth();
    pool.keep_lock(pool_lock);
    drop(entry);
    Ok((pool, report))
}

/// Attaches with the slot that this process's last program took for it.
///
/// # Errors
/// Those of [`attach`]; [`Error::Invalid`] if that slot is lost.
pub(crate) fn attach_after_exec(
    path: &Path,
    options: &OpenOptions,
    handed: &str,
) -> Result<(Pool, RecoveryReport)> {
    let (mem, raw, _, geometry) = opened(path, options)?;
    let prober = Prober::open(path)?;
    let entry = attach::attach_lock_by(&prober)?;
    let pool = Pool::new(mem, raw, geometry, Some(prober), options);
    pool.move_in(path, handed)?;
    // The last program's slot, for one.
    let undone = rescue::recover_dead(&pool)?;
    pool.share_bandwidth();
    drop(entry);
    let mut report = RecoveryReport::default();
    tell(&mut report, &undone);
    Ok((pool, report))
}

fn opened(path: &Path, options: &OpenOptions) -> Result<(Pmem, SuperblockRaw, Health, Geometry)> {
    if options.map.read_only {
        // Locks and counts live in the pool: attaching stores to it.
        return Err(Error::Invalid(
            &"a pool is attached writable; read_only refuses changes to files",
        ));
    }
    let mem = observed(Pmem::open(path, &options.map)?, options);
    if options.only.is_some_and(|only| only != mem.identity()) {
        return Err(Error::not_a_pool("another file has this name by now"));
    }
    let (raw, health) = superblock::load(&mem)?;
    let geometry = Geometry::of(&raw, mem.len())?;
    Ok((mem, raw, health, geometry))
}

fn tell(report: &mut RecoveryReport, undone: &Undone) {
    if undone.slots > 0 {
        report.kind = RecoveryKind::Slots;
        report.transactions_undone = undone.transactions;
        report.entries_undone = undone.entries;
        report.calls_interrupted = undone.calls;
        report.intents_resolved = undone.intents;
        report.orphans = undone.orphans;
    }
}

/// Attaches to a mapping without a file: a crash image, or a test's memory.
///
/// # Errors
/// Those of [`attach`].
pub(crate) fn attach_private(mem: Pmem, options: &OpenOptions) -> Result<(Pool, RecoveryReport)> {
    let mem = observed(mem, options);
    let (raw, health) = superblock::load(&mem)?;
    let geometry = Geometry::of(&raw, mem.len())?;
    let pool = Pool::new(mem, raw, geometry, None, options);
    let report = enter(&pool, origin_of(options), health)?;
    Ok((pool, report))
}

/// The state of a pool before an attach.
#[derive(Clone, Copy)]
enum Origin<'a> {
    /// A file, whose identity and locks tell whether another process has it open.
    File {
        path: &'a Path,
        /// Another process has it open.
        others: bool,
        /// The process that had it under another name is known to be gone.
        adopt: bool,
    },
    /// Some image: nothing of its runtime area is believed.
    Image,
    /// The state that the last machine left; no process has it open.
    #[cfg(feature = "record")]
    Rebooted,
}

impl<'a> Origin<'a> {
    fn path(self) -> Option<&'a Path> {
        match self {
            Origin::File { path, .. } => Some(path),
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

/// The state that an attaching process finds.
struct Arrival {
    /// Another process has the pool.
    others: bool,
    /// The process that had it under another name is known to be gone.
    adopt: bool,
    /// The word that stood where its first opener has claimed it.
    before: Option<u64>,
    /// The state in which it was left.
    state: State,
}

/// Under the attach lock: looks for other processes, and claims the pool if there are none.
fn arrive(pool: &Pool, origin: Origin<'_>) -> Result<Arrival> {
    let (others, adopt) = match origin {
        Origin::File { others, adopt, .. } => (others, adopt),
        _ => (false, true),
    };
    // A lock alone says little of a pool that is closed: a child that is made at the moment in
    // which one is taken has a copy of its descriptor until it becomes another program, and with it
    // the lock.
    let found = superblock::state(pool.pm.mapping());
    let others = others && found == State::Active;
    let claims = origin.path().is_some() && !others;
    let before = claims
        .then(|| superblock::claim(&pool.pm, &identity_of(pool, None, false), adopt))
        .transpose()?;
    let state = if others {
        found
    } else {
        superblock::state(pool.pm.mapping())
    };
    Ok(Arrival {
        others,
        adopt,
        before,
        state,
    })
}

/// Makes this run's record: its identity, and its number in the order of runs.
fn identity_of(pool: &Pool, last: Option<RunRecordRaw>, others: bool) -> RunRecordRaw {
    let ours = Run::of(pool.pm.mapping().identity(), LAYOUT);
    RunRecordRaw {
        // Others' locks are seen in the boot that they are held in.
        boot_id: match last {
            Some(last) if others => last.boot_id,
            _ => ours.boot_id,
        },
        dev: ours.dev,
        ino: ours.ino,
        layout: ours.layout,
        runs: last.map_or(0, |last| last.runs).wrapping_add(1),
        recoveries: last.map_or(0, |last| last.recoveries),
        crc: 0,
    }
}

fn run_of(record: &RunRecordRaw) -> Run {
    Run {
        boot_id: record.boot_id,
        dev: record.dev,
        ino: record.ino,
        layout: record.layout,
    }
}

/// Under the attach lock: makes the runtime area trustworthy and takes a slot.
fn enter(pool: &Pool, origin: Origin<'_>, health: Health) -> Result<RecoveryReport> {
    let path = origin.path();
    let since = Instant::now();
    let _writable = pool.pm.mapping().writable();
    let Arrival {
        others,
        adopt,
        before,
        state,
    } = arrive(pool, origin)?;
    if !others {
        pool.back_tables()?;
    }
    let last = superblock::run_record(pool.pm.mapping());
    let mut record = identity_of(pool, last, others);
    let other_boot = path.is_none() && !matches!(origin, Origin::Image);
    let same = !other_boot && last.is_some_and(|last| run_of(&last) == run_of(&record));
    let mut report = RecoveryReport::default();
    let unclaim = || {
        if let Some(before) = before {
            superblock::unclaim(&pool.pm, before);
        }
    };
    if let Some(last) = last.filter(|_| state == State::Active) {
        attach::keep_apart(&run_of(&last), &run_of(&record), others, adopt)
            .inspect_err(|_| unclaim())?;
    }
    if !others {
        // A copy that serves may be a later one, of a growing cut short, with its tables elsewhere.
        let vouched = last.is_some_and(|last| last.layout == LAYOUT) && health.primary;
        let trusted = vouched && is_whole(pool, state, same).inspect_err(|_| unclaim())?;
        if !trusted || matches!(origin, Origin::Image) {
            report = rebuild::rebuild(pool)?;
            record.recoveries = record.recoveries.wrapping_add(1);
        } else if state != State::Active {
            pool.forget_lazy();
        }
        let restore = Restore::new(&pool.pm);
        superblock::set_run_record(&restore, record);
        if !planted!("bug-active-missing") {
            superblock::set_state(&restore, State::Active);
        }
    }
    let mut undone = match attach::occupy(pool.into(), path) {
        // The processes that had the slots are all dead, and so is one that began to clean up.
        Err(Error::TooManyProcesses { .. }) if !others => {
            report = rebuild::rebuild(pool)?;
            record.recoveries = record.recoveries.wrapping_add(1);
            superblock::set_run_record(&Restore::new(&pool.pm), record);
            attach::occupy(pool.into(), path)?
        }
        taken => taken?,
    };
    let crowded = others && pool.marked_slots().len() > CROWD;
    if !crowded || pool.meets_dead() {
        match rescue::recover_dead(pool) {
            Err(_) if pool.mending => {}
            more => undone.add(&more?),
        }
    }
    // Locks and files that are left when all are cleaned up after belong to no process.
    let left = !others && state == State::Active && report.kind != RecoveryKind::Walk;
    if pool.mending || left && !is_left_at_rest(pool)? {
        rebuild_held(pool)?;
    }
    tell(&mut report, &undone);
    report.elapsed = since.elapsed();
    Ok(report)
}

/// Returns whether the tables of a pool are empty, once all its holders are dead. Empty tables have
/// no annexes.
///
/// # Errors
/// `Medium`.
fn is_left_at_rest(pool: &Pool) -> Result<bool> {
    if pool.annexes_rest() {
        pool.give_annexes_back();
        pool.give_shares_back();
    }
    rest::is_at_rest(pool, Some(pool.holder().slot))
}

/// Returns whether the runtime area can be believed, of a pool that was left by the same run or
/// clean.
///
/// # Errors
/// `Medium`; [`Error::Corrupt`] of a clean pool without a root directory.
fn is_whole(pool: &Pool, state: State, same: bool) -> Result<bool> {
    let State::Clean(crc) = state else {
        return Ok(same);
    };
    // An untrusted writer of the pool may have made its checksum right.
    let whole = rest::crc_at_rest(pool)? == Some(crc);
    if whole {
        rebuild::require_root(pool)?;
    }
    Ok(whole)
}

fn runtime_crc(pool: &Pool) -> Result<u32> {
    let crc = superblock::crc_of_range(pool.pm.mapping(), pool.geometry.runtime.clone())?;
    pool.crc_of_shares(crc)
}

/// Rebuilds the runtime area of a pool that this process has to itself, and takes its slot anew.
///
/// # Errors
/// Those of [`walk::rebuild`].
pub fn rebuild_held(pool: &Pool) -> Result<()> {
    pool.forget_damage();
    pool.flush_lazy();
    pool.table_blocks.forget();
    let record = superblock::run_record(pool.pm.mapping());
    // The tables lack what the medium could not give, should it fail on the way.
    superblock::distrust_record(&pool.pm);
    rebuild::rebuild(pool)?;
    pool.mark_slot(pool.holder(), 0);
    if let Some(record) = record {
        superblock::set_run_record(&Restore::new(&pool.pm), record);
    }
    Ok(())
}

/// Distrusts the tables where the medium failed under a store, or in the runtime area: they may
/// lack what was stored to them. Unless others go on with them, the next opener makes them anew.
fn distrust(pool: &Pool) {
    let mem = pool.pm.mapping();
    let failed = mem.failed();
    let suspect = failed.is_some_and(|off| pool.geometry.runtime.contains(&off));
    let ours = pool.holder().slot;
    let alone = pool.marked_slots().iter().all(|&slot| slot == ours);
    if (suspect || mem.lost_store()) && alone {
        superblock::distrust_record(&pool.pm);
    }
}

/// Leaves the pool: gives up the slot, and marks the pool clean if no other process is in it.
///
/// # Errors
/// Locking the pool file for it failed.
pub(crate) fn detach(pool: &Pool) -> Result<()> {
    if matches!(pool.alive(), Err(pmshare::Error::Forked)) {
        return Err(Error::Forked);
    }
    // First, for without it the caller may try again.
    let entry = pool.lock_to_leave()?;
    if !pool.shut_down() {
        return Ok(());
    }
    let _writable = pool.pm.mapping().writable();
    let slot = pool.holder().slot;
    if pool.traces.opens.is_left() || pool.traces.copies.is_left() {
        close_for(pool, slot);
    }
    if pool.traces.locks.is_left() {
        pool.drop_file_locks(slot);
    }
    pool.drop_lease_of(slot);
    // Calls that only others can clean up after may remain where the medium failed: they find the
    // slot as a dead process's.
    if pool.pm.intact().is_ok() {
        pool.free_slot(slot);
    }
    let occupied = pool.slots().any(|slot| pool.is_marked(slot));
    pool.keep_bandwidth(!occupied);
    if pool.pm.intact().is_err() {
        distrust(pool);
    } else if !occupied && !pool.is_damaged() {
        pool.flush_lazy();
        pool.give_annexes_back();
        pool.give_shares_back();
        Lane::close_all(pool);
        pool.pm.runtime().save();
        let crc = runtime_crc(pool)?;
        superblock::set_state(&Restore::new(&pool.pm), State::Clean(crc));
        superblock::unclaim(&pool.pm, 0);
    }
    pool.drop_locks();
    drop(entry);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{NODE, Scratch};
    use crate::{Fs, ROOT_INO};
    use pmfs_format::RuntimeHeaderRaw;

    /// Goal: a write through any attachment moves the one word on, by the time that it takes; the
    /// last one to leave clears it.
    #[test]
    fn an_emulated_medium_is_busy_for_all() {
        let Scratch { dir: _dir, path } = Scratch::new(32 << 20);
        let mut options = OpenOptions::default();
        options.map.emulate.write_bytes_per_s = 64_000_000;
        let all = [(); 2].map(|()| Fs::open(&path, &options).expect("it opens"));
        let mem = Pmem::open(&path, &options.map).expect("the same bytes");
        let (raw, _) = superblock::load(&mem).expect("a superblock");
        let geometry = Geometry::of(&raw, mem.len()).expect("a geometry");
        let busy = || mem.load(RuntimeHeaderRaw::busy_until.of(geometry.header));
        for (fs, name) in all.iter().zip([b"a", b"b"]) {
            let before = busy();
            fs.create(ROOT_INO, name, &NODE).expect("a file");
            // A microsecond a line, in 64ths of a ns.
            assert!(busy() >= before + 64_000, "{before} {}", busy());
        }
        let [first, last] = all;
        first.detach().expect("it leaves");
        assert_ne!(busy(), 0);
        last.detach().expect("it leaves");
        assert_eq!(busy(), 0);
    }
}
