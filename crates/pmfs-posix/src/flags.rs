//! Flags that system calls take: Linux refuses those that it does not know (EINVAL),
//! before it looks at any name.

use libc::{
    AT_EACCESS, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_REMOVEDIR, AT_SYMLINK_FOLLOW,
    AT_SYMLINK_NOFOLLOW, EINVAL, O_ACCMODE, O_APPEND, O_ASYNC, O_CLOEXEC, O_CREAT, O_DIRECT,
    O_DIRECTORY, O_DSYNC, O_EXCL, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_SYNC,
    O_TMPFILE, O_TRUNC,
};

/// Calls that take flags of the AT_ kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtCall {
    /// fstatat(2), statx(2).
    Stat,
    /// linkat(2).
    Link,
    /// unlinkat(2).
    Unlink,
    /// faccessat2(2).
    Access,
    /// fchownat(2), fchmodat2(2), utimensat(2), setxattrat(2) and its kin.
    Attribute,
}

/// The flags of statx(2) for how recent its answer is to be: at most one of two.
const STATX_SYNC_TYPE: i32 = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
/// A bit of its mask that is kept for later.
const STATX_RESERVED: u32 = 1 << 31;

/// Checks that the call knows all of these flags.
///
/// # Errors
/// EINVAL.
pub fn allow_at(call: AtCall, flags: u64) -> Result<(), i32> {
    let known = match call {
        AtCall::Stat => AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | STATX_SYNC_TYPE,
        AtCall::Link => AT_SYMLINK_FOLLOW | AT_EMPTY_PATH,
        AtCall::Unlink => AT_REMOVEDIR,
        AtCall::Access => AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH,
        AtCall::Attribute => AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH,
    };
    // The argument is an int: the bits above it have no meaning.
    known_alone(flags as u32, known as u32)
}

fn known_alone(flags: u32, known: u32) -> Result<(), i32> {
    if flags & !known == 0 {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// Flags and mask of statx(2).
///
/// # Errors
/// EINVAL.
pub fn allow_statx(flags: u64, mask: u64) -> Result<(), i32> {
    let both = flags as i32 & STATX_SYNC_TYPE == STATX_SYNC_TYPE;
    if both || mask as u32 & STATX_RESERVED != 0 {
        return Err(EINVAL);
    }
    allow_at(AtCall::Stat, flags)
}

/// Rights that access(2) may be asked for.
///
/// # Errors
/// EINVAL.
pub fn allow_access(want: u64) -> Result<(), i32> {
    known_alone(want as u32, 7)
}

/// Flags of sync_file_range(2), which take no effect here, and its range.
///
/// # Errors
/// EINVAL.
pub fn allow_sync_range(offset: u64, bytes: u64, flags: u64) -> Result<(), i32> {
    allow_range(offset, bytes)?;
    known_alone(flags as u32, 7)
}

/// Advice of posix_fadvise(2): POSIX_FADV_NORMAL to POSIX_FADV_NOREUSE.
///
/// # Errors
/// EINVAL.
pub fn allow_advice(bytes: u64, advice: u64) -> Result<(), i32> {
    let known = (0..=5).contains(&(advice as i32)) && bytes as i64 >= 0;
    if known { Ok(()) } else { Err(EINVAL) }
}

fn allow_range(offset: u64, bytes: u64) -> Result<(), i32> {
    let (offset, bytes) = (offset as i64, bytes as i64);
    let ends = offset.checked_add(bytes);
    let good = offset >= 0 && ends.is_some_and(|end| end >= offset);
    if good { Ok(()) } else { Err(EINVAL) }
}

/// Flags of open(2) that the kernel knows; it leaves others out, but for openat2(2),
/// which refuses them.
const OPEN: i32 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_DSYNC
    | O_SYNC
    | O_ASYNC
    | O_DIRECT
    | LARGE_FILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | O_PATH
    | O_TMPFILE;
/// O_LARGEFILE, which is 0 to programs of 64 bits.
const LARGE_FILE: i32 = 0o100_000;
/// The flags that keep a meaning beside O_PATH.
const WITH_PATH: i32 = O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;

/// The flags of open(2) that mean something.
///
/// # Errors
/// EINVAL: a directory that is to be made; a file without a name that can't be written.
#[inline]
pub fn open_flags(flags: i32) -> Result<i32, i32> {
    let flags = flags & OPEN;
    // Mostly there is none of those that do not go together with all others.
    if flags & (O_PATH | O_DIRECTORY | O_TMPFILE) == 0 {
        return Ok(flags);
    }
    rarer_open_flags(flags)
}

fn rarer_open_flags(flags: i32) -> Result<i32, i32> {
    if flags & O_PATH != 0 {
        return Ok(flags & WITH_PATH);
    }
    allow_open(flags)?;
    Ok(flags)
}

fn allow_open(flags: i32) -> Result<(), i32> {
    let unnamed = O_TMPFILE & !O_DIRECTORY;
    let wrong = flags & (O_DIRECTORY | O_CREAT) == O_DIRECTORY | O_CREAT
        || flags & unnamed != 0
            && (flags & O_DIRECTORY == 0 || flags & O_ACCMODE == libc::O_RDONLY);
    if wrong { Err(EINVAL) } else { Ok(()) }
}

/// Checks the arguments of openat2(2): `[flags, mode, resolve]`.
///
/// # Errors
/// EINVAL.
pub fn allow_openat2([flags, mode, resolve]: [u64; 3]) -> Result<(), i32> {
    const BENEATH: u64 = 0x08;
    const IN_ROOT: u64 = 0x10;
    const CACHED: u64 = 0x20;
    const RESOLVE: u64 = 0x3f;
    let both = BENEATH | IN_ROOT;
    let Ok(flags) = i32::try_from(flags) else {
        return Err(EINVAL);
    };
    let makes = flags & (O_CREAT | O_TMPFILE & !O_DIRECTORY) != 0;
    let mode_max = if makes { 0o7777 } else { 0 };
    let changes = flags & (O_TRUNC | O_CREAT | O_TMPFILE & !O_DIRECTORY) != 0;
    let wrong = flags & !OPEN != 0
        || resolve & !RESOLVE != 0
        || resolve & both == both
        || mode & !mode_max != 0
        || flags & O_PATH != 0 && flags & !WITH_PATH != 0;
    if wrong {
        return Err(EINVAL);
    }
    allow_open(flags)?;
    // A lookup in the kernel's cache alone changes nothing.
    if resolve & CACHED != 0 && changes {
        return Err(libc::EAGAIN);
    }
    Ok(())
}
