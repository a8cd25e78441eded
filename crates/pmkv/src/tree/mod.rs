//! The tree: keys in the order of their bytes.
//!
//! - An index chunk has the keys of a range, and its *leaves* parts of that: lines of slots that
//!   are searched by hash, as the groups of the hash engine are. A leaf's first line names a
//!   record, its *fence*, whose key is the least that the leaf may have. Its range ends where the
//!   next begins.
//! - The chunks are in the directory in the order in which they were made. Each names its least
//!   key. A process keeps to itself which chunk a key belongs to (`top`), and which leaf of a chunk
//!   (`map`). Both are read anew when they are found out of date.
//! - Leaves are split under their chunk's lock by a protocol of their own, chunks by a transaction
//!   (`split`). Leaves are joined when room is given back (`join`), chunks are not.
//!
//! The upper bits of a chunk's note (`crate::group`) tell of the chunk as a whole: that it was
//! mended in this run, that its holder is splitting a leaf, and a version, which changes with its
//! leaves. The version has 30 bits: a map would have to be left alone for 2^30 splits of one chunk
//! to be taken for a current one.

mod entry;
mod fences;
mod join;
mod leaf;
mod listed;
mod map;
mod mend;
mod order;
mod parted;
mod range;
mod room;
mod shape;
mod split;
mod top;

use pmlib::ground::Locked;
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::INDEX_MAGIC;

use crate::engine::Index;
use crate::error::{Error, Result};
use crate::group::{Group, Located, all_settled};
use crate::key::Key;
use crate::kv::Kv;
use crate::slot::Slot;
use crate::snapshot::{ByFences, Copied};

pub use range::Range;
pub use shape::TreeShape;

pub(crate) use fences::Fences;
pub(crate) use map::{Found, Map, Seek, Shared as MapShared};
pub(crate) use top::{Known, State};

/// A note's bit: the chunk was mended in this run.
pub(crate) const MENDED: u64 = 1 << 21;
/// A note's bit: the lock's holder is splitting a leaf, or joining two.
pub(crate) const SPLITTING: u64 = 1 << 22;
/// Where a note's version begins, and its bits; the two above are the batches'.
const VERSION_SHIFT: u32 = 32;
const VERSION_MASK: u64 = (1 << 30) - 1;

/// The word of a leaf whose range begins with the least key of all.
pub(crate) const FIRST: u64 = 1 << pmlib_format::kv::SLOT_HASH_SHIFT;

/// The version of a chunk that a split has made.
pub(crate) const NEW_VERSION: u32 = 1;

/// The version in a chunk's note.
#[inline]
pub(crate) fn version_of(note: u64) -> u32 {
    (note >> VERSION_SHIFT & VERSION_MASK) as u32
}

/// The note of a mended chunk of this version, none of whose groups is known to be settled.
pub(crate) fn mended(version: u32) -> u64 {
    MENDED | (u64::from(version) & VERSION_MASK) << VERSION_SHIFT
}

/// The word of a leaf with a fence at a place.
pub(crate) fn leaf_word(place: u64, instance: u64) -> Slot {
    Slot::new(place, instance, 1)
}

/// Keys in the order of their bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByKey {}

/// A tree of a heap: keys in the order of their bytes.
///
/// ```
/// # use pmlib::{Heap, Options};
/// let heap = Heap::private(4 << 20, &Options::default())?;
/// let years = pmkv::Tree::open(&heap, "years")?;
/// years.put(b"1815", b"Ada")?;
/// years.put(b"1912", b"Alan")?;
/// years.put(b"1906", b"Grace")?;
/// let names: Vec<Vec<u8>> = years
///     .range("1900".."1910")
///     .map(|entry| entry.map(|(_, name)| name))
///     .collect::<Result<_, _>>()?;
/// assert_eq!(names, [b"Grace"]);
/// # Ok::<_, pmkv::Error>(())
/// ```
pub type Tree<'h> = Kv<'h, ByKey>;

/// The leaf of a key, and the version of its chunk.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub(crate) version: u32,
    pub(crate) leaf: u64,
}

