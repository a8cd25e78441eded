//! The allocator: bitmaps in the runtime area, a lock line a group, nothing logged.
//!
//! Every change of a bit happens under its group's lock, after the lane has written down what the bit is for
//! ([`Lane::intend`]) or while it strikes that out; so whoever finds the lock held by a dead thread, or the
//! record of one, can tell what became of the bit. A group is 8,192 blocks; each line of its bitmap is a
//! 2 MiB region. Single blocks come from regions already broken into, large runs from whole ones.

use crate::error::{Error, Result};
use crate::geometry::BitmapPlace;
use crate::info::FreePages;
use crate::lane::{Lane, Purpose, Run, Zone};
use crate::owner::Held;
use crate::pool::Pool;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::{GroupRaw, tree::FANOUT};
use std::sync::atomic::Ordering;

const FREE: u64 = 8;
/// Units in one line of bitmap: a 2 MiB region.
const REGION: u64 = 512;
/// Runs from this length on are looked for in whole regions first.
const LARGE_RUN: u64 = 64;

/// Whether a call may take from the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It makes the pool fuller.
    Ordinary,
    /// It frees or replaces: it must go through on a full pool (DECISIONS 18).
    Privileged,
}

/// One of the two bitmaps.
#[derive(Clone, Copy)]
pub(crate) struct Bitmap<'a> {
    pool: &'a Pool,
    place: BitmapPlace,
}

impl<'a> Bitmap<'a> {
    pub fn blocks(pool: &'a Pool) -> Bitmap<'a> {
        Bitmap {
            pool,
            place: pool.geometry.block_map,
        }
    }

    pub fn inodes(pool: &'a Pool) -> Bitmap<'a> {
        Bitmap {
            pool,
            place: pool.geometry.inode_map,
        }
    }

    fn group_line(&self, group: u64) -> u64 {
        self.place.groups + group * GroupRaw::SIZE
    }

    fn word_off(&self, unit: u64) -> u64 {
        self.place.bits + unit / 64 * 8
    }

    /// Locks the group of `unit`.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lock(&self, unit: u64) -> Held<'a> {
        let held = Held::new(self.pool, self.group_line(unit / GROUP_UNITS));
        if crate::recovery::cleaning(self.pool) && !planted!("bug-group-count-stale") {
            // Its last holder may have died between a bit and the count.
            self.recount(unit / GROUP_UNITS);
        }
        held
    }

    /// Free units of a group, at a glance.
    pub fn group_free(&self, group: u64) -> u64 {
        self.pool.pm.load(self.group_line(group) + FREE)
    }

    /// Free units in all, at a glance.
    pub fn free(&self) -> u64 {
        (0..self.place.group_count())
            .map(|group| self.group_free(group))
            .sum()
    }

    pub fn is_set(&self, unit: u64) -> bool {
        unit < self.place.units && self.pool.pm.load(self.word_off(unit)) >> (unit % 64) & 1 == 1
    }

    /// Sets or clears a run inside one group, whose lock is held; adjusts its free count by the bits that
    /// did change.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn mark(&self, run: Run, set: bool) {
        let runtime = self.pool.pm.runtime();
        let mut changed = 0;
        let end = run.block + run.count;
        let mut unit = run.block;
        while unit < end {
            let bits = (64 - unit % 64).min(end - unit);
            let mask = (u64::MAX >> (64 - bits)) << (unit % 64);
            let off = self.word_off(unit);
            let old = runtime.load(off);
            let new = if set { old | mask } else { old & !mask };
            changed += (old ^ new).count_ones() as u64;
            if old != new {
                runtime.store(off, new);
            }
            unit += bits;
        }
        let line = self.group_line(run.block / GROUP_UNITS);
        let free = runtime.load(line + FREE);
        runtime.store(
            line + FREE,
            if set {
                free.wrapping_sub(changed)
            } else {
                free + changed
            },
        );
    }

