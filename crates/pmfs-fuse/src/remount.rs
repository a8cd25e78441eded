//! Telling a mount's daemon what a remount has changed: the kernel knows its own flags only.
//! An ioctl without an argument on the mount's root directory, whose number says it all.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use pmfs::AtimeMode;
use pmfs_posix::mount_options::MountOptions;

/// `_IO('P', 0xe0)` and the fifteen after it.
const REQUESTS: std::ops::Range<u32> = (b'P' as u32) << 8 | 0xe0..(b'P' as u32) << 8 | 0xf0;

const READ_ONLY: u32 = 1 << 2;
const NODIRATIME: u32 = 1 << 3;

/// The settings that may change while a pool is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) atime: AtimeMode,
    pub(crate) nodiratime: bool,
    pub(crate) read_only: bool,
}

impl Manner {
    /// The settings in a request's number, if it is one of these requests.
    pub(crate) fn of(number: u32) -> Option<Manner> {
        let bits = REQUESTS
            .contains(&number)
            .then(|| number - REQUESTS.start)?;
        Some(Manner {
            atime: AtimeMode::from_number((bits & 3) as u8)?,
            nodiratime: bits & NODIRATIME != 0,
            read_only: bits & READ_ONLY != 0,
        })
    }

    fn number(self) -> u32 {
        let mut bits = self.atime as u32;
        bits |= if self.nodiratime { NODIRATIME } else { 0 };
        bits |= if self.read_only { READ_ONLY } else { 0 };
        REQUESTS.start + bits
    }
}

/// Tells the daemon of the mount whose root is open as `root`.
///
/// # Errors
/// `PermissionDenied` for a caller that is neither root nor the daemon's user; `EROFS` if a damaged
/// pool is to be written.
pub fn tell(root: &File, options: &MountOptions) -> io::Result<()> {
    let manner = Manner {
        atime: options.atime,
        nodiratime: options.nodiratime,
        read_only: options.read_only,
    };
    pmem::request::request(root.as_fd(), manner.number()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manner_has_a_number_of_its_own() {
        let manners: Vec<Manner> = (0..0x2_0000).filter_map(Manner::of).collect();
        assert_eq!(manners.len(), 12);
        for manner in manners {
            assert_eq!(Manner::of(manner.number()), Some(manner));
        }
    }
}
