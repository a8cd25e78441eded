//! Bandwidth: bytes that one thread or several move a second, each in a part of the memory of its
//! own and on a processor of its own.
//!
//! A thread's figure is the median of slices of its time, since others may want its processor.

use super::{Flush, LINE, Order, check_bytes, map};
use crate::measure::Figures;
use crate::processor;
use crate::random::Random;
use anyhow::ensure;
use clap::{Args, ValueEnum};
use pmem::Pmem;
use pmem::view::View;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes between two looks at the clock, at least.
const LOOK_BYTES: u64 = 256 << 10;
/// The alignment of a huge page.
const ALIGN: usize = 2 << 20;
const PAGE: usize = 4096;
const SLICES: u32 = 20;
/// Bytes that are loaded into the same lines.
const FEW: usize = 256;

/// The accesses to measure.
#[derive(Args)]
pub(super) struct Options {
    #[arg(long, value_enum)]
    access: Access,
    #[arg(long, value_enum)]
    order: Order,
    /// The size of an access.
    #[arg(long)]
    bytes: u64,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    span: super::super::Span,
}

/// The access to a place.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Access {
    /// Loaded by the widest loads that there are: copied, front to back, into a few lines that stay
    /// in the first cache.
    Load,
    /// Copied into a buffer, as PMFS reads files.
    Read,
    /// Copied into it, left in the caches.
    Store,
    /// Copied into it, clwb, sfence.
    Clwb,
    /// Copied into it by non-temporal stores, sfence.
    Nt,
}

/// The memory, mapped twice: a view has copies that stay in the caches.
struct Memory {
    mem: Pmem,
    view: View,
}

impl Options {
    pub(super) fn measure(&self, file: &Path) -> anyhow::Result<f64> {
        let processors = processor::all()?.len();
        ensure!(
            (1..=processors).contains(&self.threads),
            "--threads has to be from 1 to {processors}, the processors that there are"
        );
        let memory = Memory {
            mem: map(file, Flush::Clwb)?,
            view: View::of_file(file, ALIGN)?,
        };
        let part = memory.mem.len() / self.threads as u64;
        let least = match self.access {
            Access::Read | Access::Store => 1,
            Access::Load | Access::Clwb | Access::Nt => LINE,
        };
        check_bytes(self.bytes, least, part)?;
        if matches!(self.access, Access::Store | Access::Clwb) {
            memory.touch()?;
        }
        let begin = Barrier::new(self.threads);
        let rates: Vec<anyhow::Result<f64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    let (memory, begin) = (&memory, &begin);
                    scope.spawn(move || {
                        processor::keep_to(number)?;
                        begin.wait();
                        self.work(memory, number as u64 * part, part)
                    })
                })
                .collect();
            let joined = threads.into_iter();
            joined
                .map(|thread| thread.join().expect("it does not panic"))
                .collect()
        });
        rates.into_iter().sum()
    }

    /// Bytes a second of one thread.
    fn work(&self, memory: &Memory, from: u64, len: u64) -> anyhow::Result<f64> {
        let span = Duration::from_secs_f64(self.span.seconds);
        let places = len / self.bytes;
        let looks = LOOK_BYTES.div_ceil(self.bytes);
        let mut random = Random(from + 1);
        let mut space = vec![7; self.bytes as usize + PAGE];
        let buffer = aligned(&mut space);
        let mut next = 0;
        let mut rates = Figures::default();
        let start = Instant::now();
        let (mut since, mut moved) = (start, 0);
        while start.elapsed() < span {
            for _ in 0..looks {
                let place = match self.order {
                    Order::Sequential => next % places,
                    Order::Random => random.below(places),
                };
                next += 1;
                memory.access(self.access, from + place * self.bytes, buffer)?;
            }
            moved += looks * self.bytes;
            if since.elapsed() >= span / SLICES {
                rates.0.push(moved as f64 / since.elapsed().as_secs_f64());
                (since, moved) = (Instant::now(), 0);
            }
        }
        Ok(rates.median())
    }
}

/// The part that begins on a page. A buffer that does not begin on a line would make copies take up
/// to three times as long.
fn aligned(space: &mut [u8]) -> &mut [u8] {
    let before = space.as_ptr().align_offset(PAGE);
    let len = space.len() - PAGE;
    &mut space[before..before + len]
}

impl Memory {
    /// The view's page tables.
    fn touch(&self) -> anyhow::Result<()> {
        let mut byte = [0];
        for at in (0..self.view.len()).step_by(4096) {
            self.view.read(at, &mut byte)?;
            self.view.write(at, &byte)?;
        }
        Ok(())
    }

    #[inline]
    fn access(&self, access: Access, off: u64, buffer: &mut [u8]) -> anyhow::Result<()> {
        match access {
            Access::Load => {
                let len = buffer.len();
                let few = &mut buffer[..len.min(FEW)];
                for at in (0..len).step_by(FEW) {
                    let piece = (len - at).min(FEW);
                    self.mem.copy_out(off + at as u64, &mut few[..piece])?;
                }
            }
            Access::Read => self.mem.copy_out(off, buffer)?,
            Access::Store => self.view.write(off, buffer)?,
            Access::Clwb => {
                self.view.write(off, buffer)?;
                self.mem.flush(off, buffer.len() as u64);
                self.mem.fence();
            }
            Access::Nt => {
                self.mem.write_nt(off, buffer)?;
                self.mem.fence();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::unprotected;

    #[test]
    fn buffers_begin_on_pages() {
        for len in [4, 4096, 1 << 20] {
            let mut space = vec![0; len + PAGE];
            let buffer = aligned(&mut space);
            assert_eq!((buffer.as_ptr() as usize % PAGE, buffer.len()), (0, len));
        }
    }

    /// So many that each of two threads goes through its part before it looks at the clock.
    const LEN: u64 = 2 * LOOK_BYTES;

    /// Goal: what is counted was moved, by all threads, in all of the memory. Method: the memory
    /// afterwards, and the buffer.
    #[test]
    fn all_of_the_memory_is_written_and_read() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = place.path().join("memory");
        drop(Pmem::create(&file, LEN, false, true, &unprotected()).unwrap());
        for access in [Access::Store, Access::Clwb, Access::Nt] {
            Pmem::open(&file, &unprotected()).unwrap().zero_nt(0, LEN);
            let options = Options {
                access,
                order: Order::Sequential,
                bytes: 4096,
                threads: processor::all().unwrap().len().min(2),
                span: super::super::super::Span { seconds: 0.05 },
            };
            assert!(options.measure(&file).unwrap() > 1e6);
            let written = std::fs::read(&file).unwrap();
            assert!(written.iter().all(|byte| *byte == 7), "{access:?}");
        }
        let memory = Memory {
            mem: map(&file, Flush::Clwb).unwrap(),
            view: View::of_file(&file, ALIGN).unwrap(),
        };
        let mut buffer = [0; 64];
        memory.access(Access::Read, 4096, &mut buffer).unwrap();
        assert_eq!(buffer, [7; 64]);
    }
}
