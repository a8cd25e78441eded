//! Writing the stream, from a pool at rest.

use super::{Header, RUN_BLOCKS_MAX, RunHeader};
use crate::inspect::Inspector;

use pm_space::Bitmap;
use pmfs::parts::pool::Pool;
use pmfs::{Error, Result};
use pmfs_format::BLOCK_BYTES;
use std::io::Write;

/// The result of saving.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveReport {
    /// Blocks with content.
    pub blocks: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// A callback for progress: bytes of the pool that are done, and bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Inspector {
    /// Writes all of a pool that others hold and have made stand still ([`pmfs::Freeze`]).
    /// `everything`: free blocks too, for a pool whose bitmaps can't be relied on.
    ///
    /// # Errors
    /// Those of [`Admin::save`](crate::Admin::save).
    pub fn save(
        &self,
        everything: bool,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<SaveReport> {
        save(&self.pool, everything, out, progress)
    }
}

pub(crate) fn save(
    pool: &Pool,
    everything: bool,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<SaveReport> {
    let map = Bitmap::blocks(pool);
    let blocks = pool.geometry.blocks;
    let used = if everything {
        blocks
    } else {
        blocks.saturating_sub(map.free())
    };
    let header = Header {
        blocks,
        uuid: pool.superblock.uuid,
        time_ns: pool.clock.now_ns(),
        used,
    };
    let mut stream = Stream {
        out,
        report: SaveReport::default(),
        place: 0,
        headers_crc: 0,
    };
    stream.write(&header.encode())?;
    let runtime =
        pool.geometry.runtime.start / BLOCK_BYTES..pool.geometry.runtime.end / BLOCK_BYTES;
    let wanted = |block: u64| !runtime.contains(&block) && (everything || map.is_set(block));
    let mut buffer = vec![0; (RUN_BLOCKS_MAX * BLOCK_BYTES) as usize];
    let mut done = 0;
    let mut block = 0;
    while block < blocks {
        if !wanted(block) {
            block += 1;
            continue;
        }
        let end = blocks.min(block + RUN_BLOCKS_MAX);
        let count = (block..end).take_while(|&next| wanted(next)).count() as u64;
        let content = &mut buffer[..(count * BLOCK_BYTES) as usize];
        pool.pm.copy_out(block * BLOCK_BYTES, content)?;
        stream.runs(block, content)?;
        block += count;
        done += count;
        progress(done * BLOCK_BYTES, used.max(done) * BLOCK_BYTES);
    }
    pool.pm.intact()?;
    stream.end()
}

struct Stream<'a> {
    out: &'a mut dyn Write,
    report: SaveReport,
    place: u64,
    headers_crc: u32,
}

impl Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.report.bytes += bytes.len() as u64;
        self.out
            .write_all(bytes)
            .map_err(|source| Error::file("writing", source))
    }

    /// Writes neighbouring blocks, those of zeros left out.
    fn runs(&mut self, first: u64, content: &[u8]) -> Result<()> {
        let block_of = |at: usize| first + at as u64 / BLOCK_BYTES;
        let mut start = None;
        for (index, block) in content.chunks(BLOCK_BYTES as usize).enumerate() {
            let at = index * BLOCK_BYTES as usize;
            let zeros = block.iter().all(|&byte| byte == 0);
            match start {
                None if !zeros => start = Some(at),
                Some(from) if zeros => {
                    self.run(block_of(from), &content[from..at])?;
                    start = None;
                }
                _ => {}
            }
        }
        match start {
            Some(from) => self.run(block_of(from), &content[from..]),
            None => Ok(()),
        }
    }

    fn run(&mut self, block: u64, content: &[u8]) -> Result<()> {
        let count = content.len() as u64 / BLOCK_BYTES;
        self.head(block, count as u32, crc32c::crc32c(content))?;
        self.report.blocks += count;
        self.write(content)
    }

    fn head(&mut self, block: u64, count: u32, crc: u32) -> Result<()> {
        let header = RunHeader {
            block,
            count,
            crc,
            place: self.place,
        };
        let bytes = header.encode();
        self.headers_crc = crc32c::crc32c_append(self.headers_crc, &bytes);
        self.place += 1;
        self.write(&bytes)
    }

    fn end(mut self) -> Result<SaveReport> {
        self.head(self.report.blocks, 0, self.headers_crc)?;
        self.out
            .flush()
            .map_err(|source| Error::file("writing", source))?;
        Ok(self.report)
    }
}
