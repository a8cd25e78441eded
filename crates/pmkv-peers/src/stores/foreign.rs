//! RocksDB and pmemkv, by libraries that are found when the program runs.

use std::path::Path;

use anyhow::Result;
use pmkv_peers_sys::Error;
use pmkv_peers_sys::pmemkv::Pmemkv;
use pmkv_peers_sys::rocksdb::RocksDb;

use super::{Missing, Place, Store};

/// The variable that names a directory with the original libpmemkv.so.
const LIBRARIES: &str = "PMKV_PEERS";

fn told<T>(made: pmkv_peers_sys::Result<T>) -> Result<T> {
    made.map_err(|error| match error {
        Error::Missing(why) => Missing(why).into(),
        failed @ Error::Failed(_) => failed.into(),
    })
}

pub fn rocksdb(place: &Place<'_>) -> Result<RocksDb> {
    told(RocksDb::open(place.dir))
}

/// A pool has all its room from the beginning: values of 256 KiB take twice their bytes, and small
/// ones hundreds more.
pub fn pmemkv(engine: &str, is_durable: bool, place: &Place<'_>) -> Result<Pmemkv> {
    let Some(libraries) = std::env::var_os(LIBRARIES) else {
        let why = format!("{LIBRARIES} names no directory with pmemkv's own libpmemkv.so");
        return Err(Missing(why).into());
    };
    let path = match is_durable {
        true => place.dir.join("pool"),
        false => place.dir.to_path_buf(),
    };
    let bytes = (place.data_bytes / 16 * 48 + (256 << 20)).next_multiple_of(1 << 21);
    told(Pmemkv::create(Path::new(&libraries), engine, &path, bytes))
}

impl Store for RocksDb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(RocksDb::put(self, key, value)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(RocksDb::get(self, key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<Option<bool>> {
        RocksDb::delete(self, key)?;
        Ok(None)
    }

    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        Ok(Some(RocksDb::scan(self, from, count, value)?))
    }
}

impl Store for Pmemkv {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(Pmemkv::put(self, key, value)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(Pmemkv::get(self, key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<Option<bool>> {
        Ok(Some(Pmemkv::delete(self, key)?))
    }

    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        Ok(Pmemkv::scan(self, from, count, value)?)
    }
}
