//! The inodes that the kernel knows, with the number of replies that named each and the size in the
//! last one.
//!
//! Invariants:
//! - An inode's count is the number of replies that named it, less what the kernel has forgotten.
//! - An entry is `held` if it was without a name while the kernel knew it; the engine then keeps
//!   the inode, and so its number, until the count is 0. A number that the kernel knows is thus
//!   never given to another file, and an unlinked file that is still open keeps its content.
//! - The kernel uses the size in the last reply for an entry that is not `contested`: all changes
//!   were its own. Once others have changed it, answers under way may leave the kernel with any
//!   size that was told.
//! - The held ones are in a list of their own: the kernel may keep one by a name that
//!   it has remembered, and is told to drop it.

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
    /// The generation in the last reply.
    generation: u32,
    /// The size in the last reply, by which the kernel knows the file's end.
    size: u64,
    /// Another process than this kernel's mount has changed the size.
    contested: bool,
}

impl Known {
    /// The kernel is told.
    fn see(&mut self, size: u64) {
        self.contested |= self.size != size;
        self.size = size;
    }
}

/// The kernel's knowledge of a file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownEnd {
    /// The offset of the end that it was told last.
    pub told: u64,
    /// Whether it relies on that offset.
    pub is_certain: bool,
}

/// Held ones that are told of in one look.
const TOLD_MAX: usize = 256;

#[derive(Default)]
struct Shard {
    known: HashMap<Ino, Known>,
    /// For each held one, the looks at which no program had it open.
    held: HashMap<Ino, u32>,
}

/// The table, sharded so that workers seldom meet.
pub struct LookupTable {
    shards: Vec<Mutex<Shard>>,
}

