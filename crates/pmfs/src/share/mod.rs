//! The processes that have the pool open: how each knows the others, and how the dead are found.
//!
//! [`member::Share`] is a process's place among them. The layers above finish or undo the work of
//! the dead, through [`cleaning::Rescue`].

pub(crate) mod attach;
pub(crate) mod cleaning;
pub(crate) mod counters;
mod counting;
pub(crate) mod freeze;
pub(crate) mod header;
pub(crate) mod holder;
pub(crate) mod inherit;
pub(crate) mod lease;
pub(crate) mod lock_bytes;
pub(crate) mod member;
mod others;
pub(crate) mod owner;
pub(crate) mod patrol;
pub(crate) mod rescue;
pub(crate) mod slot;
mod threads;
pub(crate) mod traces;
pub(crate) mod waits;
