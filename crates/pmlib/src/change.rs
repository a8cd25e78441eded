//! The work of one record, as a transaction puts it together.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{KIND_OBJECTS, bitmap_words, class_chunks};

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::packed::Entry;
use crate::record::Entries;
use crate::space::{Claim, Place};

/// Room that may be taken again once the closing of the record that freed it is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freed {
    Place(Place),
    Chunks(u64, u64),
}

/// The work of one record.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub entries: Entries,
    /// Entries of the chunk table, each with what it has to be before.
    pub table: Vec<(u64, Entry, Entry)>,
    /// To be had again when the record is closed.
    pub freed: Vec<Freed>,
}

impl Change {
    /// Forgets everything but its memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.entries.clear();
        if !self.table.is_empty() || !self.freed.is_empty() {
            self.table.clear();
            self.freed.clear();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.table.is_empty()
    }

    /// Makes a claimed chunk one of objects, of which there are none. Before any of its bits is
    /// set.
    pub fn claim(&mut self, core: &Core, claim: Claim) -> Result<()> {
        let before = core.entry(claim.chunk).ok_or(Error::Broken)?;
        let after = before.becomes(KIND_OBJECTS, claim.class, class_chunks(claim.class));
        self.table.push((claim.chunk, before, after));
        let none = vec![0; bitmap_words(claim.class) as usize];
        self.entries.write(claim.chunk * CHUNK_BYTES, &none);
        Ok(())
    }
}
