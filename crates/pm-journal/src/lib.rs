//! Lanes: a call logs there what it changes in place, and recovery goes by the log when the call is
//! cut off.
//!
//! The right order compiles:
//!
//! ```
//! fn right(mut tx: pm_journal::Transaction<'_>) {
//!     let range = tx.log(4096, 8);
//!     let mut tx = tx.seal();
//!     tx.set(&range, 0, 1);
//!     tx.commit();
//! }
//! ```
//!
//! A range can't be stored to before it is logged and the log is durable, because only a sealed
//! transaction stores, and only through a [`Logged`] that it gave out before:
//!
//! ```compile_fail
//! fn early(mut tx: pm_journal::Transaction<'_>) {
//!     let range = tx.log(4096, 8);
//!     tx.set(&range, 0, 1); // not sealed yet: does not compile
//! }
//! ```
//!
//! ```compile_fail
//! fn unlogged(tx: &mut pm_journal::Sealed<'_>) {
//!     tx.set(4096, 0, 1); // a number is not a logged range: does not compile
//! }
//! ```
//!
//! A transaction can't be closed before what it changed is durable, because only
//! [`Sealed::make_durable`] gives what [`Unclosed::close`] takes; and nothing can be changed any
//! more from then on:
//!
//! ```compile_fail
//! fn early(tx: pm_journal::Sealed<'_>) {
//!     tx.close(); // not flushed: does not compile
//! }
//! ```
//!
//! ```compile_fail
//! fn late(mut tx: pm_journal::Sealed<'_>, range: &pm_journal::Logged) {
//!     let unclosed = tx.make_durable();
//!     tx.set(range, 0, 1); // the log may be closed: does not compile
//!     unclosed.close();
//! }
//! ```
//!
//! ```compile_fail
//! fn late(mut tx: pm_journal::Sealed<'_>, range: &pm_journal::Logged) {
//!     tx.commit();
//!     tx.set(range, 0, 1); // committed: does not compile
//! }
//! ```
#![forbid(unsafe_code)]

#[macro_use]
extern crate pmem;

mod change;
mod checksum;
pub mod committed_redo;
pub mod error;
pub mod lane;
pub mod locks;
pub mod log_entry;
#[allow(missing_docs, reason = "most fields are the superblock's")]
pub mod medium;
pub mod pending;
pub mod redo;
pub mod scan;
mod transaction;
pub mod types;
pub mod undo;

pub use change::Change;
pub use error::{Error, Result};
pub use redo::Redo;
pub use transaction::{Logged, Sealed, Transaction, Unclosed};
