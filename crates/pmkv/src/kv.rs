//! The calls of engines of all kinds.

use std::cell::Cell;

use pmlib::Heap;
use pmlib::ground::{Count, Ground};
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{INDEX_MAGIC, JOURNAL_MAGIC, STATE_DELETE, STATE_LIVE, STATE_PUT};

use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::expiry::Clock;
use crate::group::{Found, Group, Located};
use crate::index::ByHash;
use crate::iter::Entries;
use crate::key::Key;
use crate::places::{Place, Pools};
use crate::record::{self, Head, KeyAlone};
use crate::scrub::Slots;
use crate::slot::Slot;
use crate::version::Version;

/// A thread keeps its buffer for old values up to so many bytes.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// The buffer for old values, while no call has it.
    static OLD_VALUE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Has a call use this thread's buffer for an old value.
fn with_old_value<T>(body: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut value = OLD_VALUE.try_with(Cell::take).unwrap_or_default();
    let done = body(&mut value);
    if value.capacity() <= KEPT_BYTES {
        // A thread that ends keeps none.
        let _ = OLD_VALUE.try_with(|kept| kept.set(value));
    }
    done
}

/// An engine of a heap, with keys as its index has them ([`Hash`]).
pub struct Kv<'h, I: Index> {
    pub(crate) heap: &'h Heap,
    pub(crate) ground: Ground<'h>,
    /// Its head's offset.
    pub(crate) head: u64,
    pub(crate) cut: I::Cut,
    pub(crate) pools: Pools,
    pub(crate) clock: Clock,
    /// Knowledge of the index that this process keeps.
    pub(crate) state: I::State,
}

/// A hash engine of a heap: keys in no order.
///
/// ```
/// # use pmlib::{Heap, Options};
/// let heap = Heap::private(4 << 20, &Options::default())?;
/// let users = pmkv::Hash::open(&heap, "users")?;
/// users.put(b"ada", b"1815")?;
/// assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok::<_, pmkv::Error>(())
/// ```
pub type Hash<'h> = Kv<'h, ByHash>;

/// The state of a key on which a put depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect<'a> {
    /// It is not there.
    Missing,
    /// It is there, with any value.
    Present,
    /// It has this value.
    Value(&'a [u8]),
}

/// How full an engine is, by a look at all of its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys.
    pub keys: u64,
    /// Index chunks, of 64 KiB.
    pub index_chunks: u64,
    /// Slots that index chunks have.
    pub slots: u64,
    /// Runs of chunks that records are in.
    pub record_runs: u64,
    /// Bytes of these.
    pub record_bytes: u64,
}

impl<'h> Hash<'h> {
    /// All keys with their values, in no order. Each value is read when its key is come to. A key
    /// that is there throughout comes once, and none comes twice. A damaged record comes as
    /// `Corrupt`, and the others behind it.
    pub fn iter(&self) -> Entries<'_, 'h> {
        Entries::of(self)
    }
}

