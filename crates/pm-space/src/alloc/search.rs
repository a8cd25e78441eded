//! The search for blocks, so that a pool that has been in use for long still has whole regions for
//! large pages.
//!
//! - Whole regions are for what fills them. Less than that goes into regions that are broken:
//!   behind the block before it in the file, or at the lane's cursor, so that what is written in a
//!   row lies in a row.
//! - When the cursor's region is full, and more than a little is free in broken ones ([`PACKED`]),
//!   the lane goes on in the fullest of those: every gap is filled, and the emptier ones become
//!   whole again. Otherwise it breaks a whole region near it, so that lanes seldom meet in a
//!   group.
//! - A long run is not cut into many pieces ([`PIECES`]) while whole regions are to be had.
//!
//! Broken regions are found without a lock, in many groups at a time, and kept ([`Hints`]) in this
//! process. The hints may be out of date: whatever place is tried is searched under its group's
//! lock, and at last everything is.

use crate::bitmap::{Bitmap, REGION};
use crate::hints::{Hint, Hints, KEPT_UNITS};
use pm_journal::types::Run;
use pmfs_format::runtime::GROUP_UNITS;
use std::sync::atomic::Ordering;

/// Broken regions are filled up if more than this part of the free space is in them.
const PACKED: u64 = 64;
/// A run is cut into at most so many pieces to fill gaps.
const PIECES: u64 = 32;
/// A run of at least this part of the wish is taken where it is found: the search for a longer one
/// costs more than another piece.
const ENOUGH: u64 = 8;
/// The fewest free units of a region that is worth a visit.
const WORTH: u64 = 4;
/// Groups whose counts are read together: 128 GiB of blocks.
const GROUPS_COUNTED: u64 = 4096;
/// Groups whose regions are read together: 2 GiB of blocks.
const GROUPS_SEARCHED: usize = 64;
/// The most hints that are tried before a whole region is broken.
const TRIES: usize = 24;

/// The blocks wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The most units.
    pub want: u64,
    /// The block that they should follow.
    pub after: Option<u64>,
}

impl Wish {
    /// A wish for `want` units, at any place.
    #[inline]
    pub fn of(want: u64) -> Wish {
        Wish { want, after: None }
    }

    /// The shortest run that is worth a piece.
    #[inline]
    fn least(&self) -> u64 {
        (self.want / PIECES).max(1)
    }
}

/// A place to search for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// From this unit on, if it is free.
    At(u64),
    /// In the region of this unit, from there on, if the region is broken.
    Here(u64),
    /// In this region, if it is broken, for a run of at least as many units.
    Broken(u64, u64),
    /// In the whole regions of this group.
    Whole(u64),
    /// Anywhere in this group.
    Any(u64),
}

impl Place {
    /// The group whose lock is needed.
    #[inline]
    pub fn group(self) -> u64 {
        match self {
            Place::At(unit) | Place::Here(unit) | Place::Broken(unit, _) => unit / GROUP_UNITS,
            Place::Whole(group) | Place::Any(group) => group,
        }
    }
}

/// The numbers below `count`, beginning with `start`.
#[inline]
fn around(count: u64, start: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |step| (start + step) % count)
}

