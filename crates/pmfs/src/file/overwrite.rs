//! Writing inside the file. In `atomic` mode: one word is one store; a few bytes are logged and
//! stored; a block is copied, changed and swung in, some blocks with their pointers logged, many
//! with nodes of their own; a part of a large leaf is saved first. In `ordered` mode: in place.

use super::replace::Replacement;
use super::{Work, block_of, is_direct};
use crate::purpose::Purpose;
use crate::tree::edit::Leaves;
use crate::tree::entry::{Entry, place};
use crate::tree::{Extent, Found};
use crate::types::DataMode;
use crate::types::Run;
use arrayvec::ArrayVec;
use pm_journal::error::{Error, Result};
use pm_journal::{Redo, Transaction};
use pm_space::{Class, Zone};
use pmfs_format::journal::ENTRIES_MAX;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use std::ops::Range;

/// Longest data that are read without a landing pad, word by word, inside a transaction or for its
/// log. A face whose callers may hand over memory that is not there copies them first.
pub const UNGUARDED_MAX: usize = 1024;

/// Longest overwrite that is logged rather than copied: 1 KiB takes a fifth less time so, 1.5 KiB a
/// twentieth more.
pub(super) const LOGGED_MAX: usize = UNGUARDED_MAX;
/// Most pointers that are undo-logged rather than copied with their node: eight log lines. The two
/// ways cost the same at 64.
const POINTERS_MAX: usize = 48;
/// A large write in a large leaf is saved in at most this many runs.
const SAVED_RUNS: usize = ENTRIES_MAX;