impl<'h, I: Index> Kv<'h, I> {
    pub(crate) fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key::of(bytes, self.ground.seed())
    }

    /// The value of a key; `None`: it is not there.
    ///
    /// # Errors
    /// `Corrupt`: its record is damaged; `Damaged`; `Heap`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Like [`Kv::get`], into a buffer that the caller keeps; whether the key is there.
    ///
    /// # Errors
    /// Those of [`Kv::get`].
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let is_there = self.read_into(key, value)?;
        self.ground.count_get(value.len() as u64);
        Ok(is_there)
    }

    /// Like [`Kv::get_into`], uncounted.
    #[inline(always)]
    pub(crate) fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.ground.enter()?;
        let head = self.read(self.key(key), value)?;
        let is_there = head.is_some_and(|head| !self.is_expired(&head));
        if !is_there {
            value.clear();
        }
        Ok(is_there)
    }

    /// Has a key have this value. It is durable when this returns.
    ///
    /// # Errors
    /// `TooLarge`; `Corrupt`: the key has a record whose head or key is damaged; `Crowded`,
    /// `Damaged`; `Heap`: there is no room, or this thread has a transaction of the heap.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_when(key, value, None, None).map(drop)
    }

    /// Like [`Kv::put`], if the key is as expected; whether it was.
    ///
    /// # Errors
    /// Those of [`Kv::put`]; `Corrupt`: a value is expected, and the key's is damaged.
    pub fn put_if(&self, key: &[u8], expected: Expect<'_>, value: &[u8]) -> Result<bool> {
        self.put_when(key, value, None, Some(expected))
    }

    pub(crate) fn put_when(
        &self,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
        expected: Option<Expect<'_>>,
    ) -> Result<bool> {
        let bytes = record::taken(key, value)? + record::expiry_bytes(expires);
        self.ground.enter_to_change()?;
        let mem = self.ground.mem();
        let _window = mem.window();
        let key = self.key(key);
        let mut first = self.prefetch(key);
        let mut place = None;
        loop {
            let group = I::lock_from(self, key, first.take());
            let done = group.and_then(|group| {
                let put = (key, value, expires);
                self.try_put(&group, put, (&mut place, bytes), expected)
            });
            let more = match done {
                Ok(Tried::Done(dropped)) => {
                    let bytes_put = value.len() as u64;
                    self.ground
                        .count(|| [(Count::Puts, 1), (Count::PutBytes, bytes_put)]);
                    if let Some(offset) = dropped {
                        self.drop_later(offset)?;
                    }
                    self.search_if_due(bytes);
                    return Ok(true);
                }
                Ok(Tried::NoPlace) => self.take(bytes).map(|taken| place = Some(taken)),
                Ok(Tried::Full(full)) => I::split(self, key, &full),
                Ok(Tried::Not) => {
                    self.ground.count(|| [(Count::Gets, 1)]);
                    self.undo(place)?;
                    return Ok(false);
                }
                // After a medium's failure a slot may name its place.
                Err(error) => match self.alive() {
                    Ok(()) => Err(error),
                    Err(_) => return Err(error),
                },
            };
            if let Err(error) = more {
                self.undo(place)?;
                return Err(error);
            }
        }
    }

    /// A place that no slot names is free again.
    pub(crate) fn undo(&self, place: Option<Place>) -> Result<()> {
        if let Some(place) = place
            && self.give_back(place)
        {
            self.drop_alone(place.offset)?;
        }
        Ok(())
    }

    /// Asks for the lines in which a key may be; answers where they are.
    fn prefetch(&self, key: Key<'_>) -> Option<Located<I::Way>> {
        let located = I::locate(self, key).ok()??;
        for line in self.cut.own_lines(key.hash) {
            self.ground.mem().prefetch_if_there(located.line(line));
        }
        Some(located)
    }

    fn try_put(
        &self,
        group: &Group<'_, I>,
        (key, value, expires): (Key<'_>, &[u8], Option<u64>),
        (place, bytes): (&mut Option<Place>, u64),
        expected: Option<Expect<'_>>,
    ) -> Result<Tried<I::Way>> {
        let (old, is_right) = self.find_expected(group, key, expected)?;
        if !is_right {
            return Ok(Tried::Not);
        }
        let Some((line, at)) = self.free_slot(group, key, old.as_ref()) else {
            return Ok(Tried::Full(group.located));
        };
        if place.is_none() {
            *place = self.take_near(bytes);
        }
        let Some(place) = *place else {
            return Ok(Tried::NoPlace);
        };
        let moved =
            old.is_some_and(|old| old.line != line) && !planted!("bug-next-version-in-other-line");
        let version = old.map_or(Version::FIRST, |old| {
            let is_named = !moved && !planted!("bug-older-version-unnamed");
            old.head.version.next(is_named.then_some(old.slot))
        });
        let head = Head {
            expires,
            ..Head::new(version, place.instance, key.bytes, value)
        };
        let first = match expires.is_some() && planted!("bug-ttl-not-durable") {
            true => Head {
                expires: Some(u64::MAX),
                ..head
            },
            false => head,
        };
        let staged = record::stage(self.ground.seed(), place.offset, first, key.bytes, value);
        let slot = Slot::new(place.offset, place.instance, key.hash.in_slot());
        self.publish(group, place, &staged, (at, slot), old.as_ref(), moved)?;
        self.plant_expiry(place, head, key, value)?;
        let dropped = old.filter(|old| self.free(old.slot));
        Ok(Tried::Done(dropped.map(|old| old.slot.place())))
    }

    /// A key's slot in a locked group, and whether the key is as expected. Its value is read only
    /// if one is expected.
    #[inline]
    fn find_expected(
        &self,
        group: &Group<'_, I>,
        key: Key<'_>,
        expected: Option<Expect<'_>>,
    ) -> Result<(Option<Found>, bool)> {
        let is_there = |old: &Option<Found>| {
            let there = old.as_ref();
            there.is_some_and(|old| !self.is_expired(&old.head))
        };
        if let Some(Expect::Value(bytes)) = expected {
            return with_old_value(|value| {
                let old = self.find(group, key, value)?;
                Ok((old, is_there(&old) && value == bytes))
            });
        }
        let old = self.find(group, key, &mut KeyAlone)?;
        let is_right = match expected {
            Some(Expect::Missing) => !is_there(&old),
            Some(_) => is_there(&old),
            None => true,
        };
        Ok((old, is_right))
    }

    /// Stores a record and its slot, and has readers see it once it is durable.
    fn publish(
        &self,
        group: &Group<'_, I>,
        place: Place,
        staged: &pmem::Stage,
        (at, slot): (u64, Slot),
        old: Option<&Found>,
        moved: bool,
    ) -> Result<()> {
        let (mem, located) = (self.ground.mem(), &group.located);
        if !planted!("bug-record-unfenced") {
            record::store(mem, place.offset, staged)?;
        }
        self.mark_busy(located, true);
        if let Some(old) = old
            && planted!("bug-old-slot-cleared-before-fence")
        {
            mem.store(old.at, 0);
            mem.flush(old.at, 8);
        }
        let first = match planted!("bug-state-live-before-fence") {
            true => STATE_LIVE,
            false => STATE_PUT,
        };
        mem.store(at, slot.with_state(first).0);
        if !planted!("bug-slot-unflushed") {
            mem.flush(at, 8);
        }
        if !planted!("bug-put-unfenced") {
            mem.fence();
        }
        if planted!("bug-record-unfenced") {
            record::store(mem, place.offset, staged)?;
        }
        if let Some(old) = old {
            // A reader that comes between finds neither, and looks again.
            self.mark_sequence_at(located.notes + 8, true);
            mem.store(old.at, 0);
            mem.store(at, slot.0);
            self.mark_sequence_at(located.notes + 8, false);
            if moved && !planted!("bug-moved-slot-unflushed") {
                mem.flush(old.at, 8);
                mem.fence();
            }
        } else {
            mem.store(at, slot.0);
        }
        self.mark_busy(located, false);
        self.alive()
    }

    /// Whether the medium has failed: then nobody knows what happened.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.ground.mem().failed() {
            None => Ok(()),
            Some(offset) => Err(Error::Heap(pmlib::Error::Lost { offset })),
        }
    }

    /// Takes a key away; whether it was there. Its value is not read, and may be damaged.
    ///
    /// # Errors
    /// `Corrupt`: its record's head or key is damaged; `Damaged`; `Heap`.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        record::taken(key, &[])?;
        self.ground.enter_to_change()?;
        let _window = self.ground.mem().window();
        let key = self.key(key);
        let group = self.lock(key)?;
        self.ground.count(|| [(Count::Deletes, 1)]);
        let Some(old) = self.find(&group, key, &mut KeyAlone)? else {
            return Ok(false);
        };
        self.clear_slots(&group, &[(old.at, old.slot)])?;
        let is_alone = self.free(old.slot);
        drop(group);
        if is_alone {
            self.drop_later(old.slot.place())?;
        }
        Ok(!self.is_expired(&old.head))
    }

    /// Takes slots of a locked group away.
    pub(crate) fn clear_slots(&self, group: &Group<'_, I>, slots: &[(u64, Slot)]) -> Result<()> {
        let (mem, located) = (self.ground.mem(), &group.located);
        self.mark_busy(located, true);
        for &(at, slot) in slots {
            if planted!("bug-delete-visible-before-fence") {
                mem.store(at, 0);
            } else {
                mem.store(at, slot.with_state(STATE_DELETE).0);
            }
            if !planted!("bug-delete-unflushed") {
                mem.flush(at, 8);
            }
        }
        mem.fence();
        for &(at, _) in slots {
            mem.store(at, 0);
        }
        self.mark_busy(located, false);
        self.alive()
    }

    /// Takes all keys away that are there when it begins, expired ones too, a group at a time: a
    /// crash, or an error, leaves some of them. Answers how many they were.
    ///
    /// # Errors
    /// Those of [`Kv::delete`].
    pub fn clear(&self) -> Result<u64> {
        self.clear_some(|group| Ok(self.seen_slots(group)))
    }

    /// Takes slots away, a group at a time; answers how many.
    pub(crate) fn clear_some(&self, which: impl Fn(&Group<'h, I>) -> Result<Slots>) -> Result<u64> {
        self.ground.enter_to_change()?;
        let (mut count, mut alone) = (0, Vec::new());
        let window = self.ground.mem().window();
        I::each_group(self, |group| {
            let slots = which(group)?;
            if slots.is_empty() {
                return Ok(());
            }
            self.clear_slots(group, &slots)?;
            count += slots.len() as u64;
            self.ground.count(|| [(Count::Deletes, slots.len() as u64)]);
            for (_, slot) in slots {
                if self.free(slot) {
                    alone.push(slot.place());
                }
            }
            Ok(())
        })?;
        drop(window);
        let _window = self.ground.mem().window();
        for offset in alone {
            self.drop_alone(offset)?;
        }
        Ok(count)
    }

    /// The slots of a locked group that readers see.
    pub(crate) fn seen_slots(&self, group: &Group<'_, I>) -> Slots {
        let mut slots = Vec::new();
        for line in 1..=self.cut.lines() {
            let start = group.located.line(line);
            let words: [u64; 8] = self.ground.mem().read(start);
            let here = words.into_iter().map(Slot).enumerate();
            let seen = here.filter(|(_, slot)| slot.is_seen());
            slots.extend(seen.map(|(nth, slot)| (start + nth as u64 * 8, slot)));
        }
        slots
    }

    /// Whether a key can have this slot of its lines.
    pub(crate) fn belongs(&self, key: &[u8], located: &Located<I::Way>, slot: Slot) -> bool {
        let key = self.key(key);
        key.hash.in_slot() == slot.hash() && I::has(self, located, key)
    }

    /// How many keys there are, by a look at all slots.
    ///
    /// # Errors
    /// `Damaged`; `Heap`.
    pub fn count(&self) -> Result<u64> {
        Ok(self.stats()?.keys)
    }

    /// How full it is, by a look at all slots.
    ///
    /// # Errors
    /// `Damaged`; `Heap`.
    pub fn stats(&self) -> Result<Stats> {
        self.ground.enter_to_change()?;
        let _window = self.ground.mem().window();
        let mut stats = Stats::default();
        I::each_group(self, |group| {
            stats.keys +=
                self.seen_slots(group).len() as u64 - self.expired_slots(group)?.len() as u64;
            stats.slots += self.cut.lines() * 8;
            Ok(())
        })?;
        for (chunk, chunks) in self.ground.runs_of(self.head) {
            match self.ground.mem().load(chunk * CHUNK_BYTES) {
                INDEX_MAGIC => stats.index_chunks += 1,
                JOURNAL_MAGIC => {}
                _ => {
                    stats.record_runs += 1;
                    stats.record_bytes += chunks * CHUNK_BYTES;
                }
            }
        }
        Ok(stats)
    }
}

/// The outcome of an attempt.
enum Tried<W> {
    /// It is done; the place of a record with a run of its own that is nobody's now.
    Done(Option<u64>),
    /// The key is not as expected.
    Not,
    /// A place has to be taken with nothing locked.
    NoPlace,
    /// There is no slot for it in this chunk.
    Full(Located<W>),
}
