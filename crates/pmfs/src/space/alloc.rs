//! The allocator gives what is free in the bitmaps to lanes. [`search`] decides where blocks come
//! from, so that regions stay whole.

mod search;

pub(crate) use search::Wish;

use crate::space::bitmap::{Bitmap, REGION};
use crate::space::budget::Space;
use crate::types::Run;
use pm_journal::error::{Error, Result};
use pm_journal::lane::{Lane, Purpose, Zone};
use pm_journal::locks::line_of;
use pm_journal::medium::sparse::REGION as SPACED;
use pm_journal::medium::store::Waits;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::tree::FANOUT;

/// The right of a call to take from the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It makes the pool fuller.
    Ordinary,
    /// It frees or replaces: it must go through on a full pool (docs/adr/0035-space.md).
    Privileged,
}

impl Space {
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

    /// Allocates like [`Pool::alloc`], where it is best.
    ///
    /// # Errors
    /// Those of [`Pool::alloc`].
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub(crate) fn alloc_wish(
        &self,
        lane: &Lane<'_>,
        wish: Wish,
        class: Class,
        zone: Zone,
        purpose: Purpose,
    ) -> Result<Run> {
        if class == Class::Ordinary {
            self.afford(lane.waits(), wish.want)?;
        }
        let map = Bitmap::blocks(lane.waits());
        let cursor = lane.block_cursor(zone).min(self.geometry.blocks - 1);
        for place in map.places(cursor, lane.block_cursor(zone.other()), wish, &self.hints) {
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
            lane.intend_run(run, purpose)?;
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

    /// Takes one block for what no tree has; `tell` writes down which one, under its group's lock,
    /// before its bit is set.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn alloc_alone(
        &self,
        waits: Waits<'_>,
        class: Class,
        tell: impl Fn(u64),
    ) -> Option<u64> {
        if class == Class::Ordinary && self.afford(waits, 1).is_err() {
            return None;
        }
        let map = Bitmap::blocks(waits);
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
        let taken = map
            .places(start, start, wish, &self.hints)
            .find_map(|place| {
                let _held = map.lock(place.group() * GROUP_UNITS);
                let found = map.search(place, 1);
                found.filter(|&run| self.has_space(run)).map(take)
            });
        match taken {
            None if self.is_sparse() => self.spaced_block(&map, take),
            taken => taken,
        }
    }

    /// Allocates one block in a region, if that is broken into and has one. Moving makes the pool
    /// no fuller.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    #[cfg_attr(feature = "record", track_caller)]
    pub fn alloc_in(&self, lane: &Lane<'_>, region: u64, purpose: Purpose) -> Result<Run> {
        let map = Bitmap::blocks(lane.waits());
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
            self.afford(lane.waits(), want)?;
        }
        let map = Bitmap::blocks(lane.waits());
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
    pub fn alloc_region(&self, lane: &Lane<'_>, class: Class, purpose: Purpose) -> Result<Run> {
        if class == Class::Ordinary {
            self.afford(lane.waits(), REGION)?;
        }
        let map = Bitmap::blocks(lane.waits());
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

    /// Allocates one whole, aligned gigabyte, group by group; `purpose` is asked for each group's
    /// part.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none; parts taken meanwhile are left to resolving the lane's
    /// intents.
    pub(crate) fn alloc_gigabyte(
        &self,
        lane: &Lane<'_>,
        class: Class,
        purpose: impl Fn(u64) -> Purpose,
    ) -> Result<Run> {
        const GROUPS: u64 = FANOUT * FANOUT / GROUP_UNITS;
        let map = Bitmap::blocks(lane.waits());
        if class == Class::Ordinary {
            self.afford(lane.waits(), FANOUT * FANOUT)?;
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
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn free_front(&self, lane: &Lane<'_>, record: u64, count: u64) {
        let Some((word, purpose)) = lane.intent(record) else {
            return;
        };
        let mut run = Lane::run_of(word);
        lane.count_blocks(purpose, -(count.min(run.count) as i64));
        let left = run.count.saturating_sub(count);
        let map = Bitmap::blocks(lane.waits());
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
            lane.shrink(record, run);
        }
    }

    /// Allocates an inode number; its record says so.
    ///
    /// # Errors
    /// [`Error::NoInodes`].
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub(crate) fn alloc_ino(&self, lane: &Lane<'_>) -> Result<u64> {
        let map = Bitmap::inodes(lane.waits());
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
                lane.intend_run(run, Purpose::Inode { ino })?;
                map.mark(run, true);
                lane.set_inode_cursor(ino + 1);
                // Likely the next to be made: its lock is in no cache.
                self.pm.prefetch(line_of(self, ino + 1));
                return Ok(ino);
            }
        }
        Err(Error::NoInodes)
    }

    /// A free block that has space, wherever it is, with its group locked by `lock`; for who found
    /// none where it would be best.
    #[cold]
    fn spaced_block<T>(&self, map: &Bitmap<'_>, take: impl Fn(Run) -> T) -> Option<T> {
        let regions = self.geometry.blocks.div_ceil(SPACED);
        let known = (0..regions).filter(|&region| self.is_backed(region));
        let others = (0..regions).filter(|&region| !self.is_backed(region));
        known.chain(others).find_map(|region| {
            let first = region * SPACED;
            let _held = map.lock(first);
            let mut all = first..(first + SPACED).min(self.geometry.blocks);
            let block = all.find(|&block| !map.is_set(block))?;
            let run = Run { block, count: 1 };
            (self.is_backed(region) || self.back_blocks(block, block + 1)).then(|| take(run))
        })
    }

    /// Gives the spare blocks of all lanes back that nobody is in.
    pub fn free_spares(&self, waits: Waits<'_>) {
        for index in 0..self.geometry.lanes {
            if Lane::at(waits, index).spare().is_some()
                && let Some(lane) = Lane::try_claim(waits, index)
            {
                // Without room for a record it stays what it is.
                let _ = self.free_spare(&lane);
                lane.give_back();
            }
        }
    }

    /// Gives the spare block back.
    ///
    /// # Errors
    /// Those of [`Lane::intend`].
    #[cfg_attr(feature = "record", track_caller)]
    fn free_spare(&self, lane: &Lane<'_>) -> Result<()> {
        if let Some(block) = lane.spare() {
            let record = lane.intend_run(Run { block, count: 1 }, Purpose::Scratch)?;
            lane.set_spare(0);
            self.free_front(lane, record, 1);
            lane.clear_intents();
        }
        Ok(())
    }
}
