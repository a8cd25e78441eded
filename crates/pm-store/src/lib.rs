//! The ways to change persistent memory, each a method of a type (docs/design/consistency.md).
//!
//! [`Pm`] gives all others loads. Only this crate and `pm_journal` store to the pool, in four
//! ways:
//!
//! 1. [`Pm::publish`] and [`Pm::publish_pair`]: one aligned 8- or 16-byte store, of something
//!    durable;
//! 2. transactions, in `pm_journal`: ranges that they have logged, and no others;
//! 3. [`Fresh`]: memory that nothing durable refers to yet;
//! 4. [`Pm::lazy_write`]: bytes whose loss the contract allows (times, data in `ordered` mode).
//!
//! The first, second and fourth are stores in place. A thread completes its pending commits before
//! them (the module `pending`).
//!
//! Volatile state in the runtime area goes through [`Runtime`], which can't reach anything else.
//!
//! The right order compiles:
//!
//! ```
//! fn right(pm: &pm_store::Pm, slot: u64, word: u64) {
//!     let durable = pm.fresh().barrier();
//!     pm.publish(slot, word, durable);
//! }
//! ```
//!
//! A pointer can't be published before what it names is durable, because publishing takes a
//! [`Durable`], which only the barrier of a [`FreshSet`] gives:
//!
//! ```compile_fail
//! fn early(pm: &pm_store::Pm, slot: u64, word: u64) {
//!     pm.publish(slot, word); // no `Durable`: does not compile
//! }
//! ```
#![forbid(unsafe_code)]

pub mod planted;

pub mod annexes;
pub mod clock;
mod error;
mod fresh;
mod lazy;
mod pending;
mod pm;
mod publish;
mod restore;
mod runtime;

pub use error::{Error, Result};
pub use fresh::{Durable, Fresh, FreshSet};
pub use lazy::Noted;
pub use pending::committed_redo_ranges;
pub use pm::Pm;
pub use restore::Restore;
pub use runtime::Runtime;
