//! Transactions.

use std::cell::{Cell, RefCell};
use std::sync::{MutexGuard, PoisonError, TryLockError};

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{KIND_FREE, KIND_RUN};
use pmlib_format::header::ROOT_OFFSET;
use zerocopy::IntoBytes;

use crate::copies::Copies;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::{Change, Freed, Lane};
use crate::packed::root_word;
use crate::space::{Claim, Object, Place, class_of};

/// Of more bytes of new objects than these, a second wait costs less than to hash them.
const HASHED_MAX: u64 = 64 << 10;

thread_local! {
    /// Numbers this thread; 0 before it is asked.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// The heaps in which this thread has a transaction.
    static IN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// This thread's number.
pub(crate) fn thread() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// An object that a transaction has made.
#[derive(Clone, Copy, Debug)]
struct Made {
    object: Object,
    /// For a planted bug: the word of the bitmap when the place was reserved.
    word: u64,
}

/// What a transaction is going to do.
#[derive(Clone, Debug, Default)]
struct Plan {
    copies: Copies,
    /// By their offsets.
    made: Vec<(u64, Made)>,
    /// Made and freed again: given back at the end, since a part that fails may have freed it.
    unmade: Vec<Object>,
    /// By their offsets.
    freed: Vec<(u64, Object)>,
    claims: Vec<Claim>,
    /// The root pointer's word.
    root: Option<u64>,
}

impl Plan {
    fn made_at(&self, offset: u64) -> std::result::Result<usize, usize> {
        self.made.binary_search_by_key(&offset, |&(made, _)| made)
    }

    fn has_freed(&self, offset: u64) -> bool {
        let found = self
            .freed
            .binary_search_by_key(&offset, |&(freed, _)| freed);
        found.is_ok()
    }

    /// Everything that it has made, also what it has freed again.
    fn all_made(&self) -> impl Iterator<Item = Object> {
        let made = self.made.iter().map(|(_, made)| made.object);
        made.chain(self.unmade.iter().copied())
    }
}

/// A transaction: changes that happen wholly or not at all, made in private copies until it ends.
///
/// It belongs to its thread. It ends with the closure that it was given to; an error or a panic
/// there means that nothing has happened.
pub struct Tx<'h> {
    core: &'h Core,
    lane: MutexGuard<'h, Lane>,
    thread: u64,
    plan: Plan,
    locks: Vec<u64>,
    is_registered: bool,
}

impl<'h> Tx<'h> {
    /// Begins one on any lane that is free.
    pub(crate) fn begin(core: &'h Core) -> Result<Tx<'h>> {
        core.enter()?;
        if IN.with_borrow(|heaps| heaps.contains(&core.id)) {
            return Err(Error::Nested);
        }
        let thread = thread();
        let lane = any_lane(core, thread);
        let mut tx = Tx::on(core, lane, thread);
        IN.with_borrow_mut(|heaps| heaps.push(core.id));
        tx.is_registered = true;
        Ok(tx)
    }

    /// Begins one on this lane.
    pub(crate) fn on(core: &'h Core, lane: MutexGuard<'h, Lane>, thread: u64) -> Tx<'h> {
        Tx {
            core,
            lane,
            thread,
            plan: Plan::default(),
            locks: Vec::new(),
            is_registered: false,
        }
    }

    /// Makes an object of `size` bytes, which are 0; answers its offset.
    ///
    /// # Errors
    /// `Full`; `Size`.
    pub fn alloc(&mut self, size: u64) -> Result<u64> {
        self.core.enter()?;
        if size == 0 || size > self.core.mem.room().max(self.core.mem.len()) {
            return Err(Error::Size { size });
        }
        let object = match class_of(size) {
            Some(class) => Object::Shared(self.reserve(class, size)?),
            None => {
                let chunks = size.div_ceil(CHUNK_BYTES);
                let first = self.take(chunks)?;
                Object::Run(first.ok_or(Error::Full { wanted: size })?, chunks)
            }
        };
        let mut word = 0;
        if let Object::Shared(place) = object
            && planted!("bug-bit-set-absolute")
        {
            word = self.core.mem.load(place.bit().0);
        }
        let offset = offset_of(object);
        let at = self.plan.made.partition_point(|&(made, _)| made < offset);
        self.plan.made.insert(at, (offset, Made { object, word }));
        self.plan.copies.make(offset, object.size());
        Ok(offset)
    }

