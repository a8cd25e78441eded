//! The thread's transactions. A handle is a number: its thread's, and a count.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pmlib::{Error, Heap, OpenTx, RawP, Tx};

use crate::answer::{Answer, Code, Failure, NULL, answer, done, wrong};
use crate::heaps::{HeapHandle, test_size, test_type, with as with_heap};
use crate::lent::Lent;
use crate::pointers::{name, put, room, values};

/// The low four bits of a transaction's handle. The number of its thread follows in 24 bits, and a
/// count of the thread's transactions in 36. Both begin again at their end: then a handle of long
/// ago may be taken for one of now, and is no worse than a mistaken one.
const KIND: u64 = 0x9;
const THREADS: u64 = (1 << 24) - 1;
const COUNTS: u64 = (1 << 36) - 1;

/// The type of handles. None is ever looked at: the pointer is a number.
#[repr(C)]
pub struct TxHandle {
    _nothing: [u8; 0],
}

/// A transaction that goes on.
struct Open {
    handle: u64,
    tx: OpenTx<'static>,
    lent: Lent,
    /// Behind the transaction, which is dropped first: it refers to this heap.
    _heap: Arc<Heap>,
}

/// A thread's transactions, and its number.
struct Thread {
    number: u64,
    count: u64,
    open: Vec<Open>,
}

impl Thread {
    fn new() -> Thread {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Thread {
            number: NEXT.fetch_add(1, Ordering::Relaxed) & THREADS,
            count: 0,
            open: Vec::new(),
        }
    }

    /// Where a transaction is among those of the thread.
    fn find(&self, handle: u64) -> Answer<usize> {
        if let Some(at) = self.open.iter().rposition(|open| open.handle == handle) {
            return Ok(at);
        }
        let (kind, thread) = (handle & 0xf, handle >> 4 & THREADS);
        Err(match kind {
            _ if handle == 0 => NULL,
            KIND if thread != self.number => Failure::Wrong(
                Code::Thread,
                "the transaction is another thread's: each thread begins its own",
            ),
            _ => Failure::Wrong(
                Code::Handle,
                "no such transaction: it has ended, or never was",
            ),
        })
    }
}

thread_local! {
    /// It is dropped when the thread ends, and with it what goes on, which is undone.
    static THREAD: RefCell<Thread> = RefCell::new(Thread::new());
}

fn with_thread<T>(body: impl FnOnce(&mut Thread) -> Answer<T>) -> Answer<T> {
    let inner = THREAD.try_with(|thread| match thread.try_borrow_mut() {
        Ok(mut thread) => body(&mut thread),
        Err(_) => Err(Failure::Wrong(
            Code::InUse,
            "a call in the middle of another one of its thread (a signal handler?)",
        )),
    });
    inner.unwrap_or(Err(Failure::Wrong(Code::Thread, "the thread has ended")))
}

/// Does something in a transaction.
fn with<T>(tx: *mut TxHandle, body: impl FnOnce(&mut Open) -> Answer<T>) -> Answer<T> {
    with_thread(|thread| {
        let at = thread.find(tx.addr() as u64)?;
        body(&mut thread.open[at])
    })
}

