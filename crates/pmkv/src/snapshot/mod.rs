//! Snapshots: an engine, or several engines of a heap, as they were at one instant.
//!
//! A snapshot is a copy of all slots of the index (`content`), made while writers wait (`take`),
//! and a session, by which the records stay that the slots name (`crates/pmlib/src/eras.rs`). So
//! writers do nothing for it later but hold freed places back, and nothing of it is on the medium:
//! it ends with its process, however that ends. `docs/adr/0082-snapshots-copy-slots.md` explains
//! it.

mod content;
mod take;
mod walk;

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

pub use content::{ByFences, ByHashes, Copied, Order};
pub use take::Source;
pub use walk::SnapshotEntries;

use crate::engine::Index;
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::key::Key;
use crate::kv::Kv;
use crate::record::{self, Head, Pinned, Seek, Seen};
use crate::session::{Hold, ValueRef};
use crate::slot::Slot;
use crate::store::Store;
use content::Content;

impl<I: Index> Kv<'_, I> {
    /// Takes a snapshot that lasts until it is dropped ([`Kv::snapshot_for`]).
    ///
    /// ```
    /// # use pmlib::{Heap, Options};
    /// # let heap = Heap::private(4 << 20, &Options::default())?;
    /// # let users = pmkv::Hash::open(&heap, "users")?;
    /// users.put(b"ada", b"1815")?;
    /// let before = users.snapshot()?;
    /// users.put(b"ada", b"10 December 1815")?;
    /// users.put(b"alan", b"1912")?;
    /// assert_eq!(before.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert_eq!(before.iter().count(), 1);
    /// # Ok::<_, pmkv::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Kv::snapshot_for`].
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        self.snapshot_for(Duration::MAX)
    }

    /// Takes a snapshot: the engine as it is at one instant, whatever is put and deleted later.
    /// Writers wait while 8 bytes a key are copied; no room is used again that is freed in the
    /// heap from then on. Once it has lasted longer than `limit`, any process that wants room may
    /// end it; `Duration::MAX`: none may.
    ///
    /// # Errors
    /// `Corrupt`: a record by which a tree's leaves are parted is damaged; `Damaged`; `Heap`: it
    /// can't be used, was opened to be read, or this thread has a transaction of it.
    pub fn snapshot_for(&self, limit: Duration) -> Result<Snapshot<'_>> {
        let mut one = take::take(&[self], limit)?;
        one.pop().ok_or(Error::Apart)
    }
}

/// An engine as it was at one instant ([`Kv::snapshot`]). It is this process's, and holds room
/// until it is dropped.
pub struct Snapshot<'a> {
    hold: Hold<'a>,
    content: Content,
    /// The moment, by the engine's clock.
    taken: u64,
}

impl<'a> Snapshot<'a> {
    fn new(hold: Hold<'a>, content: Content, taken: u64) -> Snapshot<'a> {
        Snapshot {
            hold,
            content,
            taken,
        }
    }

    /// Takes a snapshot of each of these engines, all of one instant.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use pmkv::{Hash, Snapshot, Tree};
    /// # use pmlib::{Heap, Options};
    /// # let heap = Heap::private(8 << 20, &Options::default())?;
    /// let users = Hash::open(&heap, "users")?;
    /// let years = Tree::open(&heap, "years")?;
    /// let both = Snapshot::of(&[&users, &years], Duration::MAX)?;
    /// users.put(b"ada", b"1815")?;
    /// assert_eq!(both[0].get(b"ada")?, None);
    /// # Ok::<_, pmkv::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Apart`: two of them are of different heaps, or are the same engine; those of
    /// [`Kv::snapshot_for`].
    pub fn of(engines: &[&'a dyn Store], limit: Duration) -> Result<Vec<Snapshot<'a>>> {
        let sources: Vec<&dyn Source> = engines.iter().map(|engine| engine.source()).collect();
        take::take(&sources, limit)
    }

    fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key::of(bytes, self.hold.ground.seed())
    }

    /// Whether a record had expired by then.
    fn is_expired(&self, head: &Head) -> bool {
        head.expires.is_some_and(|at| at <= self.taken)
    }

    fn find(&self, key: &[u8], value: &mut impl Seek) -> Result<Option<Head>> {
        let found = self.seek(self.key(key), value);
        // A value is of the snapshot only if that is open.
        self.check()?;
        Ok(found?.filter(|head| !self.is_expired(head)))
    }

    fn seek(&self, key: Key<'_>, value: &mut impl Seek) -> Result<Option<Head>> {
        let ground = self.hold.ground;
        ground.enter()?;
        for slot in self.content.slots_of(key) {
            match value.read(ground, slot.place(), slot.instance(), key.bytes)? {
                Seen::Same(head) => return Ok(Some(head)),
                Seen::Other => {}
                Seen::None => {
                    let offset = slot.place();
                    return Err(Error::Corrupt { offset });
                }
            }
        }
        Ok(None)
    }

    /// The value that a key had; `None`: it was not there.
    ///
    /// # Errors
    /// `Corrupt`: its record is damaged; `Ended`: the snapshot has lasted longer than it may, and
    /// was ended; `Heap`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Like [`Snapshot::get`], into a buffer that the caller keeps; whether the key was there.
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.get_expiring(key, value)?.is_some())
    }

