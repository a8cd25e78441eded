//! Errors as a user meets them: what happened, and what to do about it.

use std::error::Error as _;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use pmfs::Error;
use pmfs_fuse::{MountError, presence, served};

/// The cause for which a command was not done.
#[derive(Debug)]
pub struct Failure {
    line: pm_cli::Failure,
    lacks_fuse: bool,
}

impl Failure {
    /// Exit code 1.
    pub fn new(cause: impl fmt::Display, way_out: impl fmt::Display) -> Failure {
        pm_cli::Failure::new(cause, way_out).into()
    }

    /// A message that has both parts already.
    pub fn whole(message: impl fmt::Display) -> Failure {
        pm_cli::Failure::whole(message).into()
    }

    /// The engine's error on a pool.
    pub fn engine(path: &Path, error: &Error) -> Failure {
        let pool = path.display();
        match error {
            Error::Media(error) => Failure::medium(error),
            Error::NotEmptyFile => Failure::new(
                format!("{pool} exists and is not empty"),
                "name another file, or overwrite this one with --force",
            ),
            Error::Corrupt(damage) if damage.what.contains("truncated") => Failure::new(
                format!("{pool} was truncated: {}", damage.what),
                "take a copy of it from elsewhere; or give it its length back (truncate -s SIZE, as it was made) and \
                 run `pmfs fsck --repair` on it: what was cut off is lost",
            ),
            Error::Corrupt(_) => Failure::whole(format!("{pool}: {error}")),
            Error::NotAPool(_) => Failure::new(
                format!("{pool}: {error}"),
                format!("check the path, or make a pool with `pmfs mkfs --size 1G {pool}`"),
            ),
            Error::TooNew { .. } | Error::Features { .. } => {
                Failure::new(format!("{pool}: {error}"), "use a newer pmfs")
            }
            Error::Held { pid } => Failure::held(path, *pid),
            Error::Geometry(_) => Failure::new(
                format!("{pool}: {error}"),
                "choose another --size, --inodes or --open-files",
            ),
            Error::Medium { .. } => Failure::new(
                format!("{pool}: {error}"),
                "if the pool is sparse, see whether its file system is full (df), make room and mount it again; \
                 else see the kernel's log, and copy what can be read to another pool",
            ),
            Error::File(failed) => Failure::new(
                format!("{pool}: {}", failed.source),
                "check the path and its permissions",
            ),
            Error::Frozen => Failure::new(
                format!("{pool}: {error}"),
                "wait for the `pmfs save` that does it, or end it",
            ),
            Error::ReadOnly => Failure::new(format!("{pool}: {error}"), "mount it without -o ro"),
            _ => Failure::other(&pool, error),
        }
    }

    /// A failure whose own words have the way out, or that has no known one.
    fn other(pool: &impl fmt::Display, error: &Error) -> Failure {
        let text = format!("{pool}: {error}");
        match error {
            Error::NoSpace | Error::NoInodes => Failure::new(
                text,
                "delete files, or `pmfs grow` it while no process uses it",
            ),
            Error::ShutDown => Failure::new(text, "run it again"),
            Error::Interrupted => Failure::new(text, "run it again"),
            Error::TooManyOpen | Error::NoLocks => Failure::new(
                text,
                "close files of it, or end programs that have some open",
            ),
            _ if text.contains("; ") => Failure::whole(text),
            _ => Failure::new(text, "nothing of it was done"),
        }
    }

    fn held(path: &Path, pid: u32) -> Failure {
        let pool = path.display();
        let pid = if pid == 0 {
            presence::holder(path)
        } else {
            Some(pid)
        };
        let by = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
        let resolved = path.canonicalize();
        let path = resolved.as_deref().unwrap_or(path);
        match served::mounts_of(path).unwrap_or_default().first() {
            Some(mount) => Failure::new(
                format!(
                    "{pool} is in use by {by}, which has it mounted on {}",
                    mount.dir.display()
                ),
                format!(
                    "run `pmfs umount {dir}` first (`df {dir}` tells its space)",
                    dir = mount.dir.display()
                ),
            ),
            None => Failure::new(
                format!("{pool} is in use by {by}"),
                "wait for it, or end it",
            ),
        }
    }

