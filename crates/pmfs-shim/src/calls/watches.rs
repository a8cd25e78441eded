//! inotify(7) and fanotify(7). The kernel does not see changes made in the process, so a request to
//! report them is refused (docs/adr/0053-observers.md).

use libc::{AT_FDCWD, EOPNOTSUPP};

use crate::call::{Answer, Verdict};
use crate::calls::at_path;
use crate::descriptors;
use crate::names::AtEnd;
use crate::own::kernel::PATH;
use crate::thread::Inner;

const REFUSED: Answer = Err(EOPNOTSUPP);

pub(crate) fn inotify(room: &mut Inner, args: [u64; 6]) -> Verdict {
    let [queue, path, mask, ..] = args;
    let at_end = AtEnd::following(mask & u64::from(libc::IN_DONT_FOLLOW) == 0);
    let out = (libc::SYS_inotify_add_watch, [queue, PATH, mask, 0, 0, 0]);
    at_path(room, (AT_FDCWD as u64, path), at_end, out, |_, place| {
        place.found()?;
        REFUSED
    })
}

/// `[group, flags, mask, dirfd, path]`.
pub(crate) fn fanotify(room: &mut Inner, args: [u64; 6]) -> Verdict {
    const DONT_FOLLOW: u64 = 4;
    const FLUSH: u64 = 0x80;
    let [group, flags, mask, dirfd, path, _] = args;
    if flags & FLUSH != 0 {
        return Verdict::Pass;
    }
    if path == 0 {
        let ours = descriptors::is_placeholder(dirfd);
        return if ours { REFUSED.into() } else { Verdict::Pass };
    }
    let out = (
        libc::SYS_fanotify_mark,
        [group, flags, mask, AT_FDCWD as u64, PATH, 0],
    );
    let at_end = AtEnd::following(flags & DONT_FOLLOW == 0);
    at_path(room, (dirfd, path), at_end, out, |_, place| {
        place.found()?;
        REFUSED
    })
}
