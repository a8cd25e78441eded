//! A log: records that are added at its end and dropped from its front.
//!
//! - Records stand in a chain of segments. Each has its length and a hash, keyed by its place, of
//!   its position, its length and its bytes. A record is one if its hash holds.
//! - On a heap an append stores the record past the caches, behind the last one, and waits once:
//!   no record of a lane, no store in place (`crates/pmlib/src/apart.rs`). Every further append
//!   waits for the one before, so that a crash leaves at most one record torn, the last.
//! - In a transaction an append is part of the transaction's record, as any change is.
//! - Where the last segment's records end, its mark says in this run. After a crash it is looked
//!   for: up to the first record whose hash does not hold. A record behind that one is damage.

use pmlib_format::container::{
    LogRaw, RECORD_BYTES_MAX, RECORD_HEAD_BYTES, SEGMENT_BYTES, SEGMENT_HEAD_BYTES, SegmentRaw,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::apart::{Found, Mark};
use crate::containers::{At, Within, damaged};
use crate::error::{Error, Result, inside};
use crate::pointer::RawP;
use crate::reader::Look;
use crate::safe::{PmSafe, of_text};
use crate::tx::Tx;
use crate::typed::Field;
use crate::view::View;

const HEAD: &str = "a log's head";
const SEGMENT: &str = "a log's segment";
const RECORD: &str = "a log's record";
/// Where a segment's mark is in it.
const MARK: u64 = std::mem::offset_of!(SegmentRaw, mark) as u64;
/// Words of a record before its bytes.
const HEAD_WORDS: usize = RECORD_HEAD_BYTES as usize / 8;

/// The head of a log; its calls are those of [`At`]. One of zeros keeps all records until they are
/// dropped.
///
/// ```
/// # use pmlib::{Error, Heap, Options};
/// # use pmlib::containers::PLog;
/// let heap = Heap::private(1 << 20, &Options::default())?;
/// let log = heap.root::<PLog>("log")?;
/// heap.at(log).append(b"first")?;
/// let second = heap.at(log).append(b"second")?;
/// heap.at(log).trim(second)?;
/// let all: Result<Vec<_>, Error> = heap.at(log).iter().collect();
/// assert_eq!(all?, [(second, b"second".to_vec())]);
/// # Ok::<_, Error>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PLog {
    raw: LogRaw,
}

impl PLog {
    /// An empty one, which keeps all records.
    #[must_use]
    pub fn new() -> PLog {
        PLog::new_zeroed()
    }

    /// An empty one, a ring: it keeps at least the last so many bytes of records, their lengths and
    /// hashes among them, and drops older ones a segment at a time.
    #[must_use]
    pub fn ring(kept_bytes: u64) -> PLog {
        PLog {
            raw: LogRaw {
                kept_bytes: kept_bytes.max(1),
                ..LogRaw::new_zeroed()
            },
        }
    }
}

impl Default for PLog {
    fn default() -> PLog {
        PLog::new()
    }
}

impl PmSafe for PLog {
    const FINGERPRINT: u64 = of_text("PLog");

    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        let ends = [self.raw.first, self.raw.last].into_iter();
        ends.filter(|&to| to != 0).for_each(|to| visit(RawP(to)));
    }
}

/// A segment, whose numbers can be.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    next: u64,
    start: u64,
    /// Bytes of records that it has room for.
    room: u64,
}

impl Segment {
    fn mark(&self) -> u64 {
        self.offset + MARK
    }

    /// Where in the heap bytes of records are.
    fn place(&self, within: u64) -> u64 {
        self.offset + SEGMENT_HEAD_BYTES + within
    }
}

/// A segment, and where its records end.
#[derive(Clone, Copy, Debug)]
struct Part {
    segment: Segment,
    filled: u64,
}

/// Bytes that a record takes.
fn taken(len: u64) -> u64 {
    RECORD_HEAD_BYTES + len.next_multiple_of(8)
}