/// Does something in a transaction that reads and changes a range: edits of it count before, and
/// show the change after.
pub fn with_stored<T>(
    tx: *mut TxHandle,
    (object, start, size): (u64, u64, u64),
    body: impl FnOnce(&mut Tx<'_>) -> Result<T, Error>,
) -> Answer<T> {
    with(tx, |open| {
        open.lent.store(&mut open.tx, object, start, size)?;
        let value = open.tx.with(body)?;
        open.lent.load(&mut open.tx, object, start, size)?;
        Ok(value)
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_begin(heap: *mut HeapHandle) -> *mut TxHandle {
    answer(null_mut(), || {
        let heap = with_heap(heap, |heap| Ok(heap.clone()))?;
        let tx = heap.begin()?;
        // SAFETY: the heap stays where it is as long as `Open` has a share of it, and `Open` drops
        // the transaction before its share. Commit takes the transaction out while it has it.
        let tx = unsafe { std::mem::transmute::<OpenTx<'_>, OpenTx<'static>>(tx) };
        let mut open = Open {
            handle: 0,
            tx,
            lent: Lent::default(),
            _heap: heap,
        };
        with_thread(|thread| {
            let count = thread.count & COUNTS;
            thread.count = thread.count.wrapping_add(1);
            open.handle = count << 28 | thread.number << 4 | KIND;
            let handle = open.handle;
            thread.open.push(open);
            Ok(without_provenance_mut(handle as usize))
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_nest(tx: *mut TxHandle) -> Code {
    done(|| {
        with(tx, |open| {
            open.lent.store_all(&mut open.tx)?;
            open.tx.begin_part()?;
            open.lent.nest();
            Ok(())
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_commit(tx: *mut TxHandle) -> Code {
    done(|| {
        with_thread(|thread| {
            let at = thread.find(tx.addr() as u64)?;
            let open = &mut thread.open[at];
            if open.tx.parts() > 0 {
                open.tx.keep_part()?;
                open.lent.keep();
                return Ok(());
            }
            // The heap first, so that it is dropped last, also by a panic.
            let Open {
                _heap,
                mut tx,
                lent,
                ..
            } = thread.open.remove(at);
            lent.store_all(&mut tx)?;
            Ok(tx.commit()?)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_abort(tx: *mut TxHandle) -> Code {
    done(|| {
        with_thread(|thread| {
            let at = thread.find(tx.addr() as u64)?;
            let open = &mut thread.open[at];
            if open.tx.parts() > 0 {
                open.tx.drop_part()?;
                return open.lent.undo(&mut open.tx);
            }
            // The heap first, so that it is dropped last.
            let Open { _heap, tx, .. } = thread.open.remove(at);
            Ok(tx.abort()?)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_lock(tx: *mut TxHandle, object: u64) -> Code {
    done(|| with(tx, |open| Ok(open.tx.with(|tx| tx.lock(object))?)))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_lock_all(
    tx: *mut TxHandle,
    objects: *const u64,
    count: usize,
) -> Code {
    done(|| {
        with(tx, |open| {
            // SAFETY: as the header says.
            let objects = unsafe { values(objects, count) }?;
            let each = objects.iter().map(|&object| RawP(object));
            Ok(open.tx.with(|tx| tx.lock_all(each))?)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_try_lock(
    tx: *mut TxHandle,
    object: u64,
    locked: *mut c_int,
) -> Code {
    done(|| {
        with(tx, |open| {
            if locked.is_null() {
                return Err(NULL);
            }
            let is_mine = open.tx.with(|tx| tx.try_lock(object))?;
            // SAFETY: as the header says.
            unsafe { put(locked, c_int::from(is_mine)) }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_alloc(tx: *mut TxHandle, size: u64) -> u64 {
    answer(0, || {
        with(tx, |open| Ok(open.tx.with(|tx| tx.alloc(size))?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_free(tx: *mut TxHandle, object: u64) -> Code {
    done(|| {
        with(tx, |open| {
            open.tx.with(|tx| tx.free(object))?;
            open.lent.free(object);
            Ok(())
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_edit(
    tx: *mut TxHandle,
    object: u64,
    start: u64,
    size: u64,
) -> *mut c_void {
    answer(null_mut(), || {
        with(tx, |open| {
            if size == 0 {
                return wrong("no bytes are to be edited");
            }
            open.lent.lend(&mut open.tx, object, start, size)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_write(
    tx: *mut TxHandle,
    object: u64,
    start: u64,
    from: *const c_void,
    size: usize,
) -> Code {
    done(|| {
        with(tx, |open| {
            let found = open.tx.with(|tx| tx.size_of(object))?;
            test_size(object, found, start, size)?;
            // SAFETY: as the header says.
            let bytes = unsafe { values(from.cast::<u8>(), size) }?;
            open.lent.store(&mut open.tx, object, start, size as u64)?;
            open.tx.with(|tx| tx.write_bytes(object, start, bytes))?;
            open.lent.load(&mut open.tx, object, start, size as u64)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_read(
    tx: *mut TxHandle,
    object: u64,
    start: u64,
    into: *mut c_void,
    size: usize,
) -> Code {
    done(|| {
        with(tx, |open| {
            let found = open.tx.with(|tx| tx.size_of(object))?;
            test_size(object, found, start, size)?;
            open.lent.store(&mut open.tx, object, start, size as u64)?;
            // SAFETY: as the header says.
            let into = unsafe { room(into, size) }?;
            Ok(open.tx.with(|tx| tx.read_bytes(object, start, into))?)
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_size_of(tx: *mut TxHandle, object: u64) -> u64 {
    answer(0, || {
        with(tx, |open| Ok(open.tx.with(|tx| tx.size_of(object))?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_set_root(tx: *mut TxHandle, object: u64) -> Code {
    done(|| with(tx, |open| Ok(open.tx.with(|tx| tx.set_root(object))?)))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_tx_root(
    tx: *mut TxHandle,
    called: *const c_char,
    size: u64,
    fingerprint: u64,
) -> u64 {
    answer(0, || {
        with(tx, |open| {
            test_type(fingerprint)?;
            // SAFETY: as the header says.
            let called = unsafe { name(called) }?;
            Ok(open.tx.with(|tx| tx.root_of(called, fingerprint, size))?)
        })
    })
}
