//! The time to write back a line where many that were stored to are written back together, before
//! one fence: figure 15 of the thesis on PMDK. Stores are not timed.

use super::{Flush, LINE, check_bytes, map};
use crate::measure::Figures;
use clap::Args;
use pmem::Pmem;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are stored to before the clock starts: they have to be in the caches still when they
/// are written back.
const STORED_BYTES: u64 = 256 << 10;

/// The flushes to measure.
#[derive(Args)]
pub(super) struct Options {
    #[arg(long, value_enum)]
    by: Flush,
    /// The bytes that are stored to and written back before a fence.
    #[arg(long)]
    bytes: u64,
    #[command(flatten)]
    span: super::super::Span,
}

impl Options {
    pub(super) fn measure(&self, file: &Path) -> anyhow::Result<f64> {
        let mem = map(file, self.by)?;
        check_bytes(self.bytes, LINE, mem.len())?;
        let until = Instant::now() + Duration::from_secs_f64(self.span.seconds);
        let mut figures = Figures::default();
        let mut number = 0;
        while figures.0.is_empty() || Instant::now() < until {
            number += 1;
            figures.0.push(round(&mem, self.bytes, number));
        }
        Ok(figures.median())
    }
}

/// ns a line.
fn round(mem: &Pmem, bytes: u64, number: u64) -> f64 {
    let pieces = (STORED_BYTES / bytes).max(1);
    let len = pieces * bytes;
    // Elsewhere in each round.
    let from = number % (mem.len() / len) * len;
    let words = [number; 8];
    for at in (0..len).step_by(LINE as usize) {
        mem.write(from + at, &words);
    }
    let start = Instant::now();
    for piece in 0..pieces {
        mem.flush(from + piece * bytes, bytes);
        mem.fence();
    }
    start.elapsed().as_nanos() as f64 / (len / LINE) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::counters::snapshot;

    /// Goal: a line counts once, and a fence follows so many bytes. Method: what pmem counts.
    #[test]
    fn lines_and_fences_are_as_many_as_they_should_be() {
        let mem = Pmem::private(8 << 20);
        for (bytes, fences) in [(64, 4096), (4096, 64), (1 << 20, 1)] {
            let before = snapshot();
            assert!(round(&mem, bytes, 3) > 0.0);
            let counted = snapshot() - before;
            assert_eq!(counted.fences, fences, "{bytes}");
            let lines = (fences * bytes) / LINE;
            assert_eq!(counted.lines_flushed, lines);
        }
    }
}
