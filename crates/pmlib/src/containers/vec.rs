//! A vector: elements in segments, each with twice as many as the one before, that never move.
//!
//! A push changes the length and one element. Elements are where they were put until the vector is
//! truncated to before them or cleared.

use std::ops::Range;

use pmlib_format::container::{VEC_FAR, VEC_FIRST_BYTES, VEC_NEAR, VecRaw};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::containers::{At, Of, Within, damaged};
use crate::error::{Error, Result, inside};
use crate::pointer::RawP;
use crate::safe::{PmSafe, mix, of_text};
use crate::tx::Tx;
use crate::typed::{Field, is_given_for, read_one};
use crate::view::View;

const HEAD: &str = "a vector's head";
const SEGMENT: &str = "a vector's segment";
/// Bytes of the table of further segments.
const FAR_BYTES: u64 = VEC_FAR as u64 * 8;
/// Bytes that an iterator reads at once.
const BATCH_BYTES: u64 = 4096;

/// The head of a vector of `T`s; its calls are those of [`At`].
///
/// ```
/// # use pmlib::{Error, Heap, Options};
/// # use pmlib::containers::PVec;
/// let heap = Heap::private(1 << 20, &Options::default())?;
/// let primes = heap.root::<PVec<u64>>("primes")?;
/// heap.at(primes).push(2)?;
/// heap.tx(|tx| {
///     tx.at(primes).push(3)?;
///     tx.at(primes).push(5)
/// })?;
/// assert_eq!(heap.at(primes).to_vec()?, [2, 3, 5]);
/// # Ok::<_, Error>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PVec<T> {
    raw: VecRaw,
    of: Of<T>,
}

impl<T> PVec<T> {
    /// An empty one.
    #[must_use]
    pub fn new() -> PVec<T> {
        PVec::new_zeroed()
    }
}

impl<T> Default for PVec<T> {
    fn default() -> PVec<T> {
        PVec::new()
    }
}

impl<T: PmSafe> PmSafe for PVec<T> {
    const FINGERPRINT: u64 = mix(of_text("PVec"), T::FINGERPRINT);

    /// Shows its segments; what its elements point to is not seen from here.
    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        let all = self.raw.near.iter().chain([&self.raw.far]);
        all.filter(|&&to| to != 0).for_each(|&to| visit(RawP(to)));
    }
}

/// Bytes of an element.
const fn each<T>() -> u64 {
    const { assert!(size_of::<T>() > 0, "a vector is of what has bytes") };
    size_of::<T>() as u64
}

/// Elements of the first segment.
const fn first_count<T>() -> u64 {
    match VEC_FIRST_BYTES / each::<T>() {
        0 => 1,
        count => count,
    }
}

/// Elements of all segments that there can be: below 2^47.
const fn len_max<T>() -> u64 {
    first_count::<T>() * ((1 << (VEC_NEAR + VEC_FAR)) - 1)
}

/// Elements of a segment.
const fn count_in<T>(segment: usize) -> u64 {
    first_count::<T>() << segment
}

/// The segment of an element of one that can be, and where in it.
fn locate<T>(index: u64) -> (usize, u64) {
    let nth = index / first_count::<T>() + 1;
    let segment = nth.ilog2() as usize;
    (segment, index - first_count::<T>() * ((1 << segment) - 1))
}

/// A head, whose length can be.
fn head<T: PmSafe>(view: &View<'_>, place: Field<PVec<T>>) -> Result<VecRaw> {
    let raw = view.read(place)?.raw;
    if raw.len > len_max::<T>() {
        return damaged(HEAD, place.place());
    }
    Ok(raw)
}

/// Where a segment is; 0: nowhere.
fn segment_of(view: &View<'_>, raw: &VecRaw, segment: usize, at: RawP) -> Result<u64> {
    if segment < VEC_NEAR {
        return Ok(raw.near[segment]);
    }
    if raw.far == 0 {
        return Ok(0);
    }
    let start = (segment - VEC_NEAR) as u64 * 8;
    let word: Result<u64> = read_one(|to| view.read_bytes(raw.far, start, to));
    inside(word, HEAD, at.0)
}

/// Copies elements of one segment from `index` on.
fn read_run<T>(view: &View<'_>, raw: &VecRaw, at: RawP, index: u64, to: &mut [u8]) -> Result<()> {
    let (segment, within) = locate::<T>(index);
    let offset = segment_of(view, raw, segment, at)?;
    inside(
        view.read_bytes(offset, within * each::<T>(), to),
        SEGMENT,
        at.0,
    )
}

