//! The time of the memory itself: a record stored past the caches, one fence, the lines in place
//! stored and flushed. Nothing is looked up, hashed or locked.

use super::{Candidate, Content, How, LINE, Sequence};
use crate::measure::time;
use crate::pool::unprotected;
use pmem::Pmem;
use std::path::Path;

/// Bytes of the ring of records.
const RING: u64 = 64 << 10;

/// A file with an area and a ring of records behind it.
pub struct Limit {
    mem: Pmem,
    ring: u64,
    head: u64,
    /// A place that changes beside each line: a word that tells what is allocated.
    bits: Sequence,
    lines: Sequence,
    content: Content,
    record: Vec<u8>,
}

impl Limit {
    /// Makes one with an area of so many MiB.
    pub fn new(dir: &Path, mib: u64) -> anyhow::Result<Limit> {
        let ring = mib << 20;
        let mem = Pmem::create(&dir.join("limit"), ring + RING, false, true, &unprotected())?;
        mem.zero_nt(0, mem.len());
        Ok(Limit {
            mem,
            ring,
            head: 0,
            // Sixty-four objects to a word.
            bits: Sequence::new(ring / LINE / 64),
            lines: Sequence::new(ring / LINE),
            content: Content::default(),
            record: Vec::new(),
        })
    }

    /// Stores a record of whole lines and waits for it.
    fn log(&mut self, bytes: u64, content: u8) -> anyhow::Result<()> {
        let bytes = bytes.next_multiple_of(LINE);
        self.record.clear();
        self.record.resize(bytes as usize, content);
        if self.head + bytes > RING {
            self.head = 0;
        }
        self.write_nt(self.ring + self.head, &self.record)?;
        self.head += bytes;
        self.mem.fence();
        Ok(())
    }

    fn write_nt(&self, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let written = self.mem.write_nt(at, bytes);
        written.map_err(|fault| anyhow::anyhow!("{fault:?}"))
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.mem.write_bytes(at, bytes);
        self.mem.flush(at, bytes.len() as u64);
    }

    /// An object made (its content is stored too) or freed: a slot and a bit.
    fn publish(&mut self, makes: bool) -> anyhow::Result<()> {
        let (slot, bit) = (self.lines.line() * LINE, self.bits.line() * LINE);
        self.mem.prefetch_if_there(slot);
        self.mem.prefetch_if_there(bit);
        let content = self.content.next();
        if makes {
            let object = self.lines.line() * LINE;
            self.write_nt(object, &content)?;
        }
        // A head, a slot's word, a bit, and of a new object a hash.
        self.log(if makes { 80 } else { 56 }, content[0])?;
        self.put(slot, &content[..8]);
        self.put(bit, &content[..8]);
        Ok(())
    }
}

impl Candidate for Limit {
    fn change(&mut self, how: How, ranges: u64, count: u64) -> anyhow::Result<f64> {
        let mut lines = Vec::new();
        time(count, || {
            for _ in 0..count {
                let content = self.content.next();
                lines.clear();
                lines.extend((0..ranges).map(|_| self.lines.line() * LINE));
                lines.iter().for_each(|&at| self.mem.prefetch_if_there(at));
                if how == How::Add {
                    for &at in &lines {
                        std::hint::black_box(self.mem.load(at));
                    }
                }
                // A head, and for each range a word beside its bytes.
                self.log(24 + ranges * (LINE + 8), content[0])?;
                lines.iter().for_each(|&at| self.put(at, &content));
            }
            Ok(())
        })
    }

    fn churn(&mut self, count: u64) -> anyhow::Result<[f64; 2]> {
        let mut each = |makes| time(count, || (0..count).try_for_each(|_| self.publish(makes)));
        Ok([each(false)?, each(true)?])
    }
}
