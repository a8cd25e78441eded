//! Transactions.

mod lanes;
mod plan;

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{KIND_FREE, class_chunks};
use pmlib_format::header::NAMES_OFFSET;
use pmshare::patrol;

use self::lanes::lane_of;
pub(crate) use self::plan::{Made, Plan};
use self::plan::{chunk_of, give_back, give_back_all, offset_of};
use crate::change::{Change, Freed};
use crate::engine::Core;
use crate::entered::{enters, leaves};
use crate::error::{Error, Result, in_object};
use crate::lane::{Lease, Spare};
use crate::packed::{root_of, root_word};
use crate::pointer::RawP;
use crate::space::{Object, Place, class_of};

/// Bytes of a range that are asked for at once: more would drive each other out.
pub(crate) const PREFETCHED_MAX: u64 = 4 << 10;

thread_local! {
    /// The memory of this thread's last transaction, for the next one.
    static WORK: Cell<Option<Box<Work>>> = const { Cell::new(None) };
}

/// The memory of a transaction, which the next one of its thread has again.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) plan: Plan,
    change: Change,
    /// The lines of the locks that it holds.
    locks: Vec<u64>,
    /// For the transaction's lane.
    spare: Spare,
}

/// The memory of a thread's first transaction.
#[cold]
fn first_work() -> Box<Work> {
    Box::default()
}

/// A transaction's memory, until this is dropped.
pub(crate) struct Kept {
    /// There until the drop.
    work: Option<Box<Work>>,
}

impl Deref for Kept {
    type Target = Work;

    #[inline]
    fn deref(&self) -> &Work {
        self.work.as_deref().expect("there until the drop")
    }
}

impl DerefMut for Kept {
    #[inline]
    fn deref_mut(&mut self) -> &mut Work {
        self.work.as_deref_mut().expect("there until the drop")
    }
}

impl Kept {
    /// Leaves it to the next transaction.
    #[inline(always)]
    fn leave(&mut self) {
        let Some(mut work) = self.work.take() else {
            return;
        };
        let Work {
            plan,
            change,
            locks,
            spare: _,
        } = &mut *work;
        plan.clear();
        change.clear();
        if !locks.is_empty() {
            locks.clear();
        }
        // A thread that ends keeps nothing, and may have lost the place for it.
        let _ = WORK.try_with(|place| place.set(Some(work)));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A transaction: changes that happen wholly or not at all, made in private copies until it ends.
///
/// It ends with the closure that it was given to; an error or a panic there means that nothing has
/// happened. It belongs to its thread, so this does not compile:
///
/// ```compile_fail,E0277
/// # let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default())?;
/// heap.tx(|tx| {
///     std::thread::scope(|scope| scope.spawn(|| tx.alloc(64)).join().unwrap())
/// })?;
/// # Ok::<_, pmlib::Error>(())
/// ```
///
/// The same call does on the transaction's own thread:
///
/// ```
/// # let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default())?;
/// heap.tx(|tx| {
///     std::thread::scope(|scope| scope.spawn(|| 64).join().unwrap());
///     tx.alloc(64)
/// })?;
/// # Ok::<_, pmlib::Error>(())
/// ```
pub struct Tx<'h> {
    core: &'h Core,
    /// From the first need of one on.
    lane: Option<Lease<'h>>,
    pub(crate) work: Kept,
    is_registered: bool,
    /// All of it has happened.
    is_done: bool,
    /// Its lane, its locks and its thread's list of heaps are this thread's: not `Send`.
    _here: PhantomData<*const ()>,
}

impl<'h> Tx<'h> {
    /// One on any lane that is free when it needs one. It is not begun.
    #[inline(always)]
    pub(crate) fn on(core: &'h Core) -> Tx<'h> {
        Tx {
            core,
            lane: None,
            work: Kept {
                work: Some(WORK.take().unwrap_or_else(first_work)),
            },
            is_registered: false,
            is_done: false,
            _here: PhantomData,
        }
    }

    /// One on this lane; `None`: somebody has it.
    pub(crate) fn on_lane(core: &'h Core, lane: u32) -> Option<Tx<'h>> {
        let mut tx = Tx::on(core);
        tx.lane = Some(core.try_lease(lane, &mut tx.work.spare)?);
        Some(tx)
    }

    /// Begins it.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> Result<()> {
        let core = self.core;
        core.enter()?;
        core.writable()?;
        self.is_registered = enters((core.mem.identity(), core.life));
        if !self.is_registered {
            return Err(Error::Nested);
        }
        patrol::writable(core)?;
        Ok(())
    }

    pub(crate) fn need_lane(&mut self) -> Result<&mut Lease<'h>> {
        lane_of(self.core, &mut self.lane, &mut self.work.spare)
    }

