//! Latency: of a load that needs the one before, and of a store with what makes it durable. The
//! mean of a batch, the median of batches.
//!
//! Each line is touched once, so that it comes from memory but for what the prefetchers fetch in
//! time.

use super::{Flush, LINE, Order, check_bytes, map};
use crate::measure::Figures;
use crate::random::Random;
use anyhow::ensure;
use clap::{Args, ValueEnum};
use pmem::Pmem;
use std::path::Path;
use std::time::Instant;

const BATCHES: usize = 5;
const BATCH: usize = 50_000;

/// The instructions to measure.
#[derive(Args)]
pub(super) struct Options {
    #[arg(long, value_enum)]
    instruction: Instruction,
    #[arg(long, value_enum)]
    order: Order,
    /// Bytes of a store; a load has 8.
    #[arg(long, default_value_t = LINE)]
    bytes: u64,
}

/// The instruction on a place.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Instruction {
    /// A load of 8 bytes, whose address the load before gives.
    Load,
    /// Stores, clwb, sfence.
    Clwb,
    /// Stores, clflushopt, sfence.
    Clflushopt,
    /// Stores, clflush, sfence.
    Clflush,
    /// Non-temporal stores, sfence.
    Nt,
}

impl Options {
    pub(super) fn measure(&self, file: &Path) -> anyhow::Result<f64> {
        let flush = match self.instruction {
            Instruction::Clflushopt => Flush::Clflushopt,
            // Before loads: it leaves no line in the caches.
            Instruction::Clflush | Instruction::Load => Flush::Clflush,
            Instruction::Clwb | Instruction::Nt => Flush::Clwb,
        };
        let mem = map(file, flush)?;
        check_bytes(self.bytes, LINE, mem.len())?;
        let places = places(&mem, self.bytes, self.order)?;
        match self.instruction {
            Instruction::Load => Ok(chase(&mem, &places)),
            Instruction::Nt => batches(&places, |off| stream(&mem, off, self.bytes)),
            _ => {
                let words = vec![7; self.bytes as usize / 8];
                batches(&places, |off| store(&mem, off, &words))
            }
        }
    }
}

/// Returns as many different places as all batches take.
fn places(mem: &Pmem, bytes: u64, order: Order) -> anyhow::Result<Vec<u64>> {
    let there = mem.len() / bytes;
    let wanted = (BATCHES * BATCH) as u64;
    ensure!(
        there >= wanted,
        "{wanted} places of {bytes} bytes take {} MiB, and the file has less: make it larger",
        (wanted * bytes).div_ceil(1 << 20)
    );
    let mut all: Vec<u64> = (0..there).map(|number| number * bytes).collect();
    if order == Order::Random {
        let mut random = Random(1);
        for at in 0..wanted {
            let other = at + random.below(there - at);
            all.swap(at as usize, other as usize);
        }
    }
    all.truncate(wanted as usize);
    Ok(all)
}

fn batches(places: &[u64], mut each: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut figures = Figures::default();
    for batch in places.chunks(BATCH) {
        let start = Instant::now();
        batch.iter().try_for_each(|&off| each(off))?;
        let ns = start.elapsed().as_nanos() as f64;
        figures.0.push(ns / batch.len() as f64);
    }
    Ok(figures.median())
}

fn store(mem: &Pmem, off: u64, words: &[u64]) -> anyhow::Result<()> {
    mem.write(off, words);
    mem.flush(off, words.len() as u64 * 8);
    mem.fence();
    Ok(())
}

fn stream(mem: &Pmem, off: u64, bytes: u64) -> anyhow::Result<()> {
    const BYTES: [u8; 4096] = [7; 4096];
    for at in (0..bytes).step_by(BYTES.len()) {
        let len = (bytes - at).min(BYTES.len() as u64);
        mem.write_nt(off + at, &BYTES[..len as usize])?;
    }
    mem.fence();
    Ok(())
}

/// Each place holds the next one.
fn chase(mem: &Pmem, places: &[u64]) -> f64 {
    link(mem, places);
    let mut figures = Figures::default();
    let mut at = places[0];
    for batch in places.chunks(BATCH) {
        let start = Instant::now();
        for _ in batch {
            at = mem.load(at);
        }
        let ns = start.elapsed().as_nanos() as f64;
        std::hint::black_box(at);
        figures.0.push(ns / batch.len() as f64);
    }
    figures.median()
}

/// In a ring; none of them is left in the caches.
fn link(mem: &Pmem, places: &[u64]) {
    let next = places.iter().cycle().skip(1);
    for (place, next) in places.iter().zip(next) {
        mem.store(*place, *next);
    }
    for place in places {
        mem.flush(*place, LINE);
    }
    mem.fence();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = (BATCHES * BATCH) as u64 * LINE;

    /// Goal: no place is touched twice, and the orders differ. Method: the places.
    #[test]
    fn places_are_different_ones() {
        let mem = Pmem::private(LEN + (1 << 20));
        let sequential = places(&mem, LINE, Order::Sequential).unwrap();
        assert!(sequential.windows(2).all(|two| two[0] + LINE == two[1]));
        let mut random = places(&mem, LINE, Order::Random).unwrap();
        assert!(!random.is_sorted());
        random.sort_unstable();
        random.dedup();
        assert_eq!(random.len(), BATCHES * BATCH);
        let why = places(&mem, 256, Order::Random).unwrap_err().to_string();
        assert!(why.contains("make it larger"), "{why}");
    }

    /// Goal: loads go through all places and come back. Method: the chain, followed.
    #[test]
    fn loads_go_round() {
        let mem = Pmem::private(LEN);
        let places = places(&mem, LINE, Order::Random).unwrap();
        link(&mem, &places);
        let mut at = places[0];
        for place in &places {
            assert_eq!(at, *place);
            at = mem.load(at);
        }
        assert_eq!(at, places[0]);
    }

    #[test]
    fn stores_are_made() {
        let mem = Pmem::private(8192);
        store(&mem, 64, &[5; 32]).unwrap();
        stream(&mem, 4096, 256).unwrap();
        assert_eq!((mem.load(64 + 248), mem.load(320)), (5, 0));
        assert_eq!(
            (mem.load(4096 + 248), mem.load(4352)),
            (u64::from_ne_bytes([7; 8]), 0)
        );
    }
}
