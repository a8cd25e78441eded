//! Pins: files whose own blocks programs have mapped (docs/adr/0010-pins.md,
//! docs/adr/0031-atomic-writes.md).
//!
//! A program's stores there go past the engine. So as long as an inode has a pin, of any process:
//! - none of its blocks moves or is freed: it is written in place, as in `ordered` mode, and no
//!   byte beside those that are asked for is stored; truncate and punch make zeros and leave the
//!   blocks in the tree;
//! - no undo entry is made of its data, or the death of one process would take back the stores of
//!   another;
//! - a mount's kernel holds no pages of it that could differ from the blocks.
//!
//! A pin is a record like those of kernel copies, one for each slot and inode, changed under the
//! inode's lock; a change of the content looks there anyway. A pin ends with its slot. The process
//! itself counts whether it still needs the pin.

use crate::file::{Work, block_of};
use crate::inode::Inode;
use crate::mapping::stored::Elsewhere;
use crate::pages::records::Record;
use crate::pool::Pool;
use crate::tables::open_table::Thing;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_journal::locks::{LockSet, line_of};
use pm_space::Class;
use pmfs_format::runtime::{
    KERNEL_COPY_MAYBE_DIRTY, KERNEL_COPY_PIN_APART, KERNEL_COPY_PIN_READ, KERNEL_COPY_PIN_WRITE,
    KERNEL_COPY_READ,
};
use pmfs_format::{BLOCK_BYTES, KernelCopyRaw};
use pmshare::rescue;

/// Some of a file's blocks that lie side by side in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The place in the file, bytes.
    pub at: u64,
    /// The place in the pool, bytes.
    pub off: u64,
    /// Bytes; whole blocks.
    pub len: u64,
}
impl Pool {
    /// Pages of kernels that a pin can't stand beside.
    fn pages_beside_pin(&self, line: u64, ino: Ino, writes: bool) -> Result<()> {
        let stands = |copy: Record| match copy.kind {
            KERNEL_COPY_MAYBE_DIRTY => false,
            KERNEL_COPY_READ => !writes,
            _ => true,
        };
        match self.copies_of(line, ino).all(stands) {
            true => Ok(()),
            false => Err(Error::Mapped),
        }
    }

    /// Returns whether a process below a mount has it open: that one may be about to map it, and
    /// could not stand beside a pin.
    fn is_open_below_mounts(&self, ino: Ino) -> bool {
        let below_a_mount = |slot| self.is_mount(slot) && !self.slot_dead(slot);
        self.is_had_by(Thing::Inode(ino), below_a_mount)
    }

