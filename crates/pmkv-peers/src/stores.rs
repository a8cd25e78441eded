//! The engines, by the calls that are measured. Each write is one transaction of its engine, and
//! durable by its own means when the call returns, unless the engine is volatile. Each value that
//! is read is copied into the same buffer.

mod foreign;
mod lmdb;
mod ours;
mod redb;

use std::path::Path;

use anyhow::Result;
use pmkv::Kind;

/// An engine is not here, and why.
#[derive(Debug)]
pub struct Missing(pub String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// An engine that may be measured.
#[derive(Debug)]
pub struct Engine {
    pub name: &'static str,
    /// It keeps what was put.
    is_durable: bool,
    maker: Maker,
}

#[derive(Debug)]
enum Maker {
    Ours(Kind),
    Lmdb,
    Redb,
    RocksDb,
    Pmemkv(&'static str),
}

const fn durable(name: &'static str, maker: Maker) -> Engine {
    Engine {
        name,
        is_durable: true,
        maker,
    }
}

const fn volatile(name: &'static str, maker: Maker) -> Engine {
    Engine {
        name,
        is_durable: false,
        maker,
    }
}

/// The engines in the order of a report; ours first.
pub const ENGINES: [Engine; 13] = [
    durable("pmkv-hash", Maker::Ours(Kind::Hash)),
    durable("pmkv-tree", Maker::Ours(Kind::Tree)),
    durable("lmdb", Maker::Lmdb),
    durable("redb", Maker::Redb),
    durable("rocksdb", Maker::RocksDb),
    durable("pmemkv-cmap", Maker::Pmemkv("cmap")),
    durable("pmemkv-radix", Maker::Pmemkv("radix")),
    durable("pmemkv-tree3", Maker::Pmemkv("tree3")),
    durable("pmemkv-stree", Maker::Pmemkv("stree")),
    volatile("pmkv-vhash", Maker::Ours(Kind::Hash)),
    volatile("pmkv-vtree", Maker::Ours(Kind::Tree)),
    volatile("pmemkv-vcmap", Maker::Pmemkv("vcmap")),
    volatile("pmemkv-vsmap", Maker::Pmemkv("vsmap")),
];

impl Engine {
    /// The hash and the tree of ours that promise as much.
    pub fn ours(&self) -> [&'static str; 2] {
        match self.is_durable {
            true => ["pmkv-hash", "pmkv-tree"],
            false => ["pmkv-vhash", "pmkv-vtree"],
        }
    }
}

/// The place of a database, and the bytes that it is to hold.
pub struct Place<'d> {
    /// An empty directory.
    pub dir: &'d Path,
    /// The bytes of all keys and values.
    pub data_bytes: u64,
}

/// An engine with a database of its own.
pub trait Store {
    /// A key that is there or not gets a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Whether the key is there; its value is in the buffer then.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Takes a key away; whether it was there. `None`: the engine does not say.
    fn delete(&self, key: &[u8]) -> Result<Option<bool>>;
    /// Copies the values of so many keys, from one on and in their order; how many there were.
    /// `None`: the engine has no order.
    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>>;
}

/// Opens a new database of an engine, and hands it on.
///
/// # Errors
/// [`Missing`]: the engine is not here.
pub fn with_store<T>(
    engine: &Engine,
    place: &Place<'_>,
    body: impl FnOnce(&dyn Store) -> Result<T>,
) -> Result<T> {
    match engine.maker {
        Maker::Ours(kind) if engine.is_durable => ours::durable(kind, place, body),
        Maker::Ours(kind) => body(&ours::volatile(kind, place)?),
        Maker::Lmdb => body(&lmdb::open(place)?),
        Maker::Redb => body(&redb::open(place)?),
        Maker::RocksDb => body(&foreign::rocksdb(place)?),
        Maker::Pmemkv(name) => body(&foreign::pmemkv(name, engine.is_durable, place)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is measured is what was asked for. Method: the same calls on each engine that is
    /// here.
    #[test]
    fn each_engine_does_its_calls() {
        for engine in &ENGINES {
            let dir = tempfile::tempdir().unwrap();
            let mut value = Vec::new();
            let place = Place {
                dir: dir.path(),
                data_bytes: 1000,
            };
            let name = engine.name;
            let done = with_store(engine, &place, |store| {
                assert!(!store.get(b"a", &mut value)?, "{name}");
                store.put(b"a", b"one")?;
                store.put(b"a", b"two")?;
                store.put(b"b", b"three")?;
                store.put(b"c", b"four")?;
                assert!(store.get(b"a", &mut value)? && value == b"two", "{name}");
                assert_ne!(store.delete(b"a")?, Some(false), "{name}");
                assert_ne!(store.delete(b"a")?, Some(true), "{name}");
                assert!(!store.get(b"a", &mut value)?, "{name}");
                if let Some(seen) = store.scan(b"a", 1, &mut value)? {
                    assert!(seen == 1 && value == b"three", "{name}");
                    assert_eq!(store.scan(b"a", 9, &mut value)?, Some(2), "{name}");
                    assert_eq!(value, b"four", "{name}");
                }
                Ok(())
            });
            match done {
                Err(why) if why.is::<Missing>() => eprintln!("not here: {name}: {why}"),
                done => done.unwrap(),
            }
        }
    }
}
