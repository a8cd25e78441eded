//! Engines of any kind as one type, for callers that learn the kind from the heap.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use pmlib::Heap;

use crate::batch::Change;
use crate::error::Result;
use crate::expiry::Expiry;
use crate::iter::{Entries as HashEntries, Walking};
use crate::kv::{Expect, Hash, Stats};
use crate::opening::Kind;
use crate::scrub::{OnDamage, Scrubbed};
use crate::session::Reader;
use crate::snapshot::{Snapshot, Source};
use crate::tree::Tree;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A walk over keys with their values.
pub type Entries<'s> = Box<dyn Walking + Send + 's>;

/// A look at the checks of all records, a part at a time.
pub type Scrubs<'s> = Box<dyn Iterator<Item = Result<Scrubbed>> + 's>;

/// An engine of any kind: the calls of [`Hash`] and [`Tree`], which say more.
pub trait Store: Send + Sync {
    /// Its kind.
    fn kind(&self) -> Kind;
    /// The value of a key; `None`: it is not there.
    ///
    /// # Errors
    /// Those of [`crate::Kv::get`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The value of a key, into a buffer; whether the key is there.
    ///
    /// # Errors
    /// Those of [`crate::Kv::get_into`].
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Has a key have this value.
    ///
    /// # Errors
    /// Those of [`crate::Kv::put`].
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// The same for so long.
    ///
    /// # Errors
    /// Those of [`crate::Kv::put_ttl`].
    fn put_ttl(&self, key: &[u8], value: &[u8], ttl: Duration) -> Result<()>;
    /// The same, if the key is as expected; whether it was.
    ///
    /// # Errors
    /// Those of [`crate::Kv::put`].
    fn put_if(&self, key: &[u8], expected: Expect<'_>, value: &[u8]) -> Result<bool>;
    /// Takes a key away; whether it was there.
    ///
    /// # Errors
    /// Those of [`crate::Kv::delete`].
    fn delete(&self, key: &[u8]) -> Result<bool>;
    /// When a key expires; `None`: it is not there.
    ///
    /// # Errors
    /// Those of [`crate::Kv::expiry`].
    fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>>;
    /// Does several changes, wholly or not at all.
    ///
    /// # Errors
    /// Those of [`crate::Kv::batch`].
    fn batch(&self, changes: &[Change<'_>]) -> Result<()>;
    /// Takes all keys away, each by itself; how many they were.
    ///
    /// # Errors
    /// Those of [`crate::Kv::clear`].
    fn clear(&self) -> Result<u64>;
    /// How full it is.
    ///
    /// # Errors
    /// Those of [`crate::Kv::stats`].
    fn stats(&self) -> Result<Stats>;
    /// The value of a key, into a buffer, and when it expires; `None`: the key is not there.
    ///
    /// # Errors
    /// Those of [`crate::Kv::get_expiring`].
    fn get_expiring(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Expiry>>;
    /// Has a key have this value, also over a damaged record.
    ///
    /// # Errors
    /// Those of [`crate::Kv::overwrite`].
    fn overwrite(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Takes a key away whose record is damaged; whether one was.
    ///
    /// # Errors
    /// Those of [`crate::Kv::drop_damaged`].
    fn drop_damaged(&self, key: &[u8]) -> Result<bool>;
    /// Verifies the check of each record, a part at a time.
    fn scrub(&self, on_damage: OnDamage) -> Scrubs<'_>;
    /// Takes keys away that have expired; how many.
    ///
    /// # Errors
    /// Those of [`crate::Kv::purge_expired`].
    fn purge_expired(&self) -> Result<u64>;
    /// Gives chunks that nothing is in back to the heap; how many bytes.
    ///
    /// # Errors
    /// Those of [`crate::Kv::compact`].
    fn compact(&self) -> Result<u64>;
    /// Begins a session, in which values are got without a copy.
    ///
    /// # Errors
    /// Those of [`crate::Kv::reader_for`].
    fn reader(&self, limit: Duration) -> Result<Reader<'_>>;
    /// Takes a snapshot, which may be ended after so long.
    ///
    /// # Errors
    /// Those of [`crate::Kv::snapshot_for`].
    fn snapshot(&self, limit: Duration) -> Result<Snapshot<'_>>;
    /// The engine, to one who takes a snapshot of several.
    #[doc(hidden)]
    fn source(&self) -> &dyn Source;
    /// All keys with their values; in the order of their bytes, if it is a tree.
    fn entries(&self) -> Entries<'_>;
    /// The keys between two bounds with their values. A hash looks at all keys for it.
    fn between(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Entries<'_>;
    /// The greatest key between two bounds, with its value. A hash looks at all keys for it.
    ///
    /// # Errors
    /// Those of [`crate::Kv::get`].
    fn last(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<Option<Entry>>;
}

impl Kind {
    /// The engine of this kind and name; made, if it is missing.
    ///
    /// # Errors
    /// Those of [`crate::Kv::open`].
    pub fn open<'h>(self, heap: &'h Heap, name: &str) -> Result<Box<dyn Store + 'h>> {
        Ok(match self {
            Kind::Hash => Box::new(Hash::open(heap, name)?),
            Kind::Tree => Box::new(Tree::open(heap, name)?),
        })
    }
}

macro_rules! store {
    ($engine:ident, $kind:ident, $between:expr, $last:expr) => {
        impl Store for $engine<'_> {
            fn kind(&self) -> Kind {
                Kind::$kind
            }
            fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
                $engine::get(self, key)
            }
            fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
                $engine::get_into(self, key, value)
            }
            fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
                $engine::put(self, key, value)
            }
            fn put_ttl(&self, key: &[u8], value: &[u8], ttl: Duration) -> Result<()> {
                $engine::put_ttl(self, key, value, ttl)
            }
            fn put_if(&self, key: &[u8], expected: Expect<'_>, value: &[u8]) -> Result<bool> {
                $engine::put_if(self, key, expected, value)
            }
            fn delete(&self, key: &[u8]) -> Result<bool> {
                $engine::delete(self, key)
            }
            fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>> {
                $engine::expiry(self, key)
            }
            fn last(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<Option<Entry>> {
                $last(self, (start, end))
            }
            fn clear(&self) -> Result<u64> {
                $engine::clear(self)
            }
            fn stats(&self) -> Result<Stats> {
                $engine::stats(self)
            }
            fn get_expiring(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Expiry>> {
                $engine::get_expiring(self, key, value)
            }
            fn batch(&self, changes: &[Change<'_>]) -> Result<()> {
                $engine::batch(self, changes)
            }
            fn overwrite(&self, key: &[u8], value: &[u8]) -> Result<()> {
                $engine::overwrite(self, key, value)
            }
            fn drop_damaged(&self, key: &[u8]) -> Result<bool> {
                $engine::drop_damaged(self, key)
            }
            fn scrub(&self, on_damage: OnDamage) -> Scrubs<'_> {
                Box::new($engine::scrub(self, on_damage))
            }
            fn purge_expired(&self) -> Result<u64> {
                $engine::purge_expired(self)
            }
            fn compact(&self) -> Result<u64> {
                $engine::compact(self)
            }
            fn reader(&self, limit: Duration) -> Result<Reader<'_>> {
                $engine::reader_for(self, limit)
            }
            fn snapshot(&self, limit: Duration) -> Result<Snapshot<'_>> {
                $engine::snapshot_for(self, limit)
            }
            fn source(&self) -> &dyn Source {
                self
            }
            fn entries(&self) -> Entries<'_> {
                self.between(Bound::Unbounded, Bound::Unbounded)
            }
            fn between(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Entries<'_> {
                $between(self, (start, end))
            }
        }
    };
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys of a hash between two bounds.
struct Filtered<'s, 'h> {
    entries: HashEntries<'s, 'h>,
    bounds: Bounds,
    /// The entry that is lent.
    lent: Entry,
}

impl Iterator for Filtered<'_, '_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let bounds = &self.bounds;
        // A damaged record comes as well: its key is not known.
        self.entries.find(|entry| match entry {
            Ok((key, _)) => RangeBounds::<Vec<u8>>::contains(bounds, key),
            Err(_) => true,
        })
    }
}