/// How far a walk over all leaves has come: the least key of those that are to come.
#[derive(Clone, Debug)]
pub struct Position {
    next: Option<Vec<u8>>,
}

impl Default for Position {
    fn default() -> Position {
        Position {
            next: Some(Vec::new()),
        }
    }
}

/// The content of a tree's index chunk without leaves, whose least key a word names.
pub(crate) fn empty_chunk(least: u64) -> Vec<u8> {
    let mut content = vec![0; CHUNK_BYTES as usize];
    content[..8].copy_from_slice(&INDEX_MAGIC.to_le_bytes());
    content[8..16].copy_from_slice(&least.to_le_bytes());
    content
}

impl<'h> Tree<'h> {
    pub(crate) fn leaf_of(&self, chunk: u64, leaf: u64, version: u32) -> Located<Way> {
        Located {
            chunk,
            notes: self.note(chunk),
            group: self.cut.group_of(leaf),
            start: self.cut.leaf_at(chunk, leaf),
            way: Way { version, leaf },
        }
    }

    fn located(&self, found: &Found<'_>) -> Located<Way> {
        self.leaf_of(found.chunk, found.leaf(), found.map.version)
    }

    /// Locks the leaf that is sought, in a write window, and has it be settled; answers it
    /// with the answer of `show`.
    pub(crate) fn lock_leaf<T>(
        &self,
        seek: Seek<'_>,
        show: impl FnOnce(&Found<'_>) -> T,
    ) -> Result<(Group<'h, ByKey>, T)> {
        let (locked, known, map) = self.lock_chunk_at(seek)?;
        let found = Found::of(&known, &map, seek);
        let located = self.located(&found);
        self.settle_if_needed(&located)?;
        Ok((Group::of(located, locked), show(&found)))
    }

    /// Locks the chunk in which the leaf is that is sought, mended, with its map.
    pub(crate) fn lock_chunk_at(
        &self,
        seek: Seek<'_>,
    ) -> Result<(Locked<'h>, top::Shared, map::Shared)> {
        // Each round but the first meets a split, which needs many puts.
        for _ in 0..1000 {
            let known = self.state.known(seek);
            let locked = self.lock_chunk(known.chunk)?;
            let map = self.map_when_locked(&known)?;
            if !map.is_past(seek) {
                return Ok((locked, known, map));
            }
            drop(locked);
            self.refresh()?;
        }
        Err(self.damaged("its directory", self.head))
    }
}

impl Index for ByKey {
    type State = State;
    type Cut = TreeShape;
    type Position = Position;
    type Way = Way;
    type Piece = top::Shared;
    type Order = ByFences;

    fn first_chunk(cut: &TreeShape) -> (Vec<u8>, u64) {
        let mut content = empty_chunk(FIRST);
        let at = cut.leaf_at(0, 0) as usize;
        content[at..at + 8].copy_from_slice(&FIRST.to_le_bytes());
        (content, mended(1) | all_settled(cut.groups))
    }

    fn entry(kv: &Kv<'_, Self>, word: u64, low: &[u8]) -> Vec<u8> {
        kv.new_entry(word, low)
    }

    fn opened(kv: &Kv<'_, Self>) -> Result<()> {
        kv.refresh()
    }

    #[inline]
    fn locate(kv: &Kv<'_, Self>, key: Key<'_>) -> Result<Option<Located<Way>>> {
        kv.look_up(Seek::At(key.bytes), |found| kv.located(found))
    }

    #[inline]
    fn is_still(kv: &Kv<'_, Self>, located: &Located<Way>) -> bool {
        let note = kv.ground.mem().load_cached(kv.note(located.chunk));
        note & MENDED != 0 && version_of(note) == located.way.version
    }

    #[inline]
    fn is_ready(kv: &Kv<'_, Self>, located: &Located<Way>) -> bool {
        let note = kv.ground.mem().load_cached(kv.note(located.chunk));
        note & SPLITTING == 0 && Self::is_still(kv, located)
    }

