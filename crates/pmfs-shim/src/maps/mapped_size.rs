//! Files that this program has mapped, and has lengthened or shortened since.
//!
//! The kernel allows touches up to the size that it knows, and does not see changes made in the
//! process: so it is told to look.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::AT_FDCWD;
use pmfs::Ino;

use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::maps::shown;
use crate::own::kernel::{self, PATH};
use crate::own::mountless;

/// A bit for each inode that was mapped; other inodes may share it.
static MAPPED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
const WORDS: usize = 64;

fn place(ino: Ino) -> (&'static AtomicU64, u64) {
    (&MAPPED[ino as usize / 64 % WORDS], 1 << (ino % 64))
}

/// Notes that the file is mapped.
pub(crate) fn note(ino: Ino) {
    let (word, bit) = place(ino);
    word.fetch_or(bit, Ordering::Relaxed);
}

#[inline]
fn may_be(ino: Ino) -> bool {
    let (word, bit) = place(ino);
    word.load(Ordering::Relaxed) & bit != 0
}

/// Notes that the file may be longer.
#[inline]
pub(crate) fn changed(ino: Ino) {
    if may_be(ino) {
        peek(ino);
    }
}

/// The size of a mapped file before a call that may lengthen it.
pub(crate) struct Before(Option<(Ino, u64)>);

impl Before {
    #[inline]
    pub fn of(ino: Ino) -> Before {
        Before(if may_be(ino) { size(ino) } else { None })
    }

    /// Compares after the call.
    #[inline]
    pub fn compare(self) {
        if let Some((ino, before)) = self.0
            && size(ino).is_some_and(|(_, now)| now != before)
        {
            peek(ino);
        }
    }
}

#[cold]
fn size(ino: Ino) -> Option<(Ino, u64)> {
    let attr = pool::attached()?.getattr(ino).ok()?;
    Some((ino, attr.size))
}

#[cold]
fn peek(ino: Ino) {
    if shown::follow(ino) || mountless::is() {
        // No kernel has pages of the file.
        return;
    }
    // SAFETY: a structure of numbers.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let to = (&raw mut stat).expose_provenance() as u64;
    let (flags, mask) = (libc::AT_STATX_FORCE_SYNC as u64, libc::STATX_SIZE.into());
    let args = [AT_FDCWD as u64, PATH, flags, mask, to, 0];
    kernel::with_path(libc::SYS_statx, args, &promote::by_number(ino));
}
