//! The errors of making or ending a mount. Each message names the cause and a way out.

use std::io;
use std::path::PathBuf;

use pmfs_posix::mount_options::OptionError;
use thiserror::Error;

/// Causes for which a mount could not be made, served or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// A `-o` option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// `suid` or `dev` on what is not root's.
    #[error(
        "options suid and dev are for a pool and a directory that belong to root, and {} does not; \
         leave them out, or chown it",
        path.display()
    )]
    NotRoots {
        /// The pool or the directory.
        path: PathBuf,
    },
    /// `suid` or `dev` for a pool that others can change.
    #[error(
        "options suid and dev are for a pool that only root can write or replace, and {who} can write to {}; \
         leave them out, or chmod it",
        path.display()
    )]
    OthersWrite {
        /// The pool, or a directory above it.
        path: PathBuf,
        /// The user or group that can.
        who: &'static str,
    },
    /// The mount point does not exist.
    #[error("no directory {} to mount on; create it with mkdir", path.display())]
    NoDirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is a file.
    #[error("{} is not a directory; name one to mount on", path.display())]
    NotDirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is a mount whose daemon is gone.
    #[error(
        "{path} is a mount whose daemon is gone; run `pmfs umount {path}` first",
        path = path.display()
    )]
    DeadMount {
        /// The mount point.
        path: PathBuf,
    },
    /// The directory has a pool mounted on it.
    #[error("{pool} is mounted on {dir} already; use that, or run `pmfs umount {dir}`",
        pool = pool.display(), dir = dir.display())]
    AlreadyMounted {
        /// The pool.
        pool: PathBuf,
        /// The directory.
        dir: PathBuf,
    },
    /// Another process keeps mounts away from the pool.
    #[error(
        "{} is locked by flock(2), which mounts share; end who has it",
        pool.display()
    )]
    Served {
        /// The pool.
        pool: PathBuf,
    },
    /// No FUSE device.
    #[error(
        "/dev/fuse is not there; load it with `modprobe fuse`, or run in a container that has it"
    )]
    NoDevice,
    /// The device may not be opened.
    #[error("/dev/fuse may not be opened by this user; run as root, or `chmod 666 /dev/fuse`")]
    DeviceDenied,
    /// The user is not root, and there is no helper.
    #[error("fusermount3 is needed to mount without being root; install the package fuse3")]
    NoHelper,
    /// `allow_other` refused by the helper.
    #[error(
        "allow_other is not open to this user; leave it out, or put user_allow_other into /etc/fuse.conf"
    )]
    AllowOther,
    /// Anything else that the kernel or the helper answered.
    #[error("mounting on {} failed: {reason}; see that the directory is yours, and what `pmfs doctor` says", dir.display())]
    Mount {
        /// The mount point.
        dir: PathBuf,
        /// The kernel's or the helper's words.
        reason: String,
    },
    /// The path is no mount of ours.
    #[error("{} is not a PMFS mount; `findmnt -t fuse.pmfs` lists them", path.display())]
    NotMounted {
        /// The path that was given.
        path: PathBuf,
    },
    /// Files of it are open, or a process stands in it.
    #[error("{} is busy{holders}; close them, or use --lazy", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// ": in use by bash[12], vi[34]".
        holders: String,
    },
    /// The kernel or the helper refused to unmount.
    #[error("unmounting {} failed: {reason}; try as the user who mounted it, or as root", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's or the helper's words.
        reason: String,
    },
    /// Unmounted, and the daemon still has the pool.
    #[error(
        "unmounted, but the daemon of {} has not let go of it after {seconds} s; \
         it may serve files that are still open",
        pool.display()
    )]
    StillServing {
        /// The pool.
        pool: PathBuf,
        /// The seconds waited.
        seconds: u64,
    },
    /// Unmounted, and the mount stands elsewhere, too, so its daemon goes on.
    #[error(
        "unmounted here, but the mount of {} stands also {}; the pool is closed when that is unmounted or ended",
        pool.display(),
        copies.join(", ")
    )]
    Copied {
        /// The pool.
        pool: PathBuf,
        /// "at /elsewhere", "in the mount namespace of bash[12]".
        copies: Vec<String>,
    },
    /// A system call on the pool or the mount table.
    #[error("{what} {}: {source}; check the path and its permissions", path.display())]
    Io {
        /// The step that failed.
        what: &'static str,
        /// The file that it failed on.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// Requests could not be read from the kernel any more.
    #[error("serving {} failed: {source}; the pool was closed, mount it again", dir.display())]
    Channel {
        /// The mount point.
        dir: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// The engine could not mark the pool clean.
    #[error("closing the pool failed: {0}; the next mount recovers it")]
    Detach(#[source] pmfs::Error),
}