    /// Makes an object of `size` bytes, which are 0; answers its offset.
    ///
    /// # Errors
    /// `Full`; `Size`.
    pub fn alloc(&mut self, size: u64) -> Result<u64> {
        self.core.enter()?;
        // Another process may have made the heap longer than this one would.
        if size == 0 || size > self.core.bound() && !self.core.has_room_for(size) {
            return Err(Error::Size { size });
        }
        let object = match class_of(size) {
            Some(class) if class_chunks(class) == 1 => Object::Shared(self.reserve(class, size)?),
            class => {
                if let Some(place) = self.reserve_wide(class)? {
                    return Ok(self.make(Object::Shared(place)));
                }
                let chunks = size.div_ceil(CHUNK_BYTES);
                let first = self.take(chunks)?;
                Object::Run(first.ok_or(Error::Full { wanted: size })?, chunks)
            }
        };
        Ok(self.make(object))
    }

    /// Has an object that was reserved be one of this transaction; answers its offset.
    fn make(&mut self, object: Object) -> u64 {
        let mut word = 0;
        if let Object::Shared(place) = object
            && planted!("bug-bit-set-absolute")
        {
            word = self.core.mem.load(place.bit().0);
        }
        let offset = offset_of(object);
        self.work.plan.make(offset, Made { object, word });
        offset
    }

    /// A place of a class whose objects share several chunks; `None`: there is no such class, or so
    /// many chunks are not free in a row. Then an object has chunks of its own.
    fn reserve_wide(&mut self, class: Option<usize>) -> Result<Option<Place>> {
        let Some(class) = class else {
            return Ok(None);
        };
        let core = self.core;
        let _window = core.mem.window();
        let Work { plan, spare, .. } = &mut *self.work;
        let lane = lane_of(core, &mut self.lane, spare)?;
        Ok(core.reserve(lane, class, &mut plan.claims))
    }

    fn reserve(&mut self, class: usize, size: u64) -> Result<Place> {
        let _window = self.core.mem.window();
        for attempt in 0u64.. {
            let core = self.core;
            let Work { plan, spare, .. } = &mut *self.work;
            let lane = lane_of(core, &mut self.lane, spare)?;
            let place = core.reserve(lane, class, &mut plan.claims);
            if let Some(place) = place {
                return Ok(place);
            }
            match attempt {
                0 => self.make_room()?,
                // Others may take what was added.
                _ if self.core.grow(1)? => {}
                _ => break,
            }
        }
        Err(Error::Full { wanted: size })
    }

    /// A run of free chunks.
    pub(crate) fn take(&mut self, chunks: u64) -> Result<Option<u64>> {
        let _window = self.core.mem.window();
        for attempt in 0u64.. {
            let core = self.core;
            let first = core.take(self.need_lane()?, chunks);
            if first.is_some() {
                return Ok(first);
            }
            match attempt {
                0 => self.make_room()?,
                _ if self.core.grow(chunks)? => {}
                _ => break,
            }
        }
        Ok(None)
    }

    /// Looks for room that is free and not to be had yet: what freed it is closed, and chunks
    /// without objects become free.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let core = self.core;
        let _window = core.mem.window();
        let mut reserved: Vec<u64> = self.work.plan.all_made().filter_map(chunk_of).collect();
        reserved.extend(self.work.plan.claims.iter().map(|claim| claim.chunk));
        reserved.sort_unstable();
        let mine = self.need_lane()?;
        core.quiet(mine, &reserved)?;
        for lane in 0..core.header.lanes {
            if let Some(mut lane) = core.try_lease(lane, &mut None) {
                core.quiet(&mut lane, &[])?;
            }
        }
        let mut change = Change::default();
        for (chunk, before) in core.take_empty(mine) {
            let after = before.becomes(KIND_FREE, 0, 0);
            change.table.push((chunk, before, after));
            change.freed.push(Freed::Chunks(chunk, before.extent()));
        }
        let done = core.commit(mine, &mut change, None);
        if done.is_err() {
            for &(chunk, ..) in &change.table {
                core.set_use(chunk, 1, 0);
            }
        }
        done?;
        core.drain(mine)?;
        core.look_for_room();
        Ok(())
    }

    /// Frees an object.
    ///
    /// # Errors
    /// `NoObject`: there is none, or this transaction has freed it.
    pub fn free(&mut self, object: impl Into<RawP>) -> Result<()> {
        self.core.enter()?;
        let RawP(offset) = object.into();
        if let Ok(at) = self.work.plan.made_at(offset) {
            let (_, made) = self.work.plan.made.remove(at);
            self.work.plan.copies.forget(offset, made.object.size());
            self.work.plan.unmade.push(made.object);
            return Ok(());
        }
        let object = self.object(offset)?;
        if planted!("bug-hole-before-free") {
            self.core.punch_object(object);
        }
        if let Object::Shared(place) = object {
            self.core.open_bitmap(place.chunk, place.class);
            if planted!("bug-freed-place-reused-before-durable") {
                give_back(self.core, object);
            }
        }
        self.work.plan.free(offset, object);
        Ok(())
    }

