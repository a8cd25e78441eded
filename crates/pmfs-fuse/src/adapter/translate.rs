//! The kernel's structures and the engine's types, into each other.

use std::time::Duration;

use pmfs::{Attr, NewNode, ROOT_INO, SetAttr, SetTime, StatFs};
use pmfs_posix::times::time_ns;
use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::caller::Caller;
use crate::wire::device::ROOT_NODE;
use crate::wire::reply::{AttrOut, Attributes, EntryOut, StatfsOut, Statx, StatxOut, SxTime};
use crate::wire::request::{InHeader, SetattrIn, fattr};

const NANOSECONDS: i64 = 1_000_000_000;

/// The preferred size of a program's reads, bytes.
const BLOCK_BYTES: u32 = 4096;

/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_ANSWERED: u32 = 0xfff;

pub(super) fn caller(header: &InHeader) -> Caller {
    Caller {
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
    }
}

pub(super) fn new_node(header: &InHeader, mode: u32, umask: u32) -> NewNode {
    NewNode {
        mode,
        umask,
        uid: header.uid,
        gid: header.gid,
    }
}

/// An entry; name and attributes hold for `ttl`.
pub(super) fn entry(attr: &Attr, ttl: Duration) -> EntryOut {
    // The kernel has a number of its own for the root, and no generation.
    let (nodeid, generation) = match attr.ino {
        ROOT_INO => (ROOT_NODE, 0),
        ino => (ino, attr.generation.into()),
    };
    EntryOut {
        nodeid,
        generation,
        entry_valid: ttl.as_secs(),
        attr_valid: ttl.as_secs(),
        entry_valid_nsec: ttl.subsec_nanos(),
        attr_valid_nsec: ttl.subsec_nanos(),
        attr: attributes(attr),
    }
}

/// The answer for a name that does not exist, valid for `ttl`.
pub(super) fn absent(ttl: Duration) -> EntryOut {
    EntryOut {
        entry_valid: ttl.as_secs(),
        entry_valid_nsec: ttl.subsec_nanos(),
        ..EntryOut::new_zeroed()
    }
}

pub(super) fn attr_out(attr: &Attr, ttl: Duration) -> AttrOut {
    AttrOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        dummy: 0,
        attr: attributes(attr),
    }
}

fn attributes(attr: &Attr) -> Attributes {
    let (atime, atimensec) = split(attr.atime_ns);
    let (mtime, mtimensec) = split(attr.mtime_ns);
    let (ctime, ctimensec) = split(attr.ctime_ns);
    Attributes {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.sectors,
        atime: atime as u64,
        mtime: mtime as u64,
        ctime: ctime as u64,
        atimensec,
        mtimensec,
        ctimensec,
        mode: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub(super) fn statx_out(attr: &Attr, ttl: Duration) -> StatxOut {
    StatxOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat: Statx {
            mask: STATX_ANSWERED,
            blksize: BLOCK_BYTES,
            attributes: 0,
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            // Type and permissions are sixteen bits.
            mode: attr.mode as u16,
            spare0: 0,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.sectors,
            attributes_mask: 0,
            atime: sx_time(attr.atime_ns),
            btime: sx_time(attr.crtime_ns),
            ctime: sx_time(attr.ctime_ns),
            mtime: sx_time(attr.mtime_ns),
            rdev_major: attr.rdev >> 8 & 0xfff,
            rdev_minor: attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00,
            dev_major: 0,
            dev_minor: 0,
            spare2: [0; 14],
        },
    }
}

pub(super) fn statfs_out(stat: &StatFs) -> StatfsOut {
    StatfsOut {
        blocks: stat.blocks,
        bfree: stat.blocks_free,
        bavail: stat.blocks_free,
        files: stat.inodes,
        ffree: stat.inodes_free,
        bsize: stat.block_size,
        namelen: stat.name_max,
        frsize: stat.block_size,
        padding: 0,
        spare: [0; 6],
    }
}

/// The changes that a SETATTR asks for. The kernel sends its own ctime only under the writeback
/// cache; the engine's clock is used.
///
/// # Errors
/// EINVAL: a time that can't be kept.
pub(super) fn set_attr(asked: &SetattrIn) -> Result<SetAttr, Errno> {
    let given = |bit: u32| asked.valid & bit != 0;
    let time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match given(set) {
        false => Ok(None),
        true if given(now) => Ok(Some(SetTime::Now)),
        true => {
            let at = time_ns(seconds as i64, nanoseconds.into()).map_err(|_| Errno::INVAL)?;
            Ok(Some(SetTime::At(at)))
        }
    };
    Ok(SetAttr {
        mode: given(fattr::MODE).then_some(asked.mode & 0o7777),
        uid: given(fattr::UID).then_some(asked.uid),
        gid: given(fattr::GID).then_some(asked.gid),
        size: given(fattr::SIZE).then_some(asked.size),
        atime_ns: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec)?,
        mtime_ns: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec)?,
        ctime_ns: None,
    })
}

