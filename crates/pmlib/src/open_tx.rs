//! Transactions that begin and end by calls, for callers that have no closures: other languages.

use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::tx::{Plan, Tx};

/// A transaction that goes on until [`OpenTx::commit`]. One that is dropped has not happened.
///
/// Its rules are those of [`Heap::tx`], also that it belongs to its thread, so this does not
/// compile:
///
/// ```compile_fail,E0277
/// # let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default())?;
/// let open = heap.begin()?;
/// std::thread::scope(|scope| scope.spawn(|| open.commit()).join().unwrap())?;
/// # Ok::<_, pmlib::Error>(())
/// ```
pub struct OpenTx<'h> {
    /// `None`: a panic has ended it.
    tx: Option<Tx<'h>>,
    /// The plan before each part that is open, the innermost one last.
    parts: Vec<Plan>,
}

impl Heap {
    /// Begins a transaction.
    ///
    /// # Errors
    /// `Nested`: this thread has a transaction of this heap; `Forked`; a heap that can't be used.
    ///
    /// ```
    /// # let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default())?;
    /// let mut open = heap.begin()?;
    /// let object = open.with(|tx| tx.alloc(64))?;
    /// open.with(|tx| tx.set_root(object))?;
    /// open.commit()?;
    /// assert_eq!(heap.root_offset()?, object);
    /// # Ok::<_, pmlib::Error>(())
    /// ```
    pub fn begin(&self) -> Result<OpenTx<'_>> {
        let mut tx = Tx::on(self.core());
        tx.start()?;
        Ok(OpenTx {
            tx: Some(tx),
            parts: Vec::new(),
        })
    }
}

impl OpenTx<'_> {
    /// Does something in the transaction. It goes on after an error, and a panic ends it.
    ///
    /// # Errors
    /// The closure's; `Ended`.
    pub fn with<T, E: From<Error>>(
        &mut self,
        body: impl FnOnce(&mut Tx<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut call = Call {
            tx: &mut self.tx,
            is_over: false,
        };
        let answer = body(call.tx.as_mut().ok_or(Error::Ended)?);
        call.is_over = true;
        answer
    }

    /// Begins a part that can fail by itself, in the part that is open if there is one.
    ///
    /// # Errors
    /// `Ended`; a heap that can't be used.
    pub fn begin_part(&mut self) -> Result<()> {
        let tx = self.tx.as_ref().ok_or(Error::Ended)?;
        tx.core().enter()?;
        self.parts.push(tx.work.plan.clone());
        Ok(())
    }

    /// Ends the innermost open part. It happens with the rest.
    ///
    /// # Errors
    /// `NoPart`; `Ended`; `Forked`.
    pub fn keep_part(&mut self) -> Result<()> {
        let tx = self.tx.as_ref().ok_or(Error::Ended)?;
        tx.core().test_process()?;
        self.parts.pop().ok_or(Error::NoPart)?;
        Ok(())
    }

    /// Ends the innermost open part. Nothing of it has happened, but for locks, which stay.
    ///
    /// # Errors
    /// `NoPart`; `Ended`; `Forked`.
    pub fn drop_part(&mut self) -> Result<()> {
        let tx = self.tx.as_mut().ok_or(Error::Ended)?;
        tx.core().test_process()?;
        tx.restore(self.parts.pop().ok_or(Error::NoPart)?);
        Ok(())
    }

    /// How many parts are open: none of a transaction that a panic has ended.
    #[must_use]
    pub fn parts(&self) -> usize {
        match self.tx {
            Some(_) => self.parts.len(),
            None => 0,
        }
    }

    /// Ends the transaction: nothing of it has happened. So does a drop.
    ///
    /// # Errors
    /// `Forked`: it is the parent's.
    pub fn abort(self) -> Result<()> {
        match &self.tx {
            Some(tx) => tx.core().test_process(),
            None => Ok(()),
        }
    }

    /// Ends the transaction, with the parts that are open: all of it is durable when this returns.
    /// After an error nothing has happened.
    ///
    /// # Errors
    /// Those of [`Heap::tx`]; `Ended`.
    pub fn commit(mut self) -> Result<()> {
        self.tx.as_mut().ok_or(Error::Ended)?.commit()
    }
}

/// A call in a transaction, which does not outlive a panic in it.
struct Call<'a, 'h> {
    tx: &'a mut Option<Tx<'h>>,
    is_over: bool,
}