fn head(view: &View<'_>, place: Field<PLog>) -> Result<LogRaw> {
    let raw = view.read(place)?.raw;
    if (raw.first == 0) != (raw.last == 0) {
        return damaged(HEAD, place.place());
    }
    Ok(raw)
}

/// The segment at an offset that stands at or behind `named_at`.
fn segment(view: &View<'_>, offset: u64, named_at: u64) -> Result<Segment> {
    let mut bytes = [0; SEGMENT_HEAD_BYTES as usize];
    inside(view.read_bytes(offset, 0, &mut bytes), SEGMENT, named_at)?;
    let size = inside(view.size_of(offset), SEGMENT, named_at)?;
    let raw = SegmentRaw::read_from_bytes(&bytes).map_err(|_| Error::Broken)?;
    let room = size.saturating_sub(SEGMENT_HEAD_BYTES).min(u32::MAX.into()) & !7;
    if room < RECORD_HEAD_BYTES || raw.start.checked_add(room).is_none() {
        return damaged(SEGMENT, RawP(offset));
    }
    Ok(Segment {
        offset,
        next: raw.next,
        start: raw.start,
        room,
    })
}

/// The segment after one; positions only grow, so that no circle is followed.
fn after(view: &View<'_>, before: &Segment) -> Result<Segment> {
    let next = segment(view, before.next, before.offset)?;
    let distance = next.start.checked_sub(before.start);
    if distance.is_none_or(|distance| distance == 0 || distance > before.room) {
        return damaged(SEGMENT, RawP(before.offset));
    }
    Ok(next)
}

/// The last segment, and how far it is filled; `None`: nobody knows yet.
fn last_part(view: &View<'_>, raw: &LogRaw, at: RawP) -> Result<Option<Part>> {
    let segment = segment(view, raw.last, at.0)?;
    if segment.next != 0 {
        return damaged(HEAD, at);
    }
    match view.mark(segment.mark(), at) {
        Mark::Unknown | Mark::Busy(_) if view.reader().is_some() => {
            seen_part(view, segment, at).map(Some)
        }
        Mark::Unknown => Ok(None),
        Mark::Filled(filled) | Mark::Busy(filled) if filled > segment.room => {
            damaged(SEGMENT, RawP(segment.offset))
        }
        Mark::Filled(filled) => Ok(Some(Part { segment, filled })),
        Mark::Busy(filled) => {
            let all = Part {
                segment,
                filled: segment.room,
            };
            let is_more = record(view, &all, filled)?.is_some();
            Ok((!is_more).then_some(Part { segment, filled }))
        }
    }
}

/// Looks at a segment to which records are added meanwhile, before what is there is damage.
const BUSY_TRIES: u32 = 1000;

/// Looks where the last segment's records end, as one who only reads: its mark can't say so.
fn seen_part(view: &View<'_>, segment: Segment, at: RawP) -> Result<Part> {
    let (reader, look) = view.reader().ok_or(Error::Broken)?;
    if let Look::Rest(run) = look
        && let Some(filled) = reader.end_of(run, segment.offset)
    {
        return Ok(Part { segment, filled });
    }
    let mut tries = 0;
    let (part, found) = loop {
        let data = records_of(view, &segment)?;
        let found = look_for_end(view, segment, &data);
        match view.mark(segment.mark(), at) {
            Mark::Filled(filled) if filled > segment.room => {
                return damaged(SEGMENT, RawP(segment.offset));
            }
            // Somebody adds records meanwhile: one may be torn and the next one there.
            Mark::Filled(filled) => return Ok(Part { segment, filled }),
            Mark::Busy(_) if found.is_err() && tries < BUSY_TRIES => tries += 1,
            _ => break found?,
        }
        std::thread::yield_now();
    };
    view.persist(found.last);
    if let Look::Rest(run) = look {
        reader.note_end(run, segment.offset, part.filled);
    }
    Ok(part)
}

