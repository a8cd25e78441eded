//! Damaged records: found, told, and dropped.
//!
//! A record is damaged if its check does not fit, if its key has another hash than its slot, or if
//! its chunk is not the engine's. The key of such a record can't be trusted. It is taken for the
//! damaged record of a key whose slot it could be, unless another key stands there whole that fits
//! the slot as well.

use pmlib_format::CHUNK_BYTES;

use crate::engine::Index;
use crate::error::Result;
use crate::group::{Found, Group, Located};
use crate::key::Key;
use crate::kv::Kv;
use crate::record::{self, Head};
use crate::slot::Slot;

/// Slots, and where they are.
pub(crate) type Slots = Vec<(u64, Slot)>;

/// The fate of the damaged records that a scrub finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// They stay, and calls on their keys are errors.
    Keep,
    /// They are taken away: their keys are missing then.
    Drop,
}

/// A damaged record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it is, or was.
    pub offset: u64,
    /// Its key, where the bytes that stand there have the hash that its slot has.
    pub key: Option<Vec<u8>>,
    /// It was taken away.
    pub is_dropped: bool,
}

/// A part of a scrub: the records of one group of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Records that were looked at.
    pub records: u64,
    /// Bytes of those that are whole, with their keys.
    pub bytes: u64,
    /// Those that are damaged.
    pub damaged: Vec<Damage>,
    /// How much of the index was looked at so far, in thousandths.
    pub per_mille: u32,
}

/// A look at the checks of all records ([`Kv::scrub`]).
pub struct Scrub<'a, 'h, I: Index> {
    kv: &'a Kv<'h, I>,
    position: I::Position,
    on_damage: OnDamage,
    is_over: bool,
}

impl<'h, I: Index> Kv<'h, I> {
    /// Verifies the check of each record, a group of the index at a time. Nothing is locked while
    /// records are read, nor between the steps: stop, or wait, as long as you like.
    pub fn scrub(&self, on_damage: OnDamage) -> Scrub<'_, 'h, I> {
        Scrub {
            kv: self,
            position: I::Position::default(),
            on_damage,
            is_over: false,
        }
    }
}

