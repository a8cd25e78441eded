//! Streams on the other socket: their accesses take the longer, the more reads and writes are mixed
//! and the more streams there are, as the closed form of mixes has it.

use crate::analytic::far;
use crate::device::Numbers;
use crate::error::{BadInput, Result};
use crate::pattern::Op;
use crate::sim::STREAMS_MAX;

/// Accesses after which the share of reads is counted anew.
const RECOUNT: u32 = 256;

/// The streams that are on the other socket: ranges of numbers, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FarStreams(Vec<(u32, u32)>);

impl FarStreams {
    /// Streams as they are typed: `all`, or numbers and ranges like `0,4-7`.
    ///
    /// # Errors
    /// A part that is neither, or a stream that no trace has.
    pub fn parse(text: &str) -> Result<FarStreams> {
        if text == "all" {
            return Ok(FarStreams(vec![(0, STREAMS_MAX - 1)]));
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            (first <= last && last < STREAMS_MAX).then_some((first, last))
        };
        let ranges = text.split(',').map(|part| {
            range(part).ok_or_else(|| {
                let part: String = part.chars().take(40).collect();
                let way_out = "give `all`, or numbers below 65536 and ranges, like 0,4-7";
                BadInput::new("--far", format!("`{part}` is no stream"), way_out)
            })
        });
        Ok(FarStreams(ranges.collect::<Result<_>>()?))
    }

    /// The same if each two streams, from the first on, are one.
    #[must_use]
    pub fn halved(&self) -> FarStreams {
        let half = |(first, last): &(u32, u32)| (first / 2, last / 2);
        FarStreams(self.0.iter().map(half).collect())
    }

    /// Returns whether a stream is one of them.
    #[must_use]
    pub fn has(&self, stream: u32) -> bool {
        let inside = |(first, last): &(u32, u32)| (*first..=*last).contains(&stream);
        self.0.iter().any(inside)
    }
}

/// The share of reads among accesses from the other socket, and what it costs them.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    read: f64,
    all: f64,
    until_recount: u32,
    slower: f64,
}

impl Link {
    /// Counts an access of one of `streams` streams. Returns the factor of its times, at least 1.
    #[inline]
    pub fn slower(&mut self, numbers: &Numbers, op: Op, bytes: u64, streams: u32) -> f64 {
        self.all += bytes as f64;
        if op == Op::Load {
            self.read += bytes as f64;
        }
        // The first accesses are few: each of them counts anew.
        if self.until_recount == 0 {
            let share = self.read / self.all;
            self.slower = 1.0 / far(numbers, f64::from(streams), share);
            if self.all > f64::from(RECOUNT) * 64.0 {
                self.read /= 2.0;
                self.all /= 2.0;
                self.until_recount = RECOUNT;
            }
        } else {
            self.until_recount -= 1;
        }
        self.slower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbers_and_ranges() {
        let some = FarStreams::parse("0,4-7").unwrap();
        let all: Vec<u32> = (0..10).filter(|stream| some.has(*stream)).collect();
        assert_eq!(all, [0, 4, 5, 6, 7]);
        assert!(FarStreams::parse("all").unwrap().has(65_535));
        assert!(!FarStreams::default().has(0));
        assert_eq!(some.halved(), FarStreams::parse("0,2-3").unwrap());
        for text in ["", "x", "1-", "7-4", "65536", "0,,1", "-1"] {
            let error = FarStreams::parse(text).unwrap_err();
            assert_eq!(error.place, "--far", "{text}");
        }
    }
}
