//! Which inodes the kernel knows, and how often it was told of each.
//!
//! Invariants:
//! - An inode's count is the number of replies that named it, less what the kernel has forgotten.
//! - An entry is `held` if it was without a name while the kernel knew it; the engine then keeps the
//!   inode, and so its number, until the count is 0. A number that the kernel knows is thus never
//!   given to another file, and an unlinked file that is still open keeps its content.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmfs::Ino;

/// A power of two; consecutive inode numbers fall on different shards.
const SHARDS: usize = 64;

#[derive(Default)]
struct Known {
    count: u64,
    held: bool,
    /// Of the last reply.
    generation: u32,
}

/// The table, sharded so that workers seldom meet.
pub struct LookupTable {
    shards: Vec<Mutex<HashMap<Ino, Known>>>,
}

impl Default for LookupTable {
    fn default() -> LookupTable {
        LookupTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl LookupTable {
    /// One more reply names the inode.
    pub fn add(&self, ino: Ino, generation: u32) {
        let mut shard = self.shard(ino);
        let known = shard.entry(ino).or_default();
        known.count += 1;
        known.generation = generation;
    }

    /// Whether the kernel was told of another file by this number.
    #[must_use]
    pub fn is_other(&self, ino: Ino, generation: u32) -> bool {
        let shard = self.shard(ino);
        shard
            .get(&ino)
            .is_some_and(|known| known.generation != generation)
    }

    /// Whether the kernel knows it.
    #[must_use]
    pub fn knows(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }

    /// It has no name and the engine holds it. `false` if the kernel has forgotten it in the meantime, or if it
    /// was held before (a file made without a name, linked, unlinked): then the caller has to release it.
    #[must_use]
    pub fn set_held(&self, ino: Ino) -> bool {
        match self.shard(ino).get_mut(&ino) {
            Some(known) => !mem::replace(&mut known.held, true),
            None => false,
        }
    }

    /// The kernel forgets `count` replies. `true` if it was the last of a held inode: then the
    /// caller has to release it.
    #[must_use]
    pub fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(known) = shard.get_mut(&ino) else {
            return false;
        };
        known.count = known.count.saturating_sub(count);
        if known.count > 0 {
            return false;
        }
        shard.remove(&ino).is_some_and(|known| known.held)
    }

    /// Empties the table, at the end of a mount: the kernel forgets nothing after an unmount. The
    /// held ones, for the caller to release.
    pub fn drain_held(&self) -> Vec<Ino> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            held.extend(
                shard
                    .drain()
                    .filter(|(_, known)| known.held)
                    .map(|(ino, _)| ino),
            );
        }
        held
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Known>> {
        lock(&self.shards[ino as usize % SHARDS])
    }
}

/// No code that may panic runs under these locks, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_at_the_last_forget_only() {
        let table = LookupTable::default();
        table.add(7, 1);
        table.add(7, 1);
        table.add(71, 1);
        assert!(table.knows(7) && !table.knows(8));
        assert!(!table.is_other(7, 1) && table.is_other(7, 2) && !table.is_other(8, 2));
        assert!(table.set_held(7));
        assert!(!table.set_held(7), "one hold is enough");
        assert!(!table.forget(7, 1));
        assert!(table.forget(7, 1));
        assert!(!table.knows(7));
        assert!(!table.forget(7, 1), "a second release of the same hold");
        assert!(!table.forget(71, 1), "never held");
    }

    #[test]
    fn what_is_forgotten_can_not_be_held() {
        let table = LookupTable::default();
        assert!(!table.set_held(9));
        table.add(9, 1);
        table.add(10, 1);
        assert!(table.set_held(9));
        assert_eq!(table.drain_held(), [9]);
        assert!(!table.knows(10));
    }
}
