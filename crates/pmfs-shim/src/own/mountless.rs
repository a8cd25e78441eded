//! Runs without a mount. Where FUSE is missing or not wanted, the pool's directory is only a prefix
//! of names that this library serves, and no other program sees anything below it
//! (docs/adr/0043-always-a-mount.md). A call that needs a file of the kernel is refused visibly:
//! with an errno, a line in the log, and a count for `pmfs run --stats`.

use crate::own::config;
use crate::own::log;
use crate::own::stats;

/// Returns whether this run has no mount.
#[inline]
pub(crate) fn is() -> bool {
    config::get().mountless
}

/// The refused uses. The command knows their order (`crates/pmfs-cli/src/totals.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A descriptor sent to another process.
    Sent,
    /// Open files for a program that the library is not loaded into.
    Stranger,
    /// A FIFO or a device.
    Special,
    /// A mapping.
    Mapping,
    /// A root in the pool.
    Root,
    /// A filter of system calls, with files open.
    Filter,
    /// A socket's name.
    Socket,
    /// Another way to resolve names, or to ask for rights.
    Way,
    /// A child that shares descriptors and not memory, or memory and not descriptors.
    Part,
}

const _: () = assert!(Refused::Part as usize + 1 == stats::REFUSALS);

impl Refused {
    fn why(self) -> &'static str {
        match self {
            Refused::Sent => "an open file of the pool can't be sent to another process",
            Refused::Stranger => {
                "open files of the pool, or a script in it, can't be given to a program that can't load the library"
            }
            Refused::Special => "a FIFO or a device in the pool can't be opened",
            Refused::Mapping => {
                "this file can't be mapped shared: its blocks lie too scattered, or can't be mapped one by one"
            }
            Refused::Root => "a directory of the pool can't be the root",
            Refused::Filter => {
                "system calls can't be filtered while files or directories of the pool are open"
            }
            Refused::Socket => "a socket can't have a name in the pool",
            Refused::Way => {
                "the kernel can't resolve names in the pool, nor say what its real user may"
            }
            Refused::Part => {
                "descriptors can't be shared with who does not share the memory, nor memory with who does not share the descriptors"
            }
        }
    }
}

/// Logs and counts the refusal, and returns the errno.
#[cold]
pub(crate) fn refuse(what: Refused, errno: i32) -> i32 {
    stats::refused(what as usize);
    log::line(format_args!("without a mount {}", what.why()));
    errno
}