    pub(crate) fn pin(&self, ino: Ino, writes: bool) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let locks = LockSet::take(self, &[ino]);
        // Programs store to what it covers by themselves.
        locks.drain();
        let inode = Inode::live(self, ino)?;
        inode.require_file()?;
        if writes {
            inode.changeable()?;
        }
        let line = locks.first();
        self.pages_beside_pin(line, ino, writes)?;
        if !self.is_pinned(line, ino) && self.is_open_below_mounts(ino) {
            return Err(Error::Mapped);
        }
        let apart = |copy: Record| copy.kind == KERNEL_COPY_PIN_APART;
        if self.copies_of(line, ino).any(apart) {
            return Err(Error::Mapped);
        }
        let kind = match writes {
            true => KERNEL_COPY_PIN_WRITE,
            false => KERNEL_COPY_PIN_READ,
        };
        match self.own_copy(line, ino) {
            Some(own) if own.kind < kind => self
                .pm
                .runtime()
                .store(KernelCopyRaw::kind.of(own.off), kind),
            Some(_) => {}
            None => drop(self.claim_copy_for(self.holder().slot, line, ino, kind)?),
        }
        if writes {
            self.mark_stored_elsewhere(line, ino);
        }
        Ok(())
    }

    /// Returns whether another mapping than those that this process had at the last call may have
    /// stored to the inode's blocks. All such stores count as known from now on, but for those that
    /// others can still make.
    pub(crate) fn take_stored_elsewhere(&self, ino: Ino) -> Result<Elsewhere> {
        self.alive()?;
        let locks = LockSet::take(self, &[ino]);
        let line = locks.first();
        let Some(own) = self.own_copy(line, ino).filter(Record::is_pin) else {
            return Ok(Elsewhere::Now);
        };
        let may_store =
            |copy: Record| copy.kind == KERNEL_COPY_PIN_WRITE && copy.slot() != own.slot();
        if self.copies_of(line, ino).any(may_store) {
            return Ok(Elsewhere::Now);
        }
        if self.pm.load(KernelCopyRaw::stored_elsewhere.of(own.off)) == 0 {
            return Ok(Elsewhere::No);
        }
        self.pm
            .runtime()
            .store(KernelCopyRaw::stored_elsewhere.of(own.off), 0);
        Ok(Elsewhere::Before)
    }

    /// See [`crate::Fs::pin_apart`].
    pub(crate) fn pin_apart(&self, ino: Ino) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let locks = LockSet::take(self, &[ino]);
        // Programs store to what it covers by themselves.
        locks.drain();
        Inode::live(self, ino)?.require_file()?;
        let line = locks.first();
        self.pages_beside_pin(line, ino, false)?;
        if let Some(own) = self.own_copy(line, ino)
            && own.kind == KERNEL_COPY_PIN_APART
        {
            return Ok(());
        }
        if self.is_pinned(line, ino) || self.is_open_below_mounts(ino) {
            return Err(Error::Mapped);
        }
        let slot = self.holder().slot;
        self.claim_copy_for(slot, line, ino, KERNEL_COPY_PIN_APART)?;
        Ok(())
    }

    pub(crate) fn unpin(&self, ino: Ino) -> Result<()> {
        self.alive()?;
        let line = line_of(self, ino);
        let trims = {
            let _locks = LockSet::take(self, &[ino]);
            let Some(own) = self.own_copy(line, ino).filter(Record::is_pin) else {
                return Ok(());
            };
            let trims = self.pm.load(KernelCopyRaw::trims.of(own.off)) != 0;
            self.free_copy(&own);
            trims && !self.is_pinned(line, ino)
        };
        if trims && self.writable().is_ok() {
            self.on_blocks(ino, |work| match work.pinned {
                true => Ok(()),
                false => work.trim(work.inode.size()),
            })?;
        }
        Ok(())
    }

    /// See [`crate::Fs::blocks`] and [`crate::Fs::blocks_there`], which gives no memory to
    /// anything.
    pub(crate) fn blocks(
        &self,
        ino: Ino,
        at: u64,
        len: u64,
        gives: Option<u64>,
    ) -> Result<Vec<BlockRun>> {
        self.on_blocks(ino, |work| {
            if !work.pinned {
                return Err(Error::Invalid(&"blocks of a file that is not pinned"));
            }
            let from = block_of(at);
            let end = work.inode.size().min(at.saturating_add(len));
            let to = end.div_ceil(BLOCK_BYTES);
            if from >= to {
                return Ok(Vec::new());
            }
            if gives.is_some() && self.writable().is_ok() {
                work.own_node(Class::Ordinary)?;
            }
            let mut runs = work.runs(from, to)?;
            let there: u64 = runs.iter().map(|run| run.len).sum();
            let missing = (to - from) * BLOCK_BYTES - there;
            if let Some(most) = gives
                && missing > 0
            {
                self.writable()?;
                if missing > most {
                    return Err(Error::NoSpace);
                }
                work.make_real(from, to)?;
                runs = work.runs(from, to)?;
            }
            // A last block that the program has not got shows it nothing.
            let end = to * BLOCK_BYTES;
            if runs.last().is_some_and(|run| run.at + run.len == end) {
                work.zero_end(to)?;
            }
            Ok(runs)
        })
    }

    /// See [`crate::Fs::flush_blocks`].
    pub(crate) fn flush_blocks(&self, ino: Ino, parts: &[(u64, u64)]) -> Result<()> {
        self.writable()?;
        self.on_blocks(ino, |work| {
            for &(at, len) in parts {
                let end = work.inode.size().min(at.saturating_add(len));
                let (from, to) = (block_of(at), end.div_ceil(BLOCK_BYTES));
                if from < to {
                    for run in work.runs(from, to)? {
                        self.pm.flush_mapped(run.off, run.len);
                    }
                }
            }
            self.pm.barrier();
            work.lazy_times();
            Ok(())
        })
    }

    /// Does it again if only dead processes were in the way.
    pub(crate) fn unless_dead<T>(&self, ino: Ino, call: impl Fn() -> Result<T>) -> Result<T> {
        let answer = call();
        if matches!(answer, Err(Error::Mapped)) {
            let mut others = self.copies_of(line_of(self, ino), ino);
            let is_dead = |copy: Record| copy.slot().is_some_and(|slot| self.slot_dead(slot));
            if others.any(is_dead) {
                rescue::recover_dead(self)?;
                return call();
            }
        }
        answer
    }
}

impl Work<'_> {
    /// Gives these blocks memory that holds what they read as.
    fn make_real(&mut self, from: u64, to: u64) -> Result<()> {
        self.allocate(from * BLOCK_BYTES, to * BLOCK_BYTES)?;
        let mut index = from;
        while index < to {
            self.reload()?;
            let found = self.tree().find(self.pool, index)?;
            if found.entry.is_unwritten() {
                self.write_out_large(&found)?;
            }
            index = found.base + found.units;
        }
        self.own(from, to)?;
        self.reload()
    }

    /// A program sees the bytes behind the end, too, in the last block before `to`.
    fn zero_end(&mut self, to: u64) -> Result<()> {
        let size = self.inode.size();
        if size < to * BLOCK_BYTES {
            self.zero_in_place(size, to * BLOCK_BYTES)?;
        }
        Ok(())
    }

    /// The runs of these blocks; holes have none, and none that other leaves may name: a program
    /// must not see them move.
    fn runs(&self, from: u64, to: u64) -> Result<Vec<BlockRun>> {
        let mut runs: Vec<BlockRun> = Vec::new();
        let mut index = from;
        while index < to {
            let extent = self.tree().extent(self.pool, index, to - index)?;
            let (at, len) = (index * BLOCK_BYTES, extent.count * BLOCK_BYTES);
            index += extent.count;
            if !extent.written || extent.shared {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.at + last.len == at && last.off + last.len == extent.off => {
                    last.len += len;
                }
                _ => runs.push(BlockRun {
                    at,
                    off: extent.off,
                    len,
                }),
            }
        }
        Ok(runs)
    }
}
