//! Engines of any kind as one type, for callers that learn the kind from the heap.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use pmlib::Heap;

use crate::error::Result;
use crate::kv::{Expect, Hash, Stats};
use crate::opening::Kind;
use crate::tree::Tree;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A walk over keys with their values.
pub type Entries<'s> = Box<dyn Iterator<Item = Result<Entry>> + 's>;

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
    /// All keys with their values; in the order of their bytes, if it is a tree.
    fn entries(&self) -> Entries<'_>;
    /// The keys between two bounds with their values. A hash looks at all keys for it.
    fn between<'s>(&'s self, start: Bound<&'s [u8]>, end: Bound<&'s [u8]>) -> Entries<'s>;
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
    ($engine:ident, $kind:ident, $between:expr) => {
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
            fn clear(&self) -> Result<u64> {
                $engine::clear(self)
            }
            fn stats(&self) -> Result<Stats> {
                $engine::stats(self)
            }
            fn entries(&self) -> Entries<'_> {
                Box::new($engine::iter(self))
            }
            fn between<'s>(&'s self, start: Bound<&'s [u8]>, end: Bound<&'s [u8]>) -> Entries<'s> {
                $between(self, (start, end))
            }
        }
    };
}

type Bounds<'s> = (Bound<&'s [u8]>, Bound<&'s [u8]>);

fn filtered<'s>(hash: &'s Hash<'_>, bounds: Bounds<'s>) -> Entries<'s> {
    // A damaged record comes as well: its key is not known.
    let is_within = move |entry: &Result<Entry>| match entry {
        Ok((key, _)) => RangeBounds::<[u8]>::contains(&bounds, &key[..]),
        Err(_) => true,
    };
    Box::new(hash.iter().filter(is_within))
}

fn ranged<'s>(tree: &'s Tree<'_>, bounds: Bounds<'s>) -> Entries<'s> {
    Box::new(tree.range::<&[u8], _>(bounds))
}

store!(Hash, Hash, filtered);
store!(Tree, Tree, ranged);
