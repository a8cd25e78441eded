//! Room for a batch: leaves are split where its keys will be, before it is done.

use super::Tree;
use super::split::Slotted;
use crate::error::Result;
use crate::key::Key;

/// Adds a batch's keys, in order, to those of a leaf, which are in order; answers how many are to
/// stay, so that leaves of so many slots are well filled.
pub(crate) fn add(keys: &mut Vec<Slotted>, new: &[&[u8]], slots: usize) -> usize {
    let filled = slots - slots / 4;
    // The keys behind these are the upper leaf's, which is split again.
    for &key in new.iter().take(2 * filled + 1) {
        if let Err(at) = keys.binary_search_by(|(other, _)| other[..].cmp(key)) {
            keys.insert(at, (key.to_vec(), None));
        }
    }
    match keys.len() > 2 * filled {
        true => filled,
        false => keys.len() / 2,
    }
}

impl Tree<'_> {
    /// Splits leaves until each has free slots for those of these keys that are its; nothing is
    /// locked.
    pub(crate) fn make_room_for(&self, keys: &[Key<'_>]) -> Result<()> {
        let mut sorted: Vec<Key<'_>> = keys.to_vec();
        sorted.sort_unstable_by_key(|key| key.bytes);
        let bytes: Vec<&[u8]> = sorted.iter().map(|key| key.bytes).collect();
        let mut nth = 0;
        while nth < sorted.len() {
            if let Some(its) = self.split_for(sorted[nth], &bytes[nth..])? {
                // Another one may have split the leaf meanwhile, but it holds its own key.
                nth += its.max(1);
            }
        }
        Ok(())
    }
}
