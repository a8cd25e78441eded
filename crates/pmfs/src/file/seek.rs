//! SEEK_DATA, SEEK_HOLE, copy_file_range.

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::locks;
use crate::pool::Pool;
use crate::types::Ino;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::SIZE_MAX;

/// copy_file_range works through a buffer of this size.
const COPY_BYTES: usize = 1 << 20;

impl Pool {
    /// The first offset from `at` on that holds data (`data`), or that reads as a hole, the end included.
    pub(crate) fn seek(&self, ino: Ino, at: u64, data: bool) -> Result<u64> {
        self.alive()?;
        locks::read_content(self, ino, || {
            let inode = Inode::live(self, ino)?;
            inode.require_file()?;
            let size = inode.size();
            if at >= size {
                return Err(Error::NoSuchOffset);
            }
            let tree = inode.tree();
            let mut here = at;
            while here < size {
                let blocks = (size - here).div_ceil(BLOCK_BYTES) + 1;
                let extent = tree.extent(self, here / BLOCK_BYTES, blocks)?;
                if extent.written == data {
                    return Ok(here);
                }
                here = (here / BLOCK_BYTES + extent.count.max(1)).saturating_mul(BLOCK_BYTES);
            }
            if data {
                Err(Error::NoSuchOffset)
            } else {
                Ok(size)
            }
        })
    }

    /// Copies a range between files; each piece is a write of its own.
    pub(crate) fn copy_range(
        &self,
        from: Ino,
        from_at: u64,
        to: Ino,
        to_at: u64,
        len: u64,
    ) -> Result<u64> {
        let size = |ino| {
            locks::read(self, ino, || {
                let inode = Inode::live(self, ino)?;
                Ok((inode.require_file(), inode.size()))
            })
        };
        let (source, target) = (size(from)?, size(to)?);
        for kind in [&source.0, &target.0] {
            if let Err(Error::IsDirectory) = kind {
                return Err(Error::IsDirectory);
            }
        }
        source.0.and(target.0)?;
        // Only what there is to copy, and what there is room for, can overlap.
        let len = len.min(source.1.saturating_sub(from_at));
        if len > 0 && to_at >= SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        let len = len.min(SIZE_MAX.saturating_sub(to_at));
        if from == to && from_at < to_at.saturating_add(len) && to_at < from_at.saturating_add(len)
        {
            return Err(Error::Invalid(&"the ranges overlap"));
        }
        let mut buffer = vec![0; COPY_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let want = (len - done).min(buffer.len() as u64) as usize;
            let got = match self.read(from, from_at + done, &mut buffer[..want], |_| ()) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            match self.write(to, to_at + done, &buffer[..got]) {
                Ok(written) => {
                    done += written as u64;
                    if written < got {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
