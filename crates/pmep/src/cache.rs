//! Memory Mode: DRAM as a cache in front of the modules, direct mapped, written back, lines of
//! 64 B. No measurement of it was at hand: every output says that it is not fitted.

use crate::error::{BadInput, Result};
use crate::geometry::REQUEST;

const EMPTY: u32 = u32::MAX;
const DIRTY: u32 = 1 << 31;
/// Tags: one fewer than fit, so that a dirty line never looks empty.
const TAGS: u64 = (1 << 31) - 1;

/// The end of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// DRAM had the line.
    Hit,
    /// It had another, or none.
    Miss,
    /// It had another that had to be written to the module first.
    MissDirty,
}

/// The cache's tags, a word a line.
#[derive(Clone, Debug)]
pub struct Cache {
    tags: Vec<u32>,
}

impl Cache {
    /// A cache of `bytes` bytes of DRAM.
    ///
    /// # Errors
    /// No line, or more than 64 GiB: a word a line has to fit into memory.
    pub fn new(bytes: u64) -> Result<Cache> {
        if !(REQUEST..=1 << 36).contains(&bytes) {
            return Err(BadInput::new(
                "cache",
                format!("{bytes} B of DRAM"),
                "give 64 B to 64 GiB",
            ));
        }
        Ok(Cache {
            tags: vec![EMPTY; (bytes / REQUEST) as usize],
        })
    }

    /// One access of a line. Addresses count modulo 2^31 times the cache's size.
    pub fn access(&mut self, address: u64, is_write: bool) -> Outcome {
        let line = address / REQUEST;
        let lines = self.tags.len() as u64;
        let tag = (line / lines % TAGS) as u32;
        let place = &mut self.tags[(line % lines) as usize];
        let dirty = if is_write { DIRTY } else { 0 };
        if *place != EMPTY && *place & !DIRTY == tag {
            *place |= dirty;
            return Outcome::Hit;
        }
        let was_dirty = *place != EMPTY && *place & DIRTY != 0;
        *place = tag | dirty;
        match was_dirty {
            true => Outcome::MissDirty,
            false => Outcome::Miss,
        }
    }
}

/// Share of accesses that hit if they spread evenly over `working` bytes.
#[must_use]
pub fn hits(working: f64, cache: f64) -> f64 {
    (cache / working.max(1.0)).min(1.0)
}

/// Bandwidth of reads that spread evenly: a hit costs DRAM, a miss DRAM and the module.
#[must_use]
pub fn bandwidth(dram: f64, module: f64, working: f64, cache: f64) -> f64 {
    let missed = 1.0 - hits(working, cache);
    1.0 / (1.0 / dram + missed / module)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Goal: exact tags. Method: 10^6 random accesses beside a map of each place's address.
    #[test]
    fn a_million_accesses_are_those_of_a_map() {
        let bytes = 1 << 16;
        let mut cache = Cache::new(bytes).unwrap();
        let mut map: HashMap<u64, (u64, bool)> = HashMap::new();
        let mut random: u64 = 88_172_645_463_325_252;
        for step in 0..1_000_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let address = random % (bytes * 3 + step % 7 * bytes);
            let is_write = random & (1 << 40) != 0;
            let line = address / 64;
            let place = line % (bytes / 64);
            let expected = match map.get(&place) {
                Some((held, _)) if *held == line => Outcome::Hit,
                Some((_, true)) => Outcome::MissDirty,
                _ => Outcome::Miss,
            };
            let was = map.get(&place).filter(|(held, _)| *held == line);
            let dirty = is_write || was.is_some_and(|(_, dirty)| *dirty);
            map.insert(place, (line, dirty));
            assert_eq!(cache.access(address, is_write), expected, "step {step}");
        }
    }

    #[test]
    fn bandwidth_falls_with_the_working_set() {
        let (dram, module) = (100.0, 38.0);
        let of = |share: f64| bandwidth(dram, module, share * 1e9, 1e9);
        assert!((of(0.5) / dram - 1.0).abs() < 0.03 && (of(1.0) / dram - 1.0).abs() < 0.03);
        let all: Vec<f64> = (1..60).map(|step| of(f64::from(step) * 0.1)).collect();
        assert!(all.windows(2).all(|two| two[1] <= two[0]));
        assert!(of(2.0) < dram && of(2.0) > module);
        assert!(Cache::new(0).is_err() && Cache::new(1 << 40).is_err());
    }
}