    fn reserve(&mut self, class: usize, size: u64) -> Result<Place> {
        let _window = self.core.mem.window();
        for attempt in 0..3 {
            let current = &mut self.lane.current;
            let place = self.core.reserve(current, class, &mut self.plan.claims);
            if let Some(place) = place {
                return Ok(place);
            }
            match attempt {
                0 => self.make_room()?,
                1 if self.core.grow(1)? => {}
                _ => break,
            }
        }
        Err(Error::Full { wanted: size })
    }

    /// A run of free chunks.
    fn take(&mut self, chunks: u64) -> Result<Option<u64>> {
        let _window = self.core.mem.window();
        for attempt in 0..3 {
            let first = self.core.space().take(chunks);
            if first.is_some() {
                return Ok(first);
            }
            match attempt {
                0 => self.make_room()?,
                1 if self.core.grow(chunks)? => {}
                _ => break,
            }
        }
        Ok(None)
    }

    /// Looks for room that is free and not to be had yet: what freed it is closed, and chunks
    /// without objects become free.
    fn make_room(&mut self) -> Result<()> {
        let _window = self.core.mem.window();
        self.core.quiet(&mut self.lane, self.thread)?;
        for lane in &self.core.lanes {
            if let Ok(mut lane) = lane.try_lock() {
                self.core.quiet(&mut lane, self.thread)?;
            }
        }
        let mut change = Change::default();
        for chunk in self.core.take_empty() {
            let Some(before) = self.core.entry(chunk) else {
                continue;
            };
            let after = before.becomes(KIND_FREE, 0, 0);
            change.table.push((chunk, before, after));
            change.freed.push(Freed::Chunks(chunk, 1));
        }
        self.core.commit(&mut self.lane, self.thread, &mut change)?;
        self.core.drain(&mut self.lane)
    }

    /// Frees an object.
    ///
    /// # Errors
    /// `NoObject`: there is none, or this transaction has freed it.
    pub fn free(&mut self, offset: u64) -> Result<()> {
        self.core.enter()?;
        if let Ok(at) = self.plan.made_at(offset) {
            let (_, made) = self.plan.made.remove(at);
            self.plan.copies.forget(offset, made.object.size());
            self.plan.unmade.push(made.object);
            return Ok(());
        }
        let object = self.object(offset)?;
        let _window = self.core.mem.window();
        if let Object::Shared(place) = object {
            self.core.open_bitmap(place.chunk, place.class);
            if planted!("bug-freed-place-reused-before-durable") {
                self.core.release(place);
            }
        }
        self.plan.copies.forget(offset, object.size());
        let at = self
            .plan
            .freed
            .partition_point(|&(freed, _)| freed < offset);
        self.plan.freed.insert(at, (offset, object));
        Ok(())
    }

    /// Gives back what an object took that is not to be.
    fn give_back(&self, object: Object) {
        let _window = self.core.mem.window();
        match object {
            Object::Shared(place) => self.core.release(place),
            Object::Run(first, chunks) => self.core.space().give(first, chunks),
        }
    }

    /// The object at `offset`, as this transaction sees it.
    fn object(&self, offset: u64) -> Result<Object> {
        if let Ok(at) = self.plan.made_at(offset) {
            return Ok(self.plan.made[at].1.object);
        }
        if self.plan.has_freed(offset) {
            return Err(Error::NoObject { offset });
        }
        self.core.object(offset)
    }

