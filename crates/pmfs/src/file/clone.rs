//! Clones: leaves of one file that name the blocks of another (docs/adr/0079-shared-blocks.md).
//!
//! A step is one pointer of the target. Before it, the source's leaves are marked as shared and the
//! blocks have one more share each, which the lane's records name. Large leaves stay large where
//! both files have them on their boundary.

use super::{Work, block_of};
use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::tree::edit::Leaves;
use crate::tree::entry::{Entry, coverage};
use crate::tree::{Found, Tree};
use crate::types::{Ino, Run};
use pm_journal::error::{Error, Result};
use pm_space::{Class, Zone};
use pm_store::{Durable, FreshSet};
use pmfs_format::inode::SIZE_MAX;
use pmfs_format::tree::{FANOUT, SHARED};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// Most blocks of a step: what a node of level 2 covers.
const STEP: u64 = FANOUT * FANOUT;
/// Most nodes over small leaves that a step builds.
const NODES: u64 = 4;
/// Records of the lane that a step leaves for nodes and for the end of the old subtree.
pub(super) const RECORDS_LEFT: u64 = 16;

/// A range of blocks that the target is to share with the source.
#[derive(Clone, Copy)]
struct Piece {
    /// First block in the source.
    from: u64,
    /// First block in the target.
    to: u64,
    count: u64,
}

impl Pool {
    /// See [`crate::Fs::clone_range`].
    pub(crate) fn clone_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<()> {
        self.remap(from, to, len, false).map(drop)
    }

    /// See [`crate::Fs::dedupe_range`].
    pub(crate) fn dedupe_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<bool> {
        self.remap(from, to, len, true)
    }

    /// Clones a range, if it holds the same bytes already where that is asked for; answers whether
    /// it did so.
    fn remap(
        &self,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
        if_alike: bool,
    ) -> Result<bool> {
        self.on_two_files(from, to, |work, source, is_pinned| {
            if is_pinned {
                return Err(Error::Mapped);
            }
            let len = match len {
                0 if !if_alike => source.size().saturating_sub(from_at),
                len => len,
            };
            let sizes = (source.size(), work.inode.size());
            check_places((from, from_at), (to, to_at), len, sizes)?;
            if len == 0 {
                return Ok(true);
            }
            if !if_alike {
                work.clone_from(source, (from_at, to_at), len).1?;
                return Ok(true);
            }
            let to_end = to_at + len;
            if to_end > sizes.1 || !on_block(len) && to_end != sizes.1 {
                return Err(Error::Invalid(&"the range past the target's end"));
            }
            let is_alike = work.is_alike(&source.tree(), (from_at, to_at), len)?;
            if is_alike {
                work.clone_blocks(source, (from_at, to_at), len, None).1?;
            }
            Ok(is_alike)
        })
    }
}

/// Refuses a range that can't be cloned; `sizes` are those of source and target.
fn check_places(
    (from, from_at): (Ino, u64),
    (to, to_at): (Ino, u64),
    len: u64,
    sizes: (u64, u64),
) -> Result<()> {
    let end = |at: u64| at.checked_add(len).filter(|&end| end <= SIZE_MAX);
    let to_end = end(to_at).ok_or(Error::FileTooBig)?;
    let from_end = end(from_at).filter(|&end| end <= sizes.0);
    let from_end = from_end.ok_or(Error::Invalid(&"a clone past the source's end"))?;
    let is_tail = from_end == sizes.0 && to_end >= sizes.1;
    if !on_block(from_at) || !on_block(to_at) || !on_block(len) && !is_tail {
        return Err(Error::Invalid(&"a clone takes whole blocks"));
    }
    if from == to && from_at < to_end && to_at < from_end {
        return Err(Error::Invalid(&"the ranges overlap"));
    }
    Ok(())
}

fn on_block(at: u64) -> bool {
    at.is_multiple_of(BLOCK_BYTES)
}

