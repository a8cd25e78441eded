//! The extents of a file: where its blocks are in the pool, and which of them others share.

use crate::inode::Inode;
use crate::pool::Pool;
use crate::tree::Tree;
use crate::types::Ino;
use pm_journal::error::Result;
use pm_journal::locks;
use pm_space::Bitmap;
use pmfs_format::inode::SIZE_MAX;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// Blocks of a file that lie side by side in the pool and are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// The place in the file, bytes.
    pub at: u64,
    /// The place in the pool, bytes.
    pub off: u64,
    /// Bytes; whole blocks, also past the end of the file.
    pub len: u64,
    /// It holds data; otherwise it reads as zeros.
    pub written: bool,
    /// Other files, or other places of this one, have the same blocks.
    pub shared: bool,
}

impl FileExtent {
    /// Takes the extent behind it in, if the two are one.
    fn join(&mut self, next: &FileExtent) -> bool {
        let goes_on = self.at + self.len == next.at && self.off + self.len == next.off;
        let is_alike = self.written == next.written && self.shared == next.shared;
        if goes_on && is_alike {
            self.len += next.len;
        }
        goes_on && is_alike
    }
}

impl Pool {
    /// See [`crate::Fs::extents`].
    pub(crate) fn extents(
        &self,
        ino: Ino,
        at: u64,
        len: u64,
        most: usize,
    ) -> Result<(Vec<FileExtent>, bool)> {
        self.alive()?;
        locks::read_line(self, ino, |line| {
            self.pages_are_clean(line, ino)?;
            let inode = Inode::live(self, ino)?;
            inode.require_file()?;
            let (tree, end) = (inode.tree(), at.saturating_add(len));
            let mut found: Vec<FileExtent> = Vec::new();
            let mut here = at / BLOCK_BYTES;
            while let Some(next) = self.next_extent(&tree, here)? {
                here = (next.at + next.len) / BLOCK_BYTES;
                if found.last_mut().is_some_and(|last| last.join(&next)) {
                    continue;
                }
                if next.at >= end || found.len() == most {
                    return Ok((found, false));
                }
                found.push(next);
            }
            Ok((found, true))
        })
    }

    /// The first extent at a block of a file or behind it.
    fn next_extent(&self, tree: &Tree, mut index: u64) -> Result<Option<FileExtent>> {
        let end = SIZE_MAX.div_ceil(BLOCK_BYTES);
        while index < end {
            let found = tree.find(self, index)?;
            let until = found.base.saturating_add(found.units).min(end);
            if found.entry.is_leaf() && found.entry.is_unwritten() {
                return Ok(Some(FileExtent {
                    at: index * BLOCK_BYTES,
                    off: found.entry.off() + (index - found.base) * BLOCK_BYTES,
                    len: (until - index) * BLOCK_BYTES,
                    written: false,
                    shared: false,
                }));
            }
            if found.entry.is_leaf() {
                let extent = tree.extent(self, index, end - index)?;
                let (count, shared) = match extent.shared {
                    true if self.shares_node(tree) => (extent.count, true),
                    true => self.alike_shares(extent.off >> BLOCK_SHIFT, extent.count),
                    false => (extent.count, false),
                };
                return Ok(Some(FileExtent {
                    at: index * BLOCK_BYTES,
                    off: extent.off,
                    len: count * BLOCK_BYTES,
                    written: true,
                    shared,
                }));
            }
            index = until.max(index + 1);
        }
        Ok(None)
    }

    /// Returns whether another file names the only node of a tree.
    fn shares_node(&self, tree: &Tree) -> bool {
        let node = tree.root.off() >> BLOCK_SHIFT;
        tree.root.is_shared_node() && Bitmap::blocks(self).shares(node) > 0
    }

    /// The first blocks of a run that all have shares, or have none: how many, and whether they do.
    /// A leaf's mark stays when the others that named the block are gone.
    fn alike_shares(&self, first: u64, count: u64) -> (u64, bool) {
        let map = Bitmap::blocks(self);
        let is_shared = |block: u64| map.shares(block) > 0;
        let shared = is_shared(first);
        let alike = (first..first + count).take_while(|&block| is_shared(block) == shared);
        (alike.count() as u64, shared)
    }
}

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::{FallocateMode, ROOT_INO};

    const BLOCK: u64 = 4096;

    /// Goal: extents are where the blocks are, and tell what is shared, and where the last is.
    #[test]
    fn extents_tell_what_is_shared() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let [one, other] =
            [&b"one"[..], b"other"].map(|name| fs.create(ROOT_INO, name, &NODE).unwrap().ino);
        let blocks = 40;
        fs.write(one, 0, &vec![7; (blocks * BLOCK) as usize])
            .unwrap();
        let all = |ino| fs.extents(ino, 0, u64::MAX, usize::MAX).unwrap();
        let bytes = |ino, shared| -> u64 {
            let of = all(ino).0.into_iter();
            of.filter(|one| one.shared == shared)
                .map(|one| one.len)
                .sum()
        };
        assert_eq!((bytes(one, false), bytes(one, true)), (blocks * BLOCK, 0));
        fs.clone_range((one, 0), (other, 0), 0).unwrap();
        assert_eq!(all(one), all(other));
        assert_eq!((bytes(one, false), bytes(one, true)), (0, blocks * BLOCK));
        // One block of each becomes its own: that of the other alone has the mark left.
        fs.write(one, 9 * BLOCK, &[1; BLOCK as usize]).unwrap();
        for ino in [one, other] {
            assert_eq!(bytes(ino, false), BLOCK);
        }
        // Past the end, and a part of it all.
        let kept = FallocateMode::KEEP_SIZE;
        fs.fallocate(one, kept, 100 * BLOCK, 3 * BLOCK).unwrap();
        let (extents, is_end) = fs.extents(one, 50 * BLOCK, u64::MAX, usize::MAX).unwrap();
        assert!(is_end && extents.iter().all(|extent| !extent.written));
        assert_eq!(extents[0].at, 100 * BLOCK);
        assert_eq!(
            extents.iter().map(|extent| extent.len).sum::<u64>(),
            3 * BLOCK
        );
        let (extents, is_end) = fs.extents(one, 9 * BLOCK, BLOCK, usize::MAX).unwrap();
        assert!(!is_end && extents.len() == 1 && extents[0].at == 9 * BLOCK);
        let (extents, is_end) = fs.extents(one, 0, u64::MAX, 1).unwrap();
        assert!(!is_end && extents.len() == 1);
        let (extents, is_end) = fs.extents(one, 1 << 40, 1, 1).unwrap();
        assert!(is_end && extents.is_empty());
    }
}
