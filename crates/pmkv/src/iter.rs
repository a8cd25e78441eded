//! Walks over all keys.

use crate::error::{Error, Result};
use crate::kv::Hash;
use crate::record;
use crate::split::Position;

/// A walk over keys and values, which shows them where it has read them as well.
pub trait Walking: Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> {
    /// The next key with its value, lent until the next call.
    fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>>;
}

/// The keys of an engine and their values ([`Hash::iter`]).
pub struct Entries<'a, 'h> {
    hash: &'a Hash<'h>,
    position: Position,
    /// Keys of the group that was read last, which are to come, and its damaged records.
    keys: Vec<Result<Vec<u8>>>,
    is_over: bool,
}

impl<'a, 'h> Entries<'a, 'h> {
    pub(crate) fn of(hash: &'a Hash<'h>) -> Entries<'a, 'h> {
        hash.ground.count_walk();
        Entries {
            hash,
            position: Position::default(),
            keys: Vec::new(),
            is_over: false,
        }
    }

    /// The keys of the next group; `false`: there is none.
    fn read_group(&mut self) -> Result<bool> {
        let hash = self.hash;
        hash.ground.enter_to_change()?;
        let _window = hash.ground.mem().window();
        let Some(group) = hash.next_group(&mut self.position)? else {
            return Ok(false);
        };
        for (_, slot) in hash.seen_slots(&group) {
            let place = slot.place();
            let head = record::head_at(hash.ground, place);
            let key = head.map(|head| record::key_of(hash.ground, place, head));
            self.keys.push(match key {
                // A key of another hash would not be found, and be taken for one that is gone.
                Some(Ok(key)) if !hash.belongs(&key, &group.located, slot) => corrupt(place),
                Some(key) => key,
                None => corrupt(place),
            });
        }
        Ok(true)
    }

    fn step(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(key) = self.keys.pop() else {
                if !self.read_group()? {
                    return Ok(None);
                }
                continue;
            };
            let key = key?;
            // A key that is gone by now does not come.
            let mut value = Vec::new();
            if self.hash.read_into(&key, &mut value)? {
                self.hash.ground.count_shown(value.len() as u64);
                return Ok(Some((key, value)));
            }
        }
    }
}

/// A damaged record, behind which other keys come.
fn corrupt<T>(offset: u64) -> Result<T> {
    Err(Error::Corrupt { offset })
}

impl Iterator for Entries<'_, '_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step();
        // Behind a damaged record others come; after any other error nothing would be new.
        self.is_over = !matches!(step, Ok(Some(_)) | Err(Error::Corrupt { .. }));
        step.transpose()
    }
}