/// Nanoseconds since the epoch as seconds and, counted from there onwards, nanoseconds.
fn split(ns: i64) -> (i64, u32) {
    let nanoseconds = ns.rem_euclid(NANOSECONDS);
    (ns.div_euclid(NANOSECONDS), nanoseconds as u32)
}

/// Offsets and lengths are signed to the kernel.
pub(super) fn within_a_file(offset: u64) -> Result<u64, Errno> {
    match i64::try_from(offset) {
        Ok(_) => Ok(offset),
        Err(_) => Err(Errno::INVAL),
    }
}

fn sx_time(ns: i64) -> SxTime {
    let (seconds, nanoseconds) = split(ns);
    SxTime {
        seconds,
        nanoseconds,
        reserved: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_and_beyond_all_bounds() {
        assert_eq!(split(-1_200_000_000), (-2, 800_000_000));
        for ns in [i64::MIN, -1, 0, 1, 1_700_000_000_123_456_789, i64::MAX] {
            let (seconds, nanoseconds) = split(ns);
            assert_eq!(time_ns(seconds, nanoseconds.into()), Ok(ns));
        }
    }

    /// makedev(3)'s 32-bit form: 12 bits of major, 20 of minor, in three pieces.
    #[test]
    fn device_numbers_come_apart() {
        let attr = Attr {
            ino: 5,
            mode: 0o20600,
            rdev: 0xabc1_23de,
            crtime_ns: -1,
            ..Attr::default()
        };
        let stat = statx_out(&attr, Duration::ZERO).stat;
        assert_eq!((stat.rdev_major, stat.rdev_minor), (0x123, 0xabcde));
        assert_eq!(
            (stat.btime.seconds, stat.btime.nanoseconds),
            (-1, 999_999_999)
        );
    }

    #[test]
    fn only_what_is_marked_is_set() {
        let all = SetattrIn {
            valid: 0,
            padding: 0,
            fh: 0,
            size: 3,
            lock_owner: 0,
            atime: -2i64 as u64,
            mtime: 7,
            ctime: 9,
            atimensec: 800_000_000,
            mtimensec: 0,
            ctimensec: 0,
            mode: 0o100_644,
            unused4: 0,
            uid: 1,
            gid: 2,
            unused5: 0,
        };
        let nothing = set_attr(&all).unwrap();
        assert!(nothing.mode.is_none() && nothing.size.is_none() && nothing.mtime_ns.is_none());
        let valid = fattr::MODE | fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW;
        let some = set_attr(&SetattrIn { valid, ..all }).unwrap();
        assert_eq!(some.mode, Some(0o644));
        assert_eq!(some.atime_ns, Some(SetTime::At(-1_200_000_000)));
        assert_eq!(some.mtime_ns, Some(SetTime::Now));
        assert!(some.uid.is_none() && some.gid.is_none() && some.size.is_none());
    }
}