impl<'a> Bitmap<'a> {
    /// The places to search for a run, the best first, computed lazily. Hints exclude `avoid`, the
    /// region where the lane allocates for another use, whose blocks would come between.
    #[inline]
    pub(super) fn places(
        self,
        cursor: u64,
        avoid: u64,
        wish: Wish,
        hints: &'a Hints,
    ) -> impl Iterator<Item = Place> + use<'a> {
        let groups = around(self.group_count(), cursor / GROUP_UNITS);
        let all = groups.filter(move |&group| self.group_free(group) > 0);
        let whole = around(self.group_count(), cursor / GROUP_UNITS)
            .filter(move |&group| self.group_regions(group) > 0);
        let at = wish.after.map(|block| Place::At(block + 1));
        let at = at.filter(|place| !matches!(place, Place::At(unit) if unit % REGION == 0));
        let here = (wish.want < REGION).then_some(Place::Here(cursor));
        let tries = if wish.want < REGION { TRIES } else { 0 };
        let broken = std::iter::from_fn(move || self.hint(hints, wish.least(), avoid))
            .map(move |region| Place::Broken(region, wish.least()));
        at.into_iter()
            .chain(here)
            .chain(broken.take(tries))
            .chain(whole.map(Place::Whole))
            .chain(all.map(Place::Any))
    }

    /// A broken region from the hints that suits.
    #[inline]
    fn hint(&self, hints: &Hints, least: u64, avoid: u64) -> Option<u64> {
        hints.take(least, avoid).or_else(|| {
            self.find_broken(hints, least);
            hints.take(least, avoid)
        })
    }

    /// Free units of a group outside of its whole regions, read without its lock.
    fn group_scattered(&self, group: u64) -> u64 {
        let whole = self.group_regions(group) * REGION;
        self.group_free(group).saturating_sub(whole)
    }

    /// Finds broken regions if many units are free in them, and keeps the fullest with a run of at
    /// least `least` units.
    #[cold]
    fn find_broken(&self, hints: &Hints, least: u64) {
        let hand = hints.hand.load(Ordering::Relaxed);
        let counted = || around(self.group_count(), hand).take(GROUPS_COUNTED as usize);
        let (mut free, mut scattered) = (0, 0);
        for group in counted() {
            free += self.group_free(group);
            scattered += self.group_scattered(group);
        }
        if scattered <= free / PACKED {
            return;
        }
        let mut found: Vec<Hint> = Vec::new();
        let mut last = hand;
        let broken = counted().filter(|&group| self.group_scattered(group) > 0);
        for group in broken.take(GROUPS_SEARCHED) {
            last = group;
            for (region, to) in self.regions(group) {
                let used = self.region_used_before(region, to);
                if used == 0 || to - region - used < WORTH {
                    continue;
                }
                let longest = self.longest_free(region, to);
                if longest >= least {
                    found.push(Hint {
                        region,
                        used,
                        longest,
                    });
                }
            }
        }
        found.sort_unstable_by_key(|hint| std::cmp::Reverse(hint.used));
        let mut units = 0;
        let enough = found.iter().take_while(|hint| {
            let more = units < KEPT_UNITS;
            units += REGION - hint.used;
            more
        });
        let count = enough.count();
        hints.hand.store(last + 1, Ordering::Relaxed);
        hints.keep(&found[..count]);
    }

    /// The longest run of free units of a region.
    fn longest_free(&self, region: u64, to: u64) -> u64 {
        let free = |word| {
            let unit = region + word as u64 * 64;
            match to.saturating_sub(unit) {
                0 => 0,
                units => {
                    let mask = u64::MAX >> (64 - units.min(64));
                    !self.waits.pm.load(self.word_off(unit)) & mask
                }
            }
        };
        longest_run(std::array::from_fn(free))
    }

    /// The region of a unit, if it is broken.
    #[inline]
    fn broken(&self, unit: u64) -> Option<(u64, u64)> {
        let region = unit / REGION * REGION;
        let to = (region + REGION).min(self.place.units);
        (!self.is_whole(unit)).then_some((region, to))
    }

    /// Searches the place for up to `want` units; the group's lock is held.
    #[inline]
    pub(super) fn search(&self, place: Place, want: u64) -> Option<Run> {
        match place {
            Place::At(unit) => {
                let (_, to) = self.broken(unit)?;
                let count = self.free_run(unit, to.min(unit + want));
                (count > 0).then_some(Run { block: unit, count })
            }
            Place::Here(unit) => {
                let (_, to) = self.broken(unit)?;
                self.fit(unit, to, want, want.div_ceil(ENOUGH))
            }
            Place::Broken(region, least) => {
                let (_, to) = self.broken(region)?;
                let enough = want.div_ceil(ENOUGH).max(least);
                let run = self.fit(region, to, want, enough);
                run.filter(|run| run.count >= least)
            }
            Place::Whole(group) => {
                let mut regions = self.regions(group).map(|(region, _)| region);
                let block = regions.find(|&region| self.is_whole(region))?;
                let more = regions.take_while(|&region| self.is_whole(region)).count() as u64;
                let count = match want < REGION {
                    true => want,
                    false => (want / REGION).min(1 + more) * REGION,
                };
                Some(Run { block, count })
            }
            Place::Any(group) => self.fit_in_group(group, want),
        }
    }

    /// The first run of `enough` units, up to `want` of it; or else the longest shorter run.
    #[inline]
    fn fit(&self, from: u64, to: u64, want: u64, enough: u64) -> Option<Run> {
        let mut longest: Option<Run> = None;
        let mut at = from;
        while let Some(block) = self.first_free(at, to) {
            let count = self.free_run(block, to.min(block + want));
            if longest.is_none_or(|run| count > run.count) {
                longest = Some(Run { block, count });
            }
            if count >= enough {
                break;
            }
            at = block + count;
        }
        longest
    }

    /// Searches a group, whose lock is held, for exactly `want` free units in a row.
    pub(super) fn search_whole(&self, group: u64, want: u64) -> Option<Run> {
        let run = self.fit_in_group(group, want)?;
        (run.count == want).then_some(run)
    }

    fn fit_in_group(&self, group: u64, want: u64) -> Option<Run> {
        let end = ((group + 1) * GROUP_UNITS).min(self.place.units);
        self.fit(group * GROUP_UNITS, end, want, want)
    }

    /// The first free unit in `from..to`.
    #[inline]
    pub(super) fn first_free(&self, from: u64, to: u64) -> Option<u64> {
        let mut unit = from;
        while unit < to {
            let free = !self.waits.pm.load(self.word_off(unit)) >> (unit % 64);
            if free != 0 {
                let found = unit + free.trailing_zeros() as u64;
                return (found < to).then_some(found);
            }
            unit = (unit / 64 + 1) * 64;
        }
        None
    }

    /// Returns how many units from `from` on are free, at most up to `to`.
    #[inline]
    fn free_run(&self, from: u64, to: u64) -> u64 {
        let mut unit = from;
        while unit < to {
            let used = self.waits.pm.load(self.word_off(unit)) >> (unit % 64);
            if used != 0 {
                return (unit + used.trailing_zeros() as u64).min(to) - from;
            }
            unit = (unit / 64 + 1) * 64;
        }
        to - from
    }
}

