//! Vectors and queues of bytes, logs and texts, in a heap or in a transaction.

use std::ffi::{c_char, c_int, c_void};

use pmlib::containers::{At, PBytes, PLog, PQueue, PString, PVec};
use pmlib::{Error, Field, RawP, Tx};

use crate::answer::{Answer, Code, Failure, NULL, done, wrong};
use crate::engines::went_on;
use crate::heaps::{HeapHandle, with as with_heap};
use crate::maps::{bytes, give, root};
use crate::pointers::{given, name, put};
use crate::transactions::{TxHandle, with_stored};

type Vector = PVec<PBytes>;
type Queue = PQueue<PBytes>;

/// Numbers of `enum pmheap_kind`, after those of maps and trees.
const VEC: u32 = 3;
const QUEUE: u32 = 4;
const LOG: u32 = 5;
const STRING: u32 = 6;

const NONE: Failure = Failure::Plain(Code::NoKey);

/// `struct pmheap_seq`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SeqRaw {
    object: u64,
    start: u64,
    kind: u32,
    reserved: u32,
}

/// `pmheap_record_cb`.
pub type RecordCallback =
    Option<unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize) -> c_int>;

/// The place of a container, which has to be of this kind.
///
/// # Safety
/// That of [`given`].
unsafe fn place<C>(seq: *const SeqRaw, kind: u32) -> Answer<Field<C>> {
    // SAFETY: the caller's promise.
    let raw = unsafe { given(seq) }?.ok_or(NULL)?;
    if raw.reserved != 0 {
        return wrong("the reserved word of a sequence is not 0");
    }
    if !raw.start.is_multiple_of(8) {
        return wrong("a sequence begins at a multiple of 8 bytes");
    }
    if raw.kind != kind {
        return wrong("the sequence is of another kind than the function");
    }
    Ok(Field::at(RawP(raw.object), raw.start))
}