    /// Counts a group's free units anew: its lock was held by a dead thread, or the pool is being walked.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn recount(&self, group: u64) {
        let start = group * GROUP_UNITS;
        let end = (start + GROUP_UNITS).min(self.place.units);
        let mut free = 0;
        let mut unit = start;
        while unit < end {
            let bits = (end - unit).min(64);
            let mask = u64::MAX >> (64 - bits);
            free += (!self.pool.pm.load(self.word_off(unit)) & mask).count_ones() as u64;
            unit += 64;
        }
        self.pool
            .pm
            .runtime()
            .store(self.group_line(group) + FREE, free);
    }

    pub fn group_count(&self) -> u64 {
        self.place.group_count()
    }

    /// Byte offsets of the group lines' owner words.
    pub fn owner_words(&self) -> impl Iterator<Item = u64> + use<> {
        let groups = self.place.groups;
        (0..self.place.group_count()).map(move |group| groups + group * GroupRaw::SIZE)
    }

    /// Free blocks, regions and gigabytes, at a glance.
    pub fn free_pages(&self) -> FreePages {
        let mut free = FreePages::default();
        let mut whole = 0;
        for region in (0..self.place.units).step_by(REGION as usize) {
            let end = (region + REGION).min(self.place.units);
            if region % (FANOUT * FANOUT) == 0 {
                whole = 0;
            }
            let used = self.region_used_before(region, end);
            free.small += end - region - used;
            if used == 0 && end - region == REGION {
                free.large += 1;
                whole += 1;
                free.huge += u64::from(whole == FANOUT);
            }
        }
        free
    }

    fn region_used_before(&self, region: u64, end: u64) -> u64 {
        (region..end)
            .step_by(64)
            .map(|unit| {
                let mask = u64::MAX >> (64 - (end - unit).min(64));
                u64::from((self.pool.pm.load(self.word_off(unit)) & mask).count_ones())
            })
            .sum()
    }

    /// The first free unit in `from..to`.
    fn first_free(&self, from: u64, to: u64) -> Option<u64> {
        let mut unit = from;
        while unit < to {
            let free = !self.pool.pm.load(self.word_off(unit)) >> (unit % 64);
            if free != 0 {
                let found = unit + free.trailing_zeros() as u64;
                return (found < to).then_some(found);
            }
            unit = (unit / 64 + 1) * 64;
        }
        None
    }

    /// How many units from `from` on are free, at most up to `to`.
    fn free_run(&self, from: u64, to: u64) -> u64 {
        let mut unit = from;
        while unit < to {
            let used = self.pool.pm.load(self.word_off(unit)) >> (unit % 64);
            if used != 0 {
                return (unit + used.trailing_zeros() as u64).min(to) - from;
            }
            unit = (unit / 64 + 1) * 64;
        }
        to - from
    }

    fn region_used(&self, region: u64) -> u64 {
        (0..REGION / 64)
            .map(|word| {
                u64::from(
                    self.pool
                        .pm
                        .load(self.word_off(region + word * 64))
                        .count_ones(),
                )
            })
            .sum()
    }

    /// Looks for up to `want` units in the group of `cursor`, whose lock is held.
    fn search(&self, cursor: u64, want: u64) -> Option<Run> {
        let start = cursor / GROUP_UNITS * GROUP_UNITS;
        let end = (start + GROUP_UNITS).min(self.place.units);
        let run = |from: u64, to: u64| {
            let block = self.first_free(from, to)?;
            let count = self.free_run(block, end.min(block + want));
            Some(Run { block, count })
        };
        let here = cursor / REGION * REGION;
        if want < LARGE_RUN {
            if let Some(found) = run(cursor, end.min(here + REGION)) {
                return Some(found);
            }
            let regions = || (start..end).step_by(REGION as usize);
            let partial = |region: &u64| {
                let used = self.region_used(*region);
                used > 0 && used < REGION.min(end - region)
            };
            if let Some(region) = regions().find(partial) {
                return run(region, end.min(region + REGION));
            }
            return run(start, end);
        }
        // A large run: continue where the last one ended, else from the first whole region, else anything.
        if let Some(found) = run(cursor, cursor + 1) {
            return Some(found);
        }
        (start..end)
            .step_by(REGION as usize)
            .find(|&region| region + REGION <= end && self.region_used(region) == 0)
            .and_then(|region| run(region, end))
            .or_else(|| run(start, end))
    }
}