impl Work<'_> {
    /// Writes `data` at `at`, all of it inside the size; answers how much, which in `ordered` mode
    /// may be less where the pool is full; so where it is pinned.
    pub fn overwrite(&mut self, at: u64, data: &[u8]) -> Result<usize> {
        self.touch(at, at + data.len() as u64)?;
        let in_place = self.pool.data_mode == DataMode::Ordered || self.pinned;
        if in_place || planted!("bug-atomic-in-place") {
            return self.overwrite_ordered(at, data);
        }
        self.overwrite_atomic(at, data)?;
        Ok(data.len())
    }

    pub fn overwrite_atomic(&mut self, at: u64, data: &[u8]) -> Result<()> {
        let end = at + data.len() as u64;
        let first = block_of(at);
        let last = block_of(end - 1);
        if data.len() <= LOGGED_MAX {
            // Another record waits less where a committed redo record would have to be closed
            // first.
            if at % 8 + data.len() as u64 <= 8
                && self.pool.pm.pending_redo().is_none()
                && let Some(off) = self.in_place(at, data.len())?
            {
                self.lane.intend(1, Purpose::Word { off: off & !7 })?;
                self.locks.change();
                self.pool.pm.publish_bytes(off, data)?;
                self.lazy_times();
                self.lane.clear_intents();
                return Ok(());
            }
            if self.overwrite_logged(at, data)? {
                return Ok(());
            }
        }
        let found = self.tree().find(self.pool, first)?;
        // A leaf that came by growth is split: it is likely to be written to again, and each write
        // in place would cost its data twice.
        let splits = found.entry.is_grown() || found.entry.is_shared();
        let stays = found.entry.is_leaf() && found.units > 1 && !splits;
        if stays && last < found.base + found.units {
            if found.entry.is_unwritten() {
                self.write_out_large(&found)?;
            }
            let off = found.entry.off() + (at - found.base * BLOCK_BYTES);
            return self.overwrite_saved(off, data);
        }
        if first == last && is_direct(&self.tree(), &found, first) {
            if found.entry.is_shared() {
                return self.overwrite_shared(&found, first, at, data);
            }
            return self.overwrite_block(&found, first, at, data);
        }
        if self.overwrite_blocks(&found, (first, last + 1), at, data)? {
            return Ok(());
        }
        self.overwrite_range(first, last + 1, at, data)
    }

    /// The offset of bytes of the file, if they are contiguous and written.
    fn in_place(&self, at: u64, len: usize) -> Result<Option<u64>> {
        let tree = self.tree();
        let below_one = tree.own_byte(self.pool, at);
        if let Some((off, bytes)) = below_one
            && len as u64 <= bytes
        {
            return Ok(Some(off));
        }
        let within = at % BLOCK_BYTES;
        let blocks = (within + len as u64).div_ceil(BLOCK_BYTES);
        let extent = tree.extent(self.pool, block_of(at), blocks)?;
        let in_place = extent.written && !extent.shared && extent.count == blocks;
        Ok(in_place.then_some(extent.off + within))
    }

    /// In place, by a log of the new bytes. `false` if some of the range is a hole.
    fn overwrite_logged(&mut self, at: u64, data: &[u8]) -> Result<bool> {
        let head = ((BLOCK_BYTES - at % BLOCK_BYTES) as usize).min(data.len());
        let (head, tail) = data.split_at(head);
        let Some(head_off) = self.in_place(at, head.len())? else {
            return Ok(false);
        };
        let mut tail_off = None;
        if !tail.is_empty() {
            tail_off = self.in_place(at + head.len() as u64, tail.len())?;
            if tail_off.is_none() {
                return Ok(false);
            }
        }
        // The last word has bytes past the end, to which an append stores before it reads the
        // pending commit.
        let ends_in_word = (at + data.len() as u64).next_multiple_of(8) > self.inode.size()
            && !planted!("bug-redo-past-end");
        let mut tx = Redo::begin(self.lane, ends_in_word);
        tx.add(head_off, head);
        if let Some(off) = tail_off {
            tx.add(off, tail);
        }
        if !tx.fits() {
            return Ok(false);
        }
        self.locks.redo(tx, || self.lazy_times())?;
        Ok(true)
    }

    /// Overwrites a part of one block: a fresh copy with the change, one pointer. On this hot path
    /// of random writes the intents are cleared by hand, and the old block is the lane's next fresh
    /// one, so that no bitmap is touched and free space stays as it is.
    fn overwrite_block(&mut self, found: &Found, index: u64, at: u64, data: &[u8]) -> Result<()> {
        let ino = self.ino();
        let purpose = Purpose::leaf(ino, index);
        // Filling a hole makes the pool fuller; replacing a block must go through on a full one.
        let class = if found.entry.is_leaf() {
            Class::Privileged
        } else {
            Class::Ordinary
        };
        let spare = match found.entry.is_leaf() {
            true => self.lane.take_spare(purpose)?,
            false => None,
        };
        let block = match spare {
            Some(block) => block,
            None => {
                self.pool
                    .alloc(self.lane, 1, class, Zone::Data, purpose)?
                    .block
            }
        };
        let off = block << BLOCK_SHIFT;
        let mut fresh = self.pool.pm.fresh();
        Replacement::of(self, at, data).compose(&mut fresh, off, index, found.entry)?;
        let old = found.entry.off() >> BLOCK_SHIFT;
        if found.entry.is_leaf() {
            self.lane.intend_run(Run::one(old), purpose)?;
        }
        let durable = fresh.barrier();
        self.locks.change();
        self.pool
            .pm
            .publish(found.slot, Entry::leaf(off).0, durable);
        // The pointer may be as it was where the medium has failed: both blocks stay in question.
        self.pool.pm.intact()?;
        self.lazy_times();
        if found.entry.is_leaf() {
            self.lane.keep_spare(old, purpose);
        }
        self.lane.store_block_count();
        self.lane.clear_intents();
        if found.level == 0 {
            // In `ordered` mode the write goes on, from the root word as it is now.
            self.reload()?;
        }
        Ok(())
    }

    /// Overwrites a part of one block that other leaves may name, too: as
    /// [`Work::overwrite_block`], and the old block loses a share.
    fn overwrite_shared(&mut self, found: &Found, index: u64, at: u64, data: &[u8]) -> Result<()> {
        let ino = self.ino();
        let purpose = Purpose::leaf(ino, index);
        // The old block stays the others': the pool becomes fuller.
        let class = Class::Ordinary;
        let block = self
            .pool
            .alloc(self.lane, 1, class, Zone::Data, purpose)?
            .block;
        let off = block << BLOCK_SHIFT;
        let mut fresh = self.pool.pm.fresh();
        Replacement::of(self, at, data).compose(&mut fresh, off, index, found.entry)?;
        let old = Run::one(found.entry.off() >> BLOCK_SHIFT);
        let gone = self.lane.intend_run(
            old,
            Purpose::Shared {
                ino,
                level: 0,
                index,
            },
        )?;
        let durable = fresh.barrier();
        self.locks.change();
        self.pool
            .pm
            .publish(found.slot, Entry::leaf(off).0, durable);
        // The pointer may be as it was where the medium has failed: both blocks stay in question.
        self.pool.pm.intact()?;
        self.lazy_times();
        self.pool.free_front(self.lane, gone, 1);
        self.lane.store_block_count();
        self.lane.clear_intents();
        self.reload()
    }

    /// Some blocks that one node names: fresh copies with the change, their pointers undo-logged. A
    /// node of their own beside the old one would cost more than these entries. `false` if they are
    /// too many, too scattered, shared, or holes.
    fn overwrite_blocks(
        &mut self,
        found: &Found,
        (from, to): (u64, u64),
        at: u64,
        data: &[u8],
    ) -> Result<bool> {
        let count = to - from;
        let in_node = found.level == 1 && place(1, from) + count <= FANOUT;
        if !in_node || count > POINTERS_MAX as u64 || self.lane.room() < 2 * count {
            return Ok(false);
        }
        let mut old = ArrayVec::<Entry, POINTERS_MAX>::new();
        for slot in (0..count).map(|at| found.slot + 8 * at) {
            let entry = Entry(self.pool.pm.load(slot));
            if !entry.is_leaf() || entry.is_shared() {
                return Ok(false);
            }
            old.push(entry.checked(&self.pool.data, BLOCK_BYTES, slot)?);
        }
        let gone = self.intend_leaves(from, &old)?;
        let mut leaves = Replacement::of(self, at, data);
        let mut fresh = self.pool.pm.fresh();
        let mut new = ArrayVec::<Entry, POINTERS_MAX>::new();
        for (index, entry) in (from..).zip(&old) {
            new.push(leaves.one(&mut fresh, index, *entry)?);
        }
        fresh.until_seal();
        let mut tx = Transaction::begin(self.lane);
        let range = tx.log_bytes(found.slot, 8 * count);
        let mut tx = tx.seal();
        self.locks.change();
        if planted!("bug-blocks-freed-before-commit") {
            self.free_leaves(gone.clone());
        }
        for (word, entry) in (0..).zip(&new) {
            tx.set(&range, word, entry.0);
        }
        self.lazy_times();
        self.locks.commit(tx);
        // The pointers may be as they were where the medium has failed: all blocks stay in
        // question.
        self.pool.pm.intact()?;
        self.free_leaves(gone);
        self.lane.store_block_count();
        self.lane.clear_intents();
        Ok(true)
    }

    /// Writes down that leaves from `index` on are to go; answers the records.
    fn intend_leaves(&self, index: u64, leaves: &[Entry]) -> Result<Range<u64>> {
        let first = self.lane.intent_count();
        let mut at = 0;
        while at < leaves.len() {
            let block = leaves[at].off() >> BLOCK_SHIFT;
            let next = |by: usize| leaves.get(at + by).map(|leaf| leaf.off() >> BLOCK_SHIFT);
            let count = (1..).find(|by| next(*by) != Some(block + *by as u64));
            let count = count.expect("the leaves end");
            let run = Run {
                block,
                count: count as u64,
            };
            let purpose = Purpose::leaf(self.ino(), index + at as u64);
            self.lane.intend_run(run, purpose)?;
            at += count;
        }
        Ok(first..self.lane.intent_count())
    }

    /// Frees what these records name.
    fn free_leaves(&self, records: Range<u64>) {
        for record in records {
            self.pool.free_front(self.lane, record, u64::MAX);
        }
    }

    /// The class of blocks that take the place of others: those go through on a full pool, unless
    /// other leaves may name the old ones, which stay then.
    fn class_to_replace(&self, from: u64, to: u64) -> Result<Class> {
        let tree = self.tree();
        let mut index = from;
        while index < to {
            let found = tree.find(self.pool, index)?;
            if found.entry.is_shared() {
                return Ok(Class::Ordinary);
            }
            index = found.base.saturating_add(found.units);
        }
        Ok(Class::Privileged)
    }

    /// Many blocks: fresh ones under fresh nodes, one pointer.
    fn overwrite_range(&mut self, from: u64, to: u64, at: u64, data: &[u8]) -> Result<()> {
        let class = self.class_to_replace(from, to)?;
        let mut leaves = Replacement::of(self, at, data);
        self.swing(class, (from, to), &mut leaves)?;
        self.lazy_times();
        self.replaced();
        Ok(())
    }

    /// Part of a large leaf: its old bytes to scratch blocks, entries that name them, then in place
    /// (docs/adr/0032-large-leaves.md).
    fn overwrite_saved(&mut self, off: u64, data: &[u8]) -> Result<()> {
        let mut fresh = self.pool.pm.fresh();
        let mut saved: Vec<(u64, u64, u64)> = Vec::new();
        let mut done = 0;
        while done < data.len() as u64 {
            if saved.len() == SAVED_RUNS {
                return Err(Error::NoSpace);
            }
            let left = data.len() as u64 - done;
            let want = left.div_ceil(BLOCK_BYTES);
            let zone = Zone::Data;
            let run =
                self.pool
                    .alloc(self.lane, want, Class::Privileged, zone, Purpose::Scratch)?;
            let len = (run.count * BLOCK_BYTES).min(left);
            let scratch = run.block << BLOCK_SHIFT;
            fresh
                .range(scratch, run.count * BLOCK_BYTES)
                .copy(0, off + done, len)?;
            saved.push((off + done, len, scratch));
            done += len;
        }
        let durable = fresh.barrier();
        let mut tx = Transaction::begin(self.lane);
        let ranges: Vec<_> = saved
            .iter()
            .map(|&(to, len, from)| tx.log_saved(to, len, from, &durable))
            .collect();
        let mut tx = tx.seal();
        self.locks.change();
        let mut copied = Ok(());
        for (range, &(to, len, _)) in ranges.iter().zip(&saved) {
            let start = (to - off) as usize;
            copied = tx.set_bulk(range, to, &data[start..start + len as usize]);
            if copied.is_err() {
                break;
            }
        }
        match copied {
            Ok(()) => {
                tx.commit();
                self.lazy_times();
            }
            // The program's memory is not mapped: the stores are taken back, and the log is closed.
            // With an open log a later recovery would copy from blocks that may belong to another
            // file by then.
            Err(Error::BadAddress) => {
                for (range, &(to, len, from)) in ranges.iter().zip(&saved) {
                    tx.put_back(range, to, from, len)?;
                }
                if !planted!("bug-put-back-unclosed") {
                    tx.commit();
                }
            }
            Err(_) => return copied,
        }
        self.replaced();
        copied
    }

    /// `ordered`: written blocks in place, the rest by replacement. May tear. The bytes written
    /// before space ran out count: an error would say that nothing was.
    fn overwrite_ordered(&mut self, at: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let here = at + done as u64;
            let within = here % BLOCK_BYTES;
            let left = (data.len() - done) as u64;
            let blocks = (within + left).div_ceil(BLOCK_BYTES);
            let extent: Extent = self.tree().extent(self.pool, block_of(here), blocks)?;
            let len = (extent.count * BLOCK_BYTES - within).min(left) as usize;
            let piece = &data[done..done + len];
            if extent.shared {
                match self.overwrite_atomic(here, piece) {
                    Err(Error::NoSpace) if done > 0 => break,
                    written => written?,
                }
                self.reload()?;
            } else if extent.written {
                self.locks.change();
                if let Err(error) = self.pool.pm.lazy_write(extent.off + within, piece) {
                    // The program's memory ends here: the bytes before were stored, and will be
                    // seen.
                    self.pool.pm.barrier();
                    self.lazy_times();
                    return Err(error.into());
                }
            } else {
                match self.fill_holes(here, piece) {
                    Err(Error::NoSpace) if done > 0 => break,
                    filled => {
                        let filled = filled?;
                        done += filled;
                        if filled < len {
                            break;
                        }
                        continue;
                    }
                }
            }
            done += len;
        }
        self.pool.pm.barrier();
        self.lazy_times();
        Ok(done)
    }

    /// Writes into a range that reads as zeros.
    fn fill_holes(&mut self, at: u64, data: &[u8]) -> Result<usize> {
        let first = block_of(at);
        let last = block_of(at + data.len() as u64 - 1);
        let found = self.tree().find(self.pool, first)?;
        if found.entry.is_leaf() && found.units > 1 {
            self.write_out_large(&found)?;
            return self.overwrite_ordered(at, data);
        }
        if first == last && is_direct(&self.tree(), &found, first) {
            self.overwrite_block(&found, first, at, data)?;
        } else {
            self.overwrite_range(first, last + 1, at, data)?;
        }
        Ok(data.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::ROOT_INO;
    use crate::scratch::{NODE, Scratch};
    use pmfs_format::BLOCK_BYTES;

    const BLOCK: usize = BLOCK_BYTES as usize;
    /// Goal: where a pointer was not stored, as the medium failed meanwhile, the block that it
    /// names is not given away. Method: a failure elsewhere in the middle of an overwrite; another
    /// process then overwrites a file of its own, in the same lane.
    #[test]
    fn a_block_whose_pointer_stays_is_not_given_away() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        fs.write(ino, 0, &[7; BLOCK]).unwrap();
        let other = scratch.open();
        let bad = 8 << 20;
        if let Err(error) = fs.mapping().poison(bad) {
            return eprintln!("skipped: no UFFDIO_POISON here: {error}");
        }
        let cut_short = fs.pool().on_file(ino, |work| {
            fs.mapping().load(bad);
            work.overwrite_atomic(0, &[8; BLOCK])
        });
        let own = other.create(ROOT_INO, b"own", &NODE).unwrap().ino;
        for byte in 1..4 {
            other.write(own, 0, &[byte; BLOCK]).unwrap();
        }
        let mut got = [0; BLOCK];
        other.read(ino, 0, &mut got).unwrap();
        assert!(got == [7; BLOCK], "{}", got[0]);
        assert!(cut_short.is_err());
        fs.close().unwrap();
        other.recover_dead().unwrap();
        assert!(scratch.is_sound());
    }
}
