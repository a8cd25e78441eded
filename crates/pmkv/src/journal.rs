//! The journal of an engine: how a batch is all or nothing.
//!
//! A batch stores its records, and a journal record with an image of each line of the index that it
//! changes; one fence makes all of it durable. Then it stores the lines, has them be durable, and
//! says that the batch is over, durably too, before it unlocks anything. So at most one batch is
//! ever to be redone, and what came after it is never overwritten.
//!
//! - A journal record counts if its number is the one after the last batch that is over, its check
//!   fits, and so do those of all records that its new slots name. It is redone or given up by
//!   whoever opens the engine first in a run, and by whoever meets the mark of a dead process.
//! - The mark ([`BATCH`]) stands in the note of each index chunk that a batch has locked, from
//!   before its journal record is stored until it is over.
//! - Locks are taken in this order: a transaction's on the head, the journal's, those of index
//!   chunks by their numbers. Nobody begins a transaction with the journal locked.

use pmlib::ground::Locked;
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{
    JOURNAL_HEAD_BYTES, JOURNAL_IMAGE_BYTES, JOURNAL_MAGIC, JOURNAL_OFFSET, JOURNAL_RECORD_BYTES,
    STATE_LIVE, STATE_PUT,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::directory::{checked, is_checked};
use crate::engine::Index;
use crate::error::{Error, Result};
use crate::group::BATCH;
use crate::kv::Kv;
use crate::record;
use crate::slot::Slot;

/// The journal's note: no batch is under way, and the last one is over.
const IDLE: u64 = 1;
/// The same: a batch is under way.
const BUSY: u64 = 2;
/// Bits of a chunk in the head's word, and of a batch's number.
const NUMBER_BITS: u32 = 48;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// So that a journal's words can't be taken for a directory's.
const SALT: u64 = 0x6a6f_7572_6e61_6c21;

/// A line of the index as it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub at: u64,
    /// New slots are in the state "put".
    pub words: [u64; 8],
}

/// An engine's journal: its first chunk, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub chunk: u64,
    bytes: u64,
}

/// A journal that this thread has locked, and that is idle.
pub(crate) struct OpenJournal<'h> {
    pub journal: Journal,
    _locked: Locked<'h>,
}

impl Journal {
    fn start(self) -> u64 {
        self.chunk * CHUNK_BYTES
    }

    fn record(self) -> u64 {
        self.start() + JOURNAL_HEAD_BYTES
    }

    /// The most images that it has room for.
    pub fn images_max(self) -> u64 {
        (self.bytes - JOURNAL_HEAD_BYTES - JOURNAL_RECORD_BYTES) / JOURNAL_IMAGE_BYTES
    }

    fn bytes_for(images: u64) -> u64 {
        JOURNAL_HEAD_BYTES + JOURNAL_RECORD_BYTES + images * JOURNAL_IMAGE_BYTES
    }
}

impl<'h, I: Index> Kv<'h, I> {
    fn journal_word(&self) -> u64 {
        self.ground.mem().load_cached(self.head + JOURNAL_OFFSET)
    }

    /// The engine's journal; `None`: there was no batch yet.
    fn journal(&self) -> Result<Option<Journal>> {
        let word = self.journal_word();
        if word == 0 {
            return Ok(None);
        }
        let chunk = word & NUMBER_MASK;
        let bytes = self.ground.owned(chunk, self.head) * CHUNK_BYTES;
        let is_one = is_checked(word, self.head ^ SALT)
            && bytes > 0
            && self.ground.mem().load(chunk * CHUNK_BYTES) == JOURNAL_MAGIC;
        match is_one {
            true => Ok(Some(Journal { chunk, bytes })),
            false if self.journal_word() != word => self.journal(),
            false => Err(self.damaged("the word of its journal", self.head + JOURNAL_OFFSET)),
        }
    }

