//! The engines, by the calls that are measured. Each write is one transaction of its engine, and
//! durable by its own means when the call returns. Each value that is read is copied into the same
//! buffer.

use std::path::Path;

use anyhow::Result;
use lmdb::{DatabaseFlags, Environment, Transaction, WriteFlags};
use pmem::{FlushMode, MapOptions, ProtectMode};
use pmkv::Hash;
use pmlib::{Heap, Options};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

/// The bytes of a new heap, and the bound of LMDB's map.
const FIRST_BYTES: u64 = 256 << 20;
const MAP_BYTES: usize = 4 << 30;
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("kv");

/// The engines in the order of a report; the first is ours.
pub const NAMES: [&str; 3] = ["pmkv", "lmdb", "redb"];

/// An engine with a database of its own.
pub trait Store {
    /// A key that is there or not gets a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Whether the key is there; its value is in the buffer then.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Whether the key was there.
    fn delete(&self, key: &[u8]) -> Result<bool>;
}

/// Opens a new database of an engine in a directory, and hands it on.
pub fn with_store<T>(
    name: &str,
    dir: &Path,
    body: impl FnOnce(&dyn Store) -> Result<T>,
) -> Result<T> {
    match name {
        "pmkv" => {
            let options = Options {
                map: MapOptions {
                    flush: FlushMode::Always,
                    protect: ProtectMode::None,
                    ..MapOptions::default()
                },
                ..Options::default()
            };
            let heap = Heap::create(&dir.join("heap"), FIRST_BYTES, &options)?;
            let hash = Hash::open(&heap, "kv")?;
            let done = body(&hash)?;
            drop(hash);
            heap.close()?;
            Ok(done)
        }
        "lmdb" => {
            let env = Environment::new().set_map_size(MAP_BYTES).open(dir)?;
            let db = env.create_db(None, DatabaseFlags::empty())?;
            body(&Lmdb { env, db })
        }
        "redb" => {
            let redb = Database::create(dir.join("redb"))?;
            let tx = redb.begin_write()?;
            // A table that nothing was put in would be an error to a reader.
            tx.open_table(TABLE)?;
            tx.commit()?;
            body(&Redb(redb))
        }
        _ => anyhow::bail!("no engine is called {name}: there are {}", NAMES.join(", ")),
    }
}

impl Store for Hash<'_> {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(Hash::put(self, key, value)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.get_into(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(Hash::delete(self, key)?)
    }
}

struct Lmdb {
    env: Environment,
    db: lmdb::Database,
}

impl Store for Lmdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut tx = self.env.begin_rw_txn()?;
        tx.put(self.db, &key, &value, WriteFlags::empty())?;
        Ok(tx.commit()?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let tx = self.env.begin_ro_txn()?;
        match tx.get(self.db, &key) {
            Ok(found) => {
                value.clear();
                value.extend_from_slice(found);
                Ok(true)
            }
            Err(lmdb::Error::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut tx = self.env.begin_rw_txn()?;
        match tx.del(self.db, &key, None) {
            Ok(()) => {
                tx.commit()?;
                Ok(true)
            }
            Err(lmdb::Error::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

struct Redb(Database);

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut tx = self.0.begin_write()?;
        tx.set_durability(Durability::Immediate)?;
        tx.open_table(TABLE)?.insert(key, value)?;
        Ok(tx.commit()?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let Some(found) = table.get(key)? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(found.value());
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut tx = self.0.begin_write()?;
        tx.set_durability(Durability::Immediate)?;
        let was_there = tx.open_table(TABLE)?.remove(key)?.is_some();
        tx.commit()?;
        Ok(was_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is measured is what was asked for. Method: the same calls on each engine.
    #[test]
    fn each_engine_does_its_calls() {
        for name in NAMES {
            let dir = tempfile::tempdir().unwrap();
            let mut value = Vec::new();
            with_store(name, dir.path(), |store| {
                assert!(!store.get(b"a", &mut value)?, "{name}");
                store.put(b"a", b"one")?;
                store.put(b"a", b"two")?;
                assert!(store.get(b"a", &mut value)? && value == b"two", "{name}");
                assert!(store.delete(b"a")? && !store.delete(b"a")?, "{name}");
                assert!(!store.get(b"a", &mut value)?, "{name}");
                Ok(())
            })
            .unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let error = with_store("other", dir.path(), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("redb"));
    }
}
