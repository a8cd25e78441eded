//! The superblock, its copy, the run record and the clean flag: reading, judging, first writing.

use crate::error::{Error, Result};
use pm_store::{Pm, Restore};
use pmem::Pmem;
use pmfs_format::superblock::{
    CLAIM_OFFSET, FEATURE_SHARED, FEATURE_SHARED_NODES, MAGIC, RUN_RECORD_OFFSET, STATE_ACTIVE,
    STATE_CLEAN, STATE_OFFSET,
};
use pmfs_format::{BLOCK_BYTES, RunRecordRaw, SuperblockRaw, VERSION};
use zerocopy::{FromBytes, IntoBytes};

/// Features of this build that a writer or reader must know.
const KNOWN_FEATURES: u64 = FEATURE_SHARED | FEATURE_SHARED_NODES;
/// Bytes that are summed up at a time.
const CRC_PART: usize = 64 << 10;

/// Returns what the CRC has to be.
pub fn crc_of(raw: &SuperblockRaw) -> u32 {
    crc32c::crc32c(&raw.as_bytes()[..252])
}

/// Fills in the CRC.
pub fn seal(raw: &mut SuperblockRaw) {
    raw.crc = crc_of(raw);
}

/// A zeroed superblock with the constants set.
pub fn blank() -> SuperblockRaw {
    let mut raw = SuperblockRaw::read_from_bytes(&[0; 256]).expect("the size is asserted");
    raw.magic = MAGIC;
    raw.version = VERSION;
    raw.block_shift = pmfs_format::BLOCK_SHIFT;
    raw
}

/// The superblock at a byte offset, whole or not.
///
/// # Errors
/// [`Error::Medium`].
pub fn read_at(mem: &Pmem, off: u64) -> Result<SuperblockRaw> {
    let mut bytes = [0u8; 256];
    mem.copy_out(off, &mut bytes)
        .map_err(|fault| Error::Medium {
            offset: fault.offset,
        })?;
    Ok(SuperblockRaw::read_from_bytes(&bytes).expect("the size is asserted"))
}

/// The superblocks of the two that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    pub primary: bool,
    pub copy: bool,
}

/// Reads the superblock, or its copy where the first is damaged.
///
/// # Errors
/// [`Error::NotAPool`], [`Error::TooNew`], [`Error::Features`], [`Error::Corrupt`].
pub fn load(mem: &Pmem) -> Result<(SuperblockRaw, Health)> {
    if mem.len() < 16 * BLOCK_BYTES {
        return Err(Error::not_a_pool(format!(
            "{} bytes are too few; the smallest pool has {}",
            mem.len(),
            16 * BLOCK_BYTES
        )));
    }
    let whole = |raw: &SuperblockRaw| raw.magic == MAGIC && raw.crc == crc_of(raw);
    // The other one serves where the medium can't give one.
    let nothing = || SuperblockRaw::read_from_bytes(&[0; 256]).expect("the size is asserted");
    let primary = read_at(mem, 0).unwrap_or_else(|_| nothing());
    // A pool may be shorter than its file: the superblock knows where its copy is.
    let end = if whole(&primary) {
        primary.blocks
    } else {
        mem.len() / BLOCK_BYTES
    };
    if end < 16 {
        return Err(Error::corrupt("superblock: too few blocks", 0));
    }
    if end
        .checked_mul(BLOCK_BYTES)
        .is_none_or(|bytes| bytes > mem.len())
    {
        return Err(Error::corrupt(
            "the pool file is shorter than the pool: it was truncated",
            mem.len(),
        ));
    }
    let copy = read_at(mem, (end - 1) * BLOCK_BYTES).unwrap_or_else(|_| nothing());
    let health = Health {
        primary: whole(&primary),
        copy: whole(&copy),
    };
    let raw = match (health.primary, health.copy) {
        (true, _) => primary,
        (false, true) => copy,
        (false, false) if primary.magic == MAGIC => {
            return Err(Error::corrupt(
                "superblock and its copy fail their checksums",
                0,
            ));
        }
        (false, false) => {
            // Unless that is why.
            read_at(mem, 0)?;
            return Err(Error::not_a_pool(
                "no PMFS superblock, and no copy at its end",
            ));
        }
    };
    if raw.version > VERSION {
        return Err(Error::TooNew {
            found: raw.version,
            known: VERSION,
        });
    }
    let unknown = (raw.features_incompat | raw.features_ro) & !KNOWN_FEATURES;
    if unknown != 0 {
        return Err(Error::Features { unknown });
    }
    Ok((raw, health))
}

/// Returns whether the file looks like a pool at all (for mkfs, which asks before it overwrites
/// one).
pub fn looks_like_pool(mem: &Pmem) -> bool {
    mem.len() >= 8 && mem.load(0) == MAGIC
}

/// Writes both superblocks; durable on return.
pub fn store(restore: &Restore<'_>, raw: &SuperblockRaw) -> Result<()> {
    let copy = (raw.blocks - 1) * BLOCK_BYTES;
    restore.bytes(copy, raw.as_bytes())?;
    restore.barrier();
    restore.bytes(0, raw.as_bytes())?;
    restore.barrier();
    Ok(())
}

