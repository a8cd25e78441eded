//! The allocator, which gives free blocks and inode numbers to lanes. [`search`] chooses the blocks
//! so that regions stay whole.

mod search;

pub use search::Wish;

use crate::bitmap::{Bitmap, REGION, Told};
use crate::budget::{Class, Space};
use crate::lane::{Lane, Meaning, Zone};
use pm_journal::error::{Error, Result};
use pm_journal::lane;
use pm_journal::locks::line_of;
use pm_journal::medium::sparse::REGION as SPACED;
use pm_journal::medium::store::Waits;
use pm_journal::types::Run;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::tree::FANOUT;

impl<P: Meaning> Space<P> {
    /// Allocates a run of 1 to `want` contiguous blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    #[cfg_attr(feature = "record", track_caller)]
    pub fn alloc(
        &self,
        lane: &Lane<'_, P>,
        want: u64,
        class: Class,
        zone: Zone,
        purpose: P,
    ) -> Result<Run> {
        self.alloc_wish(lane, Wish::of(want), class, zone, purpose)
    }

    /// Allocates as [`Space::alloc`] does, at the best place for the wish.
    ///
    /// # Errors
    /// Those of [`Space::alloc`].
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn alloc_wish(
        &self,
        lane: &Lane<'_, P>,
        wish: Wish,
        class: Class,
        zone: Zone,
        purpose: P,
    ) -> Result<Run> {
        self.afford(lane.waits(), class, wish.want)?;
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
            self.take(lane, &map, run, purpose)?;
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

    /// Gives a free run in a locked group to a lane.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    fn take(&self, lane: &Lane<'_, P>, map: &Bitmap<'_>, run: Run, purpose: P) -> Result<Run> {
        lane.intend_run(run, purpose)?;
        map.mark(run, true);
        lane.count_blocks(purpose, run.count as i64);
        Ok(run)
    }

    /// Allocates a block that belongs to no tree. `tell` notes it under its group's lock, before
    /// its bit is set.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn alloc_alone(&self, waits: Waits<'_>, class: Class, tell: impl Fn(u64)) -> Option<u64> {
        self.afford(waits, class, 1).ok()?;
        let map = Bitmap::blocks(waits);
        let take = |run: Run| {
            tell(run.block);
            map.mark(run, true);
            run.block
        };
        let start = self.geometry.data_start;
        let wish = Wish::of(1);
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

    /// Allocates a block in a region, if the region is broken and has a free one. A move makes the
    /// pool no fuller, so the reserve does not matter.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    #[cfg_attr(feature = "record", track_caller)]
    pub fn alloc_in(&self, lane: &Lane<'_, P>, region: u64, purpose: P) -> Result<Run> {
        let map = Bitmap::blocks(lane.waits());
        let _held = map.lock(region);
        let run = map.search(search::Place::Broken(region, 1), 1);
        let run = run.filter(|&run| self.has_space(run));
        let run = run.ok_or(Error::NoSpace)?;
        self.take(lane, &map, run, purpose)
    }

