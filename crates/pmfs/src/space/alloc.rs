//! The allocator: bitmaps in the runtime area, a lock line a group, nothing logged.
//!
//! Every change of a bit happens under its group's lock, after the lane has written down what the bit is for
//! ([`Lane::intend`]) or while it strikes that out; so whoever finds the lock held by a dead thread, or the
//! record of one, can tell what became of the bit. A group is 8,192 blocks; each line of its bitmap is a
//! 2 MiB region. Where blocks come from, so that regions stay whole: [`search`].

mod search;

pub(crate) use search::{Hints, Wish};

use crate::error::{Error, Result};
use crate::journal::lane::{Lane, Purpose, Zone};
use crate::medium::geometry::BitmapPlace;
use crate::pool::Pool;
use crate::share::locks::line_of;
use crate::share::owner::Held;
use crate::types::FreePages;
use crate::types::Run;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::{GroupRaw, tree::FANOUT};
use std::sync::atomic::Ordering;

/// Of [`GroupRaw`].
const FREE: u64 = 8;
const REGIONS: u64 = 16;
/// Units in one line of bitmap: a 2 MiB region.
pub(crate) const REGION: u64 = 512;

/// Whether a call may take from the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It makes the pool fuller.
    Ordinary,
    /// It frees or replaces: it must go through on a full pool (docs/adr/0035-space.md).
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

    /// Whole free regions of a group, at a glance.
    pub fn group_regions(&self, group: u64) -> u64 {
        self.pool.pm.load(self.group_line(group) + REGIONS)
    }

    /// Whether any region is free as a whole, at a glance.
    pub fn has_region(&self) -> bool {
        (0..self.group_count()).any(|group| self.group_regions(group) > 0)
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
    /// did change, and its whole regions.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn mark(&self, run: Run, set: bool) {
        if !set {
            self.pool.pm.settle_met();
        }
        let runtime = self.pool.pm.runtime();
        let (mut changed, mut whole) = (0, 0);
        let end = run.block + run.count;
        let mut unit = run.block;
        while unit < end {
            let to = (unit / REGION * REGION + REGION).min(end);
            let was_whole = set && self.is_whole(unit);
            let here = self.mark_in_region(unit, to, set);
            whole += u64::from(was_whole || !set && here > 0 && self.is_whole(unit));
            changed += here;
            unit = to;
        }
        let line = self.group_line(run.block / GROUP_UNITS);
        let adjusted = |count: u64, by: u64| match set {
            true => count.wrapping_sub(by),
            false => count + by,
        };
        runtime.store(line + FREE, adjusted(runtime.load(line + FREE), changed));
        if whole > 0 {
            let regions = runtime.load(line + REGIONS);
            runtime.store(line + REGIONS, adjusted(regions, whole));
        }
    }

    /// Sets or clears units inside one region; answers how many were otherwise.
    #[cfg_attr(feature = "record", track_caller)]
    fn mark_in_region(&self, from: u64, to: u64, set: bool) -> u64 {
        let runtime = self.pool.pm.runtime();
        let (mut unit, mut changed) = (from, 0);
        while unit < to {
            let bits = (64 - unit % 64).min(to - unit);
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
        changed
    }

    /// Whether all of the region of `unit` is free. What is less than a region, at the end, never is.
    fn is_whole(&self, unit: u64) -> bool {
        let region = unit / REGION * REGION;
        region + REGION <= self.place.units
            && self.pool.pm.load(self.word_off(unit)) == 0
            && self.region_used(region) == 0
    }

    /// Counts a group's free units and regions anew: its lock was held by a dead thread, or the pool is being walked.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn recount(&self, group: u64) {
        let free = self
            .regions(group)
            .map(|(region, to)| to - region - self.region_used_before(region, to))
            .sum();
        let runtime = self.pool.pm.runtime();
        let line = self.group_line(group);
        runtime.store(line + FREE, free);
        runtime.store(line + REGIONS, self.count_regions(group));
    }

    /// Whole free regions of a group, counted.
    pub fn count_regions(&self, group: u64) -> u64 {
        let regions = self.regions(group);
        regions.filter(|&(region, _)| self.is_whole(region)).count() as u64
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

    /// Units of a whole region that are used, at a glance.
    pub fn used_in(&self, region: u64) -> u64 {
        self.region_used_before(region, region + REGION)
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
        let wish = Wish { want, after: None };
        self.alloc_wish(lane, wish, class, zone, purpose)
    }

    /// As [`Pool::alloc`], where it is best.
    ///
    /// # Errors
    /// As there.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn alloc_wish(
        &self,
        lane: &Lane<'_>,
        wish: Wish,
        class: Class,
        zone: Zone,
        purpose: Purpose,
    ) -> Result<Run> {
        if class == Class::Ordinary {
            self.afford(wish.want)?;
        }
        let map = Bitmap::blocks(self);
        let cursor = lane.block_cursor(zone).min(self.geometry.blocks - 1);
        for place in map.places(cursor, lane.block_cursor(zone.other()), wish) {
            let _held = map.lock(place.group() * GROUP_UNITS);
            let Some(mut run) = map.search(place, wish.want) else {
                continue;
            };
            if !self.has_space(run) {
                run.count = 1;
                if !self.has_space(run) {
                    continue;
                }
            }
            if planted!("bug-bit-before-intent") {
                map.mark(run, true);
            }
            let record = lane.intend_run(run, purpose)?;
            if planted!("bug-intent-missing") {
                lane.settle(record);
            }
            map.mark(run, true);
            lane.count_blocks(purpose, run.count as i64);
            if run.count < REGION {
                lane.set_block_cursor(zone, run.block + run.count);
            }
            return Ok(run);
        }
        if self.is_sparse() {
            let taken = self.spaced_block(&map, |run| self.take(lane, &map, run, purpose));
            return taken.unwrap_or(Err(Error::NoSpace));
        }
        Err(Error::NoSpace)
    }

    /// Gives a lane a run that was found free, in a group that is locked.
    fn take(&self, lane: &Lane<'_>, map: &Bitmap<'_>, run: Run, purpose: Purpose) -> Result<Run> {
        lane.intend_run(run, purpose)?;
        map.mark(run, true);
        lane.count_blocks(purpose, run.count as i64);
        Ok(run)
    }

    /// Takes one block for what no tree has; `tell` writes down which one, under its group's lock, before its bit is set.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn alloc_alone(&self, class: Class, tell: impl Fn(u64)) -> Option<u64> {
        if class == Class::Ordinary && self.afford(1).is_err() {
            return None;
        }
        let map = Bitmap::blocks(self);
        let take = |run: Run| {
            tell(run.block);
            map.mark(run, true);
            run.block
        };
        let start = self.geometry.data_start;
        let wish = Wish {
            want: 1,
            after: None,
        };
        let taken = map.places(start, start, wish).find_map(|place| {
            let _held = map.lock(place.group() * GROUP_UNITS);
            let found = map.search(place, 1);
            found.filter(|&run| self.has_space(run)).map(take)
        });
        match taken {
            None if self.is_sparse() => self.spaced_block(&map, take),
            taken => taken,
        }
    }

    /// Allocates one block in a region, if that is broken into and has one. Moving makes the pool no fuller.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn alloc_in(&self, lane: &Lane<'_>, region: u64, purpose: Purpose) -> Result<Run> {
        let map = Bitmap::blocks(self);
        let _held = map.lock(region);
        let run = map.search(search::Place::Broken(region, 1), 1);
        let run = run.filter(|&run| self.has_space(run));
        let run = run.ok_or(Error::NoSpace)?;
        lane.intend_run(run, purpose)?;
        map.mark(run, true);
        lane.count_blocks(purpose, 1);
        Ok(run)
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
                if !self.has_space(run) {
                    return Err(Error::NoSpace);
                }
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
                if !self.has_space(run) {
                    return Err(Error::NoSpace);
                }
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
            let regions = map.count_regions(first + group);
            if regions != GROUP_UNITS / REGION || !self.has_space(run) {
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
                // Likely the next to be made: its lock is in no cache.
                self.pm.prefetch(line_of(self, ino + 1));
                return Ok(ino);
            }
        }
        Err(Error::NoInodes)
    }
}
