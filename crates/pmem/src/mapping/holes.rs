//! Holes of a file that is mapped: space that goes back to its file system, and is taken again.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::Pmem;

impl Pmem {
    /// Gives the space of the bytes `off..off + len` back to the file system, in a write window.
    /// They read as zeros then, and a store to them fails where the medium has no space left: see
    /// [`Pmem::fill`]. Power loss before the file system has written this down brings the old bytes
    /// back. Returns `false` if nothing was given back: the medium has no holes, or the file's name
    /// is gone.
    ///
    /// Under an observer zeros are stored instead, of which power loss leaves any.
    ///
    /// # Panics
    /// If the range is not inside the pool.
    #[must_use]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn punch(&self, off: u64, len: u64) -> bool {
        assert!(off + len <= self.len(), "inside the pool");
        if self.is_observed() {
            self.zero_nt(off, len);
            return true;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let file = self.file_again(true);
        file.and_then(|file| fallocate(&file, mode, off, len))
            .is_ok()
    }

    /// Takes space again for the bytes `off..off + len` (whole pages), in which holes may be, in a
    /// write window. Returns `false` if the medium has none.
    ///
    /// # Panics
    /// If the range is not inside the pool.
    #[must_use]
    pub fn fill(&self, off: u64, len: u64) -> bool {
        assert!(off + len <= self.len(), "inside the pool");
        let file = self.file_again(true);
        let taken = file.and_then(|file| fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, off, len));
        let is_full = taken.is_err_and(|error| {
            let errno = error.raw_os_error();
            matches!(errno, Some(libc::ENOSPC | libc::EDQUOT))
        });
        // Some file systems can't be asked beforehand: a touch of the pages asks them.
        !is_full && self.back(off, len)
    }
}

fn fallocate(file: &File, mode: libc::c_int, off: u64, len: u64) -> io::Result<()> {
    let at = |bytes: u64| libc::off_t::try_from(bytes).map_err(io::Error::other);
    let (start, bytes) = (at(off)?, at(len)?);
    loop {
        // SAFETY: no memory is involved; whoever has the file mapped meets zeros, as the caller
        // wants.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, start, bytes) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_hole_has_no_space_until_it_is_filled() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        let options = crate::MapOptions::default();
        let mem = Pmem::create(&path, 8 * MIB, false, true, &options).unwrap();
        let space = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let _window = mem.window();
        mem.write_nt(0, &vec![7; 8 * MIB as usize]).unwrap();
        assert_eq!(space(), 8 * MIB);
        assert!(mem.punch(2 * MIB, 4 * MIB));
        assert_eq!(space(), 4 * MIB);
        let mut bytes = vec![0; 8 * MIB as usize];
        assert!(mem.fill(2 * MIB, MIB));
        assert_eq!(space(), 5 * MIB);
        mem.copy_out(0, &mut bytes).unwrap();
        let (hole, rest): (Vec<_>, Vec<_>) = bytes
            .iter()
            .enumerate()
            .partition(|&(at, _)| (2 * MIB..6 * MIB).contains(&(at as u64)));
        assert!(hole.iter().all(|&(_, &byte)| byte == 0));
        assert!(rest.iter().all(|&(_, &byte)| byte == 7));
        assert!(!Pmem::private(MIB).punch(0, MIB), "memory has no holes");
    }
}
