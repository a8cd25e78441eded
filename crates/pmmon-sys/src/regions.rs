//! Which mappings of a process are persistent memory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmmon::regions::{Mapped, Region, Why, by_header, mapped};
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};

/// After this time a file that was nothing is looked at again: a pool may have been made in it.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Files that are remembered.
const FILES_MAX: usize = 65_536;

/// Finds persistent memory among mappings, and remembers files.
#[derive(Debug, Default)]
pub struct Finder {
    told: Vec<PathBuf>,
    /// Devices and inodes of files; if there are some, nothing else is looked at.
    only: Vec<(u64, u64)>,
    known: HashMap<(String, u64), (Option<Why>, Instant)>,
}

impl Finder {
    /// A finder. Files at or below the paths `told` are persistent memory whatever they are; each
    /// is a path as the process sees it.
    #[must_use]
    pub fn new(told: Vec<PathBuf>) -> Self {
        Self {
            told,
            only: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Looks at mappings of one more file, and at others only if they are named too.
    ///
    /// # Errors
    /// There is no such file, as seen from here.
    pub fn only(&mut self, file: &Path) -> io::Result<()> {
        let data = std::fs::metadata(file)?;
        self.only.push((data.dev(), data.ino()));
        Ok(())
    }

    /// Devices and inodes of the files that were named.
    pub(crate) fn named(&self) -> &[(u64, u64)] {
        &self.only
    }

    /// The persistent memory of a process, and its code. Private mappings are left out, because
    /// their stores do not reach the file.
    ///
    /// # Errors
    /// The process is gone, or its mappings may not be read.
    pub fn find(&mut self, pid: u32) -> io::Result<(Vec<Region>, Vec<Region>)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let (mut regions, mut code) = (Vec::new(), Vec::new());
        for mapped in mapped(&text) {
            if mapped.is_code {
                code.push(region(mapped, Why::Code));
            } else if mapped.is_shared
                && let Some(why) = self.why(pid, &mapped)
            {
                regions.push(region(mapped, why));
            }
        }
        Ok((regions, code))
    }

    /// The pools that a process has mapped: inode of each, and paths by which it may be opened.
    ///
    /// # Errors
    /// The process is gone, or its mappings may not be read.
    pub fn pools(&mut self, pid: u32) -> io::Result<Vec<(u64, [String; 2])>> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut found: Vec<(u64, [String; 2])> = Vec::new();
        for mapped in mapped(&text).into_iter().filter(|it| it.is_shared) {
            let is_known = found.iter().any(|(inode, _)| *inode == mapped.inode);
            // A path that was named counts as any: who opens it looks whether it is a pool.
            if !is_known
                && matches!(
                    self.why(pid, &mapped),
                    Some(Why::Pool | Why::Told | Why::DaxFile)
                )
            {
                let path = mapped.path.trim_end_matches(" (deleted)");
                found.push((mapped.inode, paths(pid, &mapped, path)));
            }
        }
        Ok(found)
    }

    fn why(&mut self, pid: u32, mapped: &Mapped) -> Option<Why> {
        let path = mapped.path.trim_end_matches(" (deleted)");
        if !self.only.is_empty() {
            return self.is_named(pid, mapped, path).then_some(Why::Told);
        }
        if self
            .told
            .iter()
            .any(|told| Path::new(path).starts_with(told))
        {
            return Some(Why::Told);
        }
        if path.starts_with("/dev/dax") {
            return Some(Why::DaxDevice);
        }
        let key = (mapped.device.clone(), mapped.inode);
        match self.known.get(&key) {
            Some((why, _)) if why.is_some() => return *why,
            Some((None, at)) if at.elapsed() < FRESH_FOR => return None,
            _ => {}
        }
        let why = look(pid, mapped, path);
        if self.known.len() >= FILES_MAX {
            self.known.clear();
        }
        self.known.insert(key, (why, Instant::now()));
        why
    }

    /// The mapping is of a file that was named.
    fn is_named(&self, pid: u32, mapped: &Mapped, path: &str) -> bool {
        // Mostly it is not, which its number tells already.
        if !self.only.iter().any(|(_, inode)| *inode == mapped.inode) {
            return false;
        }
        paths(pid, mapped, path).iter().any(|path| {
            let data = std::fs::metadata(path);
            data.is_ok_and(|data| self.only.contains(&(data.dev(), data.ino())))
        })
    }
}

/// The paths of the file behind a mapping: the kernel's link, which also has deleted files, and the
/// name in the process's own root.
fn paths(pid: u32, mapped: &Mapped, path: &str) -> [String; 2] {
    let range = &mapped.range;
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end);
    [link, format!("/proc/{pid}/root{path}")]
}

fn region(mapped: Mapped, why: Why) -> Region {
    Region {
        start: mapped.range.start,
        end: mapped.range.end,
        offset: mapped.offset,
        path: mapped.path,
        why,
    }
}

/// Looks at the file behind a mapping.
fn look(pid: u32, mapped: &Mapped, path: &str) -> Option<Why> {
    paths(pid, mapped, path).iter().find_map(|path| {
        let data = std::fs::metadata(path).ok()?;
        // Another file may have the name meanwhile; opening a device or a pipe may do something.
        if data.ino() != mapped.inode || !data.file_type().is_file() {
            return None;
        }
        by_kernel(path).or_else(|| by_content(path))
    })
}

fn by_kernel(path: &str) -> Option<Why> {
    let data = statx(
        rustix::fs::CWD,
        path,
        AtFlags::empty(),
        StatxFlags::BASIC_STATS,
    )
    .ok()?;
    let attributes = data.stx_attributes & data.stx_attributes_mask;
    attributes
        .contains(StatxAttributes::DAX)
        .then_some(Why::DaxFile)
}

fn by_content(path: &str) -> Option<Why> {
    let mut options = File::options();
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let mut head = [0; 8];
    file.read_exact_at(&mut head, 0).ok()?;
    by_header(&head)
}
