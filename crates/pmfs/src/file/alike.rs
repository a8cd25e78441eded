//! Whether two ranges hold the same bytes, of files whose locks the caller has.

use super::{Work, block_of};
use crate::pool::Pool;
use crate::tree::{Extent, Tree};
use pm_journal::error::Result;
use pmfs_format::BLOCK_BYTES;

/// Bytes that are compared at a time.
const PART: u64 = 64 << 10;

impl Work<'_> {
    /// Compares `len` bytes of another file, from `from` on, with those of this one from `to` on.
    /// Both places are on blocks; blocks that both files name are not read.
    ///
    /// # Errors
    /// `Corrupt`, `Medium`.
    pub(super) fn is_alike(&self, source: &Tree, (from, to): (u64, u64), len: u64) -> Result<bool> {
        let [mut theirs, mut ours] = [vec![0; PART as usize], vec![0; PART as usize]];
        let mut done = 0;
        while done < len {
            let blocks = (len - done).div_ceil(BLOCK_BYTES);
            let their = source.extent(self.pool, block_of(from + done), blocks)?;
            let our = self.tree().extent(self.pool, block_of(to + done), blocks)?;
            let bytes = (their.count.min(our.count) * BLOCK_BYTES).min(len - done);
            let same = match (their.written, our.written) {
                (true, true) => their.off == our.off,
                (theirs, ours) => theirs == ours,
            };
            let end = if same { 0 } else { bytes };
            for at in (0..end).step_by(PART as usize) {
                let count = PART.min(bytes - at) as usize;
                let (theirs, ours) = (&mut theirs[..count], &mut ours[..count]);
                fill(self.pool, &their, at, theirs)?;
                fill(self.pool, &our, at, ours)?;
                if theirs != ours {
                    return Ok(false);
                }
            }
            done += bytes;
        }
        Ok(true)
    }
}

/// The bytes of an extent from `at` on.
fn fill(pool: &Pool, extent: &Extent, at: u64, into: &mut [u8]) -> Result<()> {
    match extent.written {
        true => pool.pm.copy_out(extent.off + at, into)?,
        false => into.fill(0),
    }
    Ok(())
}
