//! Keys that expire.
//!
//! A record may have a moment of the machine's clock, from which on its key is missing. Nothing is
//! stored then: the record stays until its key is put or deleted, or [`Kv::purge_expired`] is
//! called. So a clock that is set forward has keys expire early, and one that is set back has those
//! come again that are still stored.

use std::time::{Duration, SystemTime};

use pmlib_format::kv::EXPIRING_OFFSET;

use crate::engine::Index;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::key::Key;
use crate::kv::Kv;
use crate::places::Place;
use crate::record::{self, Head, KeyAlone};
use crate::scrub::Slots;

/// A clock: milliseconds since 1970.
pub type Clock = fn() -> u64;

/// The end of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// It is missing from this moment on: milliseconds since 1970.
    At(u64),
}

/// The machine's clock; 0 before 1970.
pub(crate) fn system_clock() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_millis() as u64
}

impl<I: Index> Kv<'_, I> {
    /// The engine by another clock than the machine's, for tests. It is this process's alone.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Has a key have this value for so long, to the millisecond; then it is missing. A later
    /// [`Kv::put`] of the key has it stay. Durable when this returns.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn put_ttl(&self, key: &[u8], value: &[u8], ttl: Duration) -> Result<()> {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.put_until(key, value, (self.clock)().saturating_add(ttl))
    }

    /// Has a key have this value up to a moment, in milliseconds since 1970.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn put_until(&self, key: &[u8], value: &[u8], expires: u64) -> Result<()> {
        record::taken(key, value)?;
        self.may_expire()?;
        self.put_when(key, value, Some(expires), None).map(drop)
    }

    /// When a key expires; `None`: it is not there. Its value is not read.
    ///
    /// # Errors
    /// Those of [`Kv::delete`].
    pub fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>> {
        self.ground.enter()?;
        let head = self.read(self.key(key), &mut KeyAlone)?;
        self.ground.count_get(0);
        let there = head.filter(|head| !self.is_expired(head));
        Ok(there.map(|head| head.expires.map_or(Expiry::Never, Expiry::At)))
    }

    /// Like [`Kv::get_into`]; answers when the key expires, as of this value. `None`: the key is
    /// not there.
    ///
    /// # Errors
    /// Those of [`Kv::get`].
    pub fn get_expiring(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Expiry>> {
        self.ground.enter()?;
        let head = self.read(self.key(key), value)?;
        let there = head.filter(|head| !self.is_expired(head));
        if there.is_none() {
            value.clear();
        }
        self.ground.count_get(value.len() as u64);
        Ok(there.map(|head| head.expires.map_or(Expiry::Never, Expiry::At)))
    }

    /// Takes keys away that have expired, a group of the index at a time, and gives their room to
    /// others. Answers how many they were. A crash leaves some of them.
    ///
    /// # Errors
    /// Those of [`Kv::delete`].
    pub fn purge_expired(&self) -> Result<u64> {
        self.clear_some(|group| self.expired_slots(group))
    }

    /// Whether a record counts no more.
    #[inline]
    pub(crate) fn is_expired(&self, head: &Head) -> bool {
        head.expires.is_some_and(|at| self.is_past(at))
    }

    /// Whether a moment has come.
    #[inline]
    pub(crate) fn is_past(&self, at: u64) -> bool {
        at <= (self.clock)()
    }

    /// Says, durably, that there may be records that expire: others are not looked at in a count.
    pub(crate) fn may_expire(&self) -> Result<()> {
        self.ground.enter_to_change()?;
        if self.ground.mem().load_cached(self.head + EXPIRING_OFFSET) != 0 {
            return Ok(());
        }
        self.heap.tx(|tx| {
            tx.lock(self.head)?;
            tx.edit_bytes(self.head, EXPIRING_OFFSET, 8)?
                .copy_from_slice(&1u64.to_le_bytes());
            Ok::<_, Error>(())
        })
    }

    /// The slots of a locked group whose records have expired.
    pub(crate) fn expired_slots(&self, group: &Group<'_, I>) -> Result<Slots> {
        let mut expired = Vec::new();
        if self.ground.mem().load_cached(self.head + EXPIRING_OFFSET) == 0 {
            return Ok(expired);
        }
        for (at, slot) in self.seen_slots(group) {
            let Some(head) = record::head_at(self.ground, slot.place()) else {
                continue;
            };
            // A damaged record's moment can't be trusted.
            if self.is_expired(&head)
                && head.instance == slot.instance()
                && record::sound_key(self.ground, slot.place(), head)?.is_some()
            {
                expired.push((at, slot));
            }
        }
        Ok(expired)
    }

    /// For a planted bug, stores the moment behind the fence.
    #[inline]
    pub(crate) fn plant_expiry(
        &self,
        place: Place,
        head: Head,
        key: Key<'_>,
        value: &[u8],
    ) -> Result<()> {
        if head.expires.is_some() && planted!("bug-ttl-not-durable") {
            let seed = self.ground.seed();
            let staged = record::stage(seed, place.offset, head, key.bytes, value);
            record::store(self.ground.mem(), place.offset, &staged)?;
        }
        Ok(())
    }
}
