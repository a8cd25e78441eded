//! Settling a group: what power loss, or the death of a process in it, left becomes what a reader
//! may see (`docs/adr/0073-slots-with-states.md`).
//!
//! - A slot of keys that belong to another chunk, since a split, is cleared.
//! - A delete under way is done: its slot is cleared.
//! - A put under way is done if its record is whole, or else its slot is cleared.
//! - The slot of the higher version stays, where a key has two.
//! - A live slot whose hash no other slot of its lines has stays, unread.
//! - A live slot without its record is an older version's, whose clear was not durable, if another
//!   slot of its line has its hash, and a whole record: it is cleared. Its place may be another
//!   record's by now, or half of one, so such a slot's record is verified too. Without another slot
//!   the record is damaged, and the slot stays, so that its key is an error and not missing.

use pmlib_format::kv::{STATE_DELETE, STATE_LIVE, STATE_PUT};

use crate::engine::{Cut, Index};
use crate::error::Result;
use crate::group::Located;
use crate::kv::Kv;
use crate::record::{self, Head};
use crate::slot::Slot;

/// A slot, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Here {
    at: u64,
    slot: Slot,
}

/// The meaning of a slot.
enum Means {
    /// The slot of another chunk's key, or one that never was.
    Nothing,
    /// It is not to be, and neither is its record.
    Undone,
    /// A version of a key.
    Version(Head, Vec<u8>),
    /// Its record is not there.
    Stale,
}

/// The work on a group.
#[derive(Default)]
struct Work {
    versions: Vec<(Here, Head, Vec<u8>)>,
    /// To be cleared, and whether their places become free.
    cleared: Vec<(Here, bool)>,
    /// Without their records, beside others of their hash in their lines.
    stale: Vec<Here>,
}

impl Work {
    /// Has slots without their records be cleared that are older versions': the next one of the key
    /// is in the line, whole. Slots of which none has its record are of damaged ones.
    fn clear_older(&mut self) {
        for here in std::mem::take(&mut self.stale) {
            let is_next = |(other, ..): &(Here, Head, Vec<u8>)| {
                other.at & !63 == here.at & !63 && other.slot.hash() == here.slot.hash()
            };
            if self.versions.iter().any(is_next) {
                self.cleared.push((here, false));
            }
        }
    }
}