/// How many of `range` are in the segment of the first.
fn run_len<T>(range: &Range<u64>) -> u64 {
    let (segment, within) = locate::<T>(range.start);
    (range.end - range.start).min(count_in::<T>(segment) - within)
}

/// Elements, which are there.
fn read_elements<T: PmSafe>(
    view: &View<'_>,
    raw: &VecRaw,
    at: RawP,
    mut range: Range<u64>,
) -> Result<Vec<T>> {
    let mut values = Vec::new();
    while range.start < range.end {
        let count = run_len::<T>(&range);
        // Room after a look at the segment: a length that somebody forged asks for none.
        let (segment, _) = locate::<T>(range.start);
        let offset = segment_of(view, raw, segment, at)?;
        let size = inside(view.size_of(offset), SEGMENT, at.0)?;
        if size < count_in::<T>(segment).saturating_mul(each::<T>()) {
            return damaged(SEGMENT, at);
        }
        let first = values.len();
        values.resize_with(first + count as usize, T::new_zeroed);
        let bytes = values[first..].as_mut_bytes();
        read_run::<T>(view, raw, at, range.start, bytes)?;
        range.start += count;
    }
    Ok(values)
}

/// Makes the segments that elements up to `len` need; what it made is in the answer and in `raw`.
fn make_segments<T>(tx: &mut Tx<'_>, raw: &mut VecRaw, len: u64, at: RawP) -> Result<()> {
    let mut made = Vec::new();
    let result = add_segments::<T>(tx, raw, len, at, &mut made);
    if result.is_err() {
        for offset in made {
            tx.free(offset)?;
        }
    }
    result
}

fn add_segments<T>(
    tx: &mut Tx<'_>,
    raw: &mut VecRaw,
    len: u64,
    at: RawP,
    made: &mut Vec<u64>,
) -> Result<()> {
    let first = locate::<T>(raw.len).0;
    for segment in first..=locate::<T>(len - 1).0 {
        if segment_of(&View::within(tx), raw, segment, at)? != 0 {
            continue;
        }
        let size = count_in::<T>(segment).saturating_mul(each::<T>());
        let offset = tx.alloc(size)?;
        made.push(offset);
        if segment < VEC_NEAR {
            raw.near[segment] = offset;
            continue;
        }
        if raw.far == 0 {
            raw.far = tx.alloc(FAR_BYTES)?;
            made.push(raw.far);
        }
        let start = (segment - VEC_NEAR) as u64 * 8;
        let word = inside(tx.edit_bytes(raw.far, start, 8), HEAD, at.0)?;
        word.copy_from_slice(&offset.to_le_bytes());
    }
    Ok(())
}

/// Has elements be these, whose segments are there.
fn write_elements<T: PmSafe>(
    tx: &mut Tx<'_>,
    raw: &VecRaw,
    at: RawP,
    index: u64,
    values: &[T],
) -> Result<()> {
    let mut range = index..index + values.len() as u64;
    let mut rest = values;
    while range.start < range.end {
        let (here, after) = rest.split_at(run_len::<T>(&range) as usize);
        let (segment, within) = locate::<T>(range.start);
        let offset = segment_of(&View::within(tx), raw, segment, at)?;
        let bytes = here.as_bytes();
        let start = within * each::<T>();
        let copy = inside(
            tx.edit_bytes(offset, start, bytes.len() as u64),
            SEGMENT,
            at.0,
        )?;
        copy.copy_from_slice(bytes);
        (range.start, rest) = (range.start + here.len() as u64, after);
    }
    Ok(())
}

fn write_head<T: PmSafe>(tx: &mut Tx<'_>, place: Field<PVec<T>>, raw: VecRaw) -> Result<()> {
    if planted!("bug-vec-length-before-record") {
        let _window = tx.core().mem.window();
        tx.core().mem.store(place.place().0, raw.len);
        tx.core().mem.flush(place.place().0, 8);
    }
    tx.write(
        place,
        &PVec {
            raw,
            of: Of::<T>::default(),
        },
    )
}

