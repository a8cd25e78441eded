//! PMFS as a mount, for programs that neither link the library nor run under the shim.
//!
//! The kernel's requests come in through `/dev/fuse` (`wire`), are translated (`adapter`), answered
//! by the engine ([`pmfs::Fs`]) and sent back. Nothing is decided here that the engine could
//! decide, and no data is cached: files are opened for direct I/O, because other faces of the same
//! pool may change the data at any time. Names and attributes live for zero seconds in the kernel,
//! or for a moment while no other process has the pool.
//!
//! - `wire`: the kernel's protocol and device. Knows no files.
//! - [`mod@adapter`]: the mount, its workers, each request in the engine's terms. `fuser`, whose
//!   interface changes with each release, mounts and shakes hands; only this module knows it.
//! - `server`: one method for each request; identities of inodes, open files, locks,
//!   appending, set-id bits.
//! - [`freeze`]: standing still while the pool is copied. [`remount`]: other flags.
//! - [`lease`]: answers that the kernel may remember while no other process has the pool.
//! - [`lookups`]: which inodes the kernel knows, so that none is reused under it.
//! - [`mounts`], [`unmount`], [`presence`]: finding a mount, ending it, and knowing that the pool
//!   was let go.
//!
//! Absent on purpose: permission checks (`default_permissions` leaves them to the
//! kernel), any policy on how a mount is started (that is the command's). POSIX ACLs
//! are refused where the kernel does not enforce them.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod caller;
mod error;
pub mod freeze;
pub mod lease;
pub mod lookups;
pub mod mounts;
pub mod presence;
pub mod remount;
pub mod served;
mod server;
pub mod unmount;
mod wire;

pub use adapter::{Ending, Mounted, Stop, drop_pages, mount};
pub use error::MountError;

#[cfg(test)]
mod temporary {
    //! The place of test pools: on tmpfs if there is one.

    use std::path::Path;
    use std::sync::Arc;

    use pmfs::{Fs, OpenOptions};
    use pmfs_admin::MkfsOptions;

    pub(crate) fn dir() -> tempfile::TempDir {
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        tempfile::TempDir::with_prefix_in("pmfs-fuse-test-", place).unwrap()
    }

    /// A new pool in such a directory, attached.
    pub(crate) fn pool(dir: &tempfile::TempDir) -> Arc<Fs> {
        let path = dir.path().join("pool");
        let options = MkfsOptions {
            size: Some(64 << 20),
            ..MkfsOptions::default()
        };
        pmfs_admin::mkfs(&path, &options).unwrap();
        Arc::new(Fs::open(&path, &OpenOptions::default()).unwrap())
    }
}
