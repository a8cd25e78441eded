//! How a snapshot is taken.
//!
//! 1. All groups are settled, with one chunk locked at a time, so that nothing of that is left to
//!    do while writers wait.
//! 2. Each engine's head is locked, by a transaction: no chunk is split, and none is made.
//! 3. Each engine's journal is locked: no batch is under way, nor one of a dead process.
//! 4. The session begins, by which places stay that are freed from here on.
//! 5. All index chunks are locked, by their numbers. A holder who came before has freed what it
//!    has freed; one who comes later knows of the session. Nothing is under way in any engine
//!    now: **this is the instant**.
//! 6. The journals are unlocked, then each chunk as soon as its slots are copied.
//!
//! Nothing of this is on the medium. A process that dies in it leaves locks and marks that others
//! open and take back, as they do of any call.

use std::collections::BTreeMap;
use std::time::Duration;

use pmlib::ground::{Ground, Locked};
use pmlib::{Heap, Session};
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::EXPIRING_OFFSET;

use super::Snapshot;
use super::content::{Content, Copied};
use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::group::Located;
use crate::journal::OpenJournal;
use crate::kv::Kv;
use crate::session::Hold;

/// Chunks that are locked.
type Locks<'h> = BTreeMap<u64, Locked<'h>>;

/// Words of a line.
const LINE_WORDS: usize = 8;

/// An engine of either kind, of which a snapshot is taken.
pub trait Source {
    /// Its heap.
    fn heap(&self) -> &Heap;
    /// Its head.
    fn head(&self) -> u64;
    /// The moment, by its clock.
    fn now(&self) -> u64;
    /// Settles all groups; nothing is locked. Answers memory for a copy of all slots.
    fn prepare(&self) -> Result<Vec<u64>>;
    /// Finds the chunks, and locks the journal; the head is locked, in a write window.
    fn begin(&self, room: Vec<u64>) -> Result<Box<dyn Taking + '_>>;
}

/// An engine whose head is locked.
pub trait Taking {
    /// The numbers of its index chunks.
    fn chunks(&self) -> Vec<u64>;
    /// The chunk that is locked already.
    fn journal(&self) -> Option<u64>;
    /// All chunks are locked: batches that come now wait for them.
    fn unlock_journal(&mut self);
    /// Copies all slots, and says of each chunk when it may be unlocked.
    fn copy(self: Box<Self>, unlock: &mut dyn FnMut(u64)) -> Result<Contents>;
}

/// The copy.
pub struct Contents(pub(crate) Content);

struct Pieces<'k, 'h, I: Index> {
    kv: &'k Kv<'h, I>,
    pieces: Vec<I::Piece>,
    journal: Option<OpenJournal<'h>>,
    room: Vec<u64>,
}

impl<I: Index> Source for Kv<'_, I> {
    fn heap(&self) -> &Heap {
        self.heap
    }

    fn head(&self) -> u64 {
        self.head
    }

    fn now(&self) -> u64 {
        (self.clock)()
    }

    fn prepare(&self) -> Result<Vec<u64>> {
        self.ground.enter_to_change()?;
        let _window = self.ground.mem().window();
        let pieces = I::pieces(self)?;
        for piece in &pieces {
            let chunk = I::chunk_of(piece);
            let _locked = match planted!("bug-snapshot-of-half-a-batch") {
                true => self.ground.lock(chunk),
                false => self.lock_chunk(chunk)?,
            };
            if !planted!("bug-snapshot-unsettled") {
                // One that is split meanwhile is looked at again.
                I::settle_piece(self, piece)?;
            }
        }
        let words = pieces.len() * I::parts_of_chunk(&self.cut) * self.cut.lines() as usize;
        let mut room = Vec::new();
        // Memory that the kernel has given already, since nobody waits yet.
        room.resize(words * LINE_WORDS, 1);
        Ok(room)
    }

    fn begin(&self, room: Vec<u64>) -> Result<Box<dyn Taking + '_>> {
        let pieces = I::pieces(self)?;
        let journal = match planted!("bug-snapshot-of-half-a-batch") {
            true => None,
            false => self.lock_journal()?,
        };
        Ok(Box::new(Pieces {
            kv: self,
            pieces,
            journal,
            room,
        }))
    }
}

impl<I: Index> Taking for Pieces<'_, '_, I> {
    fn chunks(&self) -> Vec<u64> {
        self.pieces.iter().map(I::chunk_of).collect()
    }

    fn journal(&self) -> Option<u64> {
        self.journal.as_ref().map(|open| open.journal.chunk)
    }

    fn unlock_journal(&mut self) {
        if self.journal.is_some() {
            // A mark that is there is a dead process's, whose batch is over by now.
            self.kv.end_marks(&self.chunks());
        }
        self.journal = None;
    }