/// Adds elements; answers the first one's index.
pub(super) fn extend<T: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PVec<T>>,
    values: &[T],
) -> Result<u64> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    let index = raw.len;
    let len = index.saturating_add(values.len() as u64);
    if values.is_empty() {
        return Ok(index);
    }
    if len > len_max::<T>() {
        return Err(Error::Size {
            size: len.saturating_mul(each::<T>()),
        });
    }
    make_segments::<T>(tx, &mut raw, len, at)?;
    write_elements(tx, &raw, at, index, values)?;
    raw.len = len;
    write_head(tx, place, raw)?;
    Ok(index)
}

/// Frees an object of the vector's at `at`, if it is one that was given out for so many bytes: a
/// damaged offset may be that of another object.
fn free_segment(tx: &mut Tx<'_>, offset: u64, bytes: u64, at: RawP) -> Result<()> {
    if !is_given_for(bytes, inside(tx.size_of(offset), SEGMENT, at.0)?) {
        return damaged(SEGMENT, at);
    }
    inside(tx.free(offset), SEGMENT, at.0)
}

/// Gives back the segments behind `len` elements.
pub(super) fn truncate<T: PmSafe>(tx: &mut Tx<'_>, place: Field<PVec<T>>, len: u64) -> Result<()> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    if len > raw.len {
        return Ok(());
    }
    raw.len = len;
    let kept = match len {
        0 => 0,
        len => locate::<T>(len - 1).0 + 1,
    };
    for segment in kept..VEC_NEAR + VEC_FAR {
        let offset = segment_of(&View::within(tx), &raw, segment, at)?;
        if offset == 0 {
            continue;
        }
        let bytes = count_in::<T>(segment).saturating_mul(each::<T>());
        free_segment(tx, offset, bytes, at)?;
        if segment < VEC_NEAR {
            raw.near[segment] = 0;
        } else if kept > VEC_NEAR {
            let start = (segment - VEC_NEAR) as u64 * 8;
            inside(tx.edit_bytes(raw.far, start, 8), HEAD, at.0)?.fill(0);
        }
    }
    if kept <= VEC_NEAR && raw.far != 0 {
        free_segment(tx, raw.far, FAR_BYTES, at)?;
        raw.far = 0;
    }
    write_head(tx, place, raw)
}

