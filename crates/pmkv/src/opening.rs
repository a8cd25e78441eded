//! How an engine is made, found by its name, and opened.

use pmlib::Heap;
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{KIND_HASH, KIND_TREE, KvHeadRaw};

use crate::directory::{Directory, chunk_word};
use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::expiry::system_clock;
use crate::kv::Kv;
use crate::places::Pools;

/// The fingerprint of an engine's head among named roots: `PMKVHEAD`.
const FINGERPRINT: u64 = u64::from_le_bytes(*b"PMKVHEAD");
const HEAD_BYTES: u64 = size_of::<KvHeadRaw>() as u64;

/// The head of the engine of this name, if there is one that was made to its end.
fn made_head(heap: &Heap, name: &str) -> Result<Option<u64>> {
    let head = heap.find_root_of(name, FINGERPRINT, HEAD_BYTES)?;
    Ok(head.filter(|&head| heap.ground().mem().load(head) != 0))
}

/// The kinds of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Keys in no order ([`crate::Hash`]).
    Hash,
    /// Keys in the order of their bytes, in a tree.
    Tree,
}

impl Kind {
    /// The kind in a head's word; `None`: this build does not know it.
    fn of(word: u64) -> Option<Kind> {
        match word >> 16 & 0xff {
            KIND_HASH => Some(Kind::Hash),
            KIND_TREE => Some(Kind::Tree),
            _ => None,
        }
    }

    /// The kind of the engine of this name; `None`: there is none, or its making has not come to
    /// its end.
    ///
    /// # Errors
    /// `Heap`; `Shape`: this build does not know it.
    pub fn of_engine(heap: &Heap, name: &str) -> Result<Option<Kind>> {
        let Some(head) = made_head(heap, name)? else {
            return Ok(None);
        };
        let found = heap.ground().mem().load(head + 8);
        let kind = Kind::of(found).ok_or(Error::Shape { found })?;
        Ok(Some(kind))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Hash => "hash",
            Kind::Tree => "tree",
        })
    }
}

impl<'h, I: Index> Kv<'h, I> {
    /// The engine of this name; made, if it is missing. A name is one of the heap's named roots.
    ///
    /// # Errors
    /// `Heap`: the name is another root's, the heap is full or only read; `Kind`: an engine of
    /// another kind; `Shape`: one that this build does not know.
    pub fn open(heap: &'h Heap, name: &str) -> Result<Self> {
        Self::open_as(heap, name, I::Cut::default())
    }

    /// The engine of this name; `None`: there is none, and none is made.
    ///
    /// # Errors
    /// Those of [`Kv::open`].
    pub fn existing(heap: &'h Heap, name: &str) -> Result<Option<Self>> {
        match made_head(heap, name)? {
            Some(_) => Self::open(heap, name).map(Some),
            None => Ok(None),
        }
    }

    /// The names of a heap's engines of all kinds, the latest first. A heap that was opened to be
    /// read tells them as well.
    ///
    /// # Errors
    /// `Heap`: its list of roots is damaged.
    pub fn names(heap: &Heap) -> Result<Vec<String>> {
        Ok(heap.root_names(FINGERPRINT)?)
    }

    /// Like [`Kv::open`]; one that is made is cut so. For checkers, to which a small engine shows
    /// as much as a large one.
    ///
    /// # Errors
    /// Those of [`Kv::open`]; `Shape`: it can't be cut so.
    #[doc(hidden)]
    pub fn open_as(heap: &'h Heap, name: &str, cut: I::Cut) -> Result<Self> {
        if !cut.is_possible() {
            let found = cut.word();
            return Err(Error::Shape { found });
        }
        let ground = heap.ground();
        ground.enter()?;
        let head = heap.root_of(name, FINGERPRINT, HEAD_BYTES)?;
        let mut kv = Kv {
            heap,
            ground,
            head,
            cut,
            pools: Pools::default(),
            clock: system_clock,
            state: I::State::default(),
        };
        if ground.mem().load(head) == 0 {
            kv.make_head()?;
        }
        let found = ground.mem().load(head + 8);
        kv.cut = match (I::Cut::of(found), Kind::of(found)) {
            (Some(cut), _) => cut,
            (None, Some(kind)) if Kind::of(cut.word()) != Some(kind) => {
                return Err(Error::Kind { found: kind });
            }
            (None, _) => return Err(Error::Shape { found }),
        };
        kv.settle_batch_of_former_run()?;
        I::opened(&kv)?;
        Ok(kv)
    }

    /// Makes an engine's first chunk and its directory.
    fn make_head(&self) -> Result<()> {
        self.heap.tx(|tx| {
            tx.lock(self.head)?;
            let mut word = [0; 8];
            tx.read_bytes(self.head, 0, &mut word)?;
            if word != [0; 8] {
                return Ok(());
            }
            let (content, note) = I::first_chunk(&self.cut);
            let chunk = self.make_index(tx, &content, note)?;
            let first = I::entry(self, chunk_word(chunk, 0, self.head), &[]);
            let bytes = first.len() as u64;
            let offset = tx.alloc(bytes.max(16))?;
            tx.edit_bytes(offset, 0, bytes)?.copy_from_slice(&first);
            let directory = Directory { offset, depth: 0 };
            let words = [directory.word(self.head), self.cut.word()];
            let copy = tx.edit_bytes(self.head, 0, 16)?;
            for (to, word) in copy.chunks_mut(8).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            Ok(())
        })
    }

    /// Makes an index chunk with this content and note in a transaction; answers the chunk.
    pub(crate) fn make_index(
        &self,
        tx: &mut pmlib::Tx<'_>,
        content: &[u8],
        note: u64,
    ) -> Result<u64> {
        let start = tx.take_owned(CHUNK_BYTES, self.head)?;
        let mem = self.ground.mem();
        let _window = mem.window();
        mem.write_nt(start, content)?;
        mem.fence();
        let chunk = start / CHUNK_BYTES;
        // Nothing was ever under way in it.
        mem.store(self.note(chunk), note);
        Ok(chunk)
    }
}