    /// Has there be a journal with room for so many images; nothing is locked.
    pub(crate) fn need_journal(&self, images: u64) -> Result<()> {
        let has_room = |journal: Option<Journal>| {
            journal.is_some_and(|journal| journal.images_max() >= images)
        };
        if has_room(self.journal()?) {
            return Ok(());
        }
        // Held until the new one is the engine's, so that no batch goes by the old one.
        let mut old: Option<OpenJournal<'h>> = None;
        let mut is_replaced = false;
        self.heap.tx(|tx| {
            tx.lock(self.head)?;
            if has_room(self.journal()?) {
                return Ok(());
            }
            let _window = self.ground.mem().window();
            old = self.lock_journal()?;
            let done = match &old {
                Some(open) => self.batches_done(open.journal)?,
                None => 0,
            };
            let bytes = Journal::bytes_for(images).next_multiple_of(CHUNK_BYTES);
            let start = tx.take_owned(bytes, self.head)?;
            let chunk = start / CHUNK_BYTES;
            self.begin_journal(Journal { chunk, bytes }, done)?;
            let word = checked(chunk, self.head ^ SALT);
            tx.edit_bytes(self.head, JOURNAL_OFFSET, 8)?
                .copy_from_slice(&word.to_le_bytes());
            is_replaced = true;
            Ok::<_, Error>(())
        })?;
        let Some(OpenJournal { journal, _locked }) = old else {
            return Ok(());
        };
        let _window = self.ground.mem().window();
        drop(_locked);
        if is_replaced {
            self.heap.tx(|tx| tx.free(journal.start()))?;
        }
        Ok(())
    }

    /// Stores the head of a new journal, and what ends a record of a former life there.
    fn begin_journal(&self, journal: Journal, done: u64) -> Result<()> {
        let mem = self.ground.mem();
        let mut bytes = [0; (JOURNAL_HEAD_BYTES + JOURNAL_RECORD_BYTES) as usize];
        let done = checked(done, journal.start() ^ SALT);
        for (to, word) in bytes.chunks_mut(8).zip([JOURNAL_MAGIC, done, done]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        mem.write_nt(journal.start(), &bytes)?;
        mem.fence();
        mem.store(self.note(journal.chunk), IDLE);
        Ok(())
    }

    /// The number of the last batch that is over. It stands there twice, against a flipped bit.
    fn batches_done(&self, journal: Journal) -> Result<u64> {
        let [one, two] = self.ground.mem().read(journal.start() + 8);
        let numbers = [one, two].into_iter().filter_map(|word| {
            is_checked(word, journal.start() ^ SALT).then_some(word & NUMBER_MASK)
        });
        // A crash between the two leaves the first one ahead.
        let last = numbers.reduce(|one, other| match one.wrapping_sub(other) & NUMBER_MASK {
            1 => one,
            _ => other,
        });
        last.ok_or_else(|| self.damaged("its journal", journal.start()))
    }

    /// Says, durably, that a batch is over.
    fn end_batch(&self, journal: Journal, number: u64) {
        let (mem, at) = (self.ground.mem(), journal.start() + 8);
        let word = checked(number, journal.start() ^ SALT);
        mem.store(at, word);
        mem.store(at + 8, word);
        mem.flush(at, 16);
        if !planted!("bug-batch-over-unfenced") {
            mem.fence();
        }
    }

    /// Locks the journal, and brings the batch of a dead process to its end; in a write window.
    /// `None`: there is no journal.
    pub(crate) fn lock_journal(&self) -> Result<Option<OpenJournal<'h>>> {
        loop {
            let Some(journal) = self.journal()? else {
                return Ok(None);
            };
            let locked = self.ground.lock(journal.chunk);
            if self.journal()? != Some(journal) {
                continue;
            }
            if self.ground.mem().load_cached(self.note(journal.chunk)) != IDLE {
                self.settle_batch(journal)?;
            }
            return Ok(Some(OpenJournal {
                journal,
                _locked: locked,
            }));
        }
    }

    /// Brings a batch that power loss has left to its end, before anything is looked up in this
    /// run.
    pub(crate) fn settle_batch_of_former_run(&self) -> Result<()> {
        let Some(journal) = self.journal()? else {
            return Ok(());
        };
        if self.ground.mem().load_cached(self.note(journal.chunk)) == 0
            && !planted!("bug-batch-not-redone")
        {
            let _window = self.ground.mem().window();
            self.lock_journal()?;
        }
        Ok(())
    }