impl<I: Index> Kv<'_, I> {
    /// Takes a key away whose record is damaged; whether one was. A key whose record is whole
    /// stays. It is durable when this returns.
    ///
    /// # Errors
    /// `TooLarge`; `Damaged`; `Heap`.
    pub fn drop_damaged(&self, key: &[u8]) -> Result<bool> {
        record::taken(key, &[])?;
        self.ground.enter_to_change()?;
        let _window = self.ground.mem().window();
        let key = self.key(key);
        let group = self.lock(key)?;
        let (_, dropped) = self.versions(&group.located, key)?;
        self.drop_slots(group, &dropped)?;
        Ok(!dropped.is_empty())
    }

    /// A key's slot in lines of a locked chunk, and the slots whose records are damaged and are
    /// taken for the key's.
    pub(crate) fn versions(
        &self,
        located: &Located<I::Way>,
        key: Key<'_>,
    ) -> Result<(Option<Found>, Slots)> {
        let (mut whole, mut damaged) = (None, Vec::new());
        for line in self.all_lines(key.hash) {
            let start = located.line(line);
            let words: [u64; 8] = self.ground.mem().read(start);
            for (nth, slot) in words.into_iter().map(Slot).enumerate() {
                let at = start + nth as u64 * 8;
                if !slot.is_seen() || slot.hash() != key.hash.in_slot() {
                    continue;
                }
                match self.look_at(located, slot)? {
                    Ok((head, found)) if found == key.bytes => {
                        whole = Some(Found {
                            line,
                            at,
                            slot,
                            head,
                        });
                    }
                    Ok(_) => {}
                    Err(damage) if damage.key.as_ref().is_none_or(|found| found == key.bytes) => {
                        damaged.push((at, slot));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok((whole, damaged))
    }

    /// Takes slots of a locked group away with their places, and unlocks it.
    fn drop_slots(&self, group: Group<'_, I>, slots: &[(u64, Slot)]) -> Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        self.clear_slots(&group, slots)?;
        let mut alone = Vec::new();
        for &(_, slot) in slots {
            if self.free(slot) {
                alone.push(slot.place());
            }
        }
        drop(group);
        alone
            .into_iter()
            .try_for_each(|offset| self.drop_alone(offset))
    }

    /// The record of a slot of a group: its head and its key, or its damage. Without the group's
    /// lock a record that is being replaced seems damaged.
    fn look_at(
        &self,
        located: &Located<I::Way>,
        slot: Slot,
    ) -> Result<std::result::Result<(Head, Vec<u8>), Damage>> {
        let offset = slot.place();
        let mut damage = Damage {
            offset,
            key: None,
            is_dropped: false,
        };
        let is_in_engine = self.ground.owned(offset / CHUNK_BYTES, self.head) > 0;
        let Some(head) = record::head_at(self.ground, offset).filter(|_| is_in_engine) else {
            return Ok(Err(damage));
        };
        let key = record::key_of(self.ground, offset, head)?;
        if !self.belongs(&key, located, slot) {
            return Ok(Err(damage));
        }
        let is_its = head.instance == slot.instance();
        if is_its && record::is_whole(self.ground, offset, head)? {
            return Ok(Ok((head, key)));
        }
        damage.key = Some(key);
        Ok(Err(damage))
    }
}

impl<I: Index> Scrub<'_, '_, I> {
    fn step(&mut self) -> Result<Option<Scrubbed>> {
        let (kv, before) = (self.kv, self.position.clone());
        kv.ground.enter_to_change()?;
        let Some((located, slots)) = self.next_slots()? else {
            return Ok(None);
        };
        let mut step = Scrubbed {
            per_mille: I::per_mille(kv, &self.position),
            ..Scrubbed::default()
        };
        let mut is_doubtful = false;
        for (_, slot) in slots {
            step.records += 1;
            match kv.look_at(&located, slot)? {
                Ok((head, _)) => step.bytes += head.bytes(),
                Err(_) => is_doubtful = true,
            }
        }
        if is_doubtful {
            // Damaged, or replaced meanwhile: that is seen with the group locked.
            self.position = before;
            return self.step_locked();
        }
        Ok(Some(step))
    }

    /// The next group with its slots.
    fn next_slots(&mut self) -> Result<Option<(Located<I::Way>, Slots)>> {
        let _window = self.kv.ground.mem().window();
        let group = I::next_group(self.kv, &mut self.position)?;
        Ok(group.map(|group| (group.located, self.kv.seen_slots(&group))))
    }

    /// A step whose records are read with their group locked.
    fn step_locked(&mut self) -> Result<Option<Scrubbed>> {
        let kv = self.kv;
        let _window = kv.ground.mem().window();
        let Some(group) = I::next_group(kv, &mut self.position)? else {
            return Ok(None);
        };
        let mut step = Scrubbed {
            per_mille: I::per_mille(kv, &self.position),
            ..Scrubbed::default()
        };
        let mut dropped = Vec::new();
        for (at, slot) in kv.seen_slots(&group) {
            step.records += 1;
            match kv.look_at(&group.located, slot)? {
                Ok((head, _)) => step.bytes += head.bytes(),
                Err(mut damage) => {
                    damage.is_dropped = self.on_damage == OnDamage::Drop;
                    if damage.is_dropped {
                        dropped.push((at, slot));
                    }
                    step.damaged.push(damage);
                }
            }
        }
        kv.drop_slots(group, &dropped)?;
        Ok(Some(step))
    }
}

impl<I: Index> Iterator for Scrub<'_, '_, I> {
    type Item = Result<Scrubbed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step();
        self.is_over = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}