/// The words of a last segment that are records, or room for them.
fn records_of(view: &View<'_>, segment: &Segment) -> Result<Vec<u64>> {
    let mut data = vec![0u64; segment.room as usize / 8];
    let bytes = data.as_mut_bytes();
    inside(
        view.read_bytes(segment.offset, SEGMENT_HEAD_BYTES, bytes),
        SEGMENT,
        segment.offset,
    )?;
    Ok(data)
}

/// The position after the last record; `None`: nobody knows yet.
fn end(view: &View<'_>, raw: &LogRaw, at: RawP) -> Result<Option<u64>> {
    if raw.last == 0 {
        return Ok(Some(raw.front));
    }
    let Some(part) = last_part(view, raw, at)? else {
        return Ok(None);
    };
    let end = part.segment.start + part.filled;
    if raw.front > end {
        return damaged(HEAD, at);
    }
    Ok(Some(end))
}

/// The part that has a position, from `first` on; the last one if none does.
fn part_of(
    view: &View<'_>,
    raw: &LogRaw,
    at: RawP,
    first: u64,
    position: u64,
) -> Result<Option<Part>> {
    let mut here = segment(view, first, at.0)?;
    if position < here.start {
        return damaged(HEAD, at);
    }
    while here.next != 0 {
        let next = after(view, &here)?;
        if position < next.start {
            let filled = next.start - here.start;
            return Ok(Some(Part {
                segment: here,
                filled,
            }));
        }
        here = next;
    }
    if here.offset != raw.last {
        return damaged(HEAD, at);
    }
    last_part(view, raw, at)
}

/// A record as it stands at `place`: length, hash, bytes.
fn encode(view: &View<'_>, place: u64, position: u64, bytes: &[u8]) -> Vec<u64> {
    let len = bytes.len() as u64;
    let mut words = vec![0; taken(len) as usize / 8];
    (words[0], words[1]) = (position, len);
    words[HEAD_WORDS..].as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    let check = view.check(place, &words);
    (words[0], words[1]) = (len, check);
    words
}

/// Whether a whole record begins with these words, which stand at `place`; answers its bytes taken.
fn whole(view: &View<'_>, place: u64, position: u64, words: &[u64]) -> Option<u64> {
    let &[len, check, ..] = words else {
        return None;
    };
    let size = (len <= RECORD_BYTES_MAX).then(|| taken(len))?;
    let record = words.get(..size as usize / 8)?;
    if planted!("bug-log-length-believed") && len > 0 {
        return Some(size);
    }
    if check == 0 {
        return None;
    }
    let mut record = record.to_vec();
    (record[0], record[1]) = (position, len);
    (view.check(place, &record) == check).then_some(size)
}

/// The record at `within` of a part: its bytes, and those that it takes; `None`: there is none.
fn record(view: &View<'_>, part: &Part, within: u64) -> Result<Option<(Vec<u8>, u64)>> {
    let (segment, offset) = (&part.segment, part.segment.offset);
    let room = part.filled.saturating_sub(within);
    if room < RECORD_HEAD_BYTES || !within.is_multiple_of(8) {
        return Ok(None);
    }
    let start = SEGMENT_HEAD_BYTES + within;
    let mut words = vec![0u64; HEAD_WORDS];
    inside(
        view.read_bytes(offset, start, words.as_mut_bytes()),
        SEGMENT,
        offset,
    )?;
    let len = words[0];
    if len > RECORD_BYTES_MAX || taken(len) > room {
        return Ok(None);
    }
    words.resize(taken(len) as usize / 8, 0);
    inside(
        view.read_bytes(offset, start, words.as_mut_bytes()),
        SEGMENT,
        offset,
    )?;
    let found = whole(view, segment.place(within), segment.start + within, &words);
    let bytes = || words[HEAD_WORDS..].as_bytes()[..len as usize].to_vec();
    Ok(found.map(|size| (bytes(), size)))
}