impl Work<'_> {
    /// Clones `len` bytes, at places that were checked; answers how many were, which are fewer only
    /// beside an error. Size and times are those of a file with these bytes.
    pub(super) fn clone_from(
        &mut self,
        source: &Inode,
        (from_at, to_at): (u64, u64),
        len: u64,
    ) -> (u64, Result<()>) {
        let size = self.inode.size();
        let exposed = match to_at > size {
            true => self
                .own_node(Class::Ordinary)
                .and_then(|()| self.expose(size, to_at)),
            false => Ok(Durable::nothing_exposed()),
        };
        let exposed = match exposed {
            Ok(exposed) => exposed,
            Err(error) => return (0, Err(error)),
        };
        let grown = (to_at < size && to_at + len > size).then_some(to_at + len);
        let (done, cloned) = self.clone_blocks(source, (from_at, to_at), len, grown);
        if done > 0 && to_at + done > self.inode.size() {
            self.publish_size(to_at + done, exposed);
        } else if done > 0 && self.inode.size() == size {
            self.lazy_times();
        }
        (done, cloned)
    }

    /// Clones the blocks of `len` bytes; answers how many bytes were, which are durable on return.
    /// The last step sets the size to `grown` with its pointer, if it sets one.
    fn clone_blocks(
        &mut self,
        source: &Inode,
        (from_at, to_at): (u64, u64),
        len: u64,
        grown: Option<u64>,
    ) -> (u64, Result<()>) {
        match self.clone_node(source, (from_at, to_at), len, grown) {
            Ok(true) => return (len, Ok(())),
            Ok(false) => {}
            Err(error) => return (0, Err(error)),
        }
        if let Err(error) = self.own_node(Class::Ordinary) {
            return (0, Err(error));
        }
        let count = len.div_ceil(BLOCK_BYTES);
        let (mut done, mut cloned) = (0, Ok(()));
        while done < count && cloned.is_ok() {
            let piece = Piece {
                from: block_of(from_at) + done,
                to: block_of(to_at) + done,
                count: count - done,
            };
            // A clone inside one file: its tree is another after each step.
            let tree = match source.ino == self.ino() {
                true => self.tree(),
                false => source.tree(),
            };
            cloned = self
                .clone_step(&tree, piece, grown)
                .map(|step| done += step);
        }
        (len.min(done * BLOCK_BYTES), cloned)
    }

    /// Clones the first blocks of a piece; answers how many. If these are all, the size is `grown`.
    fn clone_step(&mut self, source: &Tree, piece: Piece, grown: Option<u64>) -> Result<u64> {
        let same = match planted!("bug-clone-shares-twice") {
            true => 0,
            false => self.same(source, piece)?,
        };
        if same > 0 {
            return Ok(same);
        }
        let shared = self.share_blocks(source, piece)?;
        // The root word may have been marked.
        self.reload()?;
        let mut leaves = Cloned {
            pool: self.pool,
            lane: self.lane,
            source,
            ino: self.ino(),
            back: piece.to.wrapping_sub(piece.from),
            shared: shared > 0,
        };
        let count = shared.max(1);
        let range = (piece.to, piece.to + count);
        let grown = grown.filter(|_| count == piece.count && !planted!("bug-clone-before-size"));
        match grown {
            Some(size) => {
                let mut fresh = self.pool.pm.fresh();
                let swing = self.build(&mut fresh, Class::Ordinary, range, &mut leaves)?;
                fresh.until_seal();
                self.publish_both(&swing, size);
                self.reload()?;
            }
            None => self.swing(Class::Ordinary, range, &mut leaves)?,
        }
        self.replaced();
        Ok(count)
    }

    /// Returns how many of a piece's first blocks both files name already, or lack.
    fn same(&self, source: &Tree, piece: Piece) -> Result<u64> {
        let mut count = 0;
        while count < piece.count {
            let theirs = source.find(self.pool, piece.from + count)?;
            let ours = self.tree().find(self.pool, piece.to + count)?;
            let rest = |found: &Found, index: u64| (found.base + found.units).saturating_sub(index);
            let alike = rest(&theirs, piece.from + count).min(rest(&ours, piece.to + count));
            let is_same = match (data_at(&theirs, piece.from + count), ours.entry.is_hole()) {
                (None, is_hole) => is_hole,
                (theirs, _) => theirs == data_at(&ours, piece.to + count),
            };
            if !is_same {
                break;
            }
            count += alike.max(1);
        }
        Ok(count.min(piece.count))
    }

    /// Gives the first blocks of a piece one more share each, and marks their leaves in the source;
    /// answers how many. None: the first is to be copied.
    fn share_blocks(&self, source: &Tree, piece: Piece) -> Result<u64> {
        let most = piece.count.min(STEP - piece.to % STEP);
        // Small leaves take nodes, each with a record.
        let nodes_end = piece.to / FANOUT * FANOUT + NODES * FANOUT - piece.to;
        let mut done = 0;
        while done < most && self.lane.room() > RECORDS_LEFT {
            let (index, place) = (piece.from + done, piece.to + done);
            let found = source.find(self.pool, index)?;
            let rest = (found.base.saturating_add(found.units) - index).min(most - done);
            let Some(off) = data_at(&found, index) else {
                done += rest;
                continue;
            };
            let is_large = found.units > 1 && piece.from % FANOUT == piece.to % FANOUT;
            let end = if is_large { most } else { most.min(nodes_end) };
            if done >= end {
                break;
            }
            let count = self.run_of(&found, rest, end - done);
            let count = self.unlike(place, off, count)?;
            let mut run = Run {
                block: off >> BLOCK_SHIFT,
                count,
            };
            run.count = self.pool.make_room_for_shares(run);
            let purpose = |by| Purpose::Shared {
                ino: self.ino(),
                level: 0,
                index: place + by,
            };
            let shared = match run.count {
                0 => 0,
                _ => self.pool.share(self.lane, run, purpose)?,
            };
            self.mark_shared(source, index, shared)?;
            done += shared;
            if shared < count || count == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Blocks in a row of the leaf that was found and of its neighbours, up to `most`; `rest` are
    /// left in the leaf.
    fn run_of(&self, found: &Found, rest: u64, most: u64) -> u64 {
        if found.level != 1 {
            return rest.min(most);
        }
        let in_node = FANOUT - found.slot % BLOCK_BYTES / 8;
        let first = found.entry.0 & !SHARED;
        let follows = |&by: &u64| {
            self.pool.pm.load(found.slot + by * 8) & !SHARED == first + by * BLOCK_BYTES
        };
        (0..in_node.min(most)).take_while(follows).count() as u64
    }

    /// Returns how many blocks of the target, from `place` on, are others than those at `off`,
    /// which must not get a second share for the same leaf.
    fn unlike(&self, place: u64, off: u64, count: u64) -> Result<u64> {
        if planted!("bug-clone-shares-twice") {
            return Ok(count);
        }
        let mut done = 0;
        while done < count {
            let ours = self.tree().find(self.pool, place + done)?;
            if data_at(&ours, place + done) == Some(off + done * BLOCK_BYTES) {
                break;
            }
            done += ours.base.saturating_add(ours.units) - (place + done);
        }
        Ok(done.min(count))
    }

    /// Marks the leaves of the source's blocks as shared; durable with the next barrier. A mark is
    /// stored again where it is: a dead thread may not have flushed it. Below a root word with the
    /// mark none is needed.
    fn mark_shared(&self, source: &Tree, from: u64, count: u64) -> Result<()> {
        if source.root.is_shared_node() {
            return Ok(());
        }
        let mut index = from;
        while index < from + count {
            let found = source.find(self.pool, index)?;
            let word = match found.level {
                0 => source.root.shared(),
                _ => found.entry.shared(),
            };
            self.locks.change();
            self.pool.pm.publish_hidden(found.slot, word.0);
            index = found.base + found.units;
        }
        Ok(())
    }
}

/// The byte offset of the block of a leaf with data at `index`.
fn data_at(found: &Found, index: u64) -> Option<u64> {
    let is_data = found.entry.is_leaf() && !found.entry.is_unwritten();
    is_data.then(|| found.entry.off() + (index - found.base) * BLOCK_BYTES)
}

/// The source's leaves, for the target.
struct Cloned<'a> {
    pool: &'a Pool,
    lane: &'a Lane<'a>,
    source: &'a Tree,
    ino: Ino,
    /// From an index of the source to that of the target, added.
    back: u64,
    /// The blocks have a share for the target; else they are copied.
    shared: bool,
}

