//! The work that a transaction is going to do.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{KIND_FREE, KIND_RUN};
use pmlib_format::header::{NAMES_OFFSET, ROOT_OFFSET};

use crate::change::{Change, Freed};
use crate::copies::Copies;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::space::{Claim, Object};

/// A second wait costs less than to hash more bytes of new objects than these.
const HASHED_MAX: u64 = 64 << 10;

/// An object that a transaction has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub object: Object,
    /// A run's owner; for a planted bug, the bitmap's word when another place was reserved.
    pub word: u64,
}

/// The work that a transaction is going to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(super) copies: Copies,
    /// By their offsets.
    pub(super) made: Vec<(u64, Made)>,
    /// Made and freed again: given back at the end, since a part that fails may have freed it.
    pub(super) unmade: Vec<Object>,
    /// By their offsets.
    pub(super) freed: Vec<(u64, Object)>,
    pub(super) claims: Vec<Claim>,
    /// The root pointer's word.
    pub(super) root: Option<u64>,
    /// The word that leads to the named roots.
    pub(super) names: Option<u64>,
    /// Words of this run, stored after the commit (`crates/pmlib/src/apart.rs`).
    pub(crate) marks: Vec<(u64, u64)>,
    /// New objects are durable before the record.
    pub(crate) is_apart: bool,
    /// A call of a container has failed and may have left half of its change.
    pub(crate) is_spoiled: bool,
}

impl Plan {
    /// Forgets everything but its memory.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        // Each field by its name: none can be forgotten.
        let Plan {
            copies,
            made,
            unmade,
            freed,
            claims,
            root,
            names,
            marks,
            is_apart,
            is_spoiled,
        } = self;
        copies.clear();
        made.clear();
        freed.clear();
        // Seldom used. A store waits in the store buffer for the fence before it, and a look does
        // not.
        if !unmade.is_empty() || !claims.is_empty() || !marks.is_empty() {
            unmade.clear();
            claims.clear();
            marks.clear();
        }
        if root.is_some() || names.is_some() || *is_apart || *is_spoiled {
            (*root, *names) = (None, None);
            (*is_apart, *is_spoiled) = (false, false);
        }
    }

    #[inline(always)]
    pub(super) fn made_at(&self, offset: u64) -> std::result::Result<usize, usize> {
        if self.made.is_empty() {
            return Err(0);
        }
        self.made.binary_search_by_key(&offset, |&(made, _)| made)
    }

    pub(crate) fn note_made(&mut self, offset: u64, made: Made) {
        let at = self.made.partition_point(|&(other, _)| other < offset);
        self.made.insert(at, (offset, made));
    }

    pub(super) fn make(&mut self, offset: u64, made: Made) {
        self.note_made(offset, made);
        self.copies.make(offset, made.object.size());
    }

    #[inline]
    pub(super) fn free(&mut self, offset: u64, object: Object) {
        self.copies.forget(offset, object.size());
        let at = self.freed.partition_point(|&(other, _)| other < offset);
        self.freed.insert(at, (offset, object));
    }

    #[inline(always)]
    pub(super) fn has_freed(&self, offset: u64) -> bool {
        if self.freed.is_empty() {
            return false;
        }
        let found = self
            .freed
            .binary_search_by_key(&offset, |&(freed, _)| freed);
        found.is_ok()
    }

    /// Everything that it has made, also what it has freed again.
    pub(super) fn all_made(&self) -> impl Iterator<Item = Object> {
        let made = self.made.iter().map(|(_, made)| made.object);
        made.chain(self.unmade.iter().copied())
    }
}

impl Plan {
    /// The work of its record, but for new objects' content.
    pub(super) fn note_changes(&mut self, core: &Core, change: &mut Change) -> Result<()> {
        for &claim in &self.claims {
            change.claim(core, claim)?;
        }
        self.copies.diff(&mut change.entries);
        for (place, word) in [(ROOT_OFFSET, self.root), (NAMES_OFFSET, self.names)] {
            if let Some(word) = word {
                change.entries.write(place, &[word]);
            }
        }
        for (_, made) in &self.made {
            match made.object {
                Object::Shared(place) if planted!("bug-bit-set-absolute") => {
                    let (word, bit) = place.bit();
                    change.entries.write(word, &[made.word | bit]);
                }
                Object::Shared(place) => {
                    let (word, bit) = place.bit();
                    change.entries.set(word, bit);
                }
                Object::Run(first, chunks) => {
                    let before = core.entry(first).ok_or(Error::Broken)?;
                    let mut after = before.becomes(KIND_RUN, 0, chunks);
                    after.owner = made.word;
                    change.table.push((first, before, after));
                }
            }
        }
        for &(_, object) in &self.freed {
            note_free(core, object, change)?;
        }
        Ok(())
    }

    /// Gives back what it has taken and no record names.
    #[cold]
    pub(super) fn give_back(&self, core: &Core, lane: &mut Lane) {
        for object in self.all_made() {
            let claimed = |chunk| self.claims.iter().any(|claim| claim.chunk == chunk);
            if !chunk_of(object).is_some_and(claimed) {
                give_back(core, object);
            }
        }
        for &claim in &self.claims {
            core.unclaim(lane, claim);
        }
    }

    /// Has the record tell by hashes whether new objects were durable; much of them is stored, and
    /// durable, before the record is begun. Answers whether there are some that are not stored yet.
    pub(super) fn note_fresh(&self, core: &Core, change: &mut Change) -> Result<bool> {
        if self.made.is_empty() {
            return Ok(false);
        }
        let bytes: usize = self.copies.fresh().map(|(_, words)| 8 * words.len()).sum();
        if bytes as u64 > HASHED_MAX || self.is_apart {
            self.copies.store_fresh(core)?;
            core.mem.fence();
            return Ok(false);
        }
        for (offset, words) in self.copies.fresh() {
            let hash = core.key.hash(offset, words);
            change.entries.fresh(offset, words.len() as u64, hash);
        }
        Ok(true)
    }
}

fn note_free(core: &Core, object: Object, change: &mut Change) -> Result<()> {
    match object {
        Object::Shared(place) => {
            let (word, bit) = place.bit();
            change.entries.unset(word, bit);
            if !planted!("bug-freed-place-reused-before-durable") {
                change.freed.push(Freed::Place(place));
            }
        }
        Object::Run(first, chunks) => {
            let before = core.entry(first).ok_or(Error::Broken)?;
            if before.kind != KIND_RUN || before.chunks != chunks {
                let offset = offset_of(object);
                return Err(Error::NoObject { offset });
            }
            let after = before.becomes(KIND_FREE, 0, 0);
            change.table.push((first, before, after));
            change.freed.push(Freed::Chunks(first, chunks));
        }
    }
    Ok(())
}

/// Gives back what was made and freed again.
#[cold]
pub(super) fn give_back_all(core: &Core, unmade: &mut Vec<Object>) {
    for object in unmade.drain(..) {
        give_back(core, object);
    }
}

/// Gives back what an object took that is not to be.
pub(super) fn give_back(core: &Core, object: Object) {
    let _window = core.mem.window();
    match object {
        Object::Shared(place) => core.release(place),
        Object::Run(first, chunks) => core.untake(first, chunks),
    }
}

/// The chunk in which an object shares places.
pub(super) fn chunk_of(object: Object) -> Option<u64> {
    match object {
        Object::Shared(place) => Some(place.chunk),
        Object::Run(..) => None,
    }
}

/// Where an object is.
pub(super) fn offset_of(object: Object) -> u64 {
    match object {
        Object::Shared(place) => place.offset(),
        Object::Run(first, _) => first * CHUNK_BYTES,
    }
}