/// The record at a position before the end; an error if there is none.
fn record_at(view: &View<'_>, part: &Part, position: u64) -> Result<(Vec<u8>, u64)> {
    if let Some(found) = record(view, part, position - part.segment.start)? {
        return Ok(found);
    }
    // No record begins there, or one does and is damaged.
    let mut within = 0;
    while part.segment.start + within < position {
        let Some((_, size)) = record(view, part, within)? else {
            return damaged(RECORD, RawP(part.segment.place(within)));
        };
        within += size;
    }
    if part.segment.start + within == position {
        return damaged(RECORD, RawP(part.segment.place(within)));
    }
    Err(Error::NoRecord { position })
}

/// Looks where the last segment's records end, and has its mark say so; with the log's lock.
fn settle(tx: &mut Tx<'_>, place: Field<PLog>) -> Result<u64> {
    let (part, found) = {
        let view = View::within(tx);
        let raw = head(&view, place)?;
        if raw.last == 0 {
            return Ok(0);
        }
        let segment = segment(&view, raw.last, place.place().0)?;
        look_for_end(&view, segment, &records_of(&view, &segment)?)?
    };
    tx.settle(part.segment.mark(), part.filled, found)?;
    Ok(part.filled)
}

/// Finds the end of a last segment's records.
fn look_for_end(view: &View<'_>, segment: Segment, data: &[u64]) -> Result<(Part, Found)> {
    let at = |within: u64| {
        let words = &data[within as usize / 8..];
        whole(view, segment.place(within), segment.start + within, words)
    };
    let (mut filled, mut last) = (0, (0, 0));
    while let Some(size) = at(filled) {
        last = (segment.place(filled), size);
        filled += size;
    }
    let rest = &data[filled as usize / 8..];
    let mut stale = None;
    if let Some(end) = rest.iter().rposition(|&word| word != 0) {
        stale = Some((segment.place(filled), (end as u64 + 1) * 8));
        let behind = (filled + 8..segment.room).step_by(8);
        if behind.into_iter().any(|within| at(within).is_some()) {
            return damaged(RECORD, RawP(segment.place(filled)));
        }
    }
    let found = Found { last, rest: stale };
    Ok((Part { segment, filled }, found))
}