impl Default for LookupTable {
    fn default() -> LookupTable {
        LookupTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl LookupTable {
    /// Counts one more reply that names the inode.
    pub fn add(&self, ino: Ino, generation: u32, size: u64) {
        let mut shard = self.shard(ino);
        let known = shard.known.entry(ino).or_insert(Known {
            generation,
            size,
            ..Known::default()
        });
        known.count += 1;
        if known.generation != generation {
            (known.generation, known.size, known.contested) = (generation, size, false);
        }
        known.see(size);
    }

    /// A reply tells the inode's size. `false`: the kernel was told of another file by this number.
    #[must_use]
    pub fn see(&self, ino: Ino, generation: u32, size: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(known) = shard.known.get_mut(&ino) else {
            return true;
        };
        let is_same = known.generation == generation;
        if is_same {
            known.see(size);
        }
        is_same
    }

    /// The kernel itself has given the file this size.
    pub fn set_size(&self, ino: Ino, size: u64) {
        if let Some(known) = self.shard(ino).known.get_mut(&ino) {
            known.size = size;
        }
    }

    /// The kernel takes the file to reach to this at least.
    pub fn grow(&self, ino: Ino, end: u64) {
        if let Some(known) = self.shard(ino).known.get_mut(&ino) {
            known.size = known.size.max(end);
        }
    }

    /// The kernel's knowledge of the end of a file that has this size.
    #[must_use]
    pub fn end_of(&self, ino: Ino, size: u64) -> KnownEnd {
        let mut shard = self.shard(ino);
        let Some(known) = shard.known.get_mut(&ino) else {
            return KnownEnd {
                told: size,
                is_certain: false,
            };
        };
        known.contested |= known.size != size;
        KnownEnd {
            told: known.size,
            is_certain: !known.contested,
        }
    }

    /// Returns whether the kernel knows it.
    #[must_use]
    pub fn knows(&self, ino: Ino) -> bool {
        self.shard(ino).known.contains_key(&ino)
    }

    /// Notes that the inode has no name and the engine holds it. `false` if the kernel has
    /// forgotten it in the meantime, or if it was held before (a file made without a name, linked,
    /// unlinked): then the caller has to release it.
    #[must_use]
    pub fn set_held(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino);
        let Some(known) = shard.known.get_mut(&ino) else {
            return false;
        };
        let fresh = !mem::replace(&mut known.held, true);
        if fresh {
            shard.held.insert(ino, 0);
        }
        fresh
    }

    /// Held ones that the kernel should have forgotten by now: those that no program had open in
    /// two looks, in four, and so on.
    pub fn long_held(&self, is_open: impl Fn(Ino) -> bool) -> Vec<Ino> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (&ino, looks) in &mut lock(shard).held {
                if found.len() == TOLD_MAX {
                    return found;
                }
                *looks = match is_open(ino) {
                    true => 0,
                    false => looks.saturating_add(1),
                };
                if *looks > 1 && looks.is_power_of_two() {
                    found.push(ino);
                }
            }
        }
        found
    }

    /// The kernel forgets `count` replies. `true` if it was the last of a held inode: then the
    /// caller has to release it.
    #[must_use]
    pub fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(known) = shard.known.get_mut(&ino) else {
            return false;
        };
        known.count = known.count.saturating_sub(count);
        if known.count > 0 {
            return false;
        }
        let held = shard.known.remove(&ino).is_some_and(|known| known.held);
        if held {
            shard.held.remove(&ino);
        }
        held
    }

    /// Empties the table, at the end of a mount: the kernel forgets nothing after an unmount. The
    /// held ones, for the caller to release.
    pub fn drain_held(&self) -> Vec<Ino> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.known.clear();
            held.extend(shard.held.drain().map(|(ino, _)| ino));
        }
        held
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
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
        table.add(7, 1, 0);
        table.add(7, 1, 0);
        table.add(71, 1, 0);
        assert!(table.knows(7) && !table.knows(8));
        assert!(table.see(7, 1, 0) && !table.see(7, 2, 0) && table.see(8, 2, 0));
        assert!(table.set_held(7));
        assert!(!table.set_held(7), "one hold is enough");
        assert!(!table.forget(7, 1));
        assert!(table.forget(7, 1));
        assert!(!table.knows(7));
        assert!(!table.forget(7, 1), "a second release of the same hold");
        assert!(!table.forget(71, 1), "never held");
    }

    /// Goal: the kernel is told to drop it, but not at once, not while a program has it open, and
    /// seldom if that does not help.
    #[test]
    fn what_is_held_for_long_is_told_of() {
        let table = LookupTable::default();
        table.add(9, 1, 0);
        table.add(10, 1, 0);
        assert!(table.set_held(9));
        let told = |open| !table.long_held(|_| open).is_empty();
        let looks: Vec<bool> = (0..9).map(|_| told(false)).collect();
        assert_eq!(looks.iter().filter(|&&told| told).count(), 3);
        assert!(!looks[0] && looks[1] && looks[3] && looks[7]);
        assert!(!told(true) && !told(false) && told(false));
        assert!(table.forget(9, 1));
        assert!(!told(false) && !told(false));
    }

    #[test]
    fn what_is_forgotten_can_not_be_held() {
        let table = LookupTable::default();
        assert!(!table.set_held(9));
        table.add(9, 1, 0);
        table.add(10, 1, 0);
        assert!(table.set_held(9));
        assert_eq!(table.drain_held(), [9]);
        assert!(!table.knows(10));
    }

    /// The kernel's own writes and truncates leave the size certain; a size that it did not make
    /// does not, for as long as it knows the file.
    #[test]
    fn the_kernel_knows_the_end_until_others_move_it() {
        let table = LookupTable::default();
        let end = |size| table.end_of(7, size);
        let known = |told, is_certain| KnownEnd { told, is_certain };
        table.add(7, 1, 100);
        table.grow(7, 150);
        table.grow(7, 120);
        assert_eq!(end(150), known(150, true));
        table.set_size(7, 10);
        assert!(table.see(7, 1, 10));
        assert_eq!(end(10), known(10, true));
        assert_eq!(end(20), known(10, false));
        assert!(table.see(7, 1, 20));
        assert_eq!(
            end(20),
            known(20, false),
            "answers under way tell the old one"
        );
        assert!(!table.forget(7, 1));
        table.add(7, 2, 30);
        assert_eq!(end(30), known(30, true));
        table.add(7, 2, 31);
        assert_eq!(end(31), known(31, false));
    }
}
