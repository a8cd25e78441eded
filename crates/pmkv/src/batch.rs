//! Batches: several puts and deletes that happen wholly or not at all.

use std::collections::{BTreeMap, HashMap};

use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::group::{Found, Located};
use crate::journal::Image;
use crate::key::Key;
use crate::kv::Kv;
use crate::places::Place;
use crate::record::{self, Head, KeyAlone};
use crate::slot::Slot;
use crate::version::Version;
use pmlib::ground::Count;
use pmlib_format::kv::STATE_PUT;

/// The most changes of a batch.
pub const BATCH_MAX: usize = 65_535;

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'a> {
    /// A key gets a value.
    Put(&'a [u8], &'a [u8]),
    /// A key gets a value, up to a moment in milliseconds since 1970.
    PutUntil(&'a [u8], &'a [u8], u64),
    /// A key is taken away, if it is there.
    Delete(&'a [u8]),
}

impl<'a> Change<'a> {
    fn key(&self) -> &'a [u8] {
        match *self {
            Change::Put(key, _) | Change::PutUntil(key, ..) | Change::Delete(key) => key,
        }
    }

    fn value(&self) -> Option<&'a [u8]> {
        match *self {
            Change::Put(_, value) | Change::PutUntil(_, value, _) => Some(value),
            Change::Delete(_) => None,
        }
    }

    fn expires(&self) -> Option<u64> {
        match *self {
            Change::PutUntil(_, _, at) => Some(at),
            _ => None,
        }
    }
}

/// A change, its key's hash, and the place of its record.
struct Step<'a> {
    key: Key<'a>,
    value: Option<&'a [u8]>,
    expires: Option<u64>,
    place: Option<Place>,
}

/// The lines of the index that a batch changes.
#[derive(Default)]
struct Plan {
    lines: BTreeMap<u64, Planned>,
    /// Records that are to be stored, with the slots' versions.
    stored: Vec<(usize, Head)>,
}

struct Planned {
    before: [u64; 8],
    after: [u64; 8],
}

/// The outcome of an attempt.
enum Tried<W> {
    Done(Vec<Slot>),
    /// The way to the key of this step has changed, or has to be mended.
    Again(usize),
    /// There is no slot for the key of this step.
    Full(usize, Located<W>),
    /// The journal has no room for so many images.
    Short(u64),
}

