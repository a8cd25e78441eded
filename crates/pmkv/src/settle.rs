//! Settling a group: what power loss, or the death of a process in it, left becomes what a reader
//! may see (`docs/adr/0073-slots-with-states.md`).
//!
//! - A slot of keys that belong to another chunk, since a split, is cleared.
//! - A delete under way is done: its slot is cleared.
//! - A put under way is done if its record is whole, or else its slot is cleared.
//! - The slot of the higher version stays, where a key has two.
//! - A live slot whose hash no other slot of its lines has stays, unread.
//! - A live slot without its record is an older version's, whose clear was not durable, if another
//!   slot of its line has its hash, and a whole record that names this slot: it is cleared. Its
//!   place may be another record's by now, or half of one, so such a slot's record is verified too.
//!   Otherwise the record is damaged, and the slot stays, so that its key is an error and not
//!   missing.

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
    /// is in the line, whole, and names the slot. It is still under way on the medium, because its
    /// line has the older one's clear before its slot is live. The others are of damaged records.
    fn clear_older(&mut self) {
        for here in std::mem::take(&mut self.stale) {
            let is_next = |(other, head, _): &(Here, Head, Vec<u8>)| {
                other.at & !63 == here.at & !63
                    && other.slot.hash() == here.slot.hash()
                    && other.slot.state() == STATE_PUT
                    && head.version.names(here.slot)
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
            let mut is_newer = head.version.is_after(other_head.version);
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
    use super::{Here, Work};
    use crate::record::{Head, KeyAlone};
    use crate::shape::Shape;
    use crate::slot::Slot;
    use crate::version::Version;
    use crate::{Error, Hash};
    use pmlib::{Heap, Options};
    use pmlib_format::kv::{STATE_LIVE, STATE_PUT};
    use std::collections::HashMap;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    /// Has a small hash be used in a heap, whose group has one line, and closes it.
    fn with_small(path: &Path, work: impl FnOnce(&Hash<'_>)) {
        let heap = match path.exists() {
            true => Heap::open(path, &Options::default()).unwrap(),
            false => Heap::create(path, 4 << 20, &Options::default()).unwrap(),
        };
        let small = Shape {
            groups: 1,
            lines: 1,
            stash: 1,
            places_log2: 3,
        };
        let kv = Hash::open_as(&heap, "kv", small).unwrap();
        work(&kv);
        drop(kv);
        heap.close().unwrap();
    }

    /// Two keys of one hash.
    fn pair(kv: &Hash<'_>) -> [String; 2] {
        let mut known = HashMap::new();
        let hash = |key: &String| kv.key(key.as_bytes()).hash.in_slot();
        let mut names = (0..).map(|nth| format!("key {nth}"));
        let pair = names.find_map(|name| Some([known.insert(hash(&name), name.clone())?, name]));
        pair.unwrap()
    }

    fn value_of(name: &str) -> String {
        format!("of {name}.")
    }

    /// Damages the value of a key, of which no other one is in the file.
    fn damage(path: &Path, name: &str) {
        let (all, value) = (std::fs::read(path).unwrap(), value_of(name));
        let mut places = all.windows(value.len());
        let at = places.position(|bytes| bytes == value.as_bytes()).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"x", at as u64).unwrap();
    }

    fn is_damaged(kv: &Hash<'_>, name: &str) -> bool {
        matches!(kv.get(name.as_bytes()), Err(Error::Corrupt { .. }))
    }

    /// Goal: keys that have one hash and damaged records are errors, and not missing. Method: two
    /// such keys in one line, of each of which a bit is flipped.
    #[test]
    fn damaged_records_of_one_hash_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let mut names = <[String; 2]>::default();
        with_small(&path, |kv| {
            names = pair(kv);
            for name in &names {
                kv.put(name.as_bytes(), value_of(name).as_bytes()).unwrap();
            }
        });
        names.iter().for_each(|name| damage(&path, name));
        with_small(&path, |kv| {
            for name in &names {
                assert!(is_damaged(kv, name));
                kv.put(name.as_bytes(), b"new").unwrap();
                assert_eq!(kv.get(name.as_bytes()).unwrap().unwrap(), b"new");
            }
        });
    }

    /// Goal: a damaged record is an error beside a whole one of another key with its hash, and not
    /// missing. Method: such a pair, of which the whole one is put once or again and again, and is
    /// live on the medium or still under way there.
    #[test]
    fn a_damaged_record_stays_beside_a_whole_one_of_its_hash() {
        for (puts, is_under_way) in [(1, false), (2, false), (1, true), (2, true), (7, true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("heap");
            let (mut names, mut slot) = (<[String; 2]>::default(), None);
            with_small(&path, |kv| {
                names = pair(kv);
                let [damaged, whole] = &names;
                kv.put(damaged.as_bytes(), value_of(damaged).as_bytes())
                    .unwrap();
                for nth in 0..puts {
                    kv.put(whole.as_bytes(), format!("{nth}").as_bytes())
                        .unwrap();
                }
                let key = kv.key(whole.as_bytes());
                let _window = kv.ground.mem().window();
                let group = kv.lock(key).unwrap();
                let found = kv.find(&group, key, &mut KeyAlone).unwrap();
                slot = found.map(|found| (found.at, found.slot));
            });
            damage(&path, &names[0]);
            let (at, slot) = slot.unwrap();
            if is_under_way {
                let word = slot.with_state(STATE_PUT).0.to_le_bytes();
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&word, at).unwrap();
            }
            with_small(&path, |kv| {
                assert!(is_damaged(kv, &names[0]), "{puts} {is_under_way}");
                let whole = kv.get(names[1].as_bytes()).unwrap().unwrap();
                assert_eq!(whole, format!("{}", puts - 1).as_bytes());
            });
        }
    }

    /// Goal: a slot without its record is cleared for the next version alone. Method: the next one
    /// is under way, or not; names the slot, or another one; is in its line, or in the next.
    #[test]
    fn an_older_version_is_the_one_that_is_named() {
        let older = Here {
            at: 64,
            slot: Slot::new(4096, 3, 7),
        };
        let is_cleared = |at: u64, state: u64, named: Slot| {
            let slot = Slot::new(8192, 1, 7).with_state(state);
            let head = Head::new(Version::FIRST.next(Some(named)), 1, b"key", b"");
            let mut work = Work::default();
            work.versions.push((Here { at, slot }, head, Vec::new()));
            work.stale.push(older);
            work.clear_older();
            work.cleared == [(older, false)]
        };
        let other = Slot::new(4096, 4, 7);
        assert!(is_cleared(72, STATE_PUT, older.slot));
        assert!(!is_cleared(72, STATE_LIVE, older.slot));
        assert!(!is_cleared(72, STATE_PUT, other));
        assert!(!is_cleared(136, STATE_PUT, older.slot));
    }
}