    /// Bytes of an object: at least those that were asked for.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn size_of(&self, offset: u64) -> Result<u64> {
        Ok(self.object(offset)?.size())
    }

    /// The bytes of an object from `start` on, to be changed: this transaction's copy of them.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn edit(&mut self, offset: u64, start: u64, len: u64) -> Result<&mut [u8]> {
        self.core.enter()?;
        self.check_range(offset, start, len)?;
        let core = self.core;
        let first = offset + start;
        self.plan
            .copies
            .edit(first, first + len, |at, to| core.read_stable(at, to))
    }

    /// Copies the bytes of an object from `start` on, with this transaction's changes.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read(&self, offset: u64, start: u64, to: &mut [u8]) -> Result<()> {
        self.core.enter()?;
        self.check_range(offset, start, to.len() as u64)?;
        self.core.read_stable(offset + start, to)?;
        self.plan.copies.overlay(offset + start, to);
        Ok(())
    }

    fn check_range(&self, offset: u64, start: u64, len: u64) -> Result<()> {
        in_object(offset, self.object(offset)?.size(), start, len)
    }

    /// Has the heap's root be this object; 0: none.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn set_root(&mut self, offset: u64) -> Result<()> {
        if offset != 0 {
            self.object(offset)?;
        }
        self.plan.root = Some(root_word(offset));
        Ok(())
    }

    /// Locks an object against other transactions that lock it, to the end of this one. Any number
    /// is one: what is locked need not be an object.
    ///
    /// # Errors
    /// `Deadlock`: the holder waits for this transaction, by way of others. End it then.
    pub fn lock(&mut self, offset: u64) -> Result<()> {
        self.core.enter()?;
        let line = self.core.lock_line(offset);
        if !self.locks.contains(&line) {
            self.core.take_lock_line(line, &self.lane)?;
            self.locks.push(line);
        }
        Ok(())
    }

    /// Locks several objects, in an order in which no circle can close among those who do so.
    ///
    /// # Errors
    /// As [`Tx::lock`].
    pub fn lock_all(&mut self, offsets: &[u64]) -> Result<()> {
        let mut sorted = offsets.to_vec();
        sorted.sort_by_key(|&offset| self.core.lock_line(offset));
        sorted.into_iter().try_for_each(|offset| self.lock(offset))
    }

    /// As [`Tx::lock`], if nobody has it; whether it is locked now.
    ///
    /// # Errors
    /// A heap that can't be used.
    pub fn try_lock(&mut self, offset: u64) -> Result<bool> {
        self.core.enter()?;
        let line = self.core.lock_line(offset);
        let is_mine = self.locks.contains(&line);
        if !is_mine && self.core.try_lock_line(line, &self.lane) {
            self.locks.push(line);
            return Ok(true);
        }
        Ok(is_mine)
    }

    /// A part of this transaction that can fail by itself: after an error nothing of it has
    /// happened, but for locks, which stay. Otherwise it happens with the rest.
    ///
    /// # Errors
    /// The closure's.
    pub fn nested<T, E>(
        &mut self,
        body: impl FnOnce(&mut Tx<'h>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let before = self.plan.clone();
        let done = body(self);
        if done.is_err() {
            let failed = std::mem::replace(&mut self.plan, before);
            self.undo(failed);
        }
        done
    }

    /// Gives back what a failed part took beyond what the plan has.
    fn undo(&mut self, failed: Plan) {
        let made = failed.made.into_iter().map(|(_, made)| made.object);
        for object in made.chain(failed.unmade) {
            let is_older = self.plan.made_at(offset_of(object)).is_ok();
            if !is_older && !self.plan.unmade.contains(&object) {
                self.give_back(object);
            }
        }
        // A chunk stays claimed: others of its places may have been there before.
        self.plan.claims = failed.claims;
    }

    /// Ends it: all of it is durable when this returns.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.core.enter()?;
        let core = self.core;
        let mut change = self.change()?;
        let _window = core.mem.window();
        self.store_fresh(&mut change)?;
        core.commit(&mut self.lane, self.thread, &mut change)?;
        if let Some(offset) = core.mem.failed() {
            core.broke();
            return Err(Error::Lost { offset });
        }
        let mut space = core.space();
        for claim in &self.plan.claims {
            space.publish(claim.chunk);
        }
        drop(space);
        let plan = std::mem::take(&mut self.plan);
        for object in plan.unmade {
            self.give_back(object);
        }
        Ok(())
    }

    /// What its record is to do, but for new objects' content.
    fn change(&self) -> Result<Change> {
        let mut change = Change::default();
        let plan = &self.plan;
        for &claim in &plan.claims {
            change.claim(self.core, claim)?;
        }
        plan.copies.diff(&mut change.entries);
        if let Some(word) = plan.root {
            change.entries.write(ROOT_OFFSET, &[word]);
        }
        for (_, made) in &plan.made {
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
                    let before = self.core.entry(first).ok_or(Error::Broken)?;
                    let after = before.becomes(KIND_RUN, 0, chunks);
                    change.table.push((first, before, after));
                }
            }
        }
        for &(_, object) in &plan.freed {
            self.plan_free(object, &mut change)?;
        }
        Ok(change)
    }

    /// Stores new objects where nobody looks yet. The record tells by a hash whether they were
    /// durable, or, of much, is not begun before they are.
    fn store_fresh(&self, change: &mut Change) -> Result<()> {
        let core = self.core;
        let mut bytes = 0;
        for (offset, words) in self.plan.copies.fresh() {
            core.mem.write_nt(offset, words.as_bytes())?;
            bytes += words.len() as u64 * 8;
        }
        if bytes > HASHED_MAX {
            core.mem.fence();
            return Ok(());
        }
        for (offset, words) in self.plan.copies.fresh() {
            let hash = core.key.hash(offset, words);
            change.entries.fresh(offset, words.len() as u64, hash);
        }
        Ok(())
    }

    fn plan_free(&self, object: Object, change: &mut Change) -> Result<()> {
        match object {
            Object::Shared(place) => {
                let (word, bit) = place.bit();
                change.entries.unset(word, bit);
                if !planted!("bug-freed-place-reused-before-durable") {
                    change.freed.push(Freed::Place(place));
                }
            }
            Object::Run(first, chunks) => {
                let before = self.core.entry(first).ok_or(Error::Broken)?;
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
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if self.is_registered {
            IN.with_borrow_mut(|heaps| heaps.retain(|&heap| heap != self.core.id));
        }
        // A forked child's copy is dead: what it would give back is the parent's.
        if pmem::life::number() != self.core.life {
            return;
        }
        let plan = std::mem::take(&mut self.plan);
        let window = self.core.mem.window();
        for object in plan.all_made() {
            let chunk = match object {
                Object::Shared(place) => place.chunk,
                Object::Run(..) => 0,
            };
            if !plan.claims.iter().any(|claim| claim.chunk == chunk) {
                self.give_back(object);
            }
        }
        for claim in plan.claims {
            self.core.unclaim(&mut self.lane.current, claim);
        }
        self.core.unlock_lines(&mut self.locks);
        drop(window);
    }
}

/// Where an object is.
fn offset_of(object: Object) -> u64 {
    match object {
        Object::Shared(place) => place.offset(),
        Object::Run(first, _) => first * CHUNK_BYTES,
    }
}

/// Whether a range is in the object of `size` bytes at `offset`.
pub(crate) fn in_object(offset: u64, size: u64, start: u64, len: u64) -> Result<()> {
    let end = start.saturating_add(len);
    if end <= size {
        return Ok(());
    }
    Err(Error::Range {
        offset,
        size,
        start,
        end,
    })
}

/// A lane for a thread: its own if nobody has it, or the next that is free, or its own when it is.
fn any_lane(core: &Core, thread: u64) -> MutexGuard<'_, Lane> {
    let count = core.lanes.len();
    let own = thread as usize % count;
    for step in 0..count {
        // A panic of the program's leaves a lane as its transaction's end does.
        match core.lanes[(own + step) % count].try_lock() {
            Ok(lane) => return lane,
            Err(TryLockError::Poisoned(lane)) => return lane.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    core.lanes[own]
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
