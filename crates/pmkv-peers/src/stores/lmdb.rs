//! LMDB, with its defaults: pages are written by system calls, and synced at each commit.

use anyhow::Result;
use lmdb::{Cursor, DatabaseFlags, Environment, Transaction, WriteFlags};

use super::{Place, Store};

/// The bound of its map.
const MAP_BYTES: usize = 64 << 30;

pub struct Lmdb {
    env: Environment,
    db: lmdb::Database,
}

pub fn open(place: &Place<'_>) -> Result<Lmdb> {
    let env = Environment::new().set_map_size(MAP_BYTES).open(place.dir)?;
    let db = env.create_db(None, DatabaseFlags::empty())?;
    Ok(Lmdb { env, db })
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

    fn delete(&self, key: &[u8]) -> Result<Option<bool>> {
        let mut tx = self.env.begin_rw_txn()?;
        match tx.del(self.db, &key, None) {
            Ok(()) => {
                tx.commit()?;
                Ok(Some(true))
            }
            Err(lmdb::Error::NotFound) => Ok(Some(false)),
            Err(error) => Err(error.into()),
        }
    }

    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        let tx = self.env.begin_ro_txn()?;
        let mut cursor = tx.open_ro_cursor(self.db)?;
        let mut seen = 0;
        for entry in cursor.iter_from(from).take(count) {
            let (_, found) = entry?;
            value.clear();
            value.extend_from_slice(found);
            seen += 1;
        }
        Ok(Some(seen))
    }
}
