//! Keys, and the operations that are timed on a store.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::stores::Store;

/// Keys of a scan, and how many scans there are at most.
const SCAN_KEYS: usize = 100;
const SCANS_MAX: usize = 1000;

/// The calls that are timed, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Operation {
    /// Each key is new.
    Put,
    /// The value is copied into a buffer.
    Get,
    /// The values of 100 keys in their order.
    Scan,
    /// Each key has a value, of the same size.
    Overwrite,
    /// Each key is there.
    Delete,
}

/// The order in which keys come.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Order {
    /// By chance: gets in another order than puts.
    Random,
    /// In the order of their bytes.
    Sequential,
}

/// The keys, and the work on them.
pub struct Work {
    bytes: Vec<u8>,
    key_bytes: usize,
    /// Numbers of keys, in the order in which they are got, put anew and deleted.
    order: Vec<u32>,
    gets: usize,
    each: bool,
}

/// The times of an operation in a round, ns.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub mean: f64,
    /// Median and 99th percentile of calls, if these were timed one by one.
    pub p50_p99: Option<(f64, f64)>,
}

impl Operation {
    pub const ALL: [Operation; 5] = [
        Operation::Put,
        Operation::Get,
        Operation::Scan,
        Operation::Overwrite,
        Operation::Delete,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Scan => "scan",
            Operation::Overwrite => "overwrite",
            Operation::Delete => "delete",
        }
    }
}

fn mixed(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Work {
    /// So many keys of so many bytes, 16 at least, and so many gets.
    pub fn new(keys: usize, key_bytes: usize, gets: usize, order: Order, each: bool) -> Work {
        let mut bytes = vec![0; keys * key_bytes];
        for (number, key) in bytes.chunks_exact_mut(key_bytes).enumerate() {
            let number = number as u64;
            let first = match order {
                Order::Random => mixed(number),
                Order::Sequential => number,
            };
            key[..8].copy_from_slice(&first.to_be_bytes());
            key[8..16].copy_from_slice(&number.to_be_bytes());
        }
        let mut numbers: Vec<u32> = (0..keys as u32).collect();
        if order == Order::Random {
            for at in (1..keys).rev() {
                let other = (mixed(at as u64) >> 32) as usize % (at + 1);
                numbers.swap(at, other);
            }
        }
        Work {
            bytes,
            key_bytes,
            order: numbers,
            gets,
            each,
        }
    }

    pub fn keys(&self) -> usize {
        self.order.len()
    }

    /// The bytes of all keys with values of a size.
    pub fn data_bytes(&self, value_bytes: usize) -> u64 {
        (self.keys() * (self.key_bytes + value_bytes)) as u64
    }

    fn key(&self, number: u32) -> &[u8] {
        let at = number as usize * self.key_bytes;
        &self.bytes[at..at + self.key_bytes]
    }

    /// The mean time of a call, and, if asked for, median and 99th percentile.
    fn time<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        mut call: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Times> {
        let (mut calls, mut one_by_one) = (0_usize, Vec::new());
        let begun = Instant::now();
        let mut before = begun;
        for key in keys {
            call(key)?;
            calls += 1;
            if self.each {
                let after = Instant::now();
                one_by_one.push((after - before).as_nanos() as u64);
                before = after;
            }
        }
        let mean = begun.elapsed().as_nanos() as f64 / calls as f64;
        one_by_one.sort_unstable();
        let at = |hundredths: usize| one_by_one[one_by_one.len() * hundredths / 100] as f64;
        let p50_p99 = self.each.then(|| (at(50), at(99)));
        Ok(Times { mean, p50_p99 })
    }

    /// Puts all keys, and does the other operations that are wanted; the times of each wanted one.
    /// `None`: the engine has no order.
    pub fn measure(
        &self,
        store: &dyn Store,
        operations: &[Operation],
        bytes: usize,
    ) -> Result<Vec<Option<Times>>> {
        let mut all = Vec::new();
        for operation in Operation::ALL {
            let is_wanted = operations.contains(&operation);
            if is_wanted || operation == Operation::Put {
                let times = self.one(store, operation, bytes)?;
                all.extend(is_wanted.then_some(times));
            }
        }
        Ok(all)
    }

    fn one(&self, store: &dyn Store, operation: Operation, bytes: usize) -> Result<Option<Times>> {
        let (old, new) = (vec![7; bytes], vec![8; bytes]);
        let mut value = Vec::with_capacity(bytes);
        let ordered = || self.order.iter().map(|&number| self.key(number));
        let times = match operation {
            Operation::Put => self.time(self.bytes.chunks_exact(self.key_bytes), |key| {
                store.put(key, &old)
            }),
            Operation::Get => self.time(ordered().cycle().take(self.gets), |key| {
                let is_there = store.get(key, &mut value)?;
                ensure!(
                    is_there && value.len() == bytes,
                    "a value is not as it was put"
                );
                Ok(())
            }),
            Operation::Scan => {
                let first = self.key(self.order[0]);
                if store.scan(first, 1, &mut value)?.is_none() {
                    return Ok(None);
                }
                self.time(ordered().take(SCANS_MAX), |key| {
                    let seen = store.scan(key, SCAN_KEYS, &mut value)?;
                    ensure!(
                        seen.is_some_and(|seen| seen > 0) && value.len() == bytes,
                        "a scan is wrong"
                    );
                    Ok(())
                })
            }
            Operation::Overwrite => self.time(ordered(), |key| store.put(key, &new)),
            Operation::Delete => self.time(ordered(), |key| {
                ensure!(store.delete(key)? != Some(false), "a key is not there");
                Ok(())
            }),
        };
        times.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_each_key_once() {
        let work = Work::new(1000, 16, 1000, Order::Random, false);
        let mut numbers = work.order.clone();
        assert!(
            numbers
                .windows(2)
                .filter(|two| two[0] + 1 == two[1])
                .count()
                < 20
        );
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1000));
        let mut keys: Vec<&[u8]> = work.bytes.chunks_exact(16).collect();
        assert!(!keys.is_sorted());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
        let work = Work::new(1000, 20, 1000, Order::Sequential, false);
        assert!(work.bytes.chunks_exact(20).is_sorted());
        assert!(work.order.is_sorted());
    }
}