    fn copy(self: Box<Self>, unlock: &mut dyn FnMut(u64)) -> Result<Contents> {
        let kv = self.kv;
        let (mut copied, mut order) = (Copied::within(self.room), I::order(kv));
        for piece in &self.pieces {
            let chunk = I::chunk_of(piece);
            let late = planted!("bug-snapshot-chunk-by-chunk");
            let _late = late.then(|| kv.ground.lock(chunk));
            let is_settled = planted!("bug-snapshot-unsettled") || I::settle_piece(kv, piece)?;
            if !is_settled {
                return Err(kv.damaged("its directory", chunk * CHUNK_BYTES));
            }
            I::copy_piece(kv, piece, &mut order, &mut copied)?;
            unlock(chunk);
        }
        let may_expire = kv.ground.mem().load_cached(kv.head + EXPIRING_OFFSET) != 0;
        let content = Content::new(copied, Box::new(order), may_expire);
        Ok(Contents(content))
    }
}

impl<I: Index> Kv<'_, I> {
    /// Copies the slots of a group or leaf whose chunk is locked and settled.
    pub(crate) fn copy_lines(&self, located: &Located<I::Way>, copied: &mut Copied) {
        for line in 1..=self.cut.lines() {
            copied.add_line(self.ground.mem().read(located.line(line)));
        }
        copied.end_part();
    }
}

/// Takes a snapshot of each engine, all of one instant.
pub(crate) fn take<'s>(engines: &[&'s dyn Source], limit: Duration) -> Result<Vec<Snapshot<'s>>> {
    let Some(first) = engines.first() else {
        return Ok(Vec::new());
    };
    let heap = first.heap();
    let mut heads: Vec<u64> = engines.iter().map(|engine| engine.head()).collect();
    heads.sort_unstable();
    let is_twice = heads.windows(2).any(|pair| pair[0] == pair[1]);
    if is_twice
        || engines
            .iter()
            .any(|engine| !std::ptr::eq(engine.heap(), heap))
    {
        return Err(Error::Apart);
    }
    let rooms: Result<Vec<Vec<u64>>> = engines.iter().map(|engine| engine.prepare()).collect();
    let rooms = rooms?;
    let ground = heap.ground();
    heap.tx(|tx| {
        for &head in &heads {
            tx.lock(head)?;
        }
        let _window = ground.mem().window();
        let engines = engines.iter().zip(rooms);
        let (mut takings, mut moments) = (Vec::new(), Vec::new());
        for (engine, room) in engines {
            takings.push(engine.begin(room)?);
            moments.push(engine);
        }
        let is_late = planted!("bug-snapshot-holds-too-late");
        let count = takings.len();
        let mut holds = sessions(ground, if is_late { 0 } else { count }, limit)?;
        let mut locks = lock_all(ground, &takings)?;
        for taking in &mut takings {
            taking.unlock_journal();
        }
        let moments: Vec<u64> = moments.into_iter().map(|engine| engine.now()).collect();
        let mut contents = Vec::new();
        for taking in takings {
            contents.push(taking.copy(&mut |chunk| drop(locks.remove(&chunk)))?.0);
        }
        if is_late {
            // Long enough for writers to use places again.
            std::thread::sleep(Duration::from_millis(5));
            holds = sessions(ground, count, limit)?;
        }
        let parts = holds.into_iter().zip(contents).zip(moments);
        let whole = parts
            .map(|((session, content), now)| Snapshot::new(Hold { ground, session }, content, now));
        Ok(whole.collect())
    })
}

fn sessions(ground: Ground<'_>, count: usize, limit: Duration) -> Result<Vec<Session<'_>>> {
    let one = |_| Ok(ground.session(limit)?);
    (0..count).map(one).collect()
}

/// Locks the index chunks of engines. A forged directory may name one twice.
fn lock_all<'h>(ground: Ground<'h>, takings: &[Box<dyn Taking + '_>]) -> Result<Locks<'h>> {
    let mut chunks: Vec<u64> = takings.iter().flat_map(|taking| taking.chunks()).collect();
    chunks.sort_unstable();
    let journals: Vec<u64> = takings
        .iter()
        .filter_map(|taking| taking.journal())
        .collect();
    let twice = chunks.windows(2).find(|pair| pair[0] == pair[1]);
    let twice = twice.map(|pair| pair[0]);
    if let Some(chunk) = twice.or_else(|| chunks.iter().copied().find(|it| journals.contains(it))) {
        let (what, offset) = ("a directory", chunk * CHUNK_BYTES);
        return Err(Error::Damaged { what, offset });
    }
    let locks = chunks.into_iter().map(|chunk| (chunk, ground.lock(chunk)));
    let mut locks: Locks<'h> = locks.collect();
    if planted!("bug-snapshot-chunk-by-chunk") {
        locks.clear();
    }
    Ok(locks)
}
