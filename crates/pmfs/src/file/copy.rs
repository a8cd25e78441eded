//! copy_file_range: piece by piece, each a write of its own. Whole blocks are shared where they
//! align, and are not too few. Other bytes that go behind the end of a file are copied from block
//! to block under both locks; the rest goes through a buffer, and the source may change before that
//! is written.

use super::source::Source;
use crate::inode::Inode;
use crate::pool::Pool;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_journal::locks;
use pm_space::Class;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::SIZE_MAX;
use pmshare::counters::CountedRead;

const COPY_BYTES: usize = 1 << 20;
/// Fewer bytes are copied: that takes less time than the marks and counts of a clone.
const SHARED_MIN: u64 = 64 << 10;

impl Pool {
    /// Copies a range between files; answers how much it was.
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
        let mut buffer = Vec::new();
        let mut done = 0;
        while done < len {
            let want = (len - done).min(COPY_BYTES as u64);
            let (here, there) = (from_at + done, to_at + done);
            // The plain copy below meets the same error again, and reports it.
            if let Ok(Some(shared)) = self.copy_shared((from, here), (to, there), len - done) {
                done += shared;
                continue;
            }
            if let Ok(Some(copied)) = self.copy_behind((from, here), (to, there), want) {
                done += copied;
                continue;
            }
            buffer.resize(want as usize, 0);
            let mut counted = CountedRead::of(0);
            let got = match self.read(from, here, &mut buffer, &mut counted, &|| true) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            match self.write(to, there, &buffer[..got]) {
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

    /// Shares the whole blocks of a range, from the first on; answers how many bytes these are.
    /// `None` where the two places are not on blocks, the blocks are few, or a program has some of
    /// either file mapped.
    fn copy_shared(
        &self,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Result<Option<u64>> {
        let on_block = |at: u64| at.is_multiple_of(BLOCK_BYTES);
        if len < SHARED_MIN || !on_block(from_at) || !on_block(to_at) {
            return Ok(None);
        }
        self.on_two_files(from, to, |work, source, is_pinned| {
            let len = len.min(source.size().saturating_sub(from_at));
            let is_tail = from_at + len == source.size() && to_at + len >= work.inode.size();
            let len = match is_tail {
                true => len,
                false => len / BLOCK_BYTES * BLOCK_BYTES,
            };
            if is_pinned || len < SHARED_MIN {
                return Ok(None);
            }
            match work.clone_from(source, (from_at, to_at), len) {
                (0, cloned) => cloned.map(|()| None),
                // The next call meets what stopped this one.
                (done, _) => {
                    self.accessed(source);
                    Ok(Some(done))
                }
            }
        })
    }

    /// Copies to the end of a file or behind it, up to the source's end; answers how much. `None`
    /// where this is not for it.
    fn copy_behind(
        &self,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Result<Option<u64>> {
        if from == to {
            return Ok(None);
        }
        self.on_two_files(from, to, |work, source, _| {
            let len = len.min(source.size().saturating_sub(from_at));
            if len == 0 || to_at < work.inode.size() {
                return Ok(None);
            }
            let (tree, at) = (&source.tree(), from_at);
            work.own_node(Class::Ordinary)?;
            work.extend(to_at, Source::File { tree, at, len })?;
            self.accessed(source);
            Ok(Some(len))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::{FallocateMode, Fs, Ino, ROOT_INO, SetAttr};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn file(fs: &Fs, name: &[u8]) -> Ino {
        fs.create(ROOT_INO, name, &NODE).unwrap().ino
    }

    fn content(fs: &Fs, ino: Ino) -> Vec<u8> {
        let mut bytes = vec![9; fs.getattr(ino).unwrap().size as usize];
        assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    /// Goal: from block to block a copy is what it is through a buffer. Method: data, a hole,
    /// unwritten blocks, and part of a block, from and to places that are and are not on a block or
    /// a line.
    #[test]
    fn a_copy_behind_the_end_is_what_a_copy_is() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let from = file(&fs, b"from");
        let bytes: Vec<u8> = (0..20_000u32).map(|at| (at * 7) as u8).collect();
        fs.write(from, 0, &bytes).unwrap();
        fs.fallocate(from, FallocateMode::empty(), 20_000, 9_000)
            .unwrap();
        fs.write(from, 60_000, &bytes).unwrap();
        let whole = content(&fs, from);
        for (number, (at, start, len)) in [
            (0, 0, 80_000),
            (100, 0, 30_000),
            (4096, 10, 70_001),
            (19_999, 5000, 2),
            (61_003, 64, 5000),
        ]
        .into_iter()
        .enumerate()
        {
            let to = file(&fs, &[b'a' + number as u8]);
            fs.write(to, 0, &vec![1; start.min(4000) as usize]).unwrap();
            let copied = fs.pool().copy_behind((from, at), (to, start), len).unwrap();
            assert_eq!(copied, Some(len));
            let mut expected = vec![1; start.min(4000) as usize];
            expected.resize(start as usize, 0);
            expected.extend_from_slice(&whole[at as usize..(at + len) as usize]);
            assert!(content(&fs, to) == expected, "{at} {start} {len}");
        }
    }

    #[test]
    fn inside_a_file_and_on_itself_it_is_not_for_it() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let (from, to) = (file(&fs, b"from"), file(&fs, b"to"));
        fs.write(from, 0, &[1; 9000]).unwrap();
        fs.write(to, 0, &[2; 9000]).unwrap();
        let copy = |from, to| fs.pool().copy_behind(from, to, 100).unwrap();
        assert_eq!(copy((from, 0), (to, 8999)), None);
        assert_eq!(copy((from, 0), (from, 9000)), None);
        assert_eq!(copy((from, 9000), (to, 9000)), None);
        assert_eq!(copy((from, 8999), (to, 9000)), Some(1));
    }

    /// Goal: the source stands still while it is copied. Method: a thread overwrites it, each write
    /// of one value, whose old blocks are soon had again by others; each copy must be of one value.
    #[test]
    fn a_source_that_is_written_meanwhile_is_copied_as_it_was_once() {
        const BYTES: usize = 64 << 10;
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let (from, to, other) = (file(&fs, b"from"), file(&fs, b"to"), file(&fs, b"other"));
        fs.write(from, 0, &[1; BYTES]).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in (0..=255u8).cycle() {
                    fs.write(from, 0, &[value; BYTES]).unwrap();
                    fs.write(other, 0, &[!value; BYTES]).unwrap();
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let empty = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            for _ in 0..2000 {
                let copied = fs.pool().copy_behind((from, 0), (to, 0), BYTES as u64);
                assert_eq!(copied.unwrap(), Some(BYTES as u64));
                let bytes = content(&fs, to);
                let torn = bytes.iter().position(|&byte| byte != bytes[0]);
                done.store(torn.is_some(), Ordering::Relaxed);
                assert_eq!(torn, None, "of two values");
                fs.setattr(to, &empty).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
