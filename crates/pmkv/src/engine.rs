//! The parts in which the kinds of engines differ: how keys are spread over groups of slots.

use std::fmt::Debug;

use crate::error::Result;
use crate::group::{Group, Located};
use crate::key::{Key, KeyHash};
use crate::kv::Kv;
use crate::slot::Slot;
use crate::snapshot::{Copied, Order};

/// How an engine's chunks are cut. The cut never changes.
pub trait Cut: Copy + Debug + Default + Send + Sync {
    /// The word in an engine's head.
    fn word(&self) -> u64;
    /// The cut in such a word; `None`: of no engine of this kind that this build knows.
    fn of(word: u64) -> Option<Self>;
    /// Whether an engine can have it.
    fn is_possible(&self) -> bool;
    /// log2 of the most places of a record chunk.
    fn places_log2(&self) -> u64;
    /// Lines of slots that are searched together, numbered from 1 on.
    fn lines(&self) -> u64;
    /// A key's own two lines.
    fn own_lines(&self, hash: KeyHash) -> [u64; 2];
    /// The lines of keys whose own are full.
    fn other_lines(&self, hash: KeyHash) -> impl Iterator<Item = u64> + use<Self>;
}

/// A kind of engine. Calls say more in `crate::group`, where they are used.
pub trait Index: Sized {
    /// Knowledge of an engine that a process keeps.
    type State: Default + Send + Sync;
    /// How chunks are cut.
    type Cut: Cut;
    /// How far a walk over all groups has come.
    type Position: Clone + Debug + Default;
    /// How a key's lines were found, so that it can be asked whether that still holds.
    type Way: Copy + Debug;
    /// An index chunk, to one who copies its slots.
    type Piece;
    /// The way to a key's slots in such a copy.
    type Order: Order + 'static;

    /// The content of an engine's first index chunk, and the chunk's note.
    fn first_chunk(cut: &Self::Cut) -> (Vec<u8>, u64);

    /// The bytes of a chunk in the directory, which has this word and this least key.
    fn entry(_: &Kv<'_, Self>, word: u64, _: &[u8]) -> Vec<u8> {
        word.to_le_bytes().to_vec()
    }

    /// An engine was opened.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn opened(kv: &Kv<'_, Self>) -> Result<()>;

    /// The lines of a key; `None`: that is being changed.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn locate(kv: &Kv<'_, Self>, key: Key<'_>) -> Result<Option<Located<Self::Way>>>;

    /// Whether these are still the lines of the keys of which they were.
    fn is_still(kv: &Kv<'_, Self>, located: &Located<Self::Way>) -> bool;

    /// The same with the chunk locked; `false` also if something in it has to be mended.
    fn is_ready(kv: &Kv<'_, Self>, located: &Located<Self::Way>) -> bool {
        Self::is_still(kv, located)
    }

    /// Locks a key's lines, in a write window, and has them be settled; `first`: where they were
    /// found before.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn lock_from<'h>(
        kv: &Kv<'h, Self>,
        key: Key<'_>,
        first: Option<Located<Self::Way>>,
    ) -> Result<Group<'h, Self>>;

    /// Settles all lines of a group of a locked chunk, in a write window.
    ///
    /// # Errors
    /// `Heap`.
    fn settle(kv: &Kv<'_, Self>, located: &Located<Self::Way>) -> Result<()>;

    /// Whether a slot may be of these lines, as it tells by itself.
    fn may_have(kv: &Kv<'_, Self>, located: &Located<Self::Way>, slot: Slot) -> bool;

    /// Whether a key's slot can be in these lines.
    fn has(kv: &Kv<'_, Self>, located: &Located<Self::Way>, key: Key<'_>) -> bool;

    /// Makes room where a key's lines are full; nothing is locked.
    ///
    /// # Errors
    /// `Crowded`, `Corrupt`, `Damaged`; `Heap`.
    fn split(kv: &Kv<'_, Self>, key: Key<'_>, full: &Located<Self::Way>) -> Result<()>;

    /// Makes room for a batch of these keys; number `nth` found its lines full. Nothing is locked.
    ///
    /// # Errors
    /// Those of [`Index::split`].
    fn make_room(
        kv: &Kv<'_, Self>,
        keys: &[Key<'_>],
        nth: usize,
        full: &Located<Self::Way>,
    ) -> Result<()> {
        Self::split(kv, keys[nth], full)
    }

    /// The next lines of a walk, locked and settled, in a write window; `None`: that was all. Keys
    /// that are there throughout are in one of them, whatever is split meanwhile.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn next_group<'h>(
        kv: &Kv<'h, Self>,
        position: &mut Self::Position,
    ) -> Result<Option<Group<'h, Self>>>;

    /// How far a walk has come, in thousandths.
    fn per_mille(kv: &Kv<'_, Self>, position: &Self::Position) -> u32;

    /// Shows all lines, as a walk has them. In a write window.
    ///
    /// # Errors
    /// Those of `show`; `Damaged`, `Corrupt`; `Heap`.
    fn each_group<'h>(
        kv: &Kv<'h, Self>,
        mut show: impl FnMut(&Group<'h, Self>) -> Result<()>,
    ) -> Result<()> {
        let mut position = Self::Position::default();
        while let Some(group) = Self::next_group(kv, &mut position)? {
            show(&group)?;
        }
        Ok(())
    }

    /// Needs fewer lines for its keys, if it can; in a write window, nothing is locked.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn compact(_: &Kv<'_, Self>) -> Result<()> {
        Ok(())
    }

    /// All index chunks, in the order of their keys. While the head is locked there are no others.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn pieces(kv: &Kv<'_, Self>) -> Result<Vec<Self::Piece>>;

    /// The number of a chunk.
    fn chunk_of(piece: &Self::Piece) -> u64;

    /// Parts of a chunk that have the lines of [`Cut::lines`], at most.
    fn parts_of_chunk(cut: &Self::Cut) -> usize;

    /// Settles all of a locked chunk, in a write window; `false`: it has other keys by now.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn settle_piece(kv: &Kv<'_, Self>, piece: &Self::Piece) -> Result<bool>;

    /// The way to the slots of a copy in which no chunk is.
    fn order(kv: &Kv<'_, Self>) -> Self::Order;

    /// Copies the slots of a locked chunk that is settled, behind those before it.
    ///
    /// # Errors
    /// `Damaged`, `Corrupt`; `Heap`.
    fn copy_piece(
        kv: &Kv<'_, Self>,
        piece: &Self::Piece,
        order: &mut Self::Order,
        copied: &mut Copied,
    ) -> Result<()>;

    /// A place that locked lines name beside their slots.
    fn place_beside(_: &Kv<'_, Self>, _: &Located<Self::Way>) -> Option<Slot> {
        None
    }
}
