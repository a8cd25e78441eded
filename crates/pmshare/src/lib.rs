//! Processes that share persistent memory: how they recognize each other, and how dead ones are
//! found.
//!
//! [`Share`] is a process's place in memory that is [`Shared`]: a mapping with the places of some
//! words. This crate does not know the rest of the mapping: the layer above finishes or undoes the
//! calls of the dead, by [`Rescue`].
#![forbid(unsafe_code)]

#[macro_use]
extern crate pmem;
#[cfg(test)]
extern crate self as pmshare;

pub mod attach;
pub mod cleaning;
pub mod counters;
mod counting;
mod error;
#[cfg(test)]
#[path = "../tests/heap/mod.rs"]
mod heap;
pub mod holder;
pub mod inherit;
pub mod layout;
pub mod lease;
pub mod lock_bytes;
pub mod member;
mod others;
pub mod owner;
pub mod patrol;
mod publish;
pub mod rescue;
pub mod slot;
mod threads;
pub mod traces;
pub mod waits;

pub use cleaning::{Dead, Rescue, Undone};
pub use error::{Error, Result};
pub use layout::{Layout, Shared};
pub use member::{Options, Share, Stalled};
pub use waits::{Member, Waits};
