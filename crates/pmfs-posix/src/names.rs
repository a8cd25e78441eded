//! The rules for the last name of a path, and a slash after it: `fs/namei.c` of Linux.

use libc::{EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY};
use pmfs::types::mode;
use pmfs::{Attr, RenameFlags};

/// The end of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// The path ends in a name.
    #[default]
    Name,
    /// The path ends in the root.
    Root,
    /// The path ends in `.`.
    Dot,
    /// The path ends in `..`.
    DotDot,
}

impl Last {
    /// The end of a path whose last part is `part`.
    #[must_use]
    pub fn of(part: &[u8]) -> Last {
        match part {
            b"." => Last::Dot,
            b".." => Last::DotDot,
            _ => Last::Name,
        }
    }
}

/// The last name of a path to be made, removed or moved: a link there is not followed, even with a
/// slash behind it.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The last part.
    pub last: Last,
    /// A slash stands behind it.
    pub slash: bool,
    /// The attributes of the inode there.
    pub attr: Option<&'a Attr>,
}

impl End<'_> {
    fn is_dir(&self) -> bool {
        self.attr.is_some_and(is_dir)
    }
}

/// Returns whether an inode is a directory.
#[must_use]
pub fn is_dir(attr: &Attr) -> bool {
    attr.mode & mode::S_IFMT == mode::S_IFDIR
}

/// Checks that a directory (`dir`) or something else may be made there.
///
/// # Errors
/// EEXIST; ENOENT: a slash behind the name of what is no directory.
pub fn allow_making(end: End<'_>, dir: bool) -> Result<(), i32> {
    if end.last != Last::Name || end.attr.is_some() {
        return Err(EEXIST);
    }
    if end.slash && !dir {
        Err(ENOENT)
    } else {
        Ok(())
    }
}

/// Checks that unlink may be tried; rights are checked elsewhere.
///
/// # Errors
/// EISDIR, ENOENT, ENOTDIR.
pub fn allow_unlink(end: End<'_>) -> Result<(), i32> {
    if end.last != Last::Name {
        return Err(EISDIR);
    }
    match end.attr {
        None => Err(ENOENT),
        Some(_) if !end.slash => Ok(()),
        Some(attr) if is_dir(attr) => Err(EISDIR),
        Some(_) => Err(ENOTDIR),
    }
}

/// Checks that rmdir may be tried.
///
/// # Errors
/// EINVAL, ENOTEMPTY, EBUSY, ENOENT.
pub fn allow_rmdir(end: End<'_>) -> Result<(), i32> {
    match end.last {
        Last::Dot => Err(EINVAL),
        Last::DotDot => Err(ENOTEMPTY),
        Last::Root => Err(EBUSY),
        Last::Name => end.attr.map(drop).ok_or(ENOENT),
    }
}

/// Checks that rename may be tried.
///
/// # Errors
/// EBUSY, EEXIST, ENOENT, ENOTDIR.
pub fn allow_rename(from: End<'_>, to: End<'_>, flags: RenameFlags) -> Result<(), i32> {
    let new = flags.contains(RenameFlags::NOREPLACE);
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if from.last != Last::Name {
        return Err(EBUSY);
    }
    if to.last != Last::Name {
        return Err(if new { EEXIST } else { EBUSY });
    }
    let source = from.attr.ok_or(ENOENT)?;
    if new && to.attr.is_some() {
        return Err(EEXIST);
    }
    if exchange && to.attr.is_none() {
        return Err(ENOENT);
    }
    if exchange && to.slash && !to.is_dir() {
        return Err(ENOTDIR);
    }
    let wants_dir = from.slash || to.slash && !exchange;
    if wants_dir && !is_dir(source) {
        return Err(ENOTDIR);
    }
    Ok(())
}

/// Flags of renameat2(2).
///
/// # Errors
/// EINVAL: unknown ones, or two that exclude each other.
pub fn rename_flags(bits: u32) -> Result<RenameFlags, i32> {
    let flags = RenameFlags::from_bits(bits).ok_or(EINVAL)?;
    let others = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
    if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(others) {
        return Err(EINVAL);
    }
    Ok(flags)
}
