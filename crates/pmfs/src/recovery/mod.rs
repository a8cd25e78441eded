//! Recovery of a dead process's slot, while others go on, and of lanes after power loss: one code.
//!
//! Under the recovery lock, for all dead slots together: undo what their lanes began, settle their
//! intents, and only then release their locks (docs/adr/0023-barriers.md,
//! docs/adr/0024-shared-volatile-state.md). That takes group locks alone, so whoever waits for a
//! lock may do it, whatever locks it holds. What the dead held open is closed later, under the
//! closing lock, by somebody who holds nothing: it takes the locks of inodes. Every step may be
//! repeated: whoever finds a recoverer dead takes its lock over and starts again.

pub(crate) mod rest;
pub(crate) mod walk;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::lane::{Claim, Lane, Purpose};
use crate::journal::log_entry::{Header, LogEntry};
use crate::journal::settle::{self, tree_of};
use crate::open::annex::annex_word;
use crate::open::open_table::{Reference, Thing};
use crate::persist::proof::Proof;
use crate::persist::{Pm, Restore};
use crate::pool::{Began, Pool};
use crate::share::counters::Total;
use crate::share::locks::LockSet;
use crate::share::owner::{self, Held, slot_of};
use crate::share::slot::SLOT_STATE;
use crate::space::alloc::Bitmap;
use crate::tree::usage;
use pmfs_format::LockRaw;
use pmfs_format::journal::{KIND_ABORT, KIND_COMMIT, KIND_PROOF, KIND_REDO};
use pmfs_format::runtime::{OWNER_WAITERS, SLOT_FREE};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const RECOVERY_OWNER: u64 = 8;
const RENAME_OWNER: u64 = 64;
const GROW_OWNER: u64 = 128;
const CLOSING_OWNER: u64 = 192;
const SEQUENCE: u64 = 8;
/// No pool lives to see so many transactions in a lane.
const ID_MAX: u64 = 1 << 62;

/// Who of this process is cleaning up, under the recovery lock, and after whom: their locks are his to take over.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// The thread's tag; 0: nobody is.
    thread: AtomicU64,
    dead: Mutex<Vec<Dead>>,
}

impl Cleaning {
    fn is_mine(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == owner::thread_tag()
    }

