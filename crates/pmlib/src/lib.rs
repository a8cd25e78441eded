//! A persistent heap: objects in memory that outlives its processes, and transactions on them that
//! wait for the medium once.
//!
//! Contract:
//! - A transaction ([`Heap::tx`]) happens wholly or not at all, whatever ends its process or its
//!   power, and is durable when it returns. The meaning of "durable" is the medium's:
//!   [`Heap::medium`].
//! - A reader sees only durable words: nothing is stored in place before its record is durable.
//! - Objects are named by their offset. No reference into the heap is ever given out: a transaction
//!   edits private copies.
//! - Damage, a full heap, a foreign file are errors with their cause, and never a panic.
//! - Any number of processes have a heap at once, and their threads. One that is killed, at
//!   whatever instruction, harms nobody: the others finish or undo what it was doing.
//!
//! `docs/HEAP.md` tells how it is used, and `docs/adr/0062-redo-with-one-fence.md` why it is so.
#![forbid(unsafe_code)]

#[macro_use]
extern crate pmem;

#[cfg(feature = "planted-bugs")]
pub mod planted;

mod apart;
mod attach;
mod change;
mod check;
mod compact;
pub mod containers;
mod copies;
mod counts;
mod dump;
mod engine;
mod entered;
#[doc(hidden)]
pub mod eras;
mod error;
mod findings;
pub mod ground;
mod growth;
mod heap;
mod holes;
mod lane;
mod layout;
mod locks;
mod open_tx;
mod packed;
mod pointer;
#[doc(hidden)]
pub mod protocol;
mod reader;
mod record;
mod recovery;
mod repair;
mod rescue;
mod roots;
pub mod safe;
mod seen;
mod sessions;
mod shared;
mod space;
mod state;
mod stats;
mod tx;
mod typed;
mod users;
mod view;

pub use compact::Compacted;
pub use dump::{Dumped, Part, Value};
pub use error::{Error, Result};
pub use findings::{Finding, Inspector, finding_of};
pub use heap::{Heap, Options};
pub use open_tx::OpenTx;
pub use pmlib_derive::PmSafe;
pub use pmshare::Stalled;
pub use pointer::{P, RawP};
pub use repair::Repaired;
pub use safe::PmSafe;
pub use sessions::{ReadingProcess, Session};
pub use state::{State, is_heap};
pub use stats::{Census, Stats};
pub use tx::Tx;
pub use typed::{Edit, Field};
pub use users::{Totals, User, Users};
pub use view::View;

/// The page's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/HEAP.md")]
struct HeapPage;
