//! A new pool, in a directory of its own in memory. Tests of the crate's own have it, too
//! (`crate::scratch`).

#![allow(dead_code, reason = "each test uses a part")]

use std::path::PathBuf;

use pmfs::{Fs, NewNode, OpenOptions};
use pmfs_admin::{Admin, MkfsOptions, pmfs as built};
use tempfile::TempDir;

/// A file of root's.
pub const NODE: NewNode = NewNode {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
};

pub struct Scratch {
    /// Taken away with all that is in it when this goes.
    pub dir: TempDir,
    /// The pool.
    pub path: PathBuf,
}

impl Scratch {
    /// Makes a pool of so many bytes.
    pub fn new(size: u64) -> Scratch {
        Scratch::with(MkfsOptions {
            size: Some(size),
            ..MkfsOptions::default()
        })
    }

    /// Makes a pool with these options.
    pub fn with(options: MkfsOptions) -> Scratch {
        let dir = TempDir::with_prefix_in("pmfs-test-", "/dev/shm").expect("a directory in memory");
        let path = dir.path().join("pool");
        pmfs_admin::mkfs(&path, &options).expect("a pool");
        Scratch { dir, path }
    }

    /// One more attachment.
    pub fn open(&self) -> Fs {
        Fs::open(&self.path, &OpenOptions::default()).expect("it opens")
    }

    /// Returns whether a check finds nothing. It is done by one more attachment, of the engine as
    /// `pmfs-admin` has it.
    pub fn is_sound(&self) -> bool {
        let fs = built::Fs::open(&self.path, &built::OpenOptions::default()).expect("it opens");
        let report = fs.check().expect("it can be read");
        fs.close().expect("it closes");
        report.is_clean()
    }
}
