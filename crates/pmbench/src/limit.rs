//! The cost of the memory itself: copies, flushes and fences with nothing around them.

use crate::pool::unprotected;
use crate::random::Random;
use crate::rows::{Candidate, Row};
use pmem::{MapOptions, Pmem};
use std::path::Path;

/// Raw memory of the size of the file.
pub struct Limit {
    mem: Pmem,
    random: Random,
    buffer: Vec<u8>,
}

impl Limit {
    pub fn new(ground: &Path, bytes: u64) -> anyhow::Result<Limit> {
        let mem = Pmem::create(&ground.join("raw"), bytes, false, true, &unprotected())?;
        let buffer = vec![7; 4096];
        for at in (0..bytes).step_by(4096) {
            mem.write_nt(at, &buffer)
                .map_err(|fault| anyhow::anyhow!("{fault:?}"))?;
        }
        Ok(Limit {
            mem,
            random: Random(1),
            buffer,
        })
    }
}

impl Candidate for Limit {
    fn run(&mut self, row: Row, count: u64) -> anyhow::Result<()> {
        let mem = &self.mem;
        let fault = |fault: pmem::Fault| anyhow::anyhow!("{fault:?}");
        let mut small = [1u8; 64];
        let mut at = 0;
        for n in 0..count {
            match row {
                Row::Read4kRandom => {
                    let at = self.random.below(mem.len() / 4096) * 4096;
                    mem.copy_out(at, &mut self.buffer).map_err(fault)?;
                }
                Row::Read64Random => {
                    let at = self.random.below(mem.len() / 64) * 64;
                    mem.copy_out(at, &mut small).map_err(fault)?;
                }
                Row::Read4kHot => mem.copy_out(4096, &mut self.buffer).map_err(fault)?,
                Row::Write4kRandom => {
                    // A block, then the pointer to it: two barriers.
                    let block = self.random.below(mem.len() / 4096) * 4096;
                    mem.write_nt(block, &self.buffer).map_err(fault)?;
                    mem.fence();
                    let slot = self.random.below(mem.len() / 8) * 8;
                    mem.store(slot, n);
                    mem.flush(slot, 8);
                    mem.fence();
                }
                Row::Write64Random => {
                    // Two log lines, a barrier, the data, which the next barrier is for.
                    let line = self.random.below(mem.len() / 64) * 64;
                    let log = at % 8192 * 64;
                    mem.write(log, &[n; 16]);
                    mem.flush(log, 128);
                    mem.load(line);
                    mem.fence();
                    mem.write(line, &[n; 8]);
                    mem.flush(line, 64);
                    at += 2;
                }
                Row::Append64 => {
                    mem.write(n * 64 % mem.len(), &[n; 8]);
                    mem.flush(n * 64 % mem.len(), 64);
                    mem.fence();
                    mem.store(0, n);
                    mem.flush(0, 8);
                    mem.fence();
                }
                Row::Append4k => {
                    mem.write_nt(n * 4096 % mem.len(), &self.buffer)
                        .map_err(fault)?;
                    mem.fence();
                    mem.store(0, n);
                    mem.flush(0, 8);
                    mem.fence();
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Loads at random places of a mapped file, one after the other, each place known only when the
/// load before it is done: any small read without a prefetch waits for such a load.
pub struct Wait {
    mem: Pmem,
    random: Random,
    last: u64,
}

impl Wait {
    /// Maps a file that is there.
    pub fn new(file: &Path) -> anyhow::Result<Wait> {
        let map = MapOptions {
            read_only: true,
            ..unprotected()
        };
        Ok(Wait {
            mem: Pmem::open(file, &map)?,
            random: Random(1),
            last: 0,
        })
    }
}

impl Candidate for Wait {
    fn run(&mut self, row: Row, count: u64) -> anyhow::Result<()> {
        if row != Row::Read64Random {
            return Ok(());
        }
        let lines = self.mem.len() / 64 - 1;
        for _ in 0..count {
            // All words of the file are the same, which neither compiler nor processor knows.
            let line = self.random.below(lines) + self.last % 2;
            self.last = self.mem.load(line * 64);
        }
        Ok(())
    }
}