    /// A failure from `pmem`, whose message has the way out after its last colon, and the system's
    /// error as its source.
    fn medium(error: &pmem::Error) -> Failure {
        if let pmem::Error::Exists { path } = error {
            return Failure::new(
                format!("{} exists and is not empty", path.display()),
                "name another file, or overwrite this one with --force",
            );
        }
        if let pmem::Error::Open { path, source } = error
            && let Some(failure) = Failure::unwritable(path, source)
        {
            return failure;
        }
        let text = error.to_string();
        let source = error
            .source()
            .map(|source| format!(" ({source})"))
            .unwrap_or_default();
        match text.rsplit_once(": ") {
            Some((cause, way_out)) if !source.is_empty() => {
                Failure::new(format!("{cause}{source}"), way_out)
            }
            _ => Failure::new(format!("{text}{source}"), "see that the path is right"),
        }
    }

    /// A pool that can be read, but not written.
    fn unwritable(path: &Path, error: &io::Error) -> Option<Failure> {
        let pool = path.display();
        let (cause, way_out) = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => (
                format!("{pool} is on a file system that is mounted read-only"),
                "remount that rw, or copy the pool",
            ),
            io::ErrorKind::PermissionDenied if File::open(path).is_ok() => (
                format!("{pool} may not be written by this user"),
                "chmod it, or be its owner",
            ),
            _ => return None,
        };
        let why = "a pool is written to even with -o ro, to recover it and to note what is open";
        Some(Failure::new(cause, format!("{way_out} ({why})")))
    }

    /// Another exit code.
    pub fn with_code(mut self, code: u8) -> Failure {
        self.line = self.line.with_code(code);
        self
    }

    /// The cause is that FUSE can't be had here: no device, no helper, or no right to mount.
    pub fn lacks_fuse(&self) -> bool {
        self.lacks_fuse
    }

    pub fn with_lack_of_fuse(mut self, lacks_fuse: bool) -> Failure {
        self.lacks_fuse = lacks_fuse;
        self
    }

    /// The exit code for the shell.
    pub fn exit_code(&self) -> ExitCode {
        self.line.exit_code()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line.fmt(f)
    }
}

impl From<pm_cli::Failure> for Failure {
    fn from(line: pm_cli::Failure) -> Failure {
        Failure {
            line,
            lacks_fuse: false,
        }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Failure {
        let lacks_fuse = match &error {
            MountError::NoDevice | MountError::DeviceDenied | MountError::NoHelper => true,
            // No right to mount, as in most containers.
            MountError::Mount { reason, .. } => reason.contains("Operation not permitted"),
            _ => false,
        };
        Failure::whole(error).with_lack_of_fuse(lacks_fuse)
    }
}

/// Output that could not be written; a reader that went away is not among it.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        pm_cli::Failure::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each error has one way out, and none is sent to `pmfs fsck` for want of a better one.
    #[test]
    fn advice_is_given_once_and_is_meant() {
        let errors = [
            (Error::Elsewhere, true),
            (Error::corrupt("a bucket", 64), true),
            (Error::NoSpace, false),
            (Error::NoLocks, false),
            (Error::TooManyOpen, false),
            (Error::ShutDown, false),
            (Error::TooManyProcesses { slots: 4 }, false),
            (Error::UnlikeBuild { theirs: 1 }, false),
            (Error::Mapped, false),
            (Error::Forked, false),
            (Error::Deadlock, false),
        ];
        for (error, is_for_fsck) in errors {
            let text = Failure::engine(Path::new("pool"), &error).to_string();
            assert_eq!(text.matches("; ").count(), 1, "{text}");
            assert_eq!(
                text.matches("fsck").count(),
                usize::from(is_for_fsck),
                "{text}"
            );
        }
    }
}
