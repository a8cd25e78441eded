//! Bytes past the end are undefined (docs/adr/0033-past-the-end.md). A call that moves the end over
//! them makes them zeros first.

use super::{Work, block_of};
use crate::tree::Found;
use crate::tree::entry::Entry;
use pm_journal::error::Result;
use pm_store::Durable;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::tree::UNWRITTEN;

impl Work<'_> {
    /// Makes everything from the end (`from`) up to `to` read as zeros, durable on return: bytes of
    /// blocks that are in use are zeroed, whole blocks are marked as unwritten.
    pub fn expose(&mut self, from: u64, to: u64) -> Result<Durable> {
        let tree = self.tree();
        let mut touched = None;
        let mut at = from;
        while at < to {
            let index = block_of(at);
            let found = tree.find(self.pool, index)?;
            let until = (found.base + found.units)
                .saturating_mul(BLOCK_BYTES)
                .min(to);
            if found.entry.is_leaf() && !found.entry.is_unwritten() {
                if found.entry.is_shared() {
                    self.own(index, until.div_ceil(BLOCK_BYTES))?;
                    return self.expose(from, to);
                }
                let whole =
                    at == found.base * BLOCK_BYTES && until - at == found.units * BLOCK_BYTES;
                // Programs see a pinned block itself, not what the tree says of it.
                if whole && !self.pinned {
                    let marked = found.entry.0 | UNWRITTEN;
                    self.pool.pm.publish_hidden(found.slot, marked);
                } else {
                    let off = found.entry.off() + (at - found.base * BLOCK_BYTES);
                    let mut fresh = self.pool.pm.fresh();
                    fresh.range(off, until - at).zero(0, until - at);
                    fresh.until_seal();
                }
                touched = Some(self.pool.pm.fresh());
            }
            at = until;
        }
        self.reload()?;
        match touched {
            Some(fresh) => Ok(fresh.barrier()),
            None => Ok(Durable::nothing_exposed()),
        }
    }

    /// A large leaf that reads as zeros becomes one that holds them, so that parts can be written.
    pub fn write_out_large(&mut self, found: &Found) -> Result<()> {
        let mut fresh = self.pool.pm.fresh();
        let len = found.units * BLOCK_BYTES;
        fresh.range(found.entry.off(), len).zero(0, len);
        let durable = fresh.barrier();
        self.locks.change();
        let word = found.entry.0 & !UNWRITTEN;
        let word = if found.level == 0 {
            Entry(word).rooted(self.tree().root.height()).0
        } else {
            word
        };
        self.pool.pm.publish(found.slot, word, durable);
        self.reload()
    }
}
