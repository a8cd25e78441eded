//! Walks over all keys.

use crate::error::Result;
use crate::hash::Hash;
use crate::record;
use crate::split::Position;

/// The keys of an engine and their values ([`Hash::iter`]).
pub struct Entries<'a, 'h> {
    hash: &'a Hash<'h>,
    position: Position,
    /// Keys of the group that was read last, which are to come.
    keys: Vec<Vec<u8>>,
    is_over: bool,
}

impl<'a, 'h> Entries<'a, 'h> {
    pub(crate) fn of(hash: &'a Hash<'h>) -> Entries<'a, 'h> {
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
            let Some(head) = record::head_at(hash.ground, place) else {
                return Err(crate::Error::Corrupt { offset: place });
            };
            self.keys.push(record::key_of(hash.ground, place, head)?);
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
            // A key that is gone by now does not come.
            if let Some(value) = self.hash.get(&key)? {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl Iterator for Entries<'_, '_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step();
        self.is_over = matches!(step, Ok(None));
        step.transpose()
    }
}