/// Reads a log whose end is known; `body` answers `None` if it is not.
fn look<W: Within, R>(
    within: &mut W,
    place: Field<PLog>,
    mut body: impl FnMut(&View<'_>, &LogRaw) -> Result<Option<R>>,
) -> Result<R> {
    loop {
        let seen = within.look(place.place(), |view| {
            let raw = head(view, place)?;
            body(view, &raw)
        })?;
        match seen {
            Some(answer) => return Ok(answer),
            None => within.change(place.place(), |tx| settle(tx, place))?,
        };
    }
}

/// The last part, with the log's lock.
fn last_locked(tx: &mut Tx<'_>, place: Field<PLog>, raw: &LogRaw) -> Result<Part> {
    let at = place.place();
    if last_part(&View::within(tx), raw, at)?.is_none() {
        settle(tx, place)?;
    }
    match last_part(&View::within(tx), raw, at)? {
        Some(part) => Ok(part),
        None => damaged(HEAD, at),
    }
}

/// Adds a record; answers its position. `is_alone`: nothing else happens in the transaction.
pub(super) fn append(
    tx: &mut Tx<'_>,
    place: Field<PLog>,
    bytes: &[u8],
    is_alone: bool,
) -> Result<u64> {
    let size = bytes.len() as u64;
    if size > RECORD_BYTES_MAX {
        return Err(Error::Size { size });
    }
    let raw = head(&View::within(tx), place)?;
    if raw.last == 0 {
        return append_segment(tx, place, raw, None, bytes);
    }
    let part = last_locked(tx, place, &raw)?;
    let Part { segment, filled } = part;
    if taken(size) > segment.room - filled {
        return append_segment(tx, place, raw, Some(part), bytes);
    }
    let position = segment.start + filled;
    let at = segment.place(filled);
    let words = encode(&View::within(tx), at, position, bytes);
    if is_alone {
        tx.store_apart(segment.mark(), filled, at, words.as_bytes())?;
    } else {
        let start = SEGMENT_HEAD_BYTES + filled;
        let copy = tx.edit_bytes(segment.offset, start, taken(size))?;
        copy.copy_from_slice(words.as_bytes());
        tx.set_mark(segment.mark(), filled, filled + taken(size));
    }
    Ok(position)
}

/// Adds a record in a segment of its own, the next one.
fn append_segment(
    tx: &mut Tx<'_>,
    place: Field<PLog>,
    mut raw: LogRaw,
    last: Option<Part>,
    bytes: &[u8],
) -> Result<u64> {
    let taken = taken(bytes.len() as u64);
    let (start, before) = match last {
        None => (raw.front, 0),
        Some(part) => (
            part.segment.start + part.filled,
            part.segment.room + SEGMENT_HEAD_BYTES,
        ),
    };
    let [least, most] = SEGMENT_BYTES;
    let most = match raw.kept_bytes {
        0 => most,
        kept => (kept / 4).clamp(least, most),
    };
    let size = (before * 2)
        .clamp(least, most)
        .max(SEGMENT_HEAD_BYTES + taken);
    if start.checked_add(2 * size).is_none() {
        return damaged(HEAD, place.place());
    }
    let offset = tx.alloc_apart(size)?;
    let segment = SegmentRaw {
        start,
        era: tx.era(),
        ..SegmentRaw::new_zeroed()
    };
    let words = encode(&View::within(tx), offset + SEGMENT_HEAD_BYTES, start, bytes);
    let copy = tx.edit_bytes(offset, 0, SEGMENT_HEAD_BYTES + taken)?;
    let (first, rest) = copy.split_at_mut(SEGMENT_HEAD_BYTES as usize);
    first.copy_from_slice(segment.as_bytes());
    rest.copy_from_slice(words.as_bytes());
    if let Some(part) = last {
        tx.edit_bytes(part.segment.offset, 0, 8)?
            .copy_from_slice(&offset.to_le_bytes());
    } else {
        raw.first = offset;
    }
    raw.last = offset;
    tx.set_first_mark(offset + MARK, taken);
    if raw.kept_bytes > 0 {
        let kept = (start + taken).saturating_sub(raw.kept_bytes);
        drop_segments(tx, &mut raw, place.place(), kept)?;
        let first = self::segment(&View::within(tx), raw.first, place.place().0)?;
        raw.front = raw.front.max(first.start);
    }
    tx.write(place, &PLog { raw })?;
    Ok(start)
}

/// Frees segments all of whose records are before a position, but not the last one.
fn drop_segments(tx: &mut Tx<'_>, raw: &mut LogRaw, at: RawP, position: u64) -> Result<()> {
    loop {
        let view = View::within(tx);
        let first = segment(&view, raw.first, at.0)?;
        if first.next == 0 || after(&view, &first)?.start > position {
            return Ok(());
        }
        inside(tx.free(first.offset), SEGMENT, first.offset)?;
        tx.forget_mark(first.mark());
        raw.first = first.next;
    }
}

/// Drops the records before a position, where one begins or the log ends.
fn trim(tx: &mut Tx<'_>, place: Field<PLog>, position: u64) -> Result<()> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    if position <= raw.front {
        return Ok(());
    }
    if raw.last == 0 {
        return Err(Error::NoRecord { position });
    }
    let part = last_locked(tx, place, &raw)?;
    let end = part.segment.start + part.filled;
    if position > end {
        return Err(Error::NoRecord { position });
    }
    if position < end {
        let view = View::within(tx);
        match part_of(&view, &raw, at, raw.first, position)? {
            Some(part) => record_at(&view, &part, position)?,
            None => return damaged(HEAD, at),
        };
    }
    drop_segments(tx, &mut raw, place.place(), position)?;
    raw.front = position;
    tx.write(place, &PLog { raw })
}