    /// Allocates exactly `want` contiguous blocks, at most a group's, at any place.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no such run; smaller ones may be free.
    pub fn alloc_whole(
        &self,
        lane: &Lane<'_, P>,
        want: u64,
        class: Class,
        purpose: P,
    ) -> Result<Run> {
        self.afford(lane.waits(), class, want)?;
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
                return self.take(lane, &map, run, purpose);
            }
        }
        Err(Error::NoSpace)
    }

    /// Allocates one whole, aligned 2 MiB region.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none; smaller blocks may be free.
    pub fn alloc_region(&self, lane: &Lane<'_, P>, class: Class, purpose: P) -> Result<Run> {
        self.afford(lane.waits(), class, REGION)?;
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
                let count = REGION;
                let run = Run { block, count };
                if !self.has_space(run) {
                    return Err(Error::NoSpace);
                }
                return self.take(lane, &map, run, purpose);
            }
        }
        Err(Error::NoSpace)
    }

    /// Allocates one whole, aligned gigabyte, group by group; `purpose` is called for each group's
    /// part.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none. Parts allocated before are left to the resolution of
    /// the lane's intents.
    pub fn alloc_gigabyte(
        &self,
        lane: &Lane<'_, P>,
        class: Class,
        purpose: impl Fn(u64) -> P,
    ) -> Result<Run> {
        const GROUPS: u64 = FANOUT * FANOUT / GROUP_UNITS;
        let map = Bitmap::blocks(lane.waits());
        self.afford(lane.waits(), class, FANOUT * FANOUT)?;
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
            self.take(lane, &map, run, purpose(group * GROUP_UNITS))?;
        }
        Ok(Run {
            block: first * GROUP_UNITS,
            count: FANOUT * FANOUT,
        })
    }

    /// Frees the first `count` blocks of a lane's record and strikes them out, group by group.
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn free_front(&self, lane: &Lane<'_, P>, record: u64, count: u64) {
        let Some((word, purpose)) = lane.intent(record) else {
            return;
        };
        let mut run = Lane::<P>::run_of(word);
        lane.count_blocks(purpose, -(count.min(run.count) as i64));
        let left = run.count.saturating_sub(count);
        let map = Bitmap::blocks(lane.waits());
        while run.count > left {
            let here = (GROUP_UNITS - run.block % GROUP_UNITS).min(run.count - left);
            let _held = map.lock(run.block);
            if purpose.may_be_shared() {
                self.let_front_go(lane, &map, (record, run), here);
                run.block += here;
                run.count -= here;
                continue;
            }
            map.mark(Run { count: here, ..run }, false);
            run.block += here;
            run.count -= here;
            lane.shrink(record, run);
        }
    }

    /// Takes one share from each of the first `count` blocks of a record's run, all in one group
    /// whose lock is held, and strikes them out.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn let_front_go(
        &self,
        lane: &Lane<'_, P>,
        map: &Bitmap<'_>,
        (record, run): (u64, Run),
        count: u64,
    ) {
        let told = Told {
            record,
            is_cursor: false,
            after: &|done| {
                Lane::<P>::word_of(Run {
                    block: run.block + done,
                    count: run.count - done,
                })
            },
        };
        map.let_go(lane, Run { count, ..run }, &told);
    }

    /// Adds shares to the blocks of a run, for leaves that are to name them; `purpose` says where,
    /// from the given block of the run on. Answers how many blocks got one: fewer than the run has
    /// where a count is at its end or has no place, or the lane has no more records. The shares
    /// that no leaf gets are dropped with the records.
    ///
    /// # Errors
    /// Those of [`Lane::intend`], if no block got a share.
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn share(&self, lane: &Lane<'_, P>, run: Run, purpose: impl Fn(u64) -> P) -> Result<u64> {
        let map = Bitmap::blocks(lane.waits());
        let mut done = 0;
        while done < run.count {
            let block = run.block + done;
            let count = (GROUP_UNITS - block % GROUP_UNITS).min(run.count - done);
            let record = match lane.intend_run(Run { block, count: 0 }, purpose(done)) {
                Err(_) if done > 0 => break,
                record => record?,
            };
            let told = Told {
                record,
                is_cursor: false,
                after: &|count| Lane::<P>::word_of(Run { block, count }),
            };
            let _held = map.lock(block);
            let shared = map.share(lane, Run { block, count }, &told);
            lane.count_blocks(purpose(done), shared as i64);
            done += shared;
            if shared < count {
                break;
            }
        }
        Ok(done)
    }

    /// Allocates an inode number, which its record names. The lane's cursor only goes on, so that a
    /// freed number is given out again late: a call that has looked a name up, and has not locked
    /// its inode yet, would do to the next file what was meant for the last one.
    ///
    /// # Errors
    /// [`Error::NoInodes`].
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn alloc_ino(&self, lane: &Lane<'_, P>) -> Result<u64> {
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
                let run = Run::one(ino);
                lane.intend_run(run, P::number(ino))?;
                map.mark(run, true);
                lane.set_inode_cursor(ino + 1);
                // The next inode is likely to be created next: the line of its lock is in no cache.
                self.pm.prefetch(line_of(self, ino + 1));
                return Ok(ino);
            }
        }
        Err(Error::NoInodes)
    }

    /// Frees an inode number that a record names, and strikes it out of the record.
    pub fn free_ino(&self, lane: &Lane<'_, P>, record: u64, ino: u64) {
        let map = Bitmap::inodes(lane.waits());
        let _held = map.lock(ino);
        map.mark(Run::one(ino), false);
        lane.strike_out(record);
    }

    /// A free block with space at any place, whose group `lock` locks, for a caller that found none
    /// at a better place.
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
            let run = Run::one(block);
            (self.is_backed(region) || self.back_blocks(block, block + 1)).then(|| take(run))
        })
    }

    /// Frees the spare blocks of all lanes without an owner.
    pub fn free_spares(&self, waits: Waits<'_>) {
        for index in 0..self.geometry.lanes {
            if Lane::<P>::at(waits, index).spare().is_some()
                && let Some(lane) = lane::Lane::try_claim(waits, index).map(Lane::of)
            {
                // Without room for a record it stays the spare block.
                let _ = self.free_spare(&lane);
                lane.release();
            }
        }
    }

    /// Frees the spare block.
    ///
    /// # Errors
    /// Those of [`Lane::intend`].
    #[cfg_attr(feature = "record", track_caller)]
    fn free_spare(&self, lane: &Lane<'_, P>) -> Result<()> {
        if let Some(block) = lane.spare() {
            let record = lane.intend_run(Run::one(block), P::SCRATCH)?;
            lane.set_spare(0);
            self.free_front(lane, record, 1);
            lane.clear_intents();
        }
        Ok(())
    }
}
