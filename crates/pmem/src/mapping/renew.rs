//! Replacement of pages that the medium has lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use crate::Error;

const PAGE: u64 = 4096;

/// Replaces the pages at these offsets of a pool's file: on return they are zeros, durably.
/// Existing mappings keep the error, so no process may have the pool open.
///
/// Each page is returned to the file system and allocated again (fallocate(2)). A page of RAM is
/// then another one, and a DAX file system has cleared or replaced its memory. Where a file can't
/// have holes, zeros are written over the page, by which the kernel clears errors of persistent
/// memory.
///
/// # Errors
/// [`Error::Renew`]: the file system can't do this, or the pool is a device (`ndctl clear-errors`
/// clears its errors).
pub fn renew_pages(path: &Path, offsets: &[u64]) -> Result<(), Error> {
    let failed = |source| Error::Renew {
        path: path.into(),
        source,
    };
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_char_device() {
        return Err(failed(io::ErrorKind::Unsupported.into()));
    }
    for off in offsets {
        renew(&file, off & !(PAGE - 1)).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

fn renew(file: &File, off: u64) -> io::Result<()> {
    let at = |bytes: u64| libc::off_t::try_from(bytes).map_err(io::Error::other);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no memory is involved; whoever has it mapped meets zeros, as the caller wants.
    let given_back = unsafe { libc::fallocate(file.as_raw_fd(), punch, at(off)?, at(PAGE)?) };
    if given_back != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
    }
    file.write_all_at(&[0; PAGE as usize], off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn pages_are_zeros_and_others_stay() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        fs::write(&path, [7; 3 * PAGE as usize]).unwrap();
        renew_pages(&path, &[PAGE + 100]).unwrap();
        let mut expected = [7; 3 * PAGE as usize];
        expected[PAGE as usize..2 * PAGE as usize].fill(0);
        assert_eq!(fs::read(&path).unwrap(), expected);
        let error = renew_pages(Path::new("/dev/null"), &[0]).unwrap_err();
        assert!(error.to_string().contains("ndctl clear-errors"), "{error}");
    }
}
