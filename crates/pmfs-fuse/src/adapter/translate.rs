//! `fuser`'s types and the engine's, into each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, Generation, INodeNo, Request, TimeOrNow};
use pmfs::types::mode;
use pmfs::{Attr, NewNode, SetTime};

use crate::caller::Caller;

pub(super) fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
    }
}

pub(super) fn new_node(request: &Request, mode: u32, umask: u32) -> NewNode {
    NewNode {
        mode,
        umask,
        uid: request.uid(),
        gid: request.gid(),
    }
}

pub(super) fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.sectors,
        atime: system_time(attr.atime_ns),
        mtime: system_time(attr.mtime_ns),
        ctime: system_time(attr.ctime_ns),
        crtime: system_time(attr.crtime_ns),
        kind: file_type(attr.mode & mode::S_IFMT),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn file_type(kind: u32) -> FileType {
    match kind {
        mode::S_IFDIR => FileType::Directory,
        mode::S_IFLNK => FileType::Symlink,
        mode::S_IFBLK => FileType::BlockDevice,
        mode::S_IFCHR => FileType::CharDevice,
        mode::S_IFIFO => FileType::NamedPipe,
        mode::S_IFSOCK => FileType::Socket,
        // The engine answers a mode without a type as corrupt; none gets here.
        _ => FileType::RegularFile,
    }
}

fn system_time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 {
        UNIX_EPOCH + span
    } else {
        UNIX_EPOCH - span
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(nanoseconds(time)),
    }
}

/// Since the epoch, kept within what 64 bits hold (the years 1677 to 2262). Before the epoch,
/// `fuser` 0.18 turns the kernel's `-s` seconds and `+n` nanoseconds into `-(s + n)`; undone here.
fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            seconds
                .saturating_mul(-1_000_000_000)
                .saturating_add(i64::from(before.subsec_nanos()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch() {
        // utimensat with -2 s + 800,000,000 ns, as fuser 0.18 hands it over.
        let handed = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(nanoseconds(handed), -1_200_000_000);
        // The way back is sound in fuser, so what is stored is what it gets.
        assert_eq!(
            system_time(-1_200_000_000),
            UNIX_EPOCH - Duration::new(1, 200_000_000)
        );
        let now = SystemTime::now();
        assert_eq!(system_time(nanoseconds(now)), now);
    }
}
