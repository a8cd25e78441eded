//! The ground that all candidates stand on: a tmpfs of our own with 2 MiB pages, gone at the end.
//! The next run clears away what a run that was killed left: the directory's name holds the process
//! id.

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "pmbench-";

/// A tmpfs mounted huge=always in a temporary directory.
pub struct Ground {
    dir: Option<TempDir>,
    mounted: bool,
}

impl Ground {
    /// Mounts it; needs root.
    pub fn new(gib: u64) -> anyhow::Result<Ground> {
        Ground::with_pages("always", gib)
    }

    /// Makes a ground like [`Ground::new`], with 4 KiB pages: for sparse pools, of which a page of
    /// 2 MiB would hold mostly holes.
    pub fn small_pages(gib: u64) -> anyhow::Result<Ground> {
        Ground::with_pages("never", gib)
    }

    /// A small file system that is soon full.
    #[cfg(test)]
    pub fn small(mib: u64) -> anyhow::Result<Ground> {
        Ground::of("tmpfs", format!("huge=never,size={mib}m,mode=0700"))
    }

    /// A hugetlbfs with pages of 1 GiB.
    pub fn gigantic(gib: u64) -> anyhow::Result<Ground> {
        Ground::of("hugetlbfs", format!("pagesize=1G,size={gib}g,mode=0700"))
    }

    /// Makes a directory on the file system that is there, for users other than root.
    pub fn unmounted() -> anyhow::Result<Ground> {
        Ok(Ground {
            dir: Some(temporary()?),
            mounted: false,
        })
    }

    fn with_pages(huge: &str, gib: u64) -> anyhow::Result<Ground> {
        // A server that will not run as root has to find its way through.
        Ground::of("tmpfs", format!("huge={huge},size={gib}g,mode=0711"))
    }

    fn of(kind: &str, options: String) -> anyhow::Result<Ground> {
        let dir = temporary()?;
        let options = std::ffi::CString::new(options)?;
        mount(
            "pmbench",
            dir.path(),
            kind,
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .context("pmbench mounts a file system of its own, which takes root")?;
        Ok(Ground {
            dir: Some(dir),
            mounted: true,
        })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().expect("there until dropped").path()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            if self.mounted {
                let _ = unmount(dir.path(), UnmountFlags::DETACH);
            }
            let _ = dir.close();
        }
    }
}

fn temporary() -> std::io::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// Unmounts and deletes the grounds of processes that are no more.
pub fn sweep() {
    let entries = std::fs::read_dir(std::env::temp_dir());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|process| !is_pmbench(process)) {
            eprintln!("clearing away {name}, left by an earlier run");
            for mounted in mounts_below(&entry.path()) {
                let _ = unmount(&mounted, UnmountFlags::DETACH);
            }
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that made a ground of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn is_pmbench(process: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|name| name.starts_with("pmbench"))
}

/// Innermost first.
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    let below = places
        .map(PathBuf::from)
        .filter(|place| place.starts_with(dir));
    let mut below: Vec<PathBuf> = below.collect();
    // A place below another has a longer name.
    below.sort_by_key(|place| std::cmp::Reverse(place.as_os_str().len()));
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grounds_have_owners() {
        assert_eq!(owner("pmbench-17-Ab3"), Some(17));
        for other in ["pmbench-run", "pmbench-x-1", "other-17-x"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn mounts_are_found_innermost_first() {
        let all = mounts_below(Path::new("/"));
        let lengths: Vec<usize> = all.iter().map(|place| place.as_os_str().len()).collect();
        assert!(lengths.contains(&"/proc".len()));
        assert!(lengths.is_sorted_by(|a, b| a >= b), "{all:?}");
        assert!(mounts_below(Path::new("/no/such/place")).is_empty());
    }
}