impl Leaves for Cloned<'_> {
    fn whole(&mut self, level: u32, index: u64) -> Result<Option<Entry>> {
        let from = index.wrapping_sub(self.back);
        let units = coverage(level - 1);
        let found = self.source.find(self.pool, from)?;
        if from + units > found.base.saturating_add(found.units) {
            return Ok(None);
        }
        let Some(off) = data_at(&found, from) else {
            return Ok(Some(Entry::HOLE));
        };
        let whole =
            self.shared && from.is_multiple_of(units) && off.is_multiple_of(units * BLOCK_BYTES);
        Ok(whole.then(|| Entry::leaf(off).shared()))
    }

    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, _old: Entry) -> Result<Entry> {
        let from = index.wrapping_sub(self.back);
        let found = self.source.find(self.pool, from)?;
        let Some(off) = data_at(&found, from) else {
            return Ok(Entry::HOLE);
        };
        if self.shared {
            return Ok(Entry::leaf(off).shared());
        }
        let purpose = Purpose::leaf(self.ino, index);
        let run = self
            .pool
            .alloc(self.lane, 1, Class::Ordinary, Zone::Data, purpose)?;
        let to = run.block << BLOCK_SHIFT;
        fresh.range(to, BLOCK_BYTES).copy(0, off, BLOCK_BYTES)?;
        Ok(Entry::leaf(to))
    }
}

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::{DataMode, FallocateMode, Fs, Ino, OpenOptions, ROOT_INO, SetAttr};

    const BLOCK: u64 = 4096;

    fn ordered_options() -> OpenOptions {
        OpenOptions {
            data: DataMode::Ordered,
            ..OpenOptions::default()
        }
    }

    fn file(fs: &Fs, name: &str, bytes: &[u8]) -> Ino {
        let ino = fs.create(ROOT_INO, name.as_bytes(), &NODE).unwrap().ino;
        assert_eq!(fs.write(ino, 0, bytes).unwrap(), bytes.len());
        ino
    }

    fn content(fs: &Fs, ino: Ino) -> Vec<u8> {
        let mut bytes = vec![9; fs.getattr(ino).unwrap().size as usize];
        assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 / 7 + seed) as u8).collect()
    }

    type Change = fn(&Fs, Ino, u64);
    const CHANGES: [(&str, Change); 14] = [
        ("word", |fs, ino, at| drop(fs.write(ino, at + 8, &[1; 8]))),
        ("bytes", |fs, ino, at| {
            drop(fs.write(ino, at + 5, &[2; 300]))
        }),
        ("block", |fs, ino, at| drop(fs.write(ino, at, &[3; 4096]))),
        ("blocks", |fs, ino, at| {
            drop(fs.write(ino, at + 1, &[4; 20_000]))
        }),
        ("many", |fs, ino, at| drop(fs.write(ino, at, &[5; 400_000]))),
        ("append", |fs, ino, _| drop(fs.append(ino, &[6; 10]))),
        ("append more", |fs, ino, _| drop(fs.append(ino, &[7; 9000]))),
        ("straddle", |fs, ino, _| {
            let size = fs.getattr(ino).unwrap().size;
            fs.write(ino, size - 100, &[8; 5000]).unwrap();
        }),
        ("shorter", |fs, ino, at| resize(fs, ino, at + 10)),
        ("shorter and longer", |fs, ino, at| {
            resize(fs, ino, at + 10);
            resize(fs, ino, at + 10_000);
        }),
        ("longer", |fs, ino, _| {
            let size = fs.getattr(ino).unwrap().size;
            resize(fs, ino, size + 5000);
        }),
        ("punch", |fs, ino, at| {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            fs.fallocate(ino, mode, at + 100, 9000).unwrap();
        }),
        ("zero", |fs, ino, at| {
            fs.fallocate(ino, FallocateMode::ZERO_RANGE, at + 100, 9000)
                .unwrap();
        }),
        ("collapse", |fs, ino, at| {
            fs.collapse_range(ino, at, 8192).unwrap()
        }),
    ];

    /// Goal: each call that changes a file leaves its clone as it was, of small and large leaves.
    #[test]
    fn a_change_of_one_file_is_none_of_the_other() {
        for bytes in [5 * BLOCK + 100, 300 * BLOCK, (18 << 20) + 100] {
            for ordered in [false, true] {
                let scratch = Scratch::new(128 << 20);
                let fs = match ordered {
                    true => Fs::open(&scratch.path, &ordered_options()).unwrap(),
                    false => scratch.open(),
                };
                for (number, (what, change)) in CHANGES.iter().enumerate() {
                    let whole = pattern(bytes, number as u64);
                    let [one, other] = ["one", "other"].map(|name| file(&fs, name, &[]));
                    // Grown step by step, so that it has large leaves.
                    for part in whole.chunks(1 << 20) {
                        fs.append(one, part).unwrap();
                    }
                    fs.clone_range((one, 0), (other, 0), 0).unwrap();
                    assert!(content(&fs, other) == whole, "{what}");
                    for (changed, kept) in [(one, other), (other, one)] {
                        let before = content(&fs, kept);
                        change(&fs, changed, 2 * BLOCK);
                        assert!(content(&fs, kept) == before, "{what} {bytes} {ordered}");
                    }
                    let [one, other] = [one, other].map(|ino| content(&fs, ino));
                    assert!(one == other, "{what} {bytes} {ordered}");
                    for name in [&b"one"[..], b"other"] {
                        fs.unlink(ROOT_INO, name).unwrap();
                    }
                }
                fs.close().unwrap();
                assert!(scratch.is_sound());
                let fs = scratch.open();
                assert!(fs.pool().counters().is_empty(), "counts of nothing stay");
            }
        }
    }

    fn resize(fs: &Fs, ino: Ino, size: u64) {
        let size = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        fs.setattr(ino, &size).unwrap();
    }

    /// Goal: shares are counted right by a walk, and again kept over a clean close.
    #[test]
    fn shares_outlast_a_close_and_a_walk() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let whole = pattern(100 * BLOCK, 1);
        let one = file(&fs, "one", &whole);
        let others = ["a", "b", "c"].map(|name| file(&fs, name, &[]));
        for other in others {
            // In two parts, so that the leaves are shared and not their node.
            fs.clone_range((one, 0), (other, 0), 4096).unwrap();
            fs.clone_range((one, 0), (other, 0), 0).unwrap();
        }
        // A clone of a clone, and the same again.
        fs.clone_range((others[0], 0), (others[1], 0), 0).unwrap();
        assert_eq!(shares(&fs), 300);
        fs.close().unwrap();
        assert!(scratch.is_sound());
        let fs = scratch.open();
        assert_eq!(shares(&fs), 300);
        crate::recovery::attach::rebuild_held(fs.pool()).unwrap();
        assert_eq!(shares(&fs), 300);
        assert!(content(&fs, others[1]) == whole);
        fs.unlink(ROOT_INO, b"one").unwrap();
        fs.write(others[0], 0, &[1; 4096]).unwrap();
        assert_eq!(shares(&fs), 199);
        fs.close().unwrap();
        assert!(scratch.is_sound());
    }

    fn shares(fs: &Fs) -> u64 {
        fs.pool().all_shares().map(|(_, shares)| shares).sum()
    }

    /// Goal: copies share where blocks align and are not few, and are right everywhere.
    #[test]
    fn copies_share_what_aligns() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let whole = pattern(100 * BLOCK + 7, 1);
        let one = file(&fs, "one", &whole);
        for (name, at, to_at, len, shared) in [
            // One share, of the node.
            ("all", 0, 0, u64::MAX, 1),
            ("few", 0, 0, 15 * BLOCK, 0),
            ("unaligned", 0, 1, u64::MAX, 0),
            ("part", BLOCK, 5 * BLOCK, 20 * BLOCK + 100, 20),
        ] {
            let to = file(&fs, name, &[]);
            let before = shares(&fs);
            let len = len.min(whole.len() as u64 - at);
            assert_eq!(fs.copy_range(one, at, to, to_at, len).unwrap(), len);
            assert_eq!(shares(&fs) - before, shared, "{name}");
            let mut expected = vec![0; to_at as usize];
            expected.extend_from_slice(&whole[at as usize..(at + len) as usize]);
            assert!(content(&fs, to) == expected, "{name}");
        }
        fs.close().unwrap();
        assert!(scratch.is_sound());
    }

    /// Goal: files that hold the same bytes come to share them, others don't, and neither changes.
    #[test]
    fn the_same_bytes_are_shared() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let whole = pattern(100 * BLOCK + 7, 1);
        let [one, same, other] = ["one", "same", "other"].map(|name| file(&fs, name, &whole));
        fs.write(other, 50 * BLOCK + 9, &[!whole[50 * 4096 + 9]])
            .unwrap();
        let before = [same, other].map(|ino| fs.getattr(ino).unwrap());
        let len = whole.len() as u64;
        assert!(fs.dedupe_range((one, 0), (same, 0), len).unwrap());
        assert_eq!(shares(&fs), 101);
        assert!(!fs.dedupe_range((one, 0), (other, 0), len).unwrap());
        assert!(fs.dedupe_range((one, 0), (other, 0), 50 * BLOCK).unwrap());
        assert_eq!(shares(&fs), 151);
        assert!(content(&fs, same) == whole && content(&fs, one) == whole);
        for (ino, before) in [same, other].into_iter().zip(before) {
            let after = fs.getattr(ino).unwrap();
            assert_eq!(
                (after.mtime_ns, after.ctime_ns),
                (before.mtime_ns, before.ctime_ns)
            );
        }
        let refused = fs.dedupe_range((one, 0), (other, BLOCK), len);
        assert!(matches!(refused, Err(crate::Error::Invalid(_))));
        fs.close().unwrap();
        assert!(scratch.is_sound());
    }

    /// Goal: ranges that can't be cloned are refused, and those inside of one file are right.
    #[test]
    fn ranges() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let whole = pattern(10 * BLOCK + 7, 1);
        let one = file(&fs, "one", &whole);
        let other = file(&fs, "other", &pattern(20 * BLOCK, 2));
        for (from, to, len) in [
            (1, 0, BLOCK),
            (0, 1, BLOCK),
            (0, 0, BLOCK + 1),
            (0, 0, 11 * BLOCK),
            // Its tail would be in the middle.
            (0, 0, 0),
            (10 * BLOCK, 12 * BLOCK, 7),
        ] {
            let refused = fs.clone_range((one, from), (other, to), len);
            assert!(
                matches!(refused, Err(crate::Error::Invalid(_))),
                "{from} {to} {len}"
            );
        }
        assert!(fs.clone_range((one, 0), (one, BLOCK), 2 * BLOCK).is_err());
        fs.clone_range((one, BLOCK), (one, 5 * BLOCK), 2 * BLOCK)
            .unwrap();
        let mut expected = whole.clone();
        let block = BLOCK as usize;
        expected.copy_within(block..3 * block, 5 * block);
        assert!(content(&fs, one) == expected);
        // Behind the end, with a gap.
        fs.clone_range((one, 0), (other, 30 * BLOCK), 0).unwrap();
        let mut theirs = pattern(20 * BLOCK, 2);
        theirs.resize(30 * block, 0);
        theirs.extend_from_slice(&expected);
        assert!(content(&fs, other) == theirs);
        fs.close().unwrap();
        assert!(scratch.is_sound());
    }

    /// Goal: a large leaf is shared as one, whatever the target had in its place.
    #[test]
    fn large_leaves_stay_large() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let one = file(&fs, "one", &pattern(2 << 20, 1));
        for (name, bytes) in [
            ("none", 0),
            ("block", 100),
            ("blocks", 9000),
            ("large", 2 << 20),
        ] {
            let other = file(&fs, name, &pattern(bytes, 2));
            fs.clone_range((one, 0), (other, 0), 0).unwrap();
            for ino in [one, other] {
                let tree = crate::inode::Inode::live(fs.pool(), ino).unwrap().tree();
                let found = tree.find(fs.pool(), 7).unwrap();
                assert!(
                    found.units == 512 && found.entry.is_shared(),
                    "{name} {found:?}"
                );
            }
        }
        fs.close().unwrap();
        assert!(scratch.is_sound());
    }

    fn root(fs: &Fs, ino: Ino) -> u64 {
        crate::inode::Inode::live(fs.pool(), ino).unwrap().root
    }

    fn free(fs: &Fs) -> u64 {
        fs.statfs().unwrap().blocks_free
    }

    fn whole(seed: u64) -> Vec<u8> {
        pattern(40 * BLOCK + 100, seed)
    }

    /// Goal: clones of a small file take no block, read the same, and all comes back in any order.
    #[test]
    fn a_clone_takes_no_block() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let one = file(&fs, "one", &whole(1));
        let names: Vec<String> = (0..20).map(|at| format!("clone {at}")).collect();
        let clones: Vec<Ino> = names.iter().map(|name| file(&fs, name, &[])).collect();
        let empty = free(&fs);
        fs.clone_range((one, 0), (clones[0], 0), 0).unwrap();
        let counted = free(&fs);
        for two in clones.windows(2) {
            fs.clone_range((two[0], 0), (two[1], 0), 0).unwrap();
        }
        assert_eq!(free(&fs), counted, "but for the counts");
        assert!(empty - counted <= 3);
        for &ino in &clones {
            assert!(content(&fs, ino) == whole(1));
            assert_eq!(root(&fs, ino), root(&fs, one));
            let blocks = [one, ino].map(|ino| fs.getattr(ino).unwrap().sectors);
            assert_eq!(blocks[0], blocks[1]);
        }
        for at in [7, 0, 19, 3] {
            fs.unlink(ROOT_INO, names[at].as_bytes()).unwrap();
        }
        fs.unlink(ROOT_INO, b"one").unwrap();
        assert!(content(&fs, clones[1]) == whole(1));
        assert_eq!(free(&fs), counted);
        fs.close().unwrap();
        assert!(scratch.is_sound());
        let fs = scratch.open();
        crate::recovery::attach::rebuild_held(fs.pool()).unwrap();
        for (at, &ino) in clones.iter().enumerate() {
            if ![7, 0, 19, 3].contains(&at) {
                assert!(content(&fs, ino) == whole(1));
                fs.unlink(ROOT_INO, names[at].as_bytes()).unwrap();
            }
        }
        fs.close().unwrap();
        assert!(scratch.is_sound());
        let fs = scratch.open();
        assert!(free(&fs) >= empty + 41, "{} {empty}", free(&fs));
    }

    /// Goal: the first change makes a node its own, the last that is left keeps the old one.
    #[test]
    fn a_change_makes_the_node_its_own() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let one = file(&fs, "one", &whole(1));
        let [other, third] = ["other", "third"].map(|name| file(&fs, name, &[]));
        fs.clone_range((one, 0), (other, 0), 0).unwrap();
        fs.clone_range((one, 0), (third, 0), 0).unwrap();
        let shared = root(&fs, one);
        assert!(super::Entry(shared).is_shared_node());
        let mut changed = whole(1);
        changed[5000..5003].fill(77);
        let before = fs.getattr(other).unwrap().sectors;
        fs.write(other, 5000, &[77; 3]).unwrap();
        assert_eq!(fs.getattr(other).unwrap().sectors, before);
        assert_ne!(root(&fs, other) & !0xfff, shared & !0xfff);
        fs.unlink(ROOT_INO, b"third").unwrap();
        // The old node is the file's alone again, and its blocks are those of both.
        fs.write(one, 9000, &[55; 3]).unwrap();
        assert_eq!(root(&fs, one) & !0xfff, shared & !0xfff);
        assert!(!super::Entry(root(&fs, one)).is_shared_node());
        assert!(content(&fs, other) == changed);
        let mut mine = whole(1);
        mine[9000..9003].fill(55);
        assert!(content(&fs, one) == mine);
        fs.close().unwrap();
        assert!(scratch.is_sound());
    }
}