    /// Takes the mark of a batch from a chunk, whose process is dead; nothing of the index is
    /// locked.
    #[cold]
    pub(crate) fn mend_batch(&self, chunk: u64) -> Result<()> {
        // With the journal locked no living batch has marks.
        let _journal = self.lock_journal()?;
        let _locked = self.ground.lock(chunk);
        self.mark_batch(chunk, false);
        Ok(())
    }

    /// Marks a locked chunk as one of a batch, or as one of none.
    fn mark_batch(&self, chunk: u64, is_one: bool) {
        let (mem, at) = (self.ground.mem(), self.note(chunk));
        let note = mem.load_cached(at) & !BATCH;
        mem.store(at, if is_one { note | BATCH } else { note });
    }

    /// Redoes the batch of a locked journal, or gives it up.
    #[cold]
    fn settle_batch(&self, journal: Journal) -> Result<()> {
        let (mem, number) = (self.ground.mem(), self.next_batch(journal)?);
        let room = journal.bytes - JOURNAL_HEAD_BYTES;
        mem.will_check(journal.record(), room);
        if let Some(images) = self.images_of(journal, number)? {
            if self.are_whole(&images)? || planted!("bug-batch-records-unchecked") {
                let chunks = Self::chunks_of(&images);
                let _locked: Vec<Locked<'h>> = self.lock_all(&chunks);
                // A dead process's fence may never have come.
                self.store_batch_again(journal, &images)?;
                mem.fence();
                self.apply(&chunks, &images);
                self.end_batch(journal, number);
                self.end_marks(&chunks);
            } else {
                // Its records' places will be others', and it may never be redone.
                self.end_batch(journal, number);
            }
        }
        mem.store(self.note(journal.chunk), IDLE);
        Ok(())
    }

    fn next_batch(&self, journal: Journal) -> Result<u64> {
        Ok((self.batches_done(journal)? + 1) & NUMBER_MASK)
    }

