//! New inode numbers, and the table's growth under them.

use crate::inode::{Inode, NewInode, PER_BLOCK};
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::tree::edit::{Edit, Leaves};
use crate::tree::entry::Entry;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_journal::locks::drain_place;
use pm_journal::medium::header::grow_word;
use pm_journal::medium::store::Held;
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::inode::TABLE_INO;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw};

/// Gives out a number whose place in the table exists. The lane records the number: unless the
/// inode gets links or a holder, resolving the intent takes it back.
///
/// # Errors
/// `NoInodes`, `NoSpace`.
pub(crate) fn new_ino(pool: &Pool, lane: &Lane<'_>) -> Result<(Ino, u64)> {
    let ino = pool.alloc_ino(lane)?;
    drain_place(pool, ino);
    match pool.inode_off(ino) {
        Ok(off) => {
            if !planted!("bug-growth-not-awaited") {
                await_growth(pool);
            }
            Ok((ino, off))
        }
        Err(Error::Stale) => {
            grow(pool, lane, ino)?;
            Ok((ino, pool.inode_off(ino)?))
        }
        Err(error) => Err(error),
    }
}

/// Writes a new inode, without links, where nothing refers to yet; answers its offset.
pub(crate) fn write(
    pool: &Pool,
    fresh: &mut FreshSet<'_>,
    off: u64,
    new: &NewInode<'_>,
    now_ns: i64,
) -> u32 {
    let generation = (pool.pm.load(InodeRaw::mode.of(off)) >> InodeRaw::generation.shift()) as u32;
    let generation = generation.wrapping_add(1);
    let range = fresh.range(off, InodeRaw::SIZE);
    range.words(0, &new.words(generation, now_ns));
    generation
}

/// Waits for a process that is growing the table: the pointer to the block just found may be its,
/// and not durable yet. An inode built on it could return and be lost.
fn await_growth(pool: &Pool) {
    let word = grow_word(pool);
    if pool.pm.load(word) != 0 {
        drop(Held::new(pool, word));
    }
}

/// Adds the table's block for `ino`: zeroed, then published with one store.
pub fn grow(pool: &Pool, lane: &Lane<'_>, ino: Ino) -> Result<()> {
    let _held = Held::new(pool, grow_word(pool));
    let index = ino / PER_BLOCK;
    let table = pool.inode_table();
    if table.find(pool, index)?.entry.is_leaf() {
        return Ok(());
    }
    let mut fresh = pool.pm.fresh();
    let edit = Edit {
        pool,
        lane,
        ino: TABLE_INO,
        class: Class::Ordinary,
        from: index,
        to: index + 1,
    };
    let swing = edit.build(&mut fresh, &table, &mut TableBlock { pool, lane })?;
    let durable = fresh.barrier();
    // Other processes may see the word before it is durable; if this process dies there, recovery
    // flushes it.
    lane.intend(1, Purpose::Word { off: swing.slot })?;
    pool.pm.publish(swing.slot, swing.new.0, durable);
    Ok(())
}

struct TableBlock<'a> {
    pool: &'a Pool,
    lane: &'a Lane<'a>,
}

impl Leaves for TableBlock<'_> {
    fn whole(&mut self, _level: u32, _index: u64) -> Result<Option<Entry>> {
        Ok(None)
    }

    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, _old: Entry) -> Result<Entry> {
        let purpose = Purpose::leaf(TABLE_INO, index);
        let run = self
            .pool
            .alloc(self.lane, 1, Class::Ordinary, Zone::Meta, purpose)?;
        let off = run.block << BLOCK_SHIFT;
        fresh.range(off, BLOCK_BYTES).zero(0, BLOCK_BYTES);
        Ok(Entry::leaf(off))
    }
}

/// Reads the inode that a call just made, for its answer.
pub(crate) fn made(pool: &Pool, ino: Ino) -> Result<Inode> {
    Inode::load(pool, ino)
}