    #[inline]
    fn lock_from<'h>(
        kv: &Kv<'h, Self>,
        key: Key<'_>,
        first: Option<Located<Way>>,
    ) -> Result<Group<'h, Self>> {
        if let Some(located) = first {
            let locked = kv.lock_chunk(located.chunk)?;
            if Self::is_ready(kv, &located) {
                kv.settle_if_needed(&located)?;
                return Ok(Group::of(located, locked));
            }
        }
        let (group, ()) = kv.lock_leaf(Seek::At(key.bytes), |_| ())?;
        Ok(group)
    }

    fn settle(kv: &Kv<'_, Self>, located: &Located<Way>) -> Result<()> {
        for nth in 0..kv.cut.leaves {
            let leaf = located.group * kv.cut.leaves + nth;
            let leaf = kv.leaf_of(located.chunk, leaf, located.way.version);
            if kv.ground.mem().load(leaf.start) != 0 {
                kv.settle_lines(&leaf)?;
            }
        }
        Ok(())
    }

    fn may_have(_: &Kv<'_, Self>, _: &Located<Way>, _: Slot) -> bool {
        true
    }

    fn has(kv: &Kv<'_, Self>, located: &Located<Way>, key: Key<'_>) -> bool {
        let is_here =
            |found: &Found<'_>| found.chunk == located.chunk && found.leaf() == located.way.leaf;
        // Its check has said already that it is a record; where it belongs may be in dispute.
        matches!(
            kv.look_up(Seek::At(key.bytes), is_here),
            Ok(Some(true) | None)
        )
    }

    fn split(kv: &Kv<'_, Self>, key: Key<'_>, full: &Located<Way>) -> Result<()> {
        kv.split_leaf(key, full)
    }

    fn make_room(kv: &Kv<'_, Self>, keys: &[Key<'_>], _: usize, _: &Located<Way>) -> Result<()> {
        kv.make_room_for(keys)
    }

    fn next_group<'h>(
        kv: &Kv<'h, Self>,
        position: &mut Position,
    ) -> Result<Option<Group<'h, Self>>> {
        let Some(next) = &mut position.next else {
            return Ok(None);
        };
        let (group, end) = kv.lock_leaf(Seek::At(next), |found| found.end())?;
        position.next = end;
        Ok(Some(group))
    }

    fn per_mille(kv: &Kv<'_, Self>, position: &Position) -> u32 {
        kv.state.top().per_mille(position.next.as_deref())
    }

    fn compact(kv: &Kv<'_, Self>) -> Result<()> {
        kv.join_leaves()
    }

    fn pieces(kv: &Kv<'_, Self>) -> Result<Vec<top::Shared>> {
        kv.refresh()?;
        Ok(kv.state.top().chunks().to_vec())
    }

    fn chunk_of(piece: &top::Shared) -> u64 {
        piece.chunk
    }

    fn parts_of_chunk(cut: &TreeShape) -> usize {
        cut.all_leaves() as usize
    }

    fn settle_piece(kv: &Kv<'_, Self>, piece: &top::Shared) -> Result<bool> {
        let map = kv.map_when_locked(piece)?;
        for &leaf in &map.leaves {
            kv.settle_if_needed(&kv.leaf_of(piece.chunk, leaf, map.version))?;
        }
        Ok(true)
    }

    fn order(_: &Kv<'_, Self>) -> ByFences {
        ByFences::default()
    }

    fn copy_piece(
        kv: &Kv<'_, Self>,
        piece: &top::Shared,
        order: &mut ByFences,
        copied: &mut Copied,
    ) -> Result<()> {
        let map = kv.map_when_locked(piece)?;
        order.add_chunk(map.clone(), copied.parts());
        for &leaf in &map.leaves {
            kv.copy_lines(&kv.leaf_of(piece.chunk, leaf, map.version), copied);
        }
        Ok(())
    }

    fn place_beside(kv: &Kv<'_, Self>, located: &Located<Way>) -> Option<Slot> {
        let word = Slot(kv.ground.mem().load(located.start));
        (word.place() != 0).then_some(word)
    }
}

/// A fence whose record is not as it was stored.
#[cold]
fn corrupt<T>(offset: u64) -> Result<T> {
    Err(Error::Corrupt { offset })
}