    /// Locks index chunks, which are in order.
    pub(crate) fn lock_all(&self, chunks: &[u64]) -> Vec<Locked<'h>> {
        chunks
            .iter()
            .map(|&chunk| self.ground.lock(chunk))
            .collect()
    }

    /// The chunks of images, in order.
    fn chunks_of(images: &[Image]) -> Vec<u64> {
        let mut chunks: Vec<u64> = images.iter().map(|image| image.at / CHUNK_BYTES).collect();
        chunks.sort_unstable();
        chunks.dedup();
        chunks
    }

    /// The record of a batch with these images.
    fn staged(&self, journal: Journal, number: u64, images: &[Image]) -> pmem::Stage {
        let mut stage = pmem::Stage::new();
        stage.push_word(0);
        stage.push_word(number);
        stage.push_word(images.len() as u64);
        for _ in 3..JOURNAL_RECORD_BYTES / 8 {
            stage.push_word(0);
        }
        for image in images {
            stage.push_word(image.at);
            for word in image.words {
                stage.push_word(word);
            }
        }
        let bytes = stage.staged_mut();
        let check = self.check_of_batch(journal, &bytes[8..]);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        stage
    }

    fn check_of_batch(&self, journal: Journal, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.ground.seed() ^ journal.start() ^ SALT)
    }

    /// The images of the journal's record, if it is whole and has this number.
    fn images_of(&self, journal: Journal, number: u64) -> Result<Option<Vec<Image>>> {
        let mem = self.ground.mem();
        let [check, found, count]: [u64; 3] = mem.read(journal.record());
        if found != number || count > journal.images_max() {
            return Ok(None);
        }
        let mut bytes = vec![0; (JOURNAL_RECORD_BYTES + count * JOURNAL_IMAGE_BYTES) as usize];
        mem.copy_out(journal.record(), &mut bytes)?;
        if self.check_of_batch(journal, &bytes[8..]) != check {
            return Ok(None);
        }
        let mut images = Vec::with_capacity(count as usize);
        for part in
            bytes[JOURNAL_RECORD_BYTES as usize..].chunks_exact(JOURNAL_IMAGE_BYTES as usize)
        {
            let (words, _) = part.as_chunks::<8>();
            let word = |nth: usize| u64::from_le_bytes(words[nth]);
            let image = Image {
                at: word(0),
                words: std::array::from_fn(|nth| word(nth + 1)),
            };
            let is_line = image.at.is_multiple_of(64)
                && self.ground.owned(image.at / CHUNK_BYTES, self.head) == 1;
            if !is_line {
                return Err(self.damaged("its journal", journal.record()));
            }
            images.push(image);
        }
        Ok(Some(images))
    }

    /// The slots that a batch has made.
    fn new_slots(images: &[Image]) -> impl Iterator<Item = Slot> {
        let words = images.iter().flat_map(|image| image.words);
        let slots = words.filter(|&word| word != 0).map(Slot);
        slots.filter(|slot| slot.state() == STATE_PUT)
    }

    /// Whether all records of a batch are whole.
    fn are_whole(&self, images: &[Image]) -> Result<bool> {
        for slot in Self::new_slots(images) {
            let place = slot.place();
            let bytes = self.place_bytes(place);
            if bytes > 0 {
                self.ground.mem().will_check(place, bytes);
            }
            let Some(head) = record::head_at(self.ground, place) else {
                return Ok(false);
            };
            if head.instance != slot.instance() || !record::is_whole(self.ground, place, head)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores all that a batch stores before its fence once more.
    fn store_batch_again(&self, journal: Journal, images: &[Image]) -> Result<()> {
        for slot in Self::new_slots(images) {
            if let Some(head) = record::head_at(self.ground, slot.place()) {
                record::store_again(self.ground, slot.place(), head)?;
            }
        }
        let number = self.next_batch(journal)?;
        let staged = self.staged(journal, number, images);
        self.ground
            .mem()
            .write_nt(journal.record(), staged.whole_lines())?;
        Ok(())
    }

    /// Does a batch whose records are stored: all or nothing, durable when it returns. The journal
    /// is open and the images' chunks are locked. Answers the slots that are no more.
    pub(crate) fn commit_batch(
        &self,
        open: &OpenJournal<'h>,
        images: &[Image],
    ) -> Result<Vec<Slot>> {
        let (mem, journal) = (self.ground.mem(), open.journal);
        let number = self.next_batch(journal)?;
        let chunks = &Self::chunks_of(images)[..];
        for &chunk in chunks {
            self.mark_batch(chunk, true);
        }
        mem.store(self.note(journal.chunk), BUSY);
        let staged = self.staged(journal, number, images);
        mem.write_nt(journal.record(), staged.whole_lines())?;
        if !planted!("bug-batch-slots-before-fence") {
            mem.fence();
        }
        let gone = self.apply(chunks, images);
        self.end_batch(journal, number);
        self.end_marks(chunks);
        mem.store(self.note(journal.chunk), IDLE);
        self.alive()?;
        Ok(gone)
    }

    pub(crate) fn end_marks(&self, chunks: &[u64]) {
        for &chunk in chunks {
            self.mark_batch(chunk, false);
        }
    }

    /// Has lines of locked chunks be as their images say, durably; answers the slots that are no
    /// more.
    fn apply(&self, chunks: &[u64], images: &[Image]) -> Vec<Slot> {
        let mem = self.ground.mem();
        let mut gone = Vec::new();
        for &chunk in chunks {
            self.mark_sequence(chunk, true);
        }
        // A key has one visible slot at most: older ones cease to be before newer ones are seen.
        for is_clearing in [true, false] {
            for image in images {
                let words: [u64; 8] = mem.read(image.at);
                for (nth, (word, to)) in words.into_iter().zip(image.words).enumerate() {
                    let to = match to {
                        0 => 0,
                        _ => Slot(to).with_state(STATE_LIVE).0,
                    };
                    if word == to || (to == 0) != is_clearing {
                        continue;
                    }
                    if word != 0 && is_clearing {
                        gone.push(Slot(word));
                    }
                    mem.store(image.at + nth as u64 * 8, to);
                }
            }
        }
        for &chunk in chunks {
            self.mark_sequence(chunk, false);
        }
        for image in images {
            mem.flush(image.at, 64);
        }
        if !planted!("bug-batch-over-before-slots") {
            mem.fence();
        }
        gone
    }
}
