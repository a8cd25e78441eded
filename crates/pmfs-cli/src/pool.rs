//! Opening an unmounted pool for one command, and closing it with any outcome.

use std::path::{Path, PathBuf};

use pmfs::{AtimeMode, Fs, OpenOptions};
use pmfs_fuse::presence;

use crate::failure::Failure;

/// The pool's path as the table of mounts has it.
pub fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The options of attaching for a command that changes no file.
pub fn for_reading() -> OpenOptions {
    OpenOptions {
        read_only: true,
        atime: AtimeMode::Noatime,
        ..OpenOptions::default()
    }
}

/// Attaches (recovers if need be), does `body`, and leaves the pool clean also if that failed.
pub fn with<T>(
    path: &Path,
    options: &OpenOptions,
    body: impl FnOnce(&Fs) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error| Failure::engine(path, &error);
    presence::wait_if_ending(path);
    let fs = Fs::open(path, options).map_err(failed)?;
    let outcome = body(&fs);
    let closed = fs.close().map_err(failed);
    let value = outcome?;
    closed.map(|()| value)
}