    /// Like [`Snapshot::get_into`]; answers when the key expires, or would have.
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn get_expiring(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Expiry>> {
        let found = self.find(key, value)?;
        if found.is_none() {
            value.clear();
        }
        self.hold.ground.count_get(value.len() as u64);
        Ok(found.map(|head| head.expires.map_or(Expiry::Never, Expiry::At)))
    }

    /// The value that a key had, where it is.
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn get_ref(&self, key: &[u8]) -> Result<Option<ValueRef<'_>>> {
        let mut pinned = Pinned::default();
        let found = self.find(key, &mut pinned)?;
        self.hold.ground.count_get(found.map_or(0, |_| pinned.len));
        Ok(found.map(|head| ValueRef::of(&self.hold, pinned, head)))
    }

    /// Reads the value of a slot that is a key's; `None`: it had expired.
    fn read_slot(&self, slot: Slot, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Expiry>> {
        let (ground, offset) = (self.hold.ground, slot.place());
        let seen = value.read(ground, offset, slot.instance(), key);
        self.check()?;
        match seen? {
            Seen::Same(head) if self.is_expired(&head) => Ok(None),
            Seen::Same(head) => Ok(Some(head.expires.map_or(Expiry::Never, Expiry::At))),
            Seen::Other | Seen::None => Err(Error::Corrupt { offset }),
        }
    }

    /// How many keys there were. Where some may have expired by then, all records are read.
    ///
    /// # Errors
    /// `Ended`; `Heap`.
    pub fn count(&self) -> Result<u64> {
        self.check()?;
        let slots = self.content.slots();
        let mut count = slots.len() as u64;
        if !self.content.may_expire {
            return Ok(count);
        }
        for &word in slots {
            if self.was_expired(Slot(word))? {
                count -= 1;
            }
        }
        self.check()?;
        Ok(count)
    }

    /// Whether a slot's record had expired. A damaged record's moment can't be trusted.
    fn was_expired(&self, slot: Slot) -> Result<bool> {
        let (ground, place) = (self.hold.ground, slot.place());
        let Some(head) = record::head_at(ground, place) else {
            return Ok(false);
        };
        let is_expired = self.is_expired(&head) && head.instance == slot.instance();
        Ok(is_expired && record::sound_key(ground, place, head)?.is_some())
    }

    /// All keys with their values; a tree's in the order of their bytes. A damaged record comes as
    /// `Corrupt`, and the others behind it.
    pub fn iter(&self) -> SnapshotEntries<'_> {
        self.range::<&[u8], _>(..)
    }

    /// The keys between two bounds with their values. A hash engine's keys are all looked at.
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, bounds: R) -> SnapshotEntries<'_> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        SnapshotEntries::of(self, owned(bounds.start_bound()), owned(bounds.end_bound()))
    }

    /// Whether its keys are in the order of their bytes.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        self.content.is_sorted()
    }

    /// The moment at which it was taken, by the engine's clock: milliseconds since 1970.
    #[must_use]
    pub fn taken_at(&self) -> u64 {
        self.taken
    }

    /// That it was not ended.
    ///
    /// # Errors
    /// `Ended`: it was; `Heap`: the heap can't be used.
    pub fn check(&self) -> Result<()> {
        match planted!("bug-snapshot-believed-after-its-end") {
            true => Ok(()),
            false => self.hold.check(),
        }
    }
}
