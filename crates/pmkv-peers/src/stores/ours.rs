//! pmkv: hash and tree, in a file that grows and in memory.

use std::ops::Bound;

use anyhow::Result;
use pmem::{FlushMode, MapOptions, ProtectMode};
use pmkv::{Kind, Owned};
use pmlib::{Heap, Options};

use super::{Place, Store};

/// The bytes of a new heap.
const FIRST_BYTES: u64 = 256 << 20;
const NAME: &str = "kv";

/// Flushes each line, as on persistent memory, and keeps no stray stores away.
pub fn durable<T>(
    kind: Kind,
    place: &Place<'_>,
    body: impl FnOnce(&dyn Store) -> Result<T>,
) -> Result<T> {
    let options = Options {
        map: MapOptions {
            flush: FlushMode::Always,
            protect: ProtectMode::None,
            ..MapOptions::default()
        },
        ..Options::default()
    };
    let heap = Heap::create(&place.dir.join("heap"), FIRST_BYTES, &options)?;
    let done = body(&Ours(&*kind.open(&heap, NAME)?))?;
    heap.close()?;
    Ok(done)
}

/// Keeps nothing; its memory may grow to several times what it is to hold.
pub fn volatile(kind: Kind, place: &Place<'_>) -> Result<Volatile> {
    let bytes_max = (4 * place.data_bytes + (1 << 30)).next_multiple_of(1 << 21);
    Ok(Volatile(Owned::volatile(kind, 4 << 20, bytes_max)?))
}

struct Ours<'s>(&'s (dyn pmkv::Store + 's));

/// An engine in memory.
pub struct Volatile(Owned);

impl Store for Ours<'_> {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.0.get_into(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<Option<bool>> {
        Ok(Some(self.0.delete(key)?))
    }

    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        if self.0.kind() == Kind::Hash {
            return Ok(None);
        }
        let from = Bound::Included(from.to_vec());
        let mut seen = 0;
        let mut entries = self.0.between(from, Bound::Unbounded);
        while seen < count
            && let Some(entry) = entries.next_ref()
        {
            let (_, found) = entry?;
            value.clear();
            value.extend_from_slice(found);
            seen += 1;
        }
        Ok(Some(seen))
    }
}

impl Store for Volatile {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ours(self.0.store()).put(key, value)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ours(self.0.store()).get(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<Option<bool>> {
        Ours(self.0.store()).delete(key)
    }

    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        Ours(self.0.store()).scan(from, count, value)
    }
}