/// A copy of an element; `None`: there are fewer.
pub(super) fn get<T: PmSafe>(
    view: &View<'_>,
    place: Field<PVec<T>>,
    index: u64,
) -> Result<Option<T>> {
    match need(view, place, index) {
        Err(Error::Index { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// A copy of an element, which has to be there.
pub(super) fn need<T: PmSafe>(view: &View<'_>, place: Field<PVec<T>>, index: u64) -> Result<T> {
    let raw = head(view, place)?;
    if index >= raw.len {
        let len = raw.len;
        return Err(Error::Index { index, len });
    }
    read_one(|to| read_run::<T>(view, &raw, place.place(), index, to))
}

/// Has an element of a locked vector be another one.
pub(super) fn set<T: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PVec<T>>,
    index: u64,
    value: T,
) -> Result<()> {
    let raw = head(&View::within(tx), place)?;
    if index >= raw.len {
        let len = raw.len;
        return Err(Error::Index { index, len });
    }
    let values = std::slice::from_ref(&value);
    write_elements(tx, &raw, place.place(), index, values)
}

/// Takes the last element of a locked vector away; `None`: there was none.
pub(super) fn pop<T: PmSafe>(tx: &mut Tx<'_>, place: Field<PVec<T>>) -> Result<Option<T>> {
    let mut raw = head(&View::within(tx), place)?;
    let Some(last) = raw.len.checked_sub(1) else {
        return Ok(None);
    };
    let at = place.place();
    let value = read_one(|to| read_run::<T>(&View::within(tx), &raw, at, last, to))?;
    raw.len = last;
    write_head(tx, place, raw)?;
    Ok(Some(value))
}

impl<W: Within, T: PmSafe> At<W, PVec<T>> {
    /// Elements.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such vector; `Damaged`.
    pub fn len(&mut self) -> Result<u64> {
        let place = self.place;
        let raw = self.within.look(place.place(), |view| head(view, place))?;
        Ok(raw.len)
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// A copy of an element; `None`: there are fewer.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn get(&mut self, index: u64) -> Result<Option<T>> {
        let place = self.place;
        self.within
            .look(place.place(), |view| get(view, place, index))
    }

    /// Copies of some elements, all of one moment.
    ///
    /// # Errors
    /// Those of [`At::len`]; `Index`: there are fewer.
    pub fn read_range(&mut self, range: Range<u64>) -> Result<Vec<T>> {
        let (place, at) = (self.place, self.place.place());
        self.within.look(at, |view| {
            let raw = head(view, place)?;
            if range.start > range.end || range.end > raw.len {
                return Err(Error::Index {
                    index: range.end.max(range.start),
                    len: raw.len,
                });
            }
            read_elements(view, &raw, at, range.clone())
        })
    }

    /// Copies of all elements, of one moment.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn to_vec(&mut self) -> Result<Vec<T>> {
        let (place, at) = (self.place, self.place.place());
        self.within.look(at, |view| {
            let raw = head(view, place)?;
            read_elements(view, &raw, at, 0..raw.len)
        })
    }

    /// Adds an element; answers its index.
    ///
    /// # Errors
    /// Those of [`At::len`]; `Full`; `Deadlock`.
    pub fn push(&mut self, value: T) -> Result<u64> {
        self.extend(std::slice::from_ref(&value))
    }

    /// Adds elements, all or none; answers the first one's index.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn extend(&mut self, values: &[T]) -> Result<u64> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| extend(tx, place, values))
    }

    /// Has an element be another one.
    ///
    /// # Errors
    /// Those of [`At::push`]; `Index`: there are fewer.
    pub fn set(&mut self, index: u64, value: T) -> Result<()> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| set(tx, place, index, value))
    }

    /// Takes the last element away; `None`: there was none. Its room is kept for others.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn pop(&mut self) -> Result<Option<T>> {
        let place = self.place;
        self.within.change(place.place(), |tx| pop(tx, place))
    }

    /// Takes away all elements but the first `len`, and gives back segments that hold none.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn truncate(&mut self, len: u64) -> Result<()> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| truncate(tx, place, len))
    }

    /// Takes away all elements and gives back all room.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn clear(&mut self) -> Result<()> {
        self.truncate(0)
    }

    /// The elements, in order.
    ///
    /// They are read some at a time, each time as they are at one moment. An element that is there
    /// throughout comes once, as it was when it was read. The iterator ends where the vector does
    /// when it gets there.
    pub fn iter(self) -> Elements<W, T> {
        Elements {
            at: self,
            next: 0,
            batch: Vec::new().into_iter(),
            is_over: false,
        }
    }
}

/// The elements of a vector ([`At::iter`]).
pub struct Elements<W, T> {
    at: At<W, PVec<T>>,
    next: u64,
    batch: std::vec::IntoIter<T>,
    is_over: bool,
}

impl<W: Within, T: PmSafe> Elements<W, T> {
    /// Reads the next elements of one segment; none: there are no more.
    fn refill(&mut self) -> Result<Vec<T>> {
        let (place, next) = (self.at.place, self.next);
        let at = place.place();
        self.at.within.look(at, |view| {
            let raw = head(view, place)?;
            if next >= raw.len {
                return Ok(Vec::new());
            }
            let count = run_len::<T>(&(next..raw.len)).min((BATCH_BYTES / each::<T>()).max(1));
            read_elements(view, &raw, at, next..next + count)
        })
    }
}

impl<W: Within, T: PmSafe> Iterator for Elements<W, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.batch.as_slice().is_empty() && !self.is_over {
            match self.refill() {
                Ok(batch) => {
                    self.is_over = batch.is_empty();
                    self.next += batch.len() as u64;
                    self.batch = batch.into_iter();
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        self.batch.next().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements lie one after the other, segment by segment, whatever their size.
    #[test]
    fn every_index_has_its_place() {
        fn walk<T>() {
            let (mut segment, mut within) = (0, 0);
            for index in 0..5000 {
                if within == count_in::<T>(segment) {
                    (segment, within) = (segment + 1, 0);
                }
                assert_eq!(locate::<T>(index), (segment, within), "{index}");
                within += 1;
            }
            let (last, within) = locate::<T>(len_max::<T>() - 1);
            assert_eq!(last, VEC_NEAR + VEC_FAR - 1);
            assert_eq!(within, count_in::<T>(last) - 1);
        }
        walk::<u8>();
        walk::<u64>();
        walk::<[u8; 24]>();
        walk::<[u64; 8]>();
        walk::<[u64; 1000]>();
    }
}