    /// The object at `offset`, as this transaction sees it.
    #[inline(always)]
    fn object(&self, offset: u64) -> Result<Object> {
        if let Ok(at) = self.work.plan.made_at(offset) {
            return Ok(self.work.plan.made[at].1.object);
        }
        if self.work.plan.has_freed(offset) {
            return Err(Error::NoObject { offset });
        }
        self.core.object(offset)
    }

    /// Bytes of an object: at least those that were asked for.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn size_of(&self, object: impl Into<RawP>) -> Result<u64> {
        self.core.enter()?;
        let RawP(offset) = object.into();
        Ok(self.object(offset)?.size())
    }

    /// The bytes of an object from `start` on, to be changed: this transaction's copy of them.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn edit_bytes(&mut self, offset: u64, start: u64, len: u64) -> Result<&mut [u8]> {
        self.core.enter()?;
        let core = self.core;
        // Mostly the range is in no cache. The checks that follow do not wait for it.
        core.mem.prefetch_if_there(offset.wrapping_add(start));
        self.check_range(offset, start, len)?;
        let first = offset + start;
        self.work
            .plan
            .copies
            .edit(first, first + len, |at, to| core.read_stable(at, to))
    }

    /// Writes over bytes of an object from `start` on. The old bytes are not read, and so not
    /// waited for; two transactions that write over the same words are not kept apart.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn write_bytes(&mut self, offset: u64, start: u64, bytes: &[u8]) -> Result<()> {
        self.core.enter()?;
        let len = bytes.len() as u64;
        self.check_range(offset, start, len)?;
        let (core, first) = (self.core, offset + start);
        core.prefetch(first, len.min(PREFETCHED_MAX));
        self.work
            .plan
            .copies
            .write(first, bytes, |at, to| core.read_stable(at, to))
    }

    /// Copies the bytes of an object from `start` on, with this transaction's changes.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read_bytes(&self, offset: u64, start: u64, to: &mut [u8]) -> Result<()> {
        self.core.enter()?;
        self.check_range(offset, start, to.len() as u64)?;
        self.core.read_stable(offset + start, to)?;
        self.work.plan.copies.overlay(offset + start, to);
        Ok(())
    }

    #[inline(always)]
    fn check_range(&self, offset: u64, start: u64, len: u64) -> Result<()> {
        in_object(offset, self.object(offset)?.size(), start, len)
    }

    /// Has the heap's root be this object; 0: none.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn set_root(&mut self, offset: u64) -> Result<()> {
        self.core.enter()?;
        if offset != 0 {
            self.object(offset)?;
        }
        self.work.plan.root = Some(root_word(offset));
        Ok(())
    }

    pub(crate) fn core(&self) -> &'h Core {
        self.core
    }

    /// Where the list of named roots begins; 0: there are none.
    pub(crate) fn names(&self) -> Result<u64> {
        match self.work.plan.names.and_then(root_of) {
            Some(offset) => Ok(offset),
            None => self.core.names(),
        }
    }

    /// Has the list of named roots begin with this object.
    pub(crate) fn set_names(&mut self, offset: u64) {
        if planted!("bug-root-named-before-record") {
            self.core.mem.store(NAMES_OFFSET, root_word(offset));
            self.core.mem.flush(NAMES_OFFSET, 8);
        }
        self.work.plan.names = Some(root_word(offset));
    }

    /// Locks an object against other transactions that lock it, to the end of this one. Any number
    /// is one: what is locked need not be an object.
    ///
    /// # Errors
    /// `Deadlock`: the holder waits for this transaction, by way of others. End it then.
    pub fn lock(&mut self, object: impl Into<RawP>) -> Result<()> {
        self.core.enter()?;
        let RawP(offset) = object.into();
        let line = self.core.lock_line(offset);
        if !self.work.locks.contains(&line) {
            let core = self.core;
            core.take_lock_line(line, self.need_lane()?)?;
            self.work.locks.push(line);
        }
        Ok(())
    }

    /// Locks several objects, in an order in which no circle can close among those who do so.
    ///
    /// # Errors
    /// Those of [`Tx::lock`].
    pub fn lock_all<O: Into<RawP>>(&mut self, objects: impl IntoIterator<Item = O>) -> Result<()> {
        let mut sorted: Vec<RawP> = objects.into_iter().map(O::into).collect();
        sorted.sort_by_key(|&RawP(offset)| self.core.lock_line(offset));
        sorted.into_iter().try_for_each(|object| self.lock(object))
    }

    /// Locks as [`Tx::lock`] does, if nobody has it; whether it is locked now.
    ///
    /// # Errors
    /// A heap that can't be used.
    pub fn try_lock(&mut self, object: impl Into<RawP>) -> Result<bool> {
        self.core.enter()?;
        let RawP(offset) = object.into();
        let line = self.core.lock_line(offset);
        let is_mine = self.work.locks.contains(&line);
        let core = self.core;
        if !is_mine && core.try_lock_line(line, self.need_lane()?) {
            self.work.locks.push(line);
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
        let before = self.work.plan.clone();
        let done = body(self);
        if done.is_err() {
            self.restore(before);
        }
        done
    }

    /// Has the plan be what it was before a part.
    pub(crate) fn restore(&mut self, before: Plan) {
        let failed = std::mem::replace(&mut self.work.plan, before);
        self.undo(failed);
    }

    /// Gives back what a failed part took beyond what the plan has.
    fn undo(&mut self, failed: Plan) {
        let made = failed.made.into_iter().map(|(_, made)| made.object);
        for object in made.chain(failed.unmade) {
            let is_older = self.work.plan.made_at(offset_of(object)).is_ok();
            if !is_older && !self.work.plan.unmade.contains(&object) {
                give_back(self.core, object);
            }
        }
        // A chunk stays claimed: others of its places may have been there before.
        self.work.plan.claims = failed.claims;
    }

    /// Ends it: all of it is durable when this returns. Nothing can be done in it any more.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let core = self.core;
        core.enter()?;
        // Its locks and its lane are given back in the same window.
        let _window = core.mem.window();
        // An error is long: it is moved only where there is one.
        match self.store() {
            Ok(()) => {
                self.is_done = true;
                self.let_go();
                Ok(())
            }
            Err(error) => {
                self.let_go();
                Err(error)
            }
        }
    }

    /// Ends it after its commit, as a drop does: what ends each transaction is part of its caller.
    #[inline(always)]
    pub(crate) fn end(mut self) {
        debug_assert!(self.is_done && self.lane.is_none());
        leaves((self.core.mem.identity(), self.core.life));
        self.work.leave();
        // Nothing is left to drop.
        std::mem::forget(self);
    }

    /// Gives back what it holds, and what it has taken and no record names.
    #[inline(always)]
    fn let_go(&mut self) {
        let Some(mut lane) = self.lane.take() else {
            return;
        };
        // A forked child has nothing to give back: all is the parent's. After a commit that broke
        // off nothing is this thread's any more.
        if !self.is_done && !lane.is_mine() {
            return;
        }
        let core = self.core;
        let Work {
            plan, locks, spare, ..
        } = &mut *self.work;
        let _window = core.mem.window();
        if !self.is_done {
            plan.give_back(core, &mut lane);
        }
        if !lane.full.is_empty() {
            core.leave_full(&mut lane);
        }
        if !locks.is_empty() {
            core.unlock_lines(locks);
        }
        *spare = lane.end();
    }

    /// Has all of it happen.
    #[inline(always)]
    fn store(&mut self) -> Result<()> {
        let core = self.core;
        let Work {
            plan,
            change,
            spare,
            ..
        } = &mut *self.work;
        if plan.is_spoiled {
            return Err(Error::Spoiled);
        }
        plan.note_changes(core, change)?;
        let is_hashed = plan.note_fresh(core, change)?;
        if !change.is_empty() {
            let fresh = is_hashed.then_some(&plan.copies);
            core.commit(lane_of(core, &mut self.lane, spare)?, change, fresh)?;
        }
        // Others see what it has made from here on.
        if !plan.made.is_empty() || !plan.claims.is_empty() {
            plan.made.clear();
            plan.claims.clear();
        }
        if let Some(offset) = core.mem.failed() {
            plan.unmade.clear();
            core.broke();
            return Err(Error::Lost { offset });
        }
        for &(place, word) in &plan.marks {
            core.store_mark(place, word);
        }
        if !plan.unmade.is_empty() {
            give_back_all(core, &mut plan.unmade);
        }
        Ok(())
    }
}

impl Drop for Tx<'_> {
    #[inline]
    fn drop(&mut self) {
        let core = self.core;
        if self.is_registered {
            leaves((core.mem.identity(), core.life));
        }
        if self.lane.is_some() {
            self.let_go();
        }
    }
}

/// The buffers of this thread's last lane.
#[cfg(test)]
pub(crate) fn spare_lane() -> Spare {
    WORK.take()?.spare
}
