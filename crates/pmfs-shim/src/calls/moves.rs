//! Calls that move data between two descriptors: their arguments are checked here, in the kernel's
//! order, before any data moves.

use libc::{
    EBADF, EINVAL, EISDIR, EXDEV, O_ACCMODE, O_APPEND, O_RDONLY, O_WRONLY, S_IFDIR, S_IFMT,
};

use crate::call::Verdict;
use crate::calls::files;
use crate::descriptors;
use crate::descriptors::pool::fs;
use crate::own::kernel;
use crate::thread::descriptor::Descriptor;

/// One end of such a call.
pub(super) struct End {
    pub kind: u32,
    pub flags: i32,
}

impl End {
    /// The end of a descriptor of ours, or of the kernel's.
    ///
    /// # Errors
    /// EBADF.
    pub fn of(number: u64, ours: Option<&Descriptor>) -> Result<End, i32> {
        if let Some(file) = ours {
            if file.has_path_only() {
                return Err(EBADF);
            }
            let append = fs()?.file_flags(file.file) as i32 & O_APPEND;
            let kind = if file.is_dir { S_IFDIR } else { libc::S_IFREG };
            return Ok(End {
                kind,
                flags: file.access | append,
            });
        }
        let flags = kernel::plain(libc::SYS_fcntl, &[number, libc::F_GETFL as u64]);
        if flags < 0 || flags as i32 & libc::O_PATH != 0 || descriptors::is_own(number) {
            return Err(EBADF);
        }
        let mut stat = [0u64; 18];
        let at = stat.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the kernel fills a struct stat.
        let told = unsafe { kernel::call(libc::SYS_fstat, [number, at, 0, 0, 0, 0]) };
        if told < 0 {
            return Err(EBADF);
        }
        Ok(End {
            // The word after st_dev, st_ino and st_nlink.
            kind: std::hint::black_box(stat)[3] as u32 & S_IFMT,
            flags: flags as i32,
        })
    }

    pub fn reads(&self) -> bool {
        self.flags & O_ACCMODE != O_WRONLY
    }

    pub fn writes(&self) -> bool {
        self.flags & O_ACCMODE != O_RDONLY
    }
}

/// Reads the program's offset; `None` stands for the file's own offset, which needs no check.
pub(super) fn offset_at(pointer: u64) -> Result<Option<u64>, i32> {
    match pointer {
        0 => Ok(None),
        pointer => crate::program::read(pointer).map(Some),
    }
}

fn is_negative(offset: Option<u64>) -> bool {
    offset.is_some_and(|at| at > i64::MAX as u64)
}

pub(crate) fn sendfile(args: [u64; 6]) -> Verdict {
    let (to, from) = (descriptors::get(args[0]), descriptors::get(args[1]));
    if to.is_none() && from.is_none() {
        return Verdict::Pass;
    }
    let judge = || {
        let given = offset_at(args[2])?;
        let source = End::of(args[1], from.as_ref())?;
        if !source.reads() {
            return Err(EBADF);
        }
        if is_negative(given) {
            return Err(EINVAL);
        }
        let target = End::of(args[0], to.as_ref())?;
        if !target.writes() {
            return Err(EBADF);
        }
        let appends = target.flags & O_APPEND != 0 && target.kind != libc::S_IFIFO;
        if appends || source.kind == S_IFDIR {
            return Err(EINVAL);
        }
        Ok(given)
    };
    let sent = judge().and_then(|given| files::sendfile(args, given, [from, to]));
    sent.into()
}

pub(crate) fn copy_file_range(args: [u64; 6]) -> Verdict {
    let (from, to) = (descriptors::get(args[0]), descriptors::get(args[2]));
    if to.is_none() && from.is_none() {
        return Verdict::Pass;
    }
    let judge = || {
        let source = End::of(args[0], from.as_ref())?;
        let target = End::of(args[2], to.as_ref())?;
        let places = [offset_at(args[1])?, offset_at(args[3])?];
        let kinds = [source.kind, target.kind];
        if args[5] as u32 != 0 {
            return Err(EINVAL);
        }
        if kinds.contains(&S_IFDIR) {
            return Err(EISDIR);
        }
        if kinds.iter().any(|kind| *kind != libc::S_IFREG) {
            return Err(EINVAL);
        }
        if !source.reads() || !target.writes() || target.flags & O_APPEND != 0 {
            return Err(EBADF);
        }
        // Programs copy between file systems by themselves.
        let (Some(from), Some(to)) = (&from, &to) else {
            return Err(EXDEV);
        };
        let overflows = |at: &Option<u64>| at.unwrap_or(0).checked_add(args[4]).is_none();
        if places.iter().any(overflows) {
            return Err(libc::EOVERFLOW);
        }
        if places.into_iter().any(is_negative) {
            return Err(EINVAL);
        }
        Ok((places, [from, to]))
    };
    let copied = judge().and_then(|(places, ends)| files::copy_file_range(args, places, ends));
    copied.into()
}

/// Serves tee(2), which works on pipes alone.
pub(crate) fn tee(args: [u64; 6]) -> Verdict {
    let (from, to) = (descriptors::get(args[0]), descriptors::get(args[1]));
    if to.is_none() && from.is_none() {
        return Verdict::Pass;
    }
    let judge = || {
        if args[2] == 0 {
            return Ok(0);
        }
        let (source, target) = (
            End::of(args[0], from.as_ref())?,
            End::of(args[1], to.as_ref())?,
        );
        match source.reads() && target.writes() {
            true => Err(EINVAL),
            false => Err(EBADF),
        }
    };
    judge().into()
}