const WORDS: usize = REGION as usize / 64;
type Bits = [u64; WORDS];

/// The longest run of ones: the starts of runs of 1, of 2, of 4, and so on, and then the longest of
/// these in a row. A region may have hundreds of runs, so that a loop over them is slow.
fn longest_run(ones: Bits) -> u64 {
    let both = |one: Bits, other: Bits| -> Bits { std::array::from_fn(|at| one[at] & other[at]) };
    let any = |bits: &Bits| bits.iter().any(|&word| word != 0);
    // `doubled[n]`: where 2^n ones begin.
    let mut doubled = arrayvec::ArrayVec::<Bits, 10>::new();
    let mut begins = ones;
    while any(&begins) {
        let run = 1 << doubled.len();
        doubled.push(begins);
        begins = both(begins, lower(begins, run));
    }
    let Some(mut longest) = doubled.last().copied() else {
        return 0;
    };
    let mut run = 1 << (doubled.len() - 1);
    for (power, more) in doubled.iter().enumerate().rev().skip(1) {
        let longer = both(longest, lower(*more, run));
        if any(&longer) {
            longest = longer;
            run += 1 << power;
        }
    }
    run as u64
}

/// Moves all bits lower by as many places.
fn lower(bits: Bits, by: usize) -> Bits {
    let (words, within) = (by / 64, by % 64);
    let word = |at: usize| bits.get(at).copied().unwrap_or(0);
    std::array::from_fn(|at| {
        let (low, high) = (word(at + words), word(at + words + 1));
        match within {
            0 => low,
            _ => low >> within | high << (64 - within),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the longest run equals the one counted bit by bit, in patterns with runs of all
    /// lengths.
    #[test]
    fn the_longest_run_is_found() {
        let counted = |ones: &Bits| {
            let bit = |at: u64| ones[at as usize / 64] >> (at % 64) & 1;
            let (mut longest, mut run) = (0, 0);
            for at in 0..REGION {
                run = (run + 1) * bit(at);
                longest = longest.max(run);
            }
            longest
        };
        assert_eq!(longest_run([0; WORDS]), 0);
        assert_eq!(longest_run([u64::MAX; WORDS]), REGION);
        let mut seed = 7_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for _ in 0..20_000 {
            let mut ones = [0; WORDS];
            let (mut at, length) = (0, 1 + random() % 200);
            while at < REGION {
                let end = (at + random() % length).min(REGION);
                (at..end).for_each(|bit| ones[bit as usize / 64] |= 1 << (bit % 64));
                at = end + 1 + random() % length;
            }
            assert_eq!(longest_run(ones), counted(&ones), "{ones:x?}");
        }
    }
}
