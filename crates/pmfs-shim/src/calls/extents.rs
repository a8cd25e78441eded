//! ioctl(2) with FS_IOC_FIEMAP: where a file's blocks are in the pool, and which it shares.

use libc::{EFBIG, EINVAL, EOPNOTSUPP};
use pmfs::FileExtent;

use crate::call::{Answer, errno};
use crate::descriptors::pool::fs;
use crate::program;
use crate::thread::descriptor::Descriptor;

/// Bytes of a `struct fiemap` before its extents, and of a `struct fiemap_extent`.
const HEAD_BYTES: u64 = 32;
const EXTENT_BYTES: usize = 56;
/// Most extents of one call, as in the kernel.
const EXTENTS_MAX: u32 = u32::MAX / EXTENT_BYTES as u32;
/// Extents that are looked at together.
const AT_ONCE: usize = 512;
/// Flags of a request: to write back first, which is done always.
const SYNC: u32 = 1;
/// Flags of an extent.
const LAST: u32 = 1;
const UNWRITTEN: u32 = 0x800;
const SHARED: u32 = 0x2000;

/// Fills a program's `struct fiemap`.
pub(super) fn fiemap(file: &Descriptor, argument: u64) -> Answer {
    let [start, len]: [u64; 2] = program::read(argument)?;
    let [flags, _, room, _]: [u32; 4] = program::read(argument + 16)?;
    if room > EXTENTS_MAX || len == 0 {
        return Err(EINVAL);
    }
    if file.is_dir {
        return Err(EOPNOTSUPP);
    }
    if start > i64::MAX as u64 {
        return Err(EFBIG);
    }
    if flags & !SYNC != 0 {
        program::write(argument + 16, &[flags & !SYNC, 0])?;
        return Err(libc::EBADR);
    }
    let mapped = fill(file, (start, len), argument + HEAD_BYTES, room)?;
    program::write(argument + 20, &mapped).map(|()| 0)
}

/// Stores the extents of a range, as many as there is room for; answers how many. Without room they
/// are counted.
fn fill(file: &Descriptor, (start, len): (u64, u64), to: u64, room: u32) -> Result<u32, i32> {
    let (fs, end) = (fs()?, start.saturating_add(len));
    let (mut at, mut done) = (start, 0);
    while at < end && (room == 0 || done < room) {
        let most = match room {
            0 => AT_ONCE,
            room => AT_ONCE.min((room - done) as usize),
        };
        let (extents, is_end) = fs.extents(file.ino, at, end - at, most).map_err(errno)?;
        for (nth, extent) in extents.iter().enumerate() {
            if room > 0 {
                let is_last = is_end && nth + 1 == extents.len();
                let place = to + u64::from(done) * EXTENT_BYTES as u64;
                program::write(place, &words(extent, is_last))?;
            }
            done = done.saturating_add(1);
        }
        match extents.last() {
            Some(last) if !is_end => at = last.at + last.len,
            _ => break,
        }
    }
    Ok(done)
}

/// The words of a `struct fiemap_extent`.
fn words(extent: &FileExtent, is_last: bool) -> [u64; EXTENT_BYTES / 8] {
    let mut flags = 0;
    for (flag, is_set) in [
        (LAST, is_last),
        (UNWRITTEN, !extent.written),
        (SHARED, extent.shared),
    ] {
        if is_set {
            flags |= flag;
        }
    }
    let [at, off, len] = [extent.at, extent.off, extent.len];
    [at, off, len, 0, 0, u64::from(flags), 0]
}