impl<'h, I: Index> Kv<'h, I> {
    /// Does several changes, wholly or not at all, whatever ends its process or its power. They are
    /// durable when this returns, after three waits for the medium. The last one of several changes
    /// of one key counts. A reader beside it may see some of them before others.
    ///
    /// # Errors
    /// `TooMany`: there are more than [`BATCH_MAX`]; those of [`Kv::put`] and [`Kv::delete`].
    /// Nothing has changed then.
    pub fn batch(&self, changes: &[Change<'_>]) -> Result<()> {
        self.change_all(changes, false)
    }

    /// Like [`Kv::put`], also over a record of the key that is damaged.
    ///
    /// # Errors
    /// Those of [`Kv::put`], but for `Corrupt`.
    pub fn overwrite(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.change_all(&[Change::Put(key, value)], true)
    }

    fn change_all(&self, changes: &[Change<'_>], over_damage: bool) -> Result<()> {
        if changes.len() > BATCH_MAX {
            let count = changes.len() as u64;
            return Err(Error::TooMany { count });
        }
        for change in changes {
            record::taken(change.key(), change.value().unwrap_or_default())?;
        }
        self.ground.enter_to_change()?;
        let mut steps = self.steps_of(changes);
        if steps.is_empty() {
            return Ok(());
        }
        let _window = self.ground.mem().window();
        let done = self.do_steps(&mut steps, over_damage);
        let alone = match done {
            Ok(gone) => {
                self.count_steps(&steps, over_damage);
                gone
            }
            Err(error) => {
                // After a medium's failure a slot may name them.
                if self.alive().is_ok() {
                    steps
                        .iter()
                        .filter_map(|step| step.place)
                        .try_for_each(|place| self.undo(Some(place)))?;
                }
                return Err(error);
            }
        };
        alone
            .into_iter()
            .try_for_each(|offset| self.drop_alone(offset))
    }

    /// Counts what was done; a put over damage is no batch to its caller.
    fn count_steps(&self, steps: &[Step<'_>], over_damage: bool) {
        let values = || steps.iter().filter_map(|step| step.value);
        let puts = values().count() as u64;
        let bytes = values().map(|value| value.len() as u64).sum();
        self.ground.count(|| {
            [
                (Count::Puts, puts),
                (Count::PutBytes, bytes),
                (Count::Deletes, steps.len() as u64 - puts),
                (Count::Batches, u64::from(!over_damage)),
            ]
        });
    }

    /// The last change of each key.
    fn steps_of<'a>(&self, changes: &[Change<'a>]) -> Vec<Step<'a>> {
        let mut last = HashMap::with_capacity(changes.len());
        for (nth, change) in changes.iter().enumerate() {
            last.insert(change.key(), nth);
        }
        let is_last = |&(nth, change): &(usize, &Change<'a>)| last[change.key()] == nth;
        let kept = changes.iter().enumerate().filter(is_last);
        let step = |(_, change): (usize, &Change<'a>)| Step {
            key: self.key(change.key()),
            value: change.value(),
            expires: change.expires(),
            place: None,
        };
        kept.map(step).collect()
    }

    /// Does the steps; answers the places of records with runs of their own that are nobody's now.
    fn do_steps(&self, steps: &mut [Step<'_>], over_damage: bool) -> Result<Vec<u64>> {
        for step in &mut *steps {
            if let Some(value) = step.value {
                let bytes = record::taken(step.key.bytes, value)?;
                let bytes = bytes + record::expiry_bytes(step.expires);
                step.place = Some(self.take(bytes)?);
            }
        }
        if steps.iter().any(|step| step.expires.is_some()) {
            self.may_expire()?;
        }
        let mut images = steps.len() as u64;
        loop {
            self.need_journal(images)?;
            match self.try_batch(steps, over_damage)? {
                Tried::Done(gone) => return Ok(gone.into_iter().map(Slot::place).collect()),
                // Nothing else is locked here: a dead process's batch may be met.
                Tried::Again(nth) => drop(self.lock(steps[nth].key)?),
                Tried::Full(nth, full) => {
                    let keys: Vec<Key<'_>> = steps.iter().map(|step| step.key).collect();
                    I::make_room(self, &keys, nth, &full)?;
                }
                // A key may have an older version in another line.
                Tried::Short(wanted) => images = wanted,
            }
        }
    }

    fn try_batch(&self, steps: &[Step<'_>], over_damage: bool) -> Result<Tried<I::Way>> {
        let Some(open) = self.lock_journal()? else {
            return Ok(Tried::Again(0));
        };
        let mut located = Vec::with_capacity(steps.len());
        for (nth, step) in steps.iter().enumerate() {
            let Some(at) = I::locate(self, step.key)? else {
                return Ok(Tried::Again(nth));
            };
            for line in self.cut.own_lines(step.key.hash) {
                self.ground.mem().prefetch_if_there(at.line(line));
            }
            located.push(at);
        }
        let mut chunks: Vec<u64> = located.iter().map(|at| at.chunk).collect();
        chunks.sort_unstable();
        chunks.dedup();
        let locked = self.lock_all(&chunks);
        if let Some(nth) = located.iter().position(|at| !I::is_ready(self, at)) {
            return Ok(Tried::Again(nth));
        }
        self.end_marks(&chunks);
        for at in &located {
            self.settle_if_needed(at)?;
        }
        let mut plan = Plan::default();
        for (nth, (step, at)) in steps.iter().zip(&located).enumerate() {
            if !self.plan_step(&mut plan, nth, step, at, over_damage)? {
                return Ok(Tried::Full(nth, *at));
            }
        }
        let is_changed = |planned: &Planned| planned.before != planned.after;
        let lines = plan.lines.iter().filter(|(_, line)| is_changed(line));
        let images: Vec<Image> = lines
            .map(|(&at, line)| Image {
                at,
                words: line.after,
            })
            .collect();
        if images.len() as u64 > open.journal.images_max() {
            return Ok(Tried::Short(images.len() as u64));
        }
        if images.is_empty() {
            return Ok(Tried::Done(Vec::new()));
        }
        self.store_records(steps, &plan)?;
        let mut gone = self.commit_batch(&open, &images)?;
        gone.retain(|slot| self.free(*slot));
        drop(locked);
        Ok(Tried::Done(gone))
    }

    fn store_records(&self, steps: &[Step<'_>], plan: &Plan) -> Result<()> {
        for &(nth, head) in &plan.stored {
            let step = &steps[nth];
            if let (Some(value), Some(place)) = (step.value, step.place) {
                let seed = self.ground.seed();
                let staged = record::stage(seed, place.offset, head, step.key.bytes, value);
                record::store(self.ground.mem(), place.offset, &staged)?;
            }
        }
        Ok(())
    }

    /// Plans a step; `false`: there is no slot for it.
    fn plan_step(
        &self,
        plan: &mut Plan,
        nth: usize,
        step: &Step<'_>,
        at: &Located<I::Way>,
        over_damage: bool,
    ) -> Result<bool> {
        let (old, damaged) = match over_damage {
            false => (self.find_at(at, step.key, &mut KeyAlone)?, Vec::new()),
            true => self.versions(at, step.key)?,
        };
        if let Some(place) = step.place {
            let Some(slot) = self.plan_slot(plan, at, step, old.as_ref()) else {
                return Ok(false);
            };
            *slot = Slot::new(place.offset, place.instance, step.key.hash.in_slot())
                .with_state(STATE_PUT)
                .0;
            // A line's image has both changes: no older slot stays beside the new one.
            let version = old.map_or(Version::FIRST, |old| old.head.version.next(None));
            let value = step.value.unwrap_or_default();
            let head = Head {
                expires: step.expires,
                ..Head::new(version, place.instance, step.key.bytes, value)
            };
            plan.stored.push((nth, head));
        }
        for gone in old
            .map(|old| old.at)
            .into_iter()
            .chain(damaged.into_iter().map(|(at, _)| at))
        {
            let line = self.planned(plan, gone / 64 * 64);
            line.after[(gone % 64 / 8) as usize] = 0;
        }
        Ok(true)
    }

    fn planned<'p>(&self, plan: &'p mut Plan, at: u64) -> &'p mut Planned {
        plan.lines.entry(at).or_insert_with(|| {
            let before = self.ground.mem().read(at);
            Planned {
                before,
                after: before,
            }
        })
    }

    /// A slot for a step that is free before the batch and after what is planned of it.
    fn plan_slot<'p>(
        &self,
        plan: &'p mut Plan,
        at: &Located<I::Way>,
        step: &Step<'_>,
        old: Option<&Found>,
    ) -> Option<&'p mut u64> {
        let [one, two] = self.cut.own_lines(step.key.hash);
        let others = self.cut.other_lines(step.key.hash);
        let mut free = |line: u64| {
            let planned = self.planned(plan, at.line(line));
            let words = planned.before.iter().zip(planned.after);
            words
                .filter(|&(&before, after)| before == 0 && after == 0)
                .count()
        };
        let own = match free(two) > free(one) {
            true => [two, one],
            false => [one, two],
        };
        let wanted = old.map(|old| old.line).into_iter().chain(own).chain(others);
        let line = wanted.into_iter().find(|&line| free(line) > 0)?;
        let planned = plan.lines.get_mut(&at.line(line))?;
        let mut words = planned.before.iter().zip(&mut planned.after);
        words.find_map(|(&before, after)| (before == 0 && *after == 0).then_some(after))
    }
}