impl Drop for Call<'_, '_> {
    fn drop(&mut self) {
        if !self.is_over {
            *self.tx = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::Options;

    fn heap() -> Heap {
        Heap::private(1 << 20, &Options::default()).unwrap()
    }

    fn word(heap: &Heap, object: u64) -> u8 {
        let mut byte = [0];
        heap.read_bytes(object, 0, &mut byte).unwrap();
        byte[0]
    }

    fn set(open: &mut OpenTx<'_>, object: u64, value: u8) {
        open.with(|tx| tx.edit_bytes(object, 0, 1).map(|bytes| bytes[0] = value))
            .unwrap();
    }

    /// Goal: an open transaction is all or nothing, and one a thread and heap. Method: one that is
    /// committed, one that is dropped, and another inside.
    #[test]
    fn it_is_a_transaction() {
        let heap = heap();
        let mut open = heap.begin().unwrap();
        let object = open.with(|tx| tx.alloc(64)).unwrap();
        set(&mut open, object, 1);
        assert!(matches!(heap.begin().err(), Some(Error::Nested)));
        let inner = heap.tx(|tx| tx.alloc(64));
        assert!(matches!(inner, Err(Error::Nested)), "{inner:?}");
        open.commit().unwrap();
        let mut open = heap.begin().unwrap();
        set(&mut open, object, 2);
        open.with(|tx| tx.alloc(64)).unwrap();
        // An error ends nothing.
        let error = open.with(|tx| tx.edit_bytes(object, 64, 1).map(|_| ()));
        assert!(matches!(error, Err(Error::Range { .. })), "{error:?}");
        drop(open);
        assert_eq!(word(&heap, object), 1);
        assert_eq!(heap.check().unwrap().objects, 1);
    }

    /// Goal: parts are kept or dropped by themselves, as those of `Tx::nested`. Method: parts in
    /// parts, with edits, a new object and a free in each.
    #[test]
    fn parts_are_kept_or_dropped() {
        let heap = heap();
        let [a, b] = heap
            .tx(|tx| Ok::<_, Error>([tx.alloc(64)?, tx.alloc(64)?]))
            .unwrap();
        let mut open = heap.begin().unwrap();
        assert!(matches!(open.drop_part(), Err(Error::NoPart)));
        assert!(matches!(open.keep_part(), Err(Error::NoPart)));
        set(&mut open, a, 1);
        open.begin_part().unwrap();
        set(&mut open, a, 2);
        let kept = open.with(|tx| tx.alloc(64)).unwrap();
        open.begin_part().unwrap();
        set(&mut open, a, 3);
        open.with(|tx| tx.free(b)).unwrap();
        open.with(|tx| tx.free(kept)).unwrap();
        open.with(|tx| tx.alloc(64)).unwrap();
        assert_eq!(open.parts(), 2);
        open.drop_part().unwrap();
        open.keep_part().unwrap();
        open.begin_part().unwrap();
        set(&mut open, kept, 4);
        // A part that is open is part of the whole.
        open.commit().unwrap();
        assert_eq!((word(&heap, a), word(&heap, kept)), (2, 4));
        assert_eq!(heap.check().unwrap().objects, 3);
    }

    #[test]
    fn a_panic_ends_it() {
        let heap = heap();
        let mut open = heap.begin().unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            open.with(|tx| -> Result<()> {
                tx.alloc(64)?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        let after = open.with(|tx| tx.alloc(64));
        assert!(matches!(after, Err(Error::Ended)), "{after:?}");
        assert!(matches!(open.begin_part(), Err(Error::Ended)));
        // The thread is free for another.
        heap.tx(|tx| tx.alloc(64)).unwrap();
        assert!(matches!(open.commit(), Err(Error::Ended)));
        assert_eq!(heap.check().unwrap().objects, 1);
    }

    /// Goal: a thread that ends in the middle of a transaction undoes it. Method: the transaction
    /// lies in a variable of the thread's, older than those that the heap keeps there, which are
    /// gone first.
    #[test]
    fn a_thread_ends_in_the_middle() {
        thread_local! {
            static OPEN: RefCell<Option<OpenTx<'static>>> = const { RefCell::new(None) };
        }
        let heap: &'static Heap = Box::leak(Box::new(heap()));
        let object = heap.tx(|tx| tx.alloc(64)).unwrap();
        std::thread::spawn(move || {
            OPEN.with_borrow_mut(|place| {
                let open = place.insert(heap.begin().unwrap());
                open.with(|tx| tx.lock(object)).unwrap();
                set(open, object, 1);
            });
        })
        .join()
        .unwrap();
        assert_eq!(word(heap, object), 0);
        heap.tx(|tx| tx.lock(object)).unwrap();
    }
}
