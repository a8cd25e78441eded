//! A medium that can be mapped by large pages alone: hugetlbfs, as memory without a name.

use pmfs::{Error, Fs, MapMode, NewNode, OpenOptions, ROOT_INO, SetAttr};
use pmfs_admin::{Admin, MkfsOptions};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

const PAGE: u64 = 2 << 20;
const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages";

/// Memory in pages of 2 MiB; the kernel may hand out as many as before when it goes.
struct Memory {
    file: OwnedFd,
    before: u64,
}

impl Memory {
    /// `None`: such pages can't be had.
    fn new(pages: u64) -> Option<Memory> {
        let before: u64 = fs::read_to_string(COUNT).ok()?.trim().parse().ok()?;
        fs::write(COUNT, (before + pages).to_string()).ok()?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let file = memfd_create("pmfs-test", flags).ok()?;
        rustix::fs::ftruncate(&file, pages * PAGE).ok()?;
        Some(Memory { file, before })
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::write(COUNT, self.before.to_string());
    }
}

const NODE: NewNode = NewNode {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
};

#[test]
fn whole_large_pages_are_mapped_and_nothing_less() {
    let Some(memory) = Memory::new(32) else {
        eprintln!("skipped: the kernel gives no pages of 2 MiB (needs root)");
        return;
    };
    pmfs_admin::mkfs(&memory.path(), &MkfsOptions::default()).unwrap();
    let fs = Fs::open(&memory.path(), &OpenOptions::default()).unwrap();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let resized = |bytes| SetAttr {
        size: Some(bytes),
        ..SetAttr::default()
    };
    fs.setattr(ino, &resized(4 * PAGE)).unwrap();
    let map = fs.map(ino, PAGE, 2 * PAGE, MapMode::Shared).unwrap();
    assert_eq!(map.as_ptr().addr() as u64 % PAGE, 0);
    map.write(2 * PAGE - 6, b"stored").unwrap();
    let mut got = [0; 6];
    fs.read(ino, 3 * PAGE - 6, &mut got).unwrap();
    assert_eq!(&got, b"stored");
    fs.write(ino, PAGE, b"beside").unwrap();
    map.read(0, &mut got).unwrap();
    assert_eq!(&got, b"beside");
    map.sync().unwrap();
    drop(map);
    // The cases that are refused: a range that begins or ends inside a page, one that the pool has
    // in small pieces, and copies.
    let refused = |at, len, mode| matches!(fs.map(ino, at, len, mode), Err(Error::Media(_)));
    assert!(refused(4096, PAGE, MapMode::Shared) && refused(0, 4096, MapMode::Read));
    assert!(refused(0, PAGE, MapMode::Atomic));
    let other = fs.create(ROOT_INO, b"small", &NODE).unwrap().ino;
    for at in (0..PAGE).step_by(8192) {
        fs.write(other, at, &[1; 4096]).unwrap();
        fs.write(ino, at, &[2; 4096]).unwrap();
    }
    fs.setattr(other, &resized(PAGE)).unwrap();
    let small = fs.map(other, 0, PAGE, MapMode::Read).map(|_| ());
    assert!(
        matches!(&small, Err(Error::Media(why)) if why.to_string().contains("whole")),
        "{small:?}"
    );
    fs.close().unwrap();
    let fs = Fs::open(&memory.path(), &OpenOptions::default()).unwrap();
    fs.read(ino, 3 * PAGE - 6, &mut got).unwrap();
    assert_eq!(&got, b"stored");
    assert!(fs.check().unwrap().is_clean());
}