/// Drops all records and gives back all room. Positions go on.
pub(super) fn clear(tx: &mut Tx<'_>, place: Field<PLog>) -> Result<()> {
    let mut raw = head(&View::within(tx), place)?;
    if raw.last == 0 {
        return Ok(());
    }
    let part = last_locked(tx, place, &raw)?;
    let end = part.segment.start + part.filled;
    drop_segments(tx, &mut raw, place.place(), end)?;
    if raw.first != raw.last {
        return damaged(HEAD, place.place());
    }
    inside(tx.free(raw.last), SEGMENT, raw.last)?;
    tx.forget_mark(part.segment.mark());
    (raw.first, raw.last, raw.front) = (0, 0, end);
    tx.write(place, &PLog { raw })
}

/// Takes the first record away; `None`: there is none.
pub(super) fn take_first(tx: &mut Tx<'_>, place: Field<PLog>) -> Result<Option<Vec<u8>>> {
    let mut raw = head(&View::within(tx), place)?;
    if raw.last == 0 {
        return Ok(None);
    }
    last_locked(tx, place, &raw)?;
    let Some((bytes, next)) = first_of(&View::within(tx), &raw, place.place())?.flatten() else {
        return Ok(None);
    };
    raw.front = next;
    drop_segments(tx, &mut raw, place.place(), next)?;
    if planted!("bug-queue-front-before-record") {
        let at = place.place().0 + std::mem::offset_of!(LogRaw, front) as u64;
        let _window = tx.core().mem.window();
        tx.core().mem.store(at, next);
        tx.core().mem.flush(at, 8);
    }
    tx.write(place, &PLog { raw })?;
    Ok(Some(bytes))
}

/// Bytes of a record, and the position after it.
type Taken = (Vec<u8>, u64);

/// The first record and the position after it, if there is one; `None`: nobody knows yet.
fn first_of(view: &View<'_>, raw: &LogRaw, at: RawP) -> Result<Option<Option<Taken>>> {
    let Some(end) = end(view, raw, at)? else {
        return Ok(None);
    };
    if raw.front == end {
        return Ok(Some(None));
    }
    let Some(part) = part_of(view, raw, at, raw.first, raw.front)? else {
        return Ok(None);
    };
    let (bytes, size) = record_at(view, &part, raw.front)?;
    Ok(Some(Some((bytes, raw.front + size))))
}

