//! write and append: cutting into atomic pieces, and choosing how each is done.

use super::overwrite::LOGGED_MAX;
use super::source::Source;
use crate::pool::Pool;
use crate::tree::Tree;
use crate::types::{DataMode, Ino};
use pm_journal::error::{Error, Result};
use pm_space::Class;
use pmfs_format::inode::SIZE_MAX;
use pmfs_format::{BLOCK_BYTES, InodeRaw};

/// A write up to this long is atomic (docs/adr/0031-atomic-writes.md).
pub(crate) const ATOMIC_MAX: usize = 64 << 20;

/// The place that a write goes to.
#[derive(Clone, Copy)]
enum At {
    Offset(u64),
    End,
    /// At the end, if that is there; else nowhere.
    Presumed(u64),
    /// At an offset, and not beyond the end.
    Inside(u64),
}

impl Pool {
    /// Writes at an offset. Short where the pool is full or its free space too scattered for one
    /// transaction: going on there would make a call of at most `ATOMIC_MAX` bytes more than one
    /// transaction.
    pub(crate) fn write(&self, ino: Ino, at: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let piece = &data[done..data.len().min(done + ATOMIC_MAX)];
            match self.write_piece(ino, At::Offset(at + done as u64), piece) {
                Ok((_, written)) => {
                    done += written;
                    if written < piece.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes at the true end; answers where that was.
    pub(crate) fn append(&self, ino: Ino, data: &[u8]) -> Result<(u64, usize)> {
        if data.is_empty() {
            return Ok((self.getattr(ino)?.size, 0));
        }
        let first = &data[..data.len().min(ATOMIC_MAX)];
        self.write_piece(ino, At::End, first)
    }

    /// Writes at the end, if it is at `end`; the first `ATOMIC_MAX` bytes.
    pub(crate) fn write_at_end(&self, ino: Ino, end: u64, data: &[u8]) -> Result<Option<usize>> {
        if data.is_empty() {
            return Ok(Some(0));
        }
        let first = &data[..data.len().min(ATOMIC_MAX)];
        let (_, written) = self.write_piece(ino, At::Presumed(end), first)?;
        Ok((written > 0).then_some(written))
    }

    /// Writes back what a mount's kernel had in a page: nothing past the true end, which another
    /// may have moved since the page was filled.
    pub(crate) fn write_back(&self, ino: Ino, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let here = At::Inside(at + done as u64);
            match self.write_piece(ino, here, &data[done..])? {
                (_, 0) => break,
                (_, written) => done += written,
            }
        }
        Ok(())
    }

    /// Writes one atomic piece. Where space runs out, shorter ones are tried, down to a block.
    fn write_piece(&self, ino: Ino, at: At, data: &[u8]) -> Result<(u64, usize)> {
        self.writable()?;
        let mut len = data.len();
        loop {
            match self.write_once(ino, at, &data[..len]) {
                Err(Error::NoSpace) if len > BLOCK_BYTES as usize => {
                    len = (len / 2)
                        .next_multiple_of(BLOCK_BYTES as usize)
                        .min(len - 1);
                }
                Ok(done) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// Brings what is looked at first nearer while the locks are taken: what leads to a block; of a
    /// few bytes that change a word in part, its others, which the log has to have.
    #[inline]
    fn expect(&self, ino: Ino, at: u64, len: usize) {
        if len <= LOGGED_MAX && at % 8 + len as u64 % 8 != 0 {
            self.expect_byte(ino, at);
        } else if let Some(tree) = self.unlocked_tree(ino) {
            tree.expect(self, at / BLOCK_BYTES);
        }
    }

    /// Asks for the line of a file that has this byte.
    #[inline(always)]
    pub(crate) fn expect_byte(&self, ino: Ino, at: u64) {
        if let Some(tree) = self.unlocked_tree(ino) {
            tree.expect_byte(self, at);
        }
    }

    /// The later lookup is charged for these loads where a slower medium is emulated.
    #[inline(always)]
    fn unlocked_tree(&self, ino: Ino) -> Option<Tree> {
        let slot = InodeRaw::root.of(self.known_inode_off(ino)?);
        Some(Tree::file(self.pm.load_if_there(slot), slot))
    }

    /// Writes, and returns the offset and the number of bytes: fewer than asked for at the end of
    /// the largest file.
    fn write_once(&self, ino: Ino, at: At, data: &[u8]) -> Result<(u64, usize)> {
        if let At::Offset(at) = at {
            self.expect(ino, at, data.len());
        }
        self.on_file(ino, |work| {
            let size = work.inode.size();
            let (at, data) = match at {
                At::Offset(at) => (at, data),
                At::End => (size, data),
                At::Presumed(at) => (at, if at == size { data } else { &[] }),
                At::Inside(at) => {
                    let inside = size.saturating_sub(at).min(data.len() as u64);
                    (at, &data[..inside as usize])
                }
            };
            if data.is_empty() {
                return Ok((at, 0));
            }
            if at >= SIZE_MAX {
                return Err(Error::FileTooBig);
            }
            work.own_node(Class::Ordinary)?;
            let data = &data[..data.len().min((SIZE_MAX - at) as usize)];
            let end = at + data.len() as u64;
            if at >= size {
                work.extend(at, Source::Memory(data))?;
            } else if end <= size {
                return Ok((at, work.overwrite(at, data)?));
            } else if self.data_mode == DataMode::Ordered || work.pinned {
                let inside = (size - at) as usize;
                let written = work.overwrite(at, &data[..inside])?;
                if written < inside {
                    return Ok((at, written));
                }
                work.reload()?;
                match work.extend(size, Source::Memory(&data[inside..])) {
                    // The part inside is written: the answer must not say that nothing was.
                    Err(Error::NoSpace) => return Ok((at, inside)),
                    done => done?,
                }
            } else {
                work.straddle(at, data)?;
            }
            Ok((at, data.len()))
        })
    }
}