/// Returns what the last first opener wrote, if it is whole.
pub fn run_record(mem: &Pmem) -> Option<RunRecordRaw> {
    let words = mem.read::<8>(RUN_RECORD_OFFSET);
    let raw = RunRecordRaw::read_from_bytes(words.as_bytes()).expect("the size is asserted");
    let crc = crc32c::crc32c(&words.as_bytes()[..56]);
    (raw.crc == u64::from(crc)).then_some(raw)
}

/// Writes the run record; durable with the next barrier, which is that of [`set_state`].
pub fn set_run_record(restore: &Restore<'_>, mut raw: RunRecordRaw) {
    raw.crc = u64::from(crc32c::crc32c(&raw.as_bytes()[..56]));
    let mut words = [0u64; 8];
    words.as_mut_bytes().copy_from_slice(raw.as_bytes());
    restore.words(RUN_RECORD_OFFSET, &words);
}

/// Claims the pool for its first opener, before it looks how the pool was left: who reaches the
/// pool by another name, through which locks don't meet, may do so at the same time. Answers what
/// stood there.
///
/// # Errors
/// [`Error::Elsewhere`]: on this boot the pool is somebody's by another name. `adopt`: that one is
/// known to be gone.
pub fn claim(pm: &Pm, ours: &RunRecordRaw, adopt: bool) -> Result<u64> {
    let claim = claim_of(ours);
    let seen = pm.load(CLAIM_OFFSET);
    let of_this_boot = seen != 0 && seen >> 32 == claim >> 32;
    if of_this_boot && seen != claim && !adopt {
        return Err(Error::Elsewhere);
    }
    let claimed = Restore::new(pm).cas(CLAIM_OFFSET, seen, claim);
    claimed.map_err(|_| Error::Elsewhere)
}

fn claim_of(record: &RunRecordRaw) -> u64 {
    let name = [record.dev, record.ino];
    let boot = u64::from(crc32c::crc32c(&record.boot_id));
    boot << 32 | u64::from(crc32c::crc32c(name.as_bytes()))
}

/// Gives the claim up: the pool is clean, or was not opened after all.
pub fn unclaim(pm: &Pm, to: u64) {
    Restore::new(pm).words(CLAIM_OFFSET, &[to]);
}

/// The state in which the pool was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Closed; the runtime area had this CRC.
    Clean(u32),
    /// In use, or left by a crash.
    Active,
}

/// Returns how the pool was left; anything that is no state counts as a crash.
pub fn state(mem: &Pmem) -> State {
    let word = mem.load(STATE_OFFSET);
    if word & u64::from(u32::MAX) == STATE_CLEAN {
        State::Clean((word >> 32) as u32)
    } else {
        State::Active
    }
}

/// Sets the clean flag; durable on return.
pub fn set_state(restore: &Restore<'_>, state: State) {
    let word = match state {
        State::Clean(crc) => STATE_CLEAN | u64::from(crc) << 32,
        State::Active => STATE_ACTIVE,
    };
    restore.words(STATE_OFFSET, &[word]);
    restore.barrier();
}

/// The next opener makes the runtime area anew. Durable.
pub fn distrust_record(pm: &Pm) {
    if let Some(last) = run_record(pm.mapping()) {
        let record = RunRecordRaw { layout: 0, ..last };
        let restore = Restore::new(pm);
        set_run_record(&restore, record);
        restore.barrier();
    }
}

/// CRC-32C of these bytes of the pool.
///
/// # Errors
/// `Medium`.
pub fn crc_of_range(mem: &Pmem, range: std::ops::Range<u64>) -> Result<u32> {
    crc_of_parts(mem, range, |_, _| {})
}

/// Sums up like [`crc_of_range`]; `see` is shown the bytes, part by part, and where each part
/// stands.
///
/// # Errors
/// Those of [`crc_of_range`].
pub fn crc_of_parts(
    mem: &Pmem,
    range: std::ops::Range<u64>,
    see: impl FnMut(u64, &[u8]),
) -> Result<u32> {
    crc_on(mem, 0, range, see)
}

/// Goes on like [`crc_of_parts`] from the checksum of earlier bytes.
///
/// # Errors
/// Those of [`crc_of_range`].
pub fn crc_on(
    mem: &Pmem,
    mut crc: u32,
    range: std::ops::Range<u64>,
    mut see: impl FnMut(u64, &[u8]),
) -> Result<u32> {
    let mut part = vec![0; CRC_PART.min((range.end - range.start) as usize)];
    let mut off = range.start;
    while off < range.end {
        let part = &mut part[..CRC_PART.min((range.end - off) as usize)];
        mem.copy_out(off, part).map_err(|fault| Error::Medium {
            offset: fault.offset,
        })?;
        crc = crc32c::crc32c_append(crc, part);
        see(off, part);
        off += part.len() as u64;
    }
    Ok(crc)
}
