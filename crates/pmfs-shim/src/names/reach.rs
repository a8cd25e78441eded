//! The first test of a name, whether it may lead into the pool. Absolute names below the pool's
//! directory may, as long as names have their first meaning.

use std::sync::atomic::{AtomicBool, Ordering};

use pmfs::INODE_NAME;

use crate::names::numbered;
use crate::own::config;
use crate::program;
use crate::thread::Own;
use crate::thread::guest;

/// Set once names have another meaning (another root, other mounts).
static ELSEWHERE_ALL: AtomicBool = AtomicBool::new(false);
/// Set once names have had another meaning for a guest.
static ELSEWHERE_FOR_GUESTS: AtomicBool = AtomicBool::new(false);

/// Leaves absolute names, and those relative to the working directory, to the kernel from now on.
pub(crate) fn leave_to_kernel() {
    ELSEWHERE_ALL.store(true, Ordering::Relaxed);
}

/// Leaves such names to the kernel for this guest.
pub(crate) fn leave_to_kernel_for_guest(own: &mut Own) {
    own.is_elsewhere = true;
    ELSEWHERE_FOR_GUESTS.store(true, Ordering::Relaxed);
}

#[inline]
pub(crate) fn are_the_kernels() -> bool {
    ELSEWHERE_ALL.load(Ordering::Relaxed)
        || ELSEWHERE_FOR_GUESTS.load(Ordering::Relaxed)
            && guest::own().is_some_and(|own| own.is_elsewhere)
}

/// The position behind these names in a path, if it begins with them.
pub(super) fn behind(path: &[u8], names: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(rest) = path[from..].strip_prefix(b"./") {
        from = path.len() - rest.len();
        while path.get(from) == Some(&b'/') {
            from += 1;
        }
    }
    let rest = path[from..].strip_prefix(names)?;
    (rest.is_empty() || rest[0] == b'/').then_some(path.len() - rest.len())
}

/// The position in an absolute path where the part below the pool's directory begins.
pub(crate) fn below(path: &[u8]) -> Option<usize> {
    let at = &config::get().at;
    let rest = path.strip_prefix(at.as_slice())?;
    (rest.is_empty() || rest[0] == b'/').then_some(at.len())
}

/// The count of a path's first bytes that this check reads.
const HEAD: usize = 64;

/// Returns whether a path leads elsewhere by its first bytes: it is absolute, is not below the
/// pool's directory, and names no descriptor.
pub(super) fn is_plainly_elsewhere(path: u64) -> bool {
    let at = &config::get().at[..];
    let len = HEAD.min(at.len());
    let mut room = [0; HEAD];
    let head = &mut room[..len];
    // If the path ends before the page does, the next page may be unmapped.
    let fits = program::to_page_end(path) >= len;
    fits && len > 1
        && program::read_bytes(path, head).is_ok()
        && head[0] == b'/'
        && !numbered::BEGINS.contains(&head[1])
        && head[..] != at[..len]
}

/// The start of the mount's names of inodes: `/` and [`INODE_NAME`].
pub(crate) const BY_INODE: [u8; INODE_NAME.len() + 1] = {
    let mut name = [b'/'; INODE_NAME.len() + 1];
    let (_, rest) = name.split_at_mut(1);
    rest.copy_from_slice(INODE_NAME);
    name
};

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn names_that_lead_down() {
        let names = b"mnt/pool";
        assert_eq!(behind(b"mnt/pool", names), Some(8));
        assert_eq!(behind(b"mnt/pool/file", names), Some(8));
        assert_eq!(behind(b".///./mnt/pool/file", names), Some(14));
        for other in [
            &b"mnt/pools"[..],
            b"mnt",
            b"mnt//pool/file",
            b"../mnt/pool",
            b"",
            b".",
        ] {
            assert_eq!(behind(other, names), None);
        }
    }
}