/// Does something with a container in a transaction.
fn in_tx<C, T>(
    tx: *mut TxHandle,
    place: Field<C>,
    body: impl FnOnce(&mut At<&mut Tx<'_>, C>) -> Result<T, Error>,
) -> Answer<T> {
    let head = (place.object().0, place.start(), size_of::<C>() as u64);
    with_stored(tx, head, |tx| body(&mut tx.at(place)))
}

/// Does something with a container in a transaction of its own.
fn alone<C, T>(
    heap: *mut HeapHandle,
    place: Field<C>,
    body: impl FnOnce(&mut At<&mut Tx<'_>, C>) -> Result<T, Error>,
) -> Answer<T> {
    with_heap(heap, |heap| Ok(heap.tx(|tx| body(&mut tx.at(place)))?))
}

/// An element that is not there.
fn there<T>(value: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match value {
        Err(Error::Index { .. } | Error::NoRecord { .. }) => Ok(None),
        other => other,
    }
}

/// Bytes that are to be taken away, and whether they are: not if there is no room for all of them.
type Taken = (Vec<u8>, bool);

fn take<C>(
    at: &mut At<&mut Tx<'_>, C>,
    size: usize,
    first: impl FnOnce(&mut At<&mut Tx<'_>, C>) -> Result<Option<Vec<u8>>, Error>,
    pop: impl FnOnce(&mut At<&mut Tx<'_>, C>) -> Result<Option<Vec<u8>>, Error>,
) -> Result<Option<Taken>, Error> {
    match first(at)? {
        Some(bytes) if bytes.len() > size => Ok(Some((bytes, false))),
        Some(_) => Ok(pop(at)?.map(|bytes| (bytes, true))),
        None => Ok(None),
    }
}

/// A function on a heap, and the same in a transaction. On a heap it is the container's own call
/// (`call`), or several calls that are one transaction (`alone`).
macro_rules! both {
    (
        $how:ident $on_heap:ident, $in_tx:ident, $container:ty, $kind:expr,
        ($($argument:ident: $type:ty),*),
        $(let $bytes:ident = $from:ident, $size:ident;)?
        |$at:ident| $call:expr,
        |$answer:ident| $end:expr
    ) => {
        /// See `pmkv.h`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $on_heap(
            heap: *mut HeapHandle,
            seq: *const SeqRaw,
            $($argument: $type),*
        ) -> Code {
            done(|| {
                // SAFETY: as the header says.
                let place = unsafe { place::<$container>(seq, $kind) }?;
                // SAFETY: as the header says.
                $(let $bytes = unsafe { bytes($from, $size) }?;)?
                let $answer = both!(@$how heap, place, |$at| $call)?;
                $end
            })
        }

        /// See `pmkv.h`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $in_tx(
            tx: *mut TxHandle,
            seq: *const SeqRaw,
            $($argument: $type),*
        ) -> Code {
            done(|| {
                // SAFETY: as the header says.
                let place = unsafe { place::<$container>(seq, $kind) }?;
                // SAFETY: as the header says.
                $(let $bytes = unsafe { bytes($from, $size) }?;)?
                let $answer = in_tx(tx, place, |$at| $call)?;
                $end
            })
        }
    };
    (@alone $heap:ident, $place:ident, |$at:ident| $call:expr) => {
        alone($heap, $place, |$at| $call)
    };
    (@call $heap:ident, $place:ident, |$at:ident| $call:expr) => {
        with_heap($heap, |heap| {
            let mut at = heap.at($place);
            let $at = &mut at;
            Ok($call?)
        })
    };
}

/// Writes a number, unless it is not wanted.
fn tell(into: *mut u64, value: u64) -> Answer<()> {
    if into.is_null() {
        return Ok(());
    }
    // SAFETY: as the header says.
    unsafe { put(into, value) }
}

/// Copies bytes that may not be there.
fn copy(
    value: Option<Vec<u8>>,
    into: *mut c_void,
    size: usize,
    value_size: *mut usize,
) -> Answer<()> {
    // SAFETY: as the header says.
    unsafe { give(value, into, size, value_size) }
}

/// Copies bytes that were taken away, or answers how many there are.
fn hand_over(
    taken: Option<Taken>,
    into: *mut c_void,
    size: usize,
    value_size: *mut usize,
) -> Answer<()> {
    let (bytes, _) = taken.ok_or(NONE)?;
    copy(Some(bytes), into, size, value_size)
}

/// The bytes for which there is room; asked before any are taken away.
fn has_room(into: *mut c_void, size: usize) -> usize {
    if into.is_null() { 0 } else { size }
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_seq_root(
    heap: *mut HeapHandle,
    called: *const c_char,
    kind: u32,
    into: *mut SeqRaw,
) -> Code {
    done(|| {
        with_heap(heap, |heap| {
            // SAFETY: as the header says.
            let called = unsafe { name(called) }?;
            let RawP(object) = match kind {
                VEC => root::<Vector>(heap, called)?,
                QUEUE => root::<Queue>(heap, called)?,
                LOG => root::<PLog>(heap, called)?,
                STRING => root::<PString>(heap, called)?,
                _ => return wrong("no sequence is of such a kind"),
            };
            let made = SeqRaw {
                object,
                start: 0,
                kind,
                reserved: 0,
            };
            // SAFETY: as the header says.
            unsafe { put(into, made) }
        })
    })
}

both!(
    alone pmheap_vec_push, pmheap_tx_vec_push, Vector, VEC,
    (value: *const c_void, size: usize, index: *mut u64),
    let value = value, size;
    |at| at.push_bytes(value), |found| tell(index, found)
);
both!(
    call pmheap_vec_get, pmheap_tx_vec_get, Vector, VEC,
    (index: u64, into: *mut c_void, size: usize, value_size: *mut usize),
    |at| at.get_bytes(index), |value| copy(value, into, size, value_size)
);
both!(
    alone pmheap_vec_set, pmheap_tx_vec_set, Vector, VEC,
    (index: u64, value: *const c_void, size: usize),
    let value = value, size;
    |at| there(at.set_bytes(index, value).map(Some)), |was| was.ok_or(NONE)
);
both!(
    alone pmheap_vec_pop, pmheap_tx_vec_pop, Vector, VEC,
    (into: *mut c_void, size: usize, value_size: *mut usize),
    |at| take(
        at,
        has_room(into, size),
        |at| match at.len()? {
            0 => Ok(None),
            len => at.get_bytes(len - 1),
        },
        |at| at.pop_bytes(),
    ),
    |taken| hand_over(taken, into, size, value_size)
);
both!(
    call pmheap_vec_count, pmheap_tx_vec_count, Vector, VEC, (count: *mut u64),
    |at| at.len(), |found| {
        // SAFETY: as the header says.
        unsafe { put(count, found) }
    }
);
both!(
    alone pmheap_vec_clear, pmheap_tx_vec_clear, Vector, VEC, (),
    |at| at.clear_bytes(), |cleared| Ok(cleared)
);

both!(
    call pmheap_queue_push, pmheap_tx_queue_push, Queue, QUEUE,
    (value: *const c_void, size: usize),
    let value = value, size;
    |at| at.push_bytes(value), |pushed| Ok(pushed)
);
both!(
    alone pmheap_queue_pop, pmheap_tx_queue_pop, Queue, QUEUE,
    (into: *mut c_void, size: usize, value_size: *mut usize),
    |at| take(at, has_room(into, size), |at| at.peek_bytes(), |at| at.pop_bytes()),
    |taken| hand_over(taken, into, size, value_size)
);
both!(
    call pmheap_queue_peek, pmheap_tx_queue_peek, Queue, QUEUE,
    (into: *mut c_void, size: usize, value_size: *mut usize),
    |at| at.peek_bytes(), |value| copy(value, into, size, value_size)
);
both!(
    call pmheap_queue_count, pmheap_tx_queue_count, Queue, QUEUE, (count: *mut u64),
    |at| at.len(), |found| {
        // SAFETY: as the header says.
        unsafe { put(count, found) }
    }
);
both!(
    alone pmheap_queue_clear, pmheap_tx_queue_clear, Queue, QUEUE, (),
    |at| at.clear_bytes(), |cleared| Ok(cleared)
);

both!(
    call pmheap_log_append, pmheap_tx_log_append, PLog, LOG,
    (record: *const c_void, size: usize, position: *mut u64),
    let record = record, size;
    |at| at.append(record), |found| tell(position, found)
);
both!(
    call pmheap_log_read, pmheap_tx_log_read, PLog, LOG,
    (position: u64, into: *mut c_void, size: usize, record_size: *mut usize),
    |at| there(at.read(position)), |record| copy(record, into, size, record_size)
);
both!(
    call pmheap_log_bounds, pmheap_tx_log_bounds, PLog, LOG,
    (front: *mut u64, end: *mut u64),
    |at| {
        // The front first: no later end is before it.
        let front = at.front()?;
        Ok::<_, Error>((front, at.end()?))
    },
    |found| {
        tell(front, found.0)?;
        tell(end, found.1)
    }
);
both!(
    alone pmheap_log_trim, pmheap_tx_log_trim, PLog, LOG, (position: u64),
    |at| there(at.trim(position).map(Some)), |was| was.ok_or(NONE)
);
both!(
    alone pmheap_log_clear, pmheap_tx_log_clear, PLog, LOG, (),
    |at| at.clear(), |cleared| Ok(cleared)
);

/// A text of bytes.
fn text(bytes: &[u8]) -> Answer<&str> {
    std::str::from_utf8(bytes).or_else(|_| wrong("a text is not UTF-8"))
}

both!(
    alone pmheap_string_set, pmheap_tx_string_set, PString, STRING,
    (value: *const c_void, size: usize),
    let value = value, size;
    |at| match text(value) {
        Ok(text) => at.set_text(text).map(Ok),
        Err(wrong) => Ok(Err(wrong)),
    },
    |set| set
);
both!(
    alone pmheap_string_append, pmheap_tx_string_append, PString, STRING,
    (tail: *const c_void, size: usize),
    let tail = tail, size;
    |at| match text(tail) {
        Ok(text) => at.push_str(text).map(Ok),
        Err(wrong) => Ok(Err(wrong)),
    },
    |appended| appended
);
both!(
    call pmheap_string_get, pmheap_tx_string_get, PString, STRING,
    (into: *mut c_void, size: usize, value_size: *mut usize),
    |at| at.get(), |text| copy(Some(text.into_bytes()), into, size, value_size)
);
both!(
    alone pmheap_string_clear, pmheap_tx_string_clear, PString, STRING, (),
    |at| at.clear(), |cleared| Ok(cleared)
);

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_log_each(
    heap: *mut HeapHandle,
    seq: *const SeqRaw,
    from: u64,
    callback: RecordCallback,
    argument: *mut c_void,
) -> Code {
    done(|| {
        // The heap is not locked while the program has the records: it may close others.
        let heap = with_heap(heap, |heap| Ok(heap.clone()))?;
        // SAFETY: as the header says.
        let place = unsafe { place::<PLog>(seq, LOG) }?;
        let callback = callback.ok_or(NULL)?;
        let from = from.max(heap.at(place).front()?);
        for record in heap.at(place).iter_from(from) {
            let (position, bytes) = match record {
                Err(Error::NoRecord { .. }) => return Err(NONE),
                other => other?,
            };
            // SAFETY: as the header says; the bytes are there during the call.
            went_on(unsafe { callback(argument, position, bytes.as_ptr().cast(), bytes.len()) })?;
        }
        Ok(())
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_log_ring(
    tx: *mut TxHandle,
    seq: *const SeqRaw,
    kept_bytes: u64,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let place = unsafe { place::<PLog>(seq, LOG) }?;
        let head = (place.object().0, place.start(), size_of::<PLog>() as u64);
        let is_new = with_stored(tx, head, |tx| {
            tx.lock(place.object())?;
            let mut at = tx.at(place);
            let is_new = (at.front()?, at.end()?) == (0, 0);
            if is_new {
                tx.write(place, &PLog::ring(kept_bytes))?;
            }
            Ok(is_new)
        })?;
        match is_new {
            true => Ok(()),
            false => wrong("a log becomes a ring before its first record"),
        }
    })
}
