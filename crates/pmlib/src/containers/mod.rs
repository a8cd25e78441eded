//! Containers: a small head in an object of the program's, a field of a struct or a root, and what
//! it leads to.
//!
//! - [`Heap::at`] and [`Tx::at`] give a container's calls. On a heap each call that changes is a
//!   transaction of its own, durable when it returns. In a transaction it happens with the rest.
//! - A change locks its container, to the end of its transaction. So does each call in a
//!   transaction. On a heap, reads take no lock: each call sees the container as it was at one
//!   moment ([`Heap::view`]).
//! - A head of zeros is an empty container; so a root or a struct of zeros has empty ones.
//! - A container owns what its head leads to. Its `clear` gives that back; freeing the object with
//!   the head does not.
//! - After an error of a change in a transaction, but for `Index` and `NoRecord`, the transaction
//!   can only come to nothing ([`Error::Spoiled`]), unless the call is one of [`Tx::nested`].
//! - Nothing that is read is believed: an offset, a length or a position that can't be is
//!   [`Error::Damaged`], with the place of what says so.

use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::pointer::RawP;
use crate::tx::Tx;
use crate::typed::Field;
use crate::view::View;

mod buckets;
mod bytes;
mod key;
mod log;
mod map;
mod node;
mod owned;
mod queue;
mod range;
mod text;
mod tree;
mod vec;

pub use bytes::PBytes;
pub use key::Key;
pub use log::{PLog, Records};
pub use map::{Entries, PMap};
pub use queue::PQueue;
pub use range::Range;
pub use text::{PStr, PString};
pub use tree::PTree;
pub use vec::{Elements, PVec};

/// A container at its place, with what its calls are part of: a heap, or a transaction.
#[must_use = "it is what the calls are on"]
pub struct At<W, C> {
    within: W,
    place: Field<C>,
}

impl Heap {
    /// The calls of the container that lies there; each that changes it is a transaction.
    pub fn at<C>(&self, place: impl Into<Field<C>>) -> At<&Heap, C> {
        At {
            within: self,
            place: place.into(),
        }
    }

    /// Like [`Heap::at`], on a lane of the caller's choice, as [`Heap::begin_on`].
    #[doc(hidden)]
    pub fn at_on<C>(&self, lane: usize, place: impl Into<Field<C>>) -> At<OnLane<'_>, C> {
        At {
            within: OnLane(self, lane),
            place: place.into(),
        }
    }
}

impl<'h> Tx<'h> {
    /// The calls of the container that lies there, as parts of this transaction.
    pub fn at<C>(&mut self, place: impl Into<Field<C>>) -> At<&mut Tx<'h>, C> {
        At {
            within: self,
            place: place.into(),
        }
    }
}

/// Things that a container's calls can be part of: `&Heap` and `&mut Tx`.
pub trait Within: sealed::Within {}

impl<W: sealed::Within> Within for W {}

/// A heap, and a lane of it.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct OnLane<'h>(&'h Heap, usize);

mod sealed {
    use super::{RawP, Result, Tx, View};

    pub trait Within {
        /// A change that commits when the call ends.
        const IS_ALONE: bool;

        /// Reads a container as of one moment.
        fn look<R>(&mut self, key: RawP, body: impl FnMut(&View<'_>) -> Result<R>) -> Result<R>;

        /// Changes a container, which is locked.
        fn change<R>(
            &mut self,
            key: RawP,
            body: impl FnOnce(&mut Tx<'_>) -> Result<R>,
        ) -> Result<R>;
    }
}

impl sealed::Within for &Heap {
    const IS_ALONE: bool = true;

    fn look<R>(&mut self, key: RawP, body: impl FnMut(&View<'_>) -> Result<R>) -> Result<R> {
        self.view_locked(key, body)
    }

    fn change<R>(&mut self, key: RawP, body: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        self.tx(|tx| {
            tx.lock(key)?;
            body(tx)
        })
    }
}

impl sealed::Within for OnLane<'_> {
    const IS_ALONE: bool = true;

    fn look<R>(&mut self, key: RawP, body: impl FnMut(&View<'_>) -> Result<R>) -> Result<R> {
        self.0.view_locked(key, body)
    }

    fn change<R>(&mut self, key: RawP, body: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        let mut tx = self.0.begin_on(self.1);
        tx.lock(key)?;
        let value = body(&mut tx)?;
        self.0.commit(tx)?;
        Ok(value)
    }
}

impl sealed::Within for &mut Tx<'_> {
    const IS_ALONE: bool = false;

    fn look<R>(&mut self, key: RawP, mut body: impl FnMut(&View<'_>) -> Result<R>) -> Result<R> {
        self.lock(key)?;
        body(&View::within(self))
    }

    fn change<R>(&mut self, key: RawP, body: impl FnOnce(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        self.lock(key)?;
        let done = body(self);
        // The two are told before anything is changed.
        if let Err(error) = &done
            && !matches!(error, Error::Index { .. } | Error::NoRecord { .. })
        {
            self.work.plan.is_spoiled = true;
        }
        done
    }
}

/// A type that a container names without holding any.
type Of<T> = PhantomData<fn() -> T>;

/// Damage at a place.
fn damaged<T>(what: &'static str, at: RawP) -> Result<T> {
    let offset = at.0;
    Err(Error::Damaged { what, offset })
}