/// Reads the first record as of one moment, and has `read` make something of it; `None`: there is
/// none.
pub(super) fn first<W: Within, R>(
    within: &mut W,
    place: Field<PLog>,
    mut read: impl FnMut(&View<'_>, Vec<u8>) -> Result<R>,
) -> Result<Option<R>> {
    let at = place.place();
    look(within, place, |view, raw| {
        let Some(found) = first_of(view, raw, at)? else {
            return Ok(None);
        };
        let read = found.map(|(bytes, _)| read(view, bytes));
        Ok(Some(read.transpose()?))
    })
}

/// The positions of the first record and after the last one.
pub(super) fn bounds<W: Within>(within: &mut W, place: Field<PLog>) -> Result<(u64, u64)> {
    let at = place.place();
    look(within, place, |view, raw| {
        Ok(end(view, raw, at)?.map(|end| (raw.front, end)))
    })
}

impl<W: Within> At<W, PLog> {
    /// Adds a record, of any bytes; answers its position. On a heap that is one fence, but for the
    /// first record of a segment. A position is never used again.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such log; `Size`: more than 1 GiB; `Full`; `Deadlock`; `Damaged`.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| append(tx, place, bytes, W::IS_ALONE))
    }

    /// The position of the first record, or, if there is none, of the next one.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such log; `Damaged`; `Deadlock`.
    pub fn front(&mut self) -> Result<u64> {
        Ok(bounds(&mut self.within, self.place)?.0)
    }

    /// The position after the last record, which the next one will have.
    ///
    /// # Errors
    /// Those of [`At::front`].
    pub fn end(&mut self) -> Result<u64> {
        Ok(bounds(&mut self.within, self.place)?.1)
    }

    /// The record at a position; `None`: the log ends there.
    ///
    /// # Errors
    /// Those of [`At::front`]; `NoRecord`: none begins there, or it was dropped.
    pub fn read(&mut self, position: u64) -> Result<Option<Vec<u8>>> {
        let (place, at) = (self.place, self.place.place());
        look(&mut self.within, place, |view, raw| {
            let Some(end) = end(view, raw, at)? else {
                return Ok(None);
            };
            if position < raw.front || position > end {
                return Err(Error::NoRecord { position });
            }
            if position == end {
                return Ok(Some(None));
            }
            let Some(part) = part_of(view, raw, at, raw.first, position)? else {
                return Ok(None);
            };
            let (bytes, _) = record_at(view, &part, position)?;
            Ok(Some(Some(bytes)))
        })
    }

    /// Drops the records before a position, at which one begins or the log ends. Those dropped
    /// already are no error.
    ///
    /// # Errors
    /// Those of [`At::append`]; `NoRecord`: none begins there.
    pub fn trim(&mut self, position: u64) -> Result<()> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| trim(tx, place, position))
    }

    /// Drops all records and gives back all room. Positions go on from where they were.
    ///
    /// # Errors
    /// Those of [`At::append`].
    pub fn clear(&mut self) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| clear(tx, place))
    }

    /// All records, each with its position, from the first on.
    ///
    /// Each is read when it is come to. A record that is there throughout comes once, in order; one
    /// that is dropped before it is come to does not come. The iterator ends where the log does
    /// when it gets there.
    pub fn iter(self) -> Records<W> {
        self.iter_from(0)
    }

    /// Like [`At::iter`], from a position on, at which a record begins.
    pub fn iter_from(self, position: u64) -> Records<W> {
        Records {
            at: self,
            next: position,
            segment: None,
            is_over: false,
        }
    }
}

/// The records of a log ([`At::iter`]).
pub struct Records<W> {
    at: At<W, PLog>,
    next: u64,
    /// The segment of the last one: its offset and its start.
    segment: Option<(u64, u64)>,
    is_over: bool,
}

/// A record that an iterator has come to: position, bytes, position after it, segment.
type Step = (u64, Vec<u8>, u64, (u64, u64));

impl<W: Within> Records<W> {
    fn step(&mut self) -> Result<Option<Step>> {
        let (place, at) = (self.at.place, self.at.place.place());
        let (next, known) = (self.next, self.segment);
        look(&mut self.at.within, place, |view, raw| {
            let position = next.max(raw.front);
            if raw.first == 0 {
                return Ok(Some(None));
            }
            // Segments go from the front: a later one than the first is in the chain.
            let first = segment(view, raw.first, at.0)?;
            let from = known.filter(|&(_, start)| start >= first.start);
            let from = from.map_or(raw.first, |(offset, _)| offset);
            let Some(part) = part_of(view, raw, at, from, position)? else {
                return Ok(None);
            };
            let end = part.segment.start + part.filled;
            if position == end {
                return Ok(Some(None));
            }
            if position > end {
                return Err(Error::NoRecord { position });
            }
            let (bytes, size) = record_at(view, &part, position)?;
            let segment = (part.segment.offset, part.segment.start);
            Ok(Some(Some((position, bytes, position + size, segment))))
        })
    }
}

impl<W: Within> Iterator for Records<W> {
    type Item = Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        match self.step() {
            Ok(Some((position, bytes, next, segment))) => {
                (self.next, self.segment) = (next, Some(segment));
                Some(Ok((position, bytes)))
            }
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }
}
