//! redb, with `Durability::Immediate`.

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{Place, Store};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("kv");

pub struct Redb(Database);

pub fn open(place: &Place<'_>) -> Result<Redb> {
    let redb = Database::create(place.dir.join("redb"))?;
    let tx = redb.begin_write()?;
    // A table that nothing was put in would be an error to a reader.
    tx.open_table(TABLE)?;
    tx.commit()?;
    Ok(Redb(redb))
}

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

    fn delete(&self, key: &[u8]) -> Result<Option<bool>> {
        let mut tx = self.0.begin_write()?;
        tx.set_durability(Durability::Immediate)?;
        let was_there = tx.open_table(TABLE)?.remove(key)?.is_some();
        tx.commit()?;
        Ok(Some(was_there))
    }

    fn scan(&self, from: &[u8], count: usize, value: &mut Vec<u8>) -> Result<Option<usize>> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut seen = 0;
        for entry in table.range(from..)?.take(count) {
            let (_, found) = entry?;
            value.clear();
            value.extend_from_slice(found.value());
            seen += 1;
        }
        Ok(Some(seen))
    }
}
