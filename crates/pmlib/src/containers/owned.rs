//! Vectors and queues that keep their bytes: calls of a `PVec<PBytes>` and a `PQueue<PBytes>` by
//! which bytes live as long as their element. They are read as of the same moment, and freed in the
//! transaction that takes the element away.

use crate::containers::bytes::spoil;
use crate::containers::{At, PBytes, PQueue, PVec, Within, log, queue, vec};
use crate::error::Result;
use crate::view::View;

impl<W: Within> At<W, PVec<PBytes>> {
    /// The bytes of an element; `None`: there are fewer.
    ///
    /// # Errors
    /// Those of [`At::get`].
    pub fn get_bytes(&mut self, index: u64) -> Result<Option<Vec<u8>>> {
        let place = self.place;
        self.within.look(place.place(), |view| {
            let value = vec::get(view, place, index)?;
            value.map(|value| view.bytes_of(value)).transpose()
        })
    }

    /// Adds an element of these bytes; answers its index.
    ///
    /// # Errors
    /// Those of [`At::push`]; `Size`.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            let value = tx.new_bytes(bytes)?;
            vec::extend(tx, place, &[value])
        })
    }

    /// Has an element be of these bytes. The bytes that it had are freed.
    ///
    /// # Errors
    /// Those of [`At::set`]; `Size`.
    pub fn set_bytes(&mut self, index: u64, bytes: &[u8]) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            // An index that is too great is told before anything is changed.
            let old = vec::need(&View::within(tx), place, index)?;
            if planted!("bug-vec-bytes-in-place") && old.len() >= bytes.len() as u64 {
                spoil(tx, Some(old), bytes);
            }
            let value = tx.new_bytes(bytes)?;
            vec::set(tx, place, index, value)?;
            tx.free_bytes(old)
        })
    }

    /// Takes the last element away, with its bytes, which are answered; `None`: there was none.
    ///
    /// # Errors
    /// Those of [`At::pop`].
    pub fn pop_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            let Some(value) = vec::pop(tx, place)? else {
                return Ok(None);
            };
            let bytes = tx.bytes_of(value)?;
            tx.free_bytes(value)?;
            Ok(Some(bytes))
        })
    }

    /// Takes all elements away, with their bytes, and gives all room back.
    ///
    /// # Errors
    /// Those of [`At::clear`].
    pub fn clear_bytes(&mut self) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            let values = tx.at(place).to_vec()?;
            vec::truncate(tx, place, 0)?;
            values
                .into_iter()
                .try_for_each(|value| tx.free_bytes(value))
        })
    }
}

impl<W: Within> At<W, PQueue<PBytes>> {
    /// Puts bytes at the end.
    ///
    /// # Errors
    /// Those of [`At::push`]; `Size`.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            // Bytes that stand in the value itself need no record.
            let is_alone = W::IS_ALONE && PBytes::short(bytes).is_some();
            let value = tx.new_bytes(bytes)?;
            queue::push(tx, place, &value, is_alone)
        })
    }

    /// Takes the first bytes; `None`: there are none. On a heap they are gone for good when this
    /// returns, and no other call gets them.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn pop_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            let Some(value) = queue::pop(tx, place)? else {
                return Ok(None);
            };
            let bytes = tx.bytes_of(value)?;
            tx.free_bytes(value)?;
            Ok(Some(bytes))
        })
    }

    /// A copy of the first bytes; `None`: there are none.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn peek_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        let (log, at) = (self.place.cast(), self.place.place());
        log::first(&mut self.within, log, |view, bytes| {
            view.bytes_of(queue::value(&bytes, at)?)
        })
    }

    /// Takes all bytes away and gives all room back.
    ///
    /// # Errors
    /// Those of [`At::push`].
    pub fn clear_bytes(&mut self) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            while let Some(value) = queue::pop(tx, place)? {
                tx.free_bytes(value)?;
            }
            log::clear(tx, place.cast())
        })
    }
}
