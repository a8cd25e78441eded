//! The ground that all candidates stand on: a tmpfs of our own with 2 MiB pages, gone at the end.

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::Path;
use tempfile::TempDir;

/// A tmpfs mounted huge=always in a temporary directory.
pub struct Ground {
    dir: Option<TempDir>,
}

impl Ground {
    /// Mounts it; needs root.
    pub fn new(gib: u64) -> anyhow::Result<Ground> {
        Ground::with_pages("always", gib)
    }

    /// As [`Ground::new`], with 4 KiB pages: for sparse pools, of which a page of 2 MiB would hold mostly holes.
    pub fn small_pages(gib: u64) -> anyhow::Result<Ground> {
        Ground::with_pages("never", gib)
    }

    /// A hugetlbfs with pages of 1 GiB.
    pub fn gigantic(gib: u64) -> anyhow::Result<Ground> {
        Ground::of("hugetlbfs", format!("pagesize=1G,size={gib}g,mode=0700"))
    }

    fn with_pages(huge: &str, gib: u64) -> anyhow::Result<Ground> {
        Ground::of("tmpfs", format!("huge={huge},size={gib}g,mode=0700"))
    }

    fn of(kind: &str, options: String) -> anyhow::Result<Ground> {
        let dir = tempfile::Builder::new().prefix("pmbench-").tempdir()?;
        let options = std::ffi::CString::new(options)?;
        mount(
            "pmbench",
            dir.path(),
            kind,
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .context("pmbench mounts a file system of its own, which takes root")?;
        Ok(Ground { dir: Some(dir) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().expect("there until dropped").path()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            let _ = unmount(dir.path(), UnmountFlags::DETACH);
            let _ = dir.close();
        }
    }
}