    /// The caller has the recovery lock.
    fn add(&self, dead: &[Dead]) {
        self.list().extend(dead);
        self.thread.store(owner::thread_tag(), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.list().clear();
    }

    fn has(&self, owner: u64) -> bool {
        self.list().iter().any(|dead| dead.owns(owner))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Dead>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dead {
    /// The process that had a slot.
    Slot(u64),
    /// A thread of this process, by its owner word.
    Thread(u64),
}

impl Dead {
    fn owns(self, owner: u64) -> bool {
        match self {
            Dead::Slot(slot) => slot_of(owner) == Some(slot),
            Dead::Thread(word) => owner & !OWNER_WAITERS == word,
        }
    }
}

/// Whether this thread is cleaning up, and may meet groups that a death left half changed.
pub(crate) fn cleaning(pool: &Pool) -> bool {
    pool.cleaning.is_mine()
}

/// What recovering did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undone {
    pub transactions: u64,
    pub entries: u64,
    pub orphans: u64,
    pub slots: u64,
    pub calls: u64,
    pub intents: u64,
}

impl Undone {
    pub fn add(&mut self, more: &Undone) {
        self.transactions += more.transactions;
        self.entries += more.entries;
        self.orphans += more.orphans;
        self.slots += more.slots;
        self.calls += more.calls;
        self.intents += more.intents;
    }
}

/// What a lane's log says.
pub(crate) struct Scan {
    /// Greatest transaction id.
    pub id: u64,
    /// Index after the last entry of that transaction.
    head: u64,
    /// Its entries of old or new words, as offsets, by place; empty if it is closed.
    pub open: Vec<u64>,
    /// Those of the one before it, if that is promised and not closed.
    before: Vec<u64>,
    /// Where its closing entry is.
    closing: Option<u64>,
    /// Where a proof is, which closes it if it holds.
    proof: Option<u64>,
    /// Its entries are of new words.
    pub redo: bool,
    /// And these are all there.
    pub last: bool,
}

/// Reads a lane's log: `entries` lines from byte `log` on.
pub(crate) fn scan(pm: &Pm, log: u64, entries: u64) -> Scan {
    let ids: Vec<u64> = (0..entries).map(|at| pm.load(log + at * 64 + 56)).collect();
    let id = ids.iter().copied().max().unwrap_or(0);
    let mut scan = Scan {
        id,
        head: 0,
        open: Vec::new(),
        before: Vec::new(),
        closing: None,
        proof: None,
        redo: false,
        last: false,
    };
    if id == 0 {
        return scan;
    }
    let mut places = Vec::new();
    let accepted = |found: u64| found == id || planted!("bug-two-ids-accepted") && found + 1 == id;
    for at in (0..entries).filter(|&at| accepted(ids[at as usize])) {
        let entry = log + at * 64;
        let header = Header::read(pm, entry);
        match header.kind() {
            KIND_COMMIT | KIND_ABORT => scan.closing = Some(entry),
            KIND_PROOF => scan.proof = Some(entry),
            kind => {
                scan.redo |= kind == KIND_REDO;
                scan.last |= header.is_last_of_new();
                places.push((header.place(), entry));
            }
        }
        // The transaction's entries are neighbours, around the end of the ring too.
        if ids[((at + 1) % entries) as usize] != id {
            scan.head = at + 1;
        }
    }
    if scan.closing.is_none() {
        places.sort_unstable();
        let whole = (0..).zip(&places).all(|(at, &(place, _))| at == place);
        scan.last &= whole || planted!("bug-redo-with-gaps");
        scan.open = places.into_iter().map(|(_, off)| off).collect();
        scan.before = promised_before(pm, log, &ids, id);
    }
    scan
}

/// The entries of the transaction before `id` by place, if that is one of new words, all of them there and not closed.
fn promised_before(pm: &Pm, log: u64, ids: &[u64], id: u64) -> Vec<u64> {
    let before = ids.iter().copied().filter(|&found| found < id).max();
    let its = (log..).step_by(64).zip(ids);
    let its = its.filter(|&(_, &found)| found != 0 && Some(found) == before);
    let mut entries: Vec<(Header, u64)> =
        its.map(|(off, _)| (Header::read(pm, off), off)).collect();
    entries.sort_unstable_by_key(|(header, _)| header.place());
    let mut places = (0..).zip(&entries);
    let whole = places.all(|(at, (header, _))| header.kind() == KIND_REDO && header.place() == at);
    let ended = entries
        .last()
        .is_some_and(|(header, _)| header.is_last_of_new());
    match whole && ended && !planted!("bug-promise-before-forgotten") {
        true => entries.into_iter().map(|(_, off)| off).collect(),
        false => Vec::new(),
    }
}

impl Scan {
    /// For a log of a build that waited for the words of each before it went on: the one before the last is as durable as it will be, and
    /// its words may be others' since.
    pub fn forget_before(&mut self) {
        self.before.clear();
    }

    /// Whether the last transaction is not closed and has been made all the same: recovery makes it again.
    pub fn is_promised(&self) -> bool {
        self.redo && self.last && !self.open.is_empty()
    }

    /// What the last promises make of the words that they speak of, each once: others may look at these meanwhile, and must not see what the
    /// older one made of a word that the last one has changed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry can't be right.
    pub fn promised_words(&self, pool: &Pool) -> Result<BTreeMap<u64, u64>> {
        let last: &[u64] = if self.last { &self.open } else { &[] };
        let mut words = BTreeMap::new();
        for &entry in self.before.iter().chain(last) {
            for (off, new) in LogEntry::read(pool, entry)?.ranges() {
                words.extend((off..).step_by(8).zip(new.iter().copied()));
            }
        }
        Ok(words)
    }

    /// Whether a proof shows the open transaction to be done: the words that it logged are what they were to become.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry can't be right.
    pub fn is_proven(&self, pool: &Pool) -> Result<bool> {
        let Some(proof) = self.proof.filter(|_| !self.open.is_empty()) else {
            return Ok(false);
        };
        let mut found = Proof::default();
        for &entry in &self.open {
            let entry = LogEntry::read(pool, entry)?;
            if entry.saved().is_some() {
                return Ok(false);
            }
            for (off, old) in entry.ranges() {
                let words = (off..).step_by(8).take(old.len());
                words.for_each(|word| found.add(pool.pm.load(word)));
            }
        }
        let holds = pool.pm.read::<2>(proof + 8) == found.words();
        Ok(holds || planted!("bug-proof-not-compared"))
    }
}

/// Undoes the lane's open transaction, if it has one, or makes one of new words, and sets the lane's counters. One that is closed is
/// durably so from then on.
///
/// # Errors
/// [`Error::Corrupt`] if an entry can't be right; nothing is restored then.
pub(crate) fn undo_lane(pool: &Pool, lane: &Lane<'_>, keep_intents: bool) -> Result<Undone> {
    undo(pool, lane, &lane.scan(), keep_intents)
}

/// As [`undo_lane`], of a log that has been read.
pub(crate) fn undo(
    pool: &Pool,
    lane: &Lane<'_>,
    scan: &Scan,
    keep_intents: bool,
) -> Result<Undone> {
    let (log, entries) = lane.log();
    let restore = Restore::new(&pool.pm);
    let mut undone = Undone::default();
    let mut head = scan.head;
    if scan.id > ID_MAX {
        return Err(Error::corrupt("journal entry", log));
    }
    if let Some(closing) = scan.closing {
        // Who closed it may not have waited for that, and what says so is no longer in the locks, or was lost with the power.
        restore.flush(closing, 64);
        restore.barrier();
    } else if scan.is_proven(pool)? {
        confirm(pool, scan, &restore)?;
    } else if !scan.open.is_empty() {
        for &entry in scan.before.iter().chain(&scan.open) {
            LogEntry::read(pool, entry)?;
        }
        if planted!("bug-closed-before-undo") {
            restore.close(log + head % entries * 64, scan.id);
        }
        if !scan.redo {
            // Nobody has waited for what this one stored, but for the barrier of the last one, which may not have come.
            for &entry in scan.before.iter().chain(scan.open.iter().rev()) {
                LogEntry::read(pool, entry)?.put(&restore)?;
            }
        } else {
            if scan.last {
                // Of one that was killed the log may be whole, and not durable yet.
                scan.open.iter().for_each(|&entry| restore.flush(entry, 64));
                restore.barrier();
            }
            for (off, word) in scan.promised_words(pool)? {
                restore.words(off, &[word]);
            }
        }
        if !planted!("bug-restored-unfenced") {
            restore.barrier();
        }
        restore.close(log + head % entries * 64, scan.id);
        head += 1;
        if !scan.redo {
            undone.transactions = 1;
            undone.entries = scan.open.len() as u64;
        }
    }
    if keep_intents {
        lane.reset_ids(scan.id, head);
    } else {
        lane.reset(scan.id, head);
    }
    Ok(undone)
}

/// Makes a transaction that a proof shows to be done a closed one, durably.
fn confirm(pool: &Pool, scan: &Scan, restore: &Restore<'_>) -> Result<()> {
    // Of one that was killed the words may be seen, and not be durable yet.
    for &entry in &scan.open {
        for (off, old) in LogEntry::read(pool, entry)?.ranges() {
            if !planted!("bug-proven-unflushed") {
                restore.flush(off, old.len() as u64 * 8);
            }
        }
    }
    restore.barrier();
    restore.confirm(scan.proof.expect("a proof holds"));
    Ok(())
}

/// For waiters: if the holder of `seen` is gone, cleans up after it. What it held open is left to the next call.
#[cold]
pub(crate) fn recover_if_dead(pool: &Pool, seen: u64) {
    if cleaning(pool) {
        return;
    }
    if pool.owner_dead(seen) {
        let _ = clean_dead(pool);
        pool.unclosed.store(true, Ordering::Relaxed);
    } else if owner::is_gone_thread(pool, seen) {
        let _lock = RecoveryLock::take(pool);
        let dead = [Dead::Thread(seen & !OWNER_WAITERS)];
        pool.cleaning.add(&dead);
        let _ = clean(pool, &dead);
    }
}

/// Cleans up after a thread of this process that is known to be gone: nobody may be waiting for what it holds who could
/// tell. The caller holds no lock.
#[cold]
pub(crate) fn clean_after_thread(pool: &Pool, tag: u64) {
    let _lock = RecoveryLock::take(pool);
    let dead = [Dead::Thread(pool.holder().word_of(tag))];
    pool.cleaning.add(&dead);
    let _ = clean(pool, &dead);
}

/// For waiters that are themselves cleaning up: takes the lock word from a dead holder. One that died since
/// the cleaning began is cleaned up after first; the waiter then tries again.
#[cold]
pub(crate) fn take_over(pool: &Pool, off: u64, me: u64) -> bool {
    if !cleaning(pool) {
        return false;
    }
    let seen = pool.pm.load(off);
    if pool.cleaning.has(seen) {
        return pool
            .pm
            .runtime()
            .cas(off, seen, me | seen & OWNER_WAITERS)
            .is_ok();
    }
    let dead = match slot_of(seen) {
        Some(slot) if pool.slot_dead(slot) => Dead::Slot(slot),
        Some(_) if owner::is_gone_thread(pool, seen) => Dead::Thread(seen & !OWNER_WAITERS),
        _ => return false,
    };
    pool.cleaning.add(&[dead]);
    let _ = clean(pool, &[dead]);
    false
}

struct RecoveryLock<'a> {
    pool: &'a Pool,
    began: Began,
    /// What a waiter owes that cleans up meanwhile: it speaks of the waiter's locks, and of a lane that it may be waiting for.
    owed: u64,
}

impl<'a> RecoveryLock<'a> {
    fn take(pool: &'a Pool) -> RecoveryLock<'a> {
        let off = pool.geometry.header + RECOVERY_OWNER;
        let me = pool.holder().word();
        let runtime = pool.pm.runtime();
        loop {
            let seen = runtime.load(off);
            let gone = || {
                pool.owner_dead(seen)
                    || owner::is_gone_thread(pool, seen)
                    || owner::is_nobodys(pool, off, seen)
            };
            let free = seen == 0 || gone();
            if free && runtime.cas(off, seen, me).is_ok() {
                let began = Began::now();
                let owed = pool.pm.set_owed(0);
                return RecoveryLock { pool, began, owed };
            }
            runtime.wait(off, seen as u32, Duration::from_millis(2));
        }
    }
}

impl Drop for RecoveryLock<'_> {
    fn drop(&mut self) {
        let pool = self.pool;
        pool.pm.set_owed(self.owed);
        if pool.gives_up(self.began) {
            return;
        }
        pool.cleaning.clear();
        owner::release(pool, pool.geometry.header + RECOVERY_OWNER);
    }
}

/// Cleans up after every process that died, and closes what they held open. The others go on meanwhile. The caller
/// holds no lock.
///
/// # Errors
/// Damage in a dead lane: its locks then stay held.
pub(crate) fn recover_dead(pool: &Pool) -> Result<Undone> {
    let _closing = Held::new(pool, pool.geometry.header + CLOSING_OWNER);
    let mut undone = Undone::default();
    loop {
        let (dead, done) = clean_dead(pool)?;
        if dead.is_empty() {
            return Ok(undone);
        }
        undone.add(&done);
        for slot in dead {
            if planted!("bug-slot-freed-first") {
                let state = pool.geometry.slot(slot) + SLOT_STATE;
                pool.pm.runtime().store(state, SLOT_FREE);
            }
            undone.orphans += close_for(pool, slot);
            if !planted!("bug-locks-of-the-dead-stay") {
                pool.drop_file_locks(slot);
            }
            pool.drop_lease_of(slot);
            let state = pool.geometry.slot(slot) + SLOT_STATE;
            pool.pm.runtime().store(state, SLOT_FREE);
            pool.count(Total::Recoveries, 1);
            undone.slots += 1;
        }
    }
}

/// Undoes, settles and unlocks what the dead left; answers whose slots still hold files open.
fn clean_dead(pool: &Pool) -> Result<(Vec<u64>, Undone)> {
    let _lock = RecoveryLock::take(pool);
    let slots = pool.dead_slots();
    if slots.is_empty() {
        return Ok((slots, Undone::default()));
    }
    let dead: Vec<Dead> = slots.iter().map(|&slot| Dead::Slot(slot)).collect();
    pool.cleaning.add(&dead);
    let undone = clean(pool, &dead)?;
    Ok((slots, undone))
}

/// Undoes and settles the lanes of the dead, then releases all their locks, then their lanes.
fn clean(pool: &Pool, dead: &[Dead]) -> Result<Undone> {
    let mut undone = Undone::default();
    let is_dead = |owner: u64| owner != 0 && dead.iter().any(|dead| dead.owns(owner));
    let lanes: Vec<u64> = (0..pool.geometry.lanes)
        .filter(|&lane| is_dead(pool.pm.load(pool.geometry.lane_line(lane))))
        .collect();
    for &index in &lanes {
        let lane = Lane::at(pool, index);
        if planted!("bug-settled-before-undo") {
            settle::settle(pool, &lane);
        }
        let done = if planted!("bug-wrong-lane-undone") {
            undo_lane(
                pool,
                &Lane::at(pool, (index + 1) % pool.geometry.lanes),
                true,
            )?
        } else {
            undo_lane(pool, &lane, true)?
        };
        undone.transactions += done.transactions;
        undone.entries += done.entries;
        undone.calls += 1;
        lane.strike_impossible();
        undone.intents += lane.intent_count();
        if !planted!("bug-dead-stores-unflushed") {
            flush_behind(pool, &lane);
        }
        let touched = inodes_in_question(pool, &lane);
        settle::settle(pool, &lane);
        lane.clear_intents();
        for ino in touched {
            if let Ok(inode) = Inode::load(pool, ino) {
                usage::recount(pool, &inode);
            }
        }
    }
    if is_dead(pool.pm.load(annex_word(pool))) {
        pool.settle_annex();
    }
    release_locks(pool, &is_dead);
    for &index in &lanes {
        owner::release(pool, pool.geometry.lane_line(index));
    }
    Ok(undone)
}

/// The inodes whose blocks the dead thread was about to change.
fn inodes_in_question(pool: &Pool, lane: &Lane<'_>) -> Vec<u64> {
    let mut inos = vec![lane.working()];
    inos.extend((0..lane.intent_count()).map(|record| lane.intent_ino(record)));
    inos.sort_unstable();
    inos.dedup();
    inos.retain(|&ino| Inode::load(pool, ino).is_ok_and(|inode| inode.links > 0));
    inos
}

/// Flushes what the dead thread stored and others will build on: its log, the inode it worked on, and the
/// slots of its intents. A closing entry that is seen here and lost with the power would have a finished
/// transaction undone, over what others have done since its locks were released.
fn flush_behind(pool: &Pool, lane: &Lane<'_>) {
    let restore = Restore::new(&pool.pm);
    let (log, entries) = lane.log();
    restore.flush(log, entries * 64);
    if let Ok(off) = pool.inode_off(lane.working()) {
        restore.flush(off, 128);
    }
    for record in 0..lane.intent_count() {
        match lane.intent(record) {
            Some((word, Purpose::Tree { ino, index, .. })) => {
                let Ok(tree) = tree_of(pool, ino) else {
                    continue;
                };
                // A run of blocks has a slot each.
                for index in index..index + Lane::run_of(word).count {
                    if let Ok(found) = tree.find(pool, index)
                        && found.slot != 0
                    {
                        restore.flush(found.slot, 8);
                    }
                }
            }
            Some((_, Purpose::Subtree { slot, .. } | Purpose::Word { off: slot }))
                if slot + 8 <= pool.pm.len() =>
            {
                restore.flush(slot, 8);
            }
            _ => {}
        }
    }
    restore.barrier();
}

/// Releases every lock word that a dead slot owns; readers that waited see an even sequence again.
fn release_locks(pool: &Pool, is_dead: &impl Fn(u64) -> bool) {
    let runtime = pool.pm.runtime();
    let geometry = &pool.geometry;
    for line in (0..geometry.lock_count).map(|at| geometry.locks + at * LockRaw::SIZE) {
        if is_dead(runtime.load(line)) {
            let sequence = runtime.load(line + SEQUENCE);
            if sequence & 1 == 1 {
                runtime.store(line + SEQUENCE, sequence + 1);
            }
            owner::release(pool, line);
        }
    }
    for map in [Bitmap::blocks(pool), Bitmap::inodes(pool)] {
        for (group, line) in map.owner_words().enumerate() {
            if is_dead(runtime.load(line)) {
                if !planted!("bug-group-count-stale") {
                    map.recount(group as u64);
                }
                owner::release(pool, line);
            }
        }
    }
    if !planted!("bug-files-not-released") {
        pool.release_files(is_dead);
    }
    for bucket in pool.file_lock_buckets() {
        if is_dead(runtime.load(bucket)) && !planted!("bug-bucket-stays-locked") {
            owner::release(pool, bucket);
        }
    }
    for word in header_words(pool).into_iter().skip(1) {
        if is_dead(runtime.load(word)) {
            owner::release(pool, word);
        }
    }
}

/// Closes what a slot holds open; unlinked files that nobody else holds go. Answers how many of those.
pub(crate) fn close_for(pool: &Pool, slot: u64) -> u64 {
    let mut orphans = 0;
    if !planted!("bug-pages-of-the-dead-stay") {
        pool.free_kernel_copies_of(slot);
    }
    for found in pool.references_of(slot) {
        let Reference { off, thing, .. } = found;
        let ino = match thing {
            Thing::Inode(ino) => ino,
            Thing::File(_) if planted!("bug-dead-files-skipped") => continue,
            Thing::File(index) => {
                let _locks = LockSet::take(pool, &[pool.file_ino(index)]);
                pool.end_file_unless_had_beside(index, off);
                pool.drop_reference(&found);
                continue;
            }
        };
        let locks = LockSet::take(pool, &[ino]);
        let unlinked = Inode::load(pool, ino).is_ok_and(|inode| inode.links == 0);
        if planted!("bug-dead-orphan-let-go-first") {
            pool.drop_reference(&found);
        }
        if unlinked && !planted!("bug-dead-orphans-left") {
            let lane = Claim::new(pool);
            let _ = settle::intend_reclaim(&lane, ino);
            pool.drop_reference(&found);
            orphans += u64::from(!pool.is_open(ino));
            drop(lane);
        } else {
            pool.drop_reference(&found);
        }
        drop(locks);
    }
    orphans
}

/// The lock words of the runtime header.
pub(crate) fn header_words(pool: &Pool) -> [u64; 5] {
    let [rename, grow] = [RENAME_OWNER, GROW_OWNER].map(|at| pool.geometry.header + at);
    let [recovery, closing] = recovery_words(pool);
    [recovery, rename, grow, closing, annex_word(pool)]
}

/// Those of them that calls take.
pub(crate) fn rename_word(pool: &Pool) -> u64 {
    pool.geometry.header + RENAME_OWNER
}

/// The lock under which the inode table grows.
pub(crate) fn grow_word(pool: &Pool) -> u64 {
    pool.geometry.header + GROW_OWNER
}

/// The locks of those who clean up after others: the recovery lock, the closing lock.
pub(crate) fn recovery_words(pool: &Pool) -> [u64; 2] {
    [RECOVERY_OWNER, CLOSING_OWNER].map(|word| pool.geometry.header + word)
}
