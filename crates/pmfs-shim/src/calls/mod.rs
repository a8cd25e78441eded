//! The calls, by subject.

pub(crate) mod aio;
pub(crate) mod attributes;
mod clones;
pub(crate) mod completions;
pub(crate) mod cwd;
pub(crate) mod descriptors;
pub(crate) mod directories;
mod extents;
pub(crate) mod files;
pub(crate) mod messages;
pub(crate) mod moves;
pub(crate) mod names;
pub(crate) mod opens;
pub(crate) mod promoted;
pub(crate) mod sockets;
pub(crate) mod splice;
pub(crate) mod watches;
pub(crate) mod xattrs;

use pmfs::Fs;

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::names::{AtEnd, Lead, Place, find, find_to_peek};
use crate::own::kernel;
use crate::thread::Inner;

/// Converts the engine's answer without a value.
fn done(answer: pmfs::Result<()>) -> Answer {
    answer.map(|()| 0).map_err(errno)
}

/// Applies `body` to the place in the pool that a path leads to. If the path leaves the pool again,
/// the kernel executes `out`, the same call in its form with a directory's descriptor.
fn at_path(
    room: &mut Inner,
    (dirfd, path): (u64, u64),
    at_end: AtEnd,
    out: (i64, [u64; 6]),
    body: impl FnOnce(&'static Fs, Place<'_>) -> Answer,
) -> Verdict {
    done_at(find(room, dirfd, path, at_end), out, body)
}

/// Works as [`at_path`] does, for a call that changes nothing and returns no descriptor. The mount
/// may serve the first such call of a process.
fn peek_at_path(
    room: &mut Inner,
    (dirfd, path): (u64, u64),
    at_end: AtEnd,
    out: (i64, [u64; 6]),
    body: impl FnOnce(&'static Fs, Place<'_>) -> Answer,
) -> Verdict {
    done_at(find_to_peek(room, dirfd, path, at_end), out, body)
}

#[inline]
fn done_at(
    lead: Result<Lead<'_>, i32>,
    out: (i64, [u64; 6]),
    body: impl FnOnce(&'static Fs, Place<'_>) -> Answer,
) -> Verdict {
    match lead {
        Err(errno) => Verdict::done(Err(errno)),
        Ok(Lead::Kernel) => Verdict::Pass,
        Ok(Lead::Out(path)) => Verdict::done(outside(out.0, out.1, path)),
        Ok(Lead::Pool(fs, place)) => Verdict::done(body(fs, place)),
    }
}

/// The kernel's answer to a call with another path.
fn outside(number: i64, args: [u64; 6], path: &[u8]) -> Answer {
    kernel_answer(kernel::with_path(number, args, path))
}
