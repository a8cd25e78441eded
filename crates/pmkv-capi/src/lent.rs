//! Memory that a program edits in a transaction. `pmlib` gives a private copy that the next call
//! may move; C keeps several pointers. So each range has memory here that stays, whose bytes go to
//! the copy before it counts.

use std::ffi::c_void;
use std::ptr::{NonNull, slice_from_raw_parts_mut};

use pmlib::OpenTx;

use crate::answer::{Answer, Code, Failure};

/// Objects begin at multiples of this, and so does what is lent.
const ALIGN: u64 = align_of::<u128>() as u64;

/// Memory for bytes, aligned as they are in the heap.
struct Buffer {
    words: NonNull<u128>,
    count: usize,
    /// Bytes before them.
    skip: usize,
    len: usize,
}

impl Buffer {
    fn of(offset: u64, bytes: &[u8]) -> Answer<Buffer> {
        let skip = (offset % ALIGN) as usize;
        let count = (skip + bytes.len()).div_ceil(ALIGN as usize).max(1);
        let mut words: Vec<u128> = Vec::new();
        words
            .try_reserve_exact(count)
            .map_err(|_| Failure::Wrong(Code::Space, "there is no memory for a copy"))?;
        words.resize(count, 0);
        let words = Box::into_raw(words.into_boxed_slice());
        let buffer = Buffer {
            words: NonNull::new(words.cast()).ok_or(Failure::Wrong(Code::Bug, "no address"))?,
            count,
            skip,
            len: bytes.len(),
        };
        buffer.fill(bytes);
        Ok(buffer)
    }

    fn address(&self) -> *mut u8 {
        // SAFETY: `skip` is less than the bytes of the words.
        unsafe { self.words.cast::<u8>().add(self.skip) }.as_ptr()
    }

    /// Hands its bytes on.
    fn show<T>(&self, to: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: `len` bytes from there on are the buffer's, all written. The program was told
        // that no thread of it may store there during a call.
        to(unsafe { std::slice::from_raw_parts(self.address(), self.len) })
    }

    /// Has it hold these bytes, as many as it has.
    fn fill(&self, bytes: &[u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes from there on are the buffer's, and `bytes` are none of them: no
        // reference to a buffer is kept.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address(), len) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the boxed slice of `of`, given back once.
        drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(self.words.as_ptr(), self.count)) });
    }
}

/// A range that is lent.
struct Range {
    object: u64,
    start: u64,
    end: u64,
    buffer: Buffer,
    /// How many parts were open when the transaction freed the object.
    freed: Option<usize>,
}

impl Range {
    fn is_of(&self, object: u64, start: u64, end: u64) -> bool {
        let is_there = self.freed.is_none() && self.object == object;
        is_there && self.start < end && start < self.end
    }

    /// Has the transaction's copy be what the program has made of it.
    fn store(&self, tx: &mut OpenTx<'_>) -> Answer<()> {
        tx.with(|tx| {
            let copy = tx.edit_bytes(self.object, self.start, self.end - self.start)?;
            self.buffer.show(|bytes| copy.copy_from_slice(bytes));
            Ok(())
        })
    }

    /// The other way round.
    fn load(&self, tx: &mut OpenTx<'_>) -> Answer<()> {
        tx.with(|tx| {
            let copy = tx.edit_bytes(self.object, self.start, self.end - self.start)?;
            self.buffer.fill(copy);
            Ok(())
        })
    }
}

/// The ranges that a transaction has lent.
#[derive(Default)]
pub struct Lent {
    /// In the order in which they were asked for.
    ranges: Vec<Range>,
    /// Ranges that were there when each open part began.
    parts: Vec<usize>,
    /// Those of aborted parts: a program that goes on to store there harms nobody.
    dead: Vec<Range>,
}

impl Lent {
    /// Lends bytes of an object.
    pub fn lend(
        &mut self,
        tx: &mut OpenTx<'_>,
        object: u64,
        start: u64,
        size: u64,
    ) -> Answer<*mut c_void> {
        let end = start.saturating_add(size);
        if let Some(range) = self.ranges.iter().find(|it| it.is_of(object, start, end)) {
            if start < range.start || range.end < end {
                return Err(Failure::Wrong(
                    Code::Overlap,
                    "an edited range overlaps this one in part: edit one that holds both first",
                ));
            }
            let skip = (start - range.start) as usize;
            return Ok(range.buffer.address().wrapping_add(skip).cast());
        }
        let buffer = tx.with(|tx| {
            let copy = tx.edit_bytes(object, start, size)?;
            Buffer::of(object.wrapping_add(start), copy)
        })?;
        let address = buffer.address().cast();
        self.ranges.push(Range {
            object,
            start,
            end,
            buffer,
            freed: None,
        });
        Ok(address)
    }

    /// The stores to ranges that overlap this one count from here on.
    pub fn store(&self, tx: &mut OpenTx<'_>, object: u64, start: u64, size: u64) -> Answer<()> {
        let end = start.saturating_add(size);
        let mut over = self.ranges.iter().filter(|it| it.is_of(object, start, end));
        over.try_for_each(|range| range.store(tx))
    }

    /// The same of all of them.
    pub fn store_all(&self, tx: &mut OpenTx<'_>) -> Answer<()> {
        let mut there = self.ranges.iter().filter(|range| range.freed.is_none());
        there.try_for_each(|range| range.store(tx))
    }

    /// Ranges that overlap this one show what was written there.
    pub fn load(&self, tx: &mut OpenTx<'_>, object: u64, start: u64, size: u64) -> Answer<()> {
        let end = start.saturating_add(size);
        let mut over = self.ranges.iter().filter(|it| it.is_of(object, start, end));
        over.try_for_each(|range| range.load(tx))
    }

    /// An object was freed.
    pub fn free(&mut self, object: u64) {
        let depth = self.parts.len();
        for range in &mut self.ranges {
            if range.is_of(object, 0, u64::MAX) {
                range.freed = Some(depth);
            }
        }
    }

    /// A part begins.
    pub fn nest(&mut self) {
        self.parts.push(self.ranges.len());
    }

    /// The innermost part is kept.
    pub fn keep(&mut self) {
        let depth = self.parts.len();
        self.parts.pop();
        for range in &mut self.ranges {
            if range.freed == Some(depth) {
                range.freed = Some(depth - 1);
            }
        }
    }

    /// The innermost part has not happened.
    pub fn undo(&mut self, tx: &mut OpenTx<'_>) -> Answer<()> {
        let depth = self.parts.len();
        let older = self.parts.pop().unwrap_or(0).min(self.ranges.len());
        self.dead.extend(self.ranges.drain(older..));
        for range in &mut self.ranges {
            if range.freed == Some(depth) {
                range.freed = None;
            }
        }
        let mut there = self.ranges.iter().filter(|range| range.freed.is_none());
        there.try_for_each(|range| range.load(tx))
    }
}
