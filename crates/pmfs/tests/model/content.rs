//! A file's bytes as the reference keeps them: a size and the blocks that were written.

use std::collections::BTreeMap;

pub const BLOCK: u64 = 4096;

/// Bytes that are in no block are zeros. Nothing is kept at or past `size`.
#[derive(Clone, Default)]
pub struct Content {
    pub size: u64,
    pub blocks: BTreeMap<u64, Box<[u8; BLOCK as usize]>>,
}

impl Content {
    /// Reads as `read(2)` does: short at the end.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let len = self.size.saturating_sub(at).min(len as u64) as usize;
        let mut bytes = vec![0; len];
        if len == 0 {
            return bytes;
        }
        let last = (at + len as u64 - 1) / BLOCK;
        for (&index, block) in self.blocks.range(at / BLOCK..=last) {
            let start = index * BLOCK;
            let from = at.max(start);
            let to = (at + len as u64).min(start + BLOCK);
            bytes[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
        }
        bytes
    }

    pub fn write(&mut self, at: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let here = at + done as u64;
            let within = (here % BLOCK) as usize;
            let len = (BLOCK as usize - within).min(data.len() - done);
            let block = self
                .blocks
                .entry(here / BLOCK)
                .or_insert_with(|| Box::new([0; BLOCK as usize]));
            block[within..within + len].copy_from_slice(&data[done..done + len]);
            done += len;
        }
        self.size = self.size.max(at + data.len() as u64);
    }

    pub fn truncate(&mut self, size: u64) {
        let _ = self.blocks.split_off(&size.div_ceil(BLOCK));
        if !size.is_multiple_of(BLOCK)
            && let Some(block) = self.blocks.get_mut(&(size / BLOCK))
        {
            block[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Makes a range read as zeros; the size stays.
    pub fn zero(&mut self, at: u64, end: u64) {
        let mut partial = |index: u64, from: u64, to: u64| {
            if let Some(block) = self.blocks.get_mut(&index) {
                block[from as usize..to as usize].fill(0);
            }
        };
        let (first, last) = (at / BLOCK, end / BLOCK);
        if first == last {
            partial(first, at % BLOCK, end % BLOCK);
            return;
        }
        if !at.is_multiple_of(BLOCK) {
            partial(first, at % BLOCK, BLOCK);
        }
        partial(last, 0, end % BLOCK);
        let mut tail = self.blocks.split_off(&at.div_ceil(BLOCK));
        self.blocks.append(&mut tail.split_off(&last));
    }

    /// Takes whole blocks out; what lies behind them moves up.
    pub fn collapse(&mut self, at: u64, len: u64) {
        let mut behind = self.blocks.split_off(&(at / BLOCK));
        let moved = behind.split_off(&((at + len) / BLOCK));
        let by = len / BLOCK;
        self.blocks
            .extend(moved.into_iter().map(|(index, block)| (index - by, block)));
        self.size -= len;
    }

    /// Puts a hole of whole blocks in.
    pub fn insert(&mut self, at: u64, len: u64) {
        let moved = self.blocks.split_off(&(at / BLOCK));
        let by = len / BLOCK;
        self.blocks
            .extend(moved.into_iter().map(|(index, block)| (index + by, block)));
        self.size += len;
    }

    /// Has a range be that of another file. A range that ends inside of a block ends both files.
    pub fn become_of(&mut self, source: &Content, (from, to): (u64, u64), len: u64) {
        let (first, count) = (from / BLOCK, len.div_ceil(BLOCK));
        let mut tail = self.blocks.split_off(&(to / BLOCK));
        self.blocks
            .append(&mut tail.split_off(&(to / BLOCK + count)));
        let theirs = source.blocks.range(first..first + count);
        let moved = theirs.map(|(index, block)| (index - first + to / BLOCK, block.clone()));
        self.blocks.extend(moved.collect::<Vec<_>>());
        self.size = self.size.max(to + len);
    }

    /// Returns whether a range, cut at the end, holds no byte but zeros.
    pub fn is_zero(&self, at: u64, end: u64) -> bool {
        let end = end.min(self.size);
        if at >= end {
            return true;
        }
        self.blocks
            .range(at / BLOCK..=(end - 1) / BLOCK)
            .all(|(&index, block)| {
                let start = index * BLOCK;
                let from = at.max(start) - start;
                let to = end.min(start + BLOCK) - start;
                block[from as usize..to as usize]
                    .iter()
                    .all(|&byte| byte == 0)
            })
    }
}