impl Bitmap<'_> {
    /// Looks in a group, whose lock is held, for exactly `want` free units in a row.
    fn search_whole(&self, group: u64, want: u64) -> Option<Run> {
        let end = ((group + 1) * GROUP_UNITS).min(self.place.units);
        let mut from = group * GROUP_UNITS;
        while let Some(block) = self.first_free(from, end) {
            let count = self.free_run(block, end.min(block + want));
            if count == want {
                return Some(Run { block, count });
            }
            from = block + count;
        }
        None
    }
}

impl Pool {
    /// Checks that an ordinary call may take `want` blocks; the reserve is not for it.
    fn afford(&self, want: u64) -> Result<()> {
        if self.budget.fetch_sub(want as i64, Ordering::Relaxed) >= want as i64 {
            return Ok(());
        }
        let free = Bitmap::blocks(self).free();
        let spare = free.saturating_sub(self.geometry.reserve_blocks);
        // Others spend too: only a quarter is taken on trust until the next count, and so little that what
        // a few who counted long ago take amiss is not the whole reserve.
        let trust = (spare / 4).min(self.geometry.reserve_blocks / 8);
        self.budget
            .store(trust as i64 - want as i64, Ordering::Relaxed);
        if spare < want {
            Err(Error::NoSpace)
        } else {
            Ok(())
        }
    }

