//! Mending a chunk: what power loss, or the death of a process that split it or one of its leaves,
//! left becomes a chunk whose leaves have each key once.
//!
//! - A leaf behind the chunk's range is another chunk's by now: its word is cleared.
//! - A leaf that is being joined to the one before it stays one, if its word is there.
//! - A leaf whose split was under way is one, because its content was durable before its word. The
//!   slots that it took over are cleared in the leaf before it, if they still stand there.

use super::map::Leaf;
use super::{Known, SPLITTING, Tree, mended, version_of};
use crate::engine::Cut;
use crate::error::Result;
use crate::record;
use crate::slot::Slot;
use pmlib_format::kv::{STATE_LIVE, STATE_PUT};

impl Tree<'_> {
    /// Mends a locked chunk, in a write window.
    #[cold]
    pub(crate) fn mend(&self, known: &Known) -> Result<()> {
        let (mem, chunk) = (self.ground.mem(), known.chunk);
        self.refresh()?;
        let mut leaves = self.read_leaves(chunk)?;
        let Some(first) = leaves.first() else {
            return Err(self.damaged("a chunk of leaves", chunk * pmlib_format::CHUNK_BYTES));
        };
        let high = self.state.top().end_of(chunk, &first.low);
        self.mark_sequence(chunk, true);
        if !planted!("bug-leaves-of-another-chunk-kept")
            && let Some(high) = high
        {
            let behind = leaves.partition_point(|leaf| leaf.low < high);
            for leaf in leaves.split_off(behind) {
                let at = self.cut.leaf_at(chunk, leaf.leaf);
                mem.store(at, 0);
                mem.flush(at, 8);
            }
            // Their fences' places are the other chunk's, and may be free one day.
            mem.fence();
        }
        for nth in 1..leaves.len() {
            if leaves[nth].word.state() == STATE_PUT {
                self.mend_split(chunk, &leaves[nth - 1], &leaves[nth])?;
            }
        }
        let at = self.note(chunk);
        let note = mem.load_cached(at);
        if note & SPLITTING != 0 {
            self.mend_rest(chunk, &leaves);
        }
        self.mark_sequence(chunk, false);
        let version = version_of(note);
        mem.store(at, mended(version.wrapping_add(1)));
        Ok(())
    }

    /// Has the leaves that are none be so durably, and empty for readers: one of them may have been
    /// joined by a process that died.
    fn mend_rest(&self, chunk: u64, leaves: &[Leaf]) {
        let mem = self.ground.mem();
        for leaf in 0..self.cut.all_leaves() {
            if !leaves.iter().any(|one| one.leaf == leaf) {
                let rest = self.leaf_of(chunk, leaf, 0);
                self.clear_leaf(&rest);
                mem.flush(rest.start, 8);
            }
        }
        mem.fence();
    }

    /// Finishes the split by which a leaf came to be, or undoes the join by which it was to end.
    fn mend_split(&self, chunk: u64, before: &Leaf, leaf: &Leaf) -> Result<()> {
        let mem = self.ground.mem();
        let at = self.cut.leaf_at(chunk, leaf.leaf);
        // The one who died may not have come to its fence.
        mem.flush(at, 8);
        mem.fence();
        if !planted!("bug-leaf-split-not-mended") {
            let start = self.leaf_of(chunk, before.leaf, 0);
            for line in 1..=self.cut.lines() {
                let words: [u64; 8] = mem.read(start.line(line));
                for (nth, &word) in words.iter().enumerate() {
                    if self.is_of(Slot(word), &leaf.low)? {
                        mem.store(start.line(line) + nth as u64 * 8, 0);
                    }
                }
            }
            mem.flush(start.line(1), self.cut.lines() * 64);
            mem.fence();
        }
        mem.store(at, leaf.word.with_state(STATE_LIVE).0);
        mem.flush(at, 8);
        mem.fence();
        Ok(())
    }

    /// Whether a slot's key is not less than a fence.
    fn is_of(&self, slot: Slot, low: &[u8]) -> Result<bool> {
        if slot.0 == 0 {
            return Ok(false);
        }
        let place = slot.place();
        match record::head_at(self.ground, place) {
            Some(head)
                if head.instance == slot.instance()
                    && record::is_whole(self.ground, place, head)? =>
            {
                Ok(&record::key_of(self.ground, place, head)?[..] >= low)
            }
            _ => Ok(false),
        }
    }
}
