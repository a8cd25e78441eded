//! read: no lock, no store but atime.

use crate::inode::Inode;
use crate::pool::Pool;
use crate::tree::Tree;
use crate::types::Ino;
use pm_journal::error::Result;
use pm_journal::locks::{self, Glimpse};
use pmfs_format::BLOCK_BYTES;
use pmshare::counters::CountedRead;

/// Longer reads than this mostly go beyond one entry of the file's tree, which
/// [`Pool::read_at_once`] does not.
const AT_ONCE_MAX: usize = BLOCK_BYTES as usize;

impl Pool {
    /// Reads like [`Pool::read`] in the common case: no write meanwhile, the bytes lie below one
    /// entry of the tree, and no atime is due.
    ///
    /// # Errors
    /// [`Pool::read`] is to do it, or to say why it can't; that much of it is counted.
    #[inline(always)]
    pub(crate) fn read_at_once(
        &self,
        ino: Ino,
        at: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, CountedRead> {
        let unlike = CountedRead::default;
        if buffer.len() > AT_ONCE_MAX {
            return Err(unlike());
        }
        self.alive().map_err(|_| unlike())?;
        let glimpse = Glimpse::begin(self, ino).ok_or_else(unlike)?;
        let clean = self.pages_are_clean(glimpse.line, ino);
        clean.map_err(|_| unlike())?;
        let inode = Inode::live_file(self, ino).map_err(|_| unlike())?;
        let len = inode.size().saturating_sub(at).min(buffer.len() as u64);
        if len == 0 || self.atime_due(&inode).is_some() {
            return Err(unlike());
        }
        let found = inode.tree().byte(self, at, |off| self.pm.load(off));
        let (off, _) = found
            .filter(|&(_, bytes)| len <= bytes)
            .ok_or_else(unlike)?;
        self.count_read(Some(len));
        let copied = self.pm.copy_out(off, &mut buffer[..len as usize]);
        match copied.is_ok() && glimpse.is_true() {
            true => Ok(len as usize),
            false => Err(CountedRead::of(len)),
        }
    }

    /// Reads up to `buffer.len()` bytes at `at`; short only at the end of the file. The bytes are
    /// counted before they are copied; `wants_atime` is asked if an atime is due.
    pub(crate) fn read(
        &self,
        ino: Ino,
        at: u64,
        buffer: &mut [u8],
        counted: &mut CountedRead,
        wants_atime: &dyn Fn() -> bool,
    ) -> Result<usize> {
        self.alive()?;
        let mut read = 0;
        let mut atime = None;
        // Nothing is handed out of the closure: what a `Result` has in it is moved several times,
        // each a store that is loaded again before it is done.
        locks::read_line(self, ino, |line| {
            self.pages_are_clean(line, ino)?;
            let inode = Inode::live_file(self, ino)?;
            let len = inode.size().saturating_sub(at).min(buffer.len() as u64);
            atime = if len > 0 {
                self.atime_due(&inode)
            } else {
                None
            };
            self.count_ahead(counted, len);
            read = self.read_range(&inode.tree(), at, &mut buffer[..len as usize])?;
            Ok(())
        })?;
        if let Some(now) = atime
            && wants_atime()
        {
            self.set_atime(ino, now)?;
        }
        Ok(read)
    }

    /// Copies a range that lies inside the size; up to a medium's error, if there is one behind the
    /// first byte.
    #[inline]
    pub(crate) fn read_range(&self, tree: &Tree, at: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        // Mostly it is all below one entry.
        if let Some((off, bytes)) = tree.byte(self, at, |off| self.pm.load(off))
            && buffer.len() as u64 <= bytes
            && self.pm.copy_out(off, buffer).is_ok()
        {
            return Ok(buffer.len());
        }
        self.read_extents(tree, at, buffer)
    }

    /// Reads like [`Pool::read_range`], extent by extent.
    fn read_extents(&self, tree: &Tree, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = buffer.len();
        let extent_at = |done: usize| {
            let left = (bytes - done) as u64;
            let here = at + done as u64;
            let blocks = (here % BLOCK_BYTES + left).div_ceil(BLOCK_BYTES);
            tree.extent(self, here / BLOCK_BYTES, blocks)
        };
        let mut done = 0;
        let mut extent = extent_at(0)?;
        loop {
            let within = (at + done as u64) % BLOCK_BYTES;
            let left = buffer.len() - done;
            let len = ((extent.count * BLOCK_BYTES - within) as usize).min(left);
            let next = match len < left {
                true => Some(extent_at(done + len)?),
                false => None,
            };
            let piece = &mut buffer[done..done + len];
            let off = extent.off + within;
            let copied = match next.and_then(|next| next.first_bytes(left - len)) {
                _ if !extent.written => self.pm.zero_out(piece),
                Some(coming) => self.pm.copy_out_before(off, piece, coming),
                None => self.pm.copy_out(off, piece),
            };
            match copied {
                Ok(()) => {}
                Err(pm_store::Error::Medium { offset }) if done > 0 || offset > off => {
                    return Ok(done + (offset.saturating_sub(off) as usize).min(len));
                }
                Err(pm_store::Error::BadAddress) if done > 0 => return Ok(done),
                Err(error) => return Err(error.into()),
            }
            done += len;
            match next {
                Some(next) => extent = next,
                None => return Ok(done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::{FallocateMode, ROOT_INO, SetAttr};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Goal: a short read meets no write half done. Method: a thread overwrites a place in a file,
    /// each write of one value; each read of it has to be of one.
    #[test]
    fn a_short_read_is_of_one_write() {
        for (at, bytes) in [(100, 300), (0, 4096)] {
            let scratch = Scratch::new(64 << 20);
            let fs = scratch.open();
            let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
            fs.write(ino, at, &vec![1; bytes]).unwrap();
            let done = AtomicBool::new(false);
            let torn = std::thread::scope(|scope| {
                scope.spawn(|| {
                    for value in (0..=255).cycle() {
                        fs.write(ino, at, &vec![value; bytes]).unwrap();
                        if done.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
                let mut got = vec![0; bytes];
                let torn = (0..200_000).find(|_| {
                    let read = fs.read(ino, at, &mut got).unwrap();
                    read != bytes || got.iter().any(|&byte| byte != got[0])
                });
                done.store(true, Ordering::Relaxed);
                torn
            });
            assert_eq!(torn, None, "{bytes} bytes at {at}");
        }
    }

    /// Goal: a short read is what a long one is, wherever it lies. Method: holes, reserved blocks,
    /// an end within a block, and reads that begin and end around their edges, beside a copy.
    #[test]
    fn short_reads_are_cut_where_long_ones_are() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        let end = 5 * 4096 + 700;
        fs.write(ino, 4096, &[1; 4096]).unwrap();
        fs.fallocate(ino, FallocateMode::empty(), 8192, 4096)
            .unwrap();
        fs.write(ino, 4 * 4096 + 1000, &[2; 500]).unwrap();
        let longer = SetAttr {
            size: Some(end as u64),
            ..SetAttr::default()
        };
        fs.setattr(ino, &longer).unwrap();
        let mut all = vec![9; 8 * 4096];
        assert_eq!(fs.read(ino, 0, &mut all).unwrap(), end);
        for at in (0..7 * 4096usize).step_by(509) {
            for bytes in [0, 1, 64, 700, 4096] {
                let mut got = vec![7; bytes];
                let want = bytes.min(end.saturating_sub(at));
                let read = fs.read(ino, at as u64, &mut got).unwrap();
                assert_eq!(read, want, "{bytes} at {at}");
                assert_eq!(got[..want], all[at.min(end)..][..want], "{bytes} at {at}");
                assert!(got[want..].iter().all(|&byte| byte == 7));
            }
        }
    }
}
