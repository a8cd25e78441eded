//! ioctl(2) with FICLONE, FICLONERANGE and FIDEDUPERANGE: files that share blocks.

use libc::{EBADF, EINVAL, EISDIR, EXDEV};
use pmfs::Fs;

use crate::call::{Answer, errno};
use crate::calls::files::before_storing;
use crate::descriptors as table;
use crate::descriptors::pool::fs;
use crate::maps::mapped_size;
use crate::own::kernel;
use crate::program;
use crate::program::credentials::{self, WRITE};
use crate::program::limits;
use crate::thread::descriptor::Descriptor;

const BLOCK_BYTES: u64 = 4096;
/// Most bytes of FIDEDUPERANGE, as in the kernel.
const DEDUPE_MAX: u64 = 1 << 30;
/// Most bytes of its argument: what is longer is ENOMEM.
const ARGUMENT_MAX: u64 = 4096;
/// Bytes of its head, and of each target behind it.
const HEAD_BYTES: u64 = 24;
const TARGET_BYTES: u64 = 32;
/// The status of a target that holds other bytes.
const DIFFERS: i64 = 1;

/// FICLONE, whose argument is the source's descriptor.
pub(super) fn whole(to: &Descriptor, source: u64) -> Answer {
    clone(to, source, [0; 3])
}

/// FICLONERANGE, whose argument is a `struct file_clone_range`.
pub(super) fn range(to: &Descriptor, argument: u64) -> Answer {
    let [source, from_at, len, to_at]: [u64; 4] = program::read(argument)?;
    clone(to, source, [from_at, len, to_at])
}

/// The error of a descriptor that the pool does not have.
fn elsewhere(number: u64) -> i32 {
    let flags = kernel::plain(libc::SYS_fcntl, &[number, libc::F_GETFL as u64]);
    if flags < 0 { EBADF } else { EXDEV }
}

/// Refuses places that are no offsets of files.
fn check_offsets(len: u64, places: [u64; 2]) -> Result<(), i32> {
    let fits = |at: u64| {
        at.checked_add(len)
            .is_some_and(|end| end <= i64::MAX as u64)
    };
    match places.into_iter().all(fits) {
        true => Ok(()),
        false => Err(EINVAL),
    }
}

fn clone(to: &Descriptor, source: u64, [from_at, len, to_at]: [u64; 3]) -> Answer {
    let from = table::get(source).ok_or_else(|| elsewhere(source))?;
    if to.is_dir || from.is_dir {
        return Err(EISDIR);
    }
    let fs = fs()?;
    let append = fs.file_flags(to.file) & libc::O_APPEND as u64 != 0;
    if !from.reads() || !to.writes() || append {
        return Err(EBADF);
    }
    check_offsets(len, [from_at, to_at])?;
    let bytes = match len {
        0 => size(fs, &from)?.saturating_sub(from_at),
        len => len,
    };
    if limits::cut(bytes, || Ok(to_at))? < bytes {
        return Err(EINVAL);
    }
    before_storing(fs, to)?;
    let cloned = fs.clone_range((from.ino, from_at), (to.ino, to_at), len);
    mapped_size::changed(to.ino);
    cloned.map(|()| 0).map_err(errno)
}

fn size(fs: &Fs, file: &Descriptor) -> Answer {
    fs.getattr(file.ino).map(|attr| attr.size).map_err(errno)
}

/// FIDEDUPERANGE: the argument is a `struct file_dedupe_range`, and gets each target's answer.
pub(super) fn dedupe(from: &Descriptor, argument: u64) -> Answer {
    let [from_at, len, counts]: [u64; 3] = program::read(argument)?;
    let (count, reserved) = (counts & 0xffff, counts >> 16);
    if HEAD_BYTES + count * TARGET_BYTES > ARGUMENT_MAX {
        return Err(libc::ENOMEM);
    }
    if !from.reads() || reserved != 0 {
        return Err(EINVAL);
    }
    if from.is_dir {
        return Err(EISDIR);
    }
    let fs = fs()?;
    check_offsets(len, [from_at, 0])?;
    if from_at + len > size(fs, from)? {
        return Err(EINVAL);
    }
    let len = len.min(DEDUPE_MAX);
    for target in 0..count {
        let at = argument + HEAD_BYTES + target * TARGET_BYTES;
        let [number, to_at, _, state]: [u64; 4] = program::read(at)?;
        let deduped = match state >> 32 {
            0 => dedupe_one(fs, (from, from_at), (number, to_at), len),
            _ => Err(EINVAL),
        };
        let (bytes, status) = match deduped {
            Ok(Some(bytes)) => (bytes, 0),
            Ok(None) => (0, DIFFERS),
            Err(errno) => (0, -i64::from(errno)),
        };
        program::write(at + 16, &[bytes, u64::from(status as u32)])?;
    }
    Ok(0)
}

/// Answers how many bytes the files share then; `None`: they are not the same.
fn dedupe_one(
    fs: &Fs,
    (from, from_at): (&Descriptor, u64),
    (number, to_at): (u64, u64),
    len: u64,
) -> Result<Option<u64>, i32> {
    let to = table::get(number).ok_or_else(|| elsewhere(number))?;
    check_offsets(len, [to_at, 0])?;
    let attr = fs.getattr(to.ino).map_err(errno)?;
    if !to.writes() {
        let owner = credentials::allow_owner(&attr);
        let may = owner.or_else(|_| credentials::allow(fs, &attr, WRITE));
        may.map_err(|_| libc::EPERM)?;
    }
    if to.is_dir {
        return Err(EISDIR);
    }
    let ends = from_at + len == size(fs, from)? && to_at + len == attr.size;
    let len = match ends {
        true => len,
        false => len / BLOCK_BYTES * BLOCK_BYTES,
    };
    if len == 0 {
        return Ok(Some(0));
    }
    let same = fs.dedupe_range((from.ino, from_at), (to.ino, to_at), len);
    Ok(same.map_err(errno)?.then_some(len))
}
