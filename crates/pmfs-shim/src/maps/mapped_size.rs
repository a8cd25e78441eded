//! Files that this program has mapped, and has made longer or shorter since.
//!
//! The kernel lets a mapping be touched as far as it takes the file to go, and what is
//! done in the process it does not see: so it is told to look.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::AT_FDCWD;
use pmfs::Ino;

use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::maps::shown;
use crate::own::kernel::{self, PATH};
use crate::own::mountless;

/// A bit for each inode that was mapped, and for some that were not.
static MAPPED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
const WORDS: usize = 64;

fn place(ino: Ino) -> (&'static AtomicU64, u64) {
    (&MAPPED[ino as usize / 64 % WORDS], 1 << (ino % 64))
}

/// The file is mapped from now on.
pub(crate) fn note(ino: Ino) {
    let (word, bit) = place(ino);
    word.fetch_or(bit, Ordering::Relaxed);
}

#[inline]
fn may_be(ino: Ino) -> bool {
    let (word, bit) = place(ino);
    word.load(Ordering::Relaxed) & bit != 0
}

/// It may be longer now.
#[inline]
pub(crate) fn changed(ino: Ino) {
    if may_be(ino) {
        peek(ino);
    }
}

/// A file before a call that may make it longer, if it matters.
pub(crate) struct Before(Option<(Ino, u64)>);

impl Before {
    #[inline]
    pub fn of(ino: Ino) -> Before {
        Before(if may_be(ino) { size(ino) } else { None })
    }

    /// The call is over.
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
        // No kernel has pages of it.
        return;
    }
    // SAFETY: a structure of numbers.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let to = (&raw mut stat).expose_provenance() as u64;
    let (flags, mask) = (libc::AT_STATX_FORCE_SYNC as u64, libc::STATX_SIZE.into());
    let args = [AT_FDCWD as u64, PATH, flags, mask, to, 0];
    kernel::with_path(libc::SYS_statx, args, &promote::by_number(ino));
}