impl Walking for Filtered<'_, '_> {
    fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        match self.next()? {
            Ok(entry) => self.lent = entry,
            Err(error) => return Some(Err(error)),
        }
        Some(Ok((&self.lent.0, &self.lent.1)))
    }
}

fn filtered<'s>(hash: &'s Hash<'_>, bounds: Bounds) -> Entries<'s> {
    Box::new(Filtered {
        entries: hash.iter(),
        bounds,
        lent: Entry::default(),
    })
}

fn ranged<'s>(tree: &'s Tree<'_>, bounds: Bounds) -> Entries<'s> {
    Box::new(tree.range::<Vec<u8>, _>(bounds))
}

fn greatest(hash: &Hash<'_>, bounds: Bounds) -> Result<Option<Entry>> {
    let mut last: Option<Entry> = None;
    for entry in filtered(hash, bounds) {
        let entry = entry?;
        if last.as_ref().is_none_or(|last| last.0 < entry.0) {
            last = Some(entry);
        }
    }
    Ok(last)
}

fn last_of(tree: &Tree<'_>, bounds: Bounds) -> Result<Option<Entry>> {
    tree.range::<Vec<u8>, _>(bounds).next_back().transpose()
}

store!(Hash, Hash, filtered, greatest);
store!(Tree, Tree, ranged, last_of);
