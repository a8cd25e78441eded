//! A queue: a log of values, from whose front they are taken. Any number of threads put values in
//! and take them out.

use pmlib_format::container::RECORD_HEAD_BYTES;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::containers::{At, Of, PLog, Within, damaged, log};
use crate::error::Result;
use crate::pointer::RawP;
use crate::safe::{PmSafe, mix, of_text};
use crate::tx::Tx;
use crate::typed::Field;

/// The head of a queue of `T`s; its calls are those of [`At`].
///
/// ```
/// # use pmlib::{Error, Heap, Options};
/// # use pmlib::containers::PQueue;
/// let heap = Heap::private(1 << 20, &Options::default())?;
/// let jobs = heap.root::<PQueue<u64>>("jobs")?;
/// heap.at(jobs).push(7)?;
/// heap.at(jobs).push(8)?;
/// assert_eq!(heap.at(jobs).pop()?, Some(7));
/// assert_eq!(heap.at(jobs).len()?, 1);
/// # Ok::<_, Error>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PQueue<T> {
    log: PLog,
    of: Of<T>,
}

impl<T> PQueue<T> {
    /// An empty one.
    #[must_use]
    pub fn new() -> PQueue<T> {
        PQueue::new_zeroed()
    }
}

impl<T> Default for PQueue<T> {
    fn default() -> PQueue<T> {
        PQueue::new()
    }
}

impl<T: PmSafe> PmSafe for PQueue<T> {
    const FINGERPRINT: u64 = mix(of_text("PQueue"), T::FINGERPRINT);

    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        self.log.trace(visit);
    }
}

/// Bytes of a value's record.
fn each<T>() -> u64 {
    RECORD_HEAD_BYTES + (size_of::<T>() as u64).next_multiple_of(8)
}

/// The value of a record.
pub(super) fn value<T: PmSafe>(bytes: &[u8], at: RawP) -> Result<T> {
    T::read_from_bytes(bytes).or_else(|_| damaged("a queue's value", at))
}

/// Puts a value at the end of a locked queue; `is_alone`: nothing else happens in the transaction.
pub(super) fn push<T: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PQueue<T>>,
    value: &T,
    is_alone: bool,
) -> Result<()> {
    log::append(tx, place.cast(), value.as_bytes(), is_alone).map(drop)
}

/// Takes the first value of a locked queue; `None`: there is none.
pub(super) fn pop<T: PmSafe>(tx: &mut Tx<'_>, place: Field<PQueue<T>>) -> Result<Option<T>> {
    let bytes = log::take_first(tx, place.cast())?;
    bytes.map(|bytes| value(&bytes, place.place())).transpose()
}

impl<W: Within, T: PmSafe> At<W, PQueue<T>> {
    fn log(&self) -> Field<PLog> {
        self.place.cast()
    }

    /// Puts a value at the end.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such queue; `Full`; `Deadlock`; `Damaged`.
    pub fn push(&mut self, value: T) -> Result<()> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| push(tx, place, &value, W::IS_ALONE))
    }

    /// Takes the first value; `None`: there is none. On a heap it is gone for good when this
    /// returns, and no other call gets it.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn pop(&mut self) -> Result<Option<T>> {
        let place = self.place;
        self.within.change(place.place(), |tx| pop(tx, place))
    }

    /// A copy of the first value; `None`: there is none.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn peek(&mut self) -> Result<Option<T>> {
        let log = self.log();
        let at = log.place();
        log::first(&mut self.within, log, |_, bytes| value(&bytes, at))
    }

    /// Values in it.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn len(&mut self) -> Result<u64> {
        let log = self.log();
        let (front, end) = log::bounds(&mut self.within, log)?;
        let bytes = end - front;
        if !bytes.is_multiple_of(each::<T>()) {
            return damaged("a queue's head", log.place());
        }
        Ok(bytes / each::<T>())
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Takes all values away and gives back all room.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn clear(&mut self) -> Result<()> {
        let log = self.log();
        self.within.change(log.place(), |tx| log::clear(tx, log))
    }
}