impl<I: Index> Kv<'_, I> {
    /// Settles lines of a locked chunk, in a write window.
    #[cold]
    pub(crate) fn settle_lines(&self, located: &Located<I::Way>) -> Result<()> {
        let mem = self.ground.mem();
        let mut work = Work::default();
        let shared = self.shared_hashes(located);
        for line in 1..=self.cut.lines() {
            let start = located.line(line);
            let words: [u64; 8] = mem.read(start);
            for (nth, &word) in words.iter().enumerate() {
                let slot = Slot(word);
                let at = start + nth as u64 * 8;
                let here = Here { at, slot };
                if word == 0 {
                    continue;
                }
                let twin =
                    |&other: &u64| other != 0 && other != word && Slot(other).hash() == slot.hash();
                let has_twin = words.iter().any(twin);
                let is_sure = slot.state() == STATE_LIVE && !has_twin;
                if is_sure && shared.binary_search(&slot.hash()).is_err() {
                    // No other slot can be its key's: it stays, whatever its record is.
                    if !I::may_have(self, located, slot) {
                        work.cleared.push((here, false));
                    }
                    continue;
                }
                match self.meaning(located, line, slot, is_sure)? {
                    Means::Nothing => work.cleared.push((here, false)),
                    Means::Undone => work.cleared.push((here, true)),
                    Means::Version(head, key) => work.versions.push((here, head, key)),
                    Means::Stale if has_twin => work.stale.push(here),
                    Means::Stale => {}
                }
            }
        }
        work.clear_older();
        self.choose(&mut work);
        self.make_so(located, &work)
    }

    /// The hashes that more than one slot of lines has, in order. Only of these are records read:
    /// a look at all of them would be hundreds of misses for the first call of a group.
    fn shared_hashes(&self, located: &Located<I::Way>) -> Vec<u64> {
        let lines = (1..=self.cut.lines()).flat_map(|line| {
            let words: [u64; 8] = self.ground.mem().read(located.line(line));
            words
        });
        let slots = lines.filter(|&word| word != 0).map(Slot);
        let mut hashes: Vec<u64> = slots.map(Slot::hash).collect();
        hashes.sort_unstable();
        let twice = hashes.windows(2).filter(|pair| pair[0] == pair[1]);
        let mut shared: Vec<u64> = twice.map(|pair| pair[0]).collect();
        shared.dedup();
        shared
    }

    /// The meaning of a slot that is not 0; `is_sure`: its record was durable and is nobody else's.
    fn meaning(
        &self,
        located: &Located<I::Way>,
        line: u64,
        slot: Slot,
        is_sure: bool,
    ) -> Result<Means> {
        if !I::may_have(self, located, slot) {
            return Ok(Means::Nothing);
        }
        let missing = match slot.state() {
            STATE_DELETE => return Ok(Means::Undone),
            STATE_PUT => Means::Undone,
            _ => Means::Stale,
        };
        let place = slot.place();
        if !is_sure {
            let bytes = self.place_bytes(place);
            if bytes > 0 {
                self.ground.mem().will_check(place, bytes);
            }
        }
        let Some(head) = record::head_at(self.ground, place) else {
            return Ok(missing);
        };
        if head.instance != slot.instance() && !planted!("bug-instance-not-compared") {
            return Ok(missing);
        }
        // The place of a slot with a twin may be under way to another record.
        let is_whole = is_sure
            || match planted!("bug-torn-value-believed") {
                true => record::sound_key(self.ground, place, head)?.is_some(),
                false => record::is_whole(self.ground, place, head)?,
            }
            || planted!("bug-put-believed-unchecked");
        if !is_whole {
            return Ok(missing);
        }
        let bytes = record::key_of(self.ground, place, head)?;
        let key = self.key(&bytes);
        let belongs = key.hash.in_slot() == slot.hash()
            && I::has(self, located, key)
            && self.all_lines(key.hash).any(|other| other == line);
        if !belongs {
            return Ok(missing);
        }
        Ok(Means::Version(head, bytes))
    }

    /// One slot stays, where a key or a place has two.
    fn choose(&self, work: &mut Work) {
        let mut all = std::mem::take(&mut work.versions);
        all.sort_by_key(|(here, ..)| here.slot.hash());
        for (here, head, key) in all {
            // Those of one hash stand together.
            let start = work
                .versions
                .partition_point(|(other, ..)| other.slot.hash() < here.slot.hash());
            let same = work.versions[start..]
                .iter()
                .position(|(_, _, other_key)| *other_key == key)
                .map(|nth| start + nth);
            let Some(nth) = same else {
                work.versions.push((here, head, key));
                continue;
            };
            let (other, other_head, _) = work.versions[nth];
            if other.slot.place() == here.slot.place() {
                work.cleared.push((here, false));
                continue;
            }
            // Versions are numbers on a circle.
            let mut is_newer = (head.version.wrapping_sub(other_head.version) as i32) > 0;
            if planted!("bug-lower-version-wins") {
                is_newer = !is_newer;
            }
            if is_newer {
                work.cleared.push((other, true));
                work.versions[nth] = (here, head, key);
            } else {
                work.cleared.push((here, true));
            }
        }
    }

    /// Has the group be so, visibly only after it is durable.
    fn make_so(&self, located: &Located<I::Way>, work: &Work) -> Result<()> {
        let mem = self.ground.mem();
        let under_way = || {
            let versions = work.versions.iter();
            versions.filter(|(here, ..)| here.slot.state() == STATE_PUT)
        };
        let mut is_new = false;
        for (here, head, _) in under_way() {
            // The fence after it may never have come, and another processor's does not do for it.
            if planted!("bug-record-of-the-dead-only-flushed") {
                mem.flush(here.slot.place(), head.bytes());
            } else {
                record::store_again(self.ground, here.slot.place(), *head)?;
            }
            mem.flush(here.at, 8);
            is_new = true;
        }
        for (here, _) in &work.cleared {
            if here.slot.state() == STATE_DELETE {
                mem.flush(here.at, 8);
                is_new = true;
            }
        }
        if is_new {
            mem.fence();
        }
        self.mark_sequence(located.chunk, true);
        for (here, _) in &work.cleared {
            mem.store(here.at, 0);
        }
        for (here, ..) in under_way() {
            mem.store(here.at, here.slot.with_state(STATE_LIVE).0);
        }
        self.mark_sequence(located.chunk, false);
        // All lines: one who died may have cleared a slot and not flushed it.
        mem.flush(located.line(1), self.cut.lines() * 64);
        mem.fence();
        for &(here, is_freed) in &work.cleared {
            if is_freed {
                self.free(here.slot);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::shape::Shape;
    use crate::{Error, Hash};
    use pmlib::{Heap, Options};
    use std::collections::HashMap;
    use std::os::unix::fs::FileExt;

    /// Goal: keys that have one hash and damaged records are errors, and not missing. Method: two
    /// such keys in one line, of each of which a bit is flipped.
    #[test]
    fn damaged_records_of_one_hash_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (path, options) = (dir.path().join("heap"), Options::default());
        let heap = Heap::create(&path, 4 << 20, &options).unwrap();
        let small = Shape {
            groups: 1,
            lines: 1,
            stash: 1,
            places_log2: 3,
        };
        let kv = Hash::open_as(&heap, "kv", small).unwrap();
        let mut known = HashMap::new();
        let hash = |key: &String| kv.key(key.as_bytes()).hash.in_slot();
        let mut names = (0..).map(|nth| format!("key {nth}"));
        let pair = names.find_map(|name| Some([known.insert(hash(&name), name.clone())?, name]));
        let pair = pair.unwrap();
        for name in &pair {
            kv.put(name.as_bytes(), format!("of {name}.").as_bytes())
                .unwrap();
        }
        drop(kv);
        heap.close().unwrap();
        let all = std::fs::read(&path).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        for name in &pair {
            let value = format!("of {name}.");
            let at = all
                .windows(value.len())
                .position(|bytes| bytes == value.as_bytes());
            file.write_all_at(b"x", at.unwrap() as u64).unwrap();
        }
        let heap = Heap::open(&path, &options).unwrap();
        let kv = Hash::open(&heap, "kv").unwrap();
        for name in &pair {
            let got = kv.get(name.as_bytes());
            assert!(matches!(got, Err(Error::Corrupt { .. })), "{got:?}");
            kv.put(name.as_bytes(), b"new").unwrap();
            assert_eq!(kv.get(name.as_bytes()).unwrap().unwrap(), b"new");
        }
    }
}