    /// Allocates a run of 1 to `want` contiguous blocks; the lane knows what for.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn alloc(
        &self,
        lane: &Lane<'_>,
        want: u64,
        class: Class,
        zone: Zone,
        purpose: Purpose,
    ) -> Result<Run> {
        if class == Class::Ordinary {
            self.afford(want)?;
        }
        let map = Bitmap::blocks(self);
        let groups = map.group_count();
        let mut cursor = lane.block_cursor(zone);
        if cursor >= self.geometry.blocks {
            cursor = 0;
        }
        for step in 0..=groups {
            let group = (cursor / GROUP_UNITS + step) % groups;
            if map.group_free(group) == 0 {
                continue;
            }
            let from = if step == 0 {
                cursor
            } else {
                group * GROUP_UNITS
            };
            let _held = map.lock(from);
            if let Some(run) = map.search(from, want) {
                if planted!("bug-bit-before-intent") {
                    map.mark(run, true);
                }
                let record = lane.intend_run(run, purpose)?;
                if planted!("bug-intent-missing") {
                    lane.settle(record);
                }
                map.mark(run, true);
                lane.count_blocks(purpose, run.count as i64);
                lane.set_block_cursor(zone, run.block + run.count);
                return Ok(run);
            }
        }
        Err(Error::NoSpace)
    }

    /// Allocates exactly `want` contiguous blocks, at most a group's, wherever they are.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no such run (smaller ones may well be free).
    pub(crate) fn alloc_whole(
        &self,
        lane: &Lane<'_>,
        want: u64,
        class: Class,
        purpose: Purpose,
    ) -> Result<Run> {
        if class == Class::Ordinary {
            self.afford(want)?;
        }
        let map = Bitmap::blocks(self);
        for group in 0..map.group_count() {
            if map.group_free(group) < want {
                continue;
            }
            let _held = map.lock(group * GROUP_UNITS);
            if let Some(run) = map.search_whole(group, want) {
                lane.intend_run(run, purpose)?;
                map.mark(run, true);
                lane.count_blocks(purpose, run.count as i64);
                return Ok(run);
            }
        }
        Err(Error::NoSpace)
    }

    /// Allocates one whole, aligned 2 MiB region, if there is one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none (smaller blocks may well be free).
    pub(crate) fn alloc_region(
        &self,
        lane: &Lane<'_>,
        class: Class,
        purpose: Purpose,
    ) -> Result<Run> {
        if class == Class::Ordinary {
            self.afford(REGION)?;
        }
        let map = Bitmap::blocks(self);
        let groups = map.group_count();
        let cursor = lane.block_cursor(Zone::Data).min(self.geometry.blocks - 1);
        for step in 0..groups {
            let group = (cursor / GROUP_UNITS + step) % groups;
            if map.group_free(group) < REGION {
                continue;
            }
            let start = group * GROUP_UNITS;
            let end = (start + GROUP_UNITS).min(self.geometry.blocks);
            let _held = map.lock(start);
            let whole = (start..end)
                .step_by(REGION as usize)
                .find(|&region| region + REGION <= end && map.region_used(region) == 0);
            if let Some(block) = whole {
                let run = Run {
                    block,
                    count: REGION,
                };
                lane.intend_run(run, purpose)?;
                map.mark(run, true);
                lane.count_blocks(purpose, run.count as i64);
                return Ok(run);
            }
        }
        Err(Error::NoSpace)
    }

    /// Allocates one whole, aligned gigabyte, group by group; `purpose` is asked for each group's part.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none; parts taken meanwhile are the lane's to settle.
    pub(crate) fn alloc_gigabyte(
        &self,
        lane: &Lane<'_>,
        class: Class,
        purpose: impl Fn(u64) -> Purpose,
    ) -> Result<Run> {
        const GROUPS: u64 = FANOUT * FANOUT / GROUP_UNITS;
        let map = Bitmap::blocks(self);
        if class == Class::Ordinary {
            self.afford(FANOUT * FANOUT)?;
        }
        let whole = |first: &u64| {
            (*first + GROUPS) * GROUP_UNITS <= self.geometry.blocks
                && (0..GROUPS).all(|group| map.group_free(first + group) == GROUP_UNITS)
        };
        let first = (0..map.group_count())
            .step_by(GROUPS as usize)
            .find(whole)
            .ok_or(Error::NoSpace)?;
        for group in 0..GROUPS {
            let run = Run {
                block: (first + group) * GROUP_UNITS,
                count: GROUP_UNITS,
            };
            let _held = map.lock(run.block);
            if map.group_free(first + group) != GROUP_UNITS {
                return Err(Error::NoSpace);
            }
            let purpose = purpose(group * GROUP_UNITS);
            lane.intend_run(run, purpose)?;
            map.mark(run, true);
            lane.count_blocks(purpose, run.count as i64);
        }
        Ok(Run {
            block: first * GROUP_UNITS,
            count: FANOUT * FANOUT,
        })
    }

    /// Frees the first `count` blocks of a lane's record and strikes them out, group by group.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn free_front(&self, lane: &Lane<'_>, record: u64, count: u64) {
        let Some((word, purpose)) = lane.intent(record) else {
            return;
        };
        let mut run = Lane::run_of(word);
        lane.count_blocks(purpose, -(count.min(run.count) as i64));
        let left = run.count.saturating_sub(count);
        let map = Bitmap::blocks(self);
        while run.count > left {
            let here = (GROUP_UNITS - run.block % GROUP_UNITS).min(run.count - left);
            let _held = map.lock(run.block);
            map.mark(
                Run {
                    block: run.block,
                    count: here,
                },
                false,
            );
            run.block += here;
            run.count -= here;
            if !planted!("bug-record-not-shrunk") {
                lane.shrink(record, run);
            }
        }
    }

    /// Allocates an inode number; its record says so.
    ///
    /// # Errors
    /// [`Error::NoInodes`].
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn alloc_ino(&self, lane: &Lane<'_>) -> Result<u64> {
        let map = Bitmap::inodes(self);
        let groups = map.group_count();
        let cursor = lane.inode_cursor() % self.geometry.inodes;
        for step in 0..=groups {
            let group = (cursor / GROUP_UNITS + step) % groups;
            if map.group_free(group) == 0 {
                continue;
            }
            let start = group * GROUP_UNITS;
            let end = (start + GROUP_UNITS).min(self.geometry.inodes);
            let from = if step == 0 { cursor } else { start };
            let _held = map.lock(start);
            let found = map
                .first_free(from, end)
                .or_else(|| map.first_free(start, end));
            if let Some(ino) = found {
                let run = Run {
                    block: ino,
                    count: 1,
                };
                if !planted!("bug-inode-intent-missing") {
                    lane.intend_run(run, Purpose::Inode { ino })?;
                }
                if !planted!("bug-inode-bit-not-taken") {
                    map.mark(run, true);
                }
                lane.set_inode_cursor(ino + 1);
                return Ok(ino);
            }
        }
        Err(Error::NoInodes)
    }
}
