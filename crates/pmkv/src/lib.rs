//! Key-value engines on a persistent heap: any bytes by any bytes, one wait for the medium a put.
//!
//! Contract:
//! - A call that has returned is durable, and one that has not has happened wholly or not at all.
//!   Readers see durable values alone.
//! - Any number of processes use an engine at once, and their threads. One that is killed, at
//!   whatever instruction, harms nobody. Readers take no lock.
//! - No value is returned whose check was found wrong: that is an error of its key.
//! - Opening an engine reads its head; what power loss left is settled when a key's group is first
//!   touched.
//!
//! `docs/KV.md` tells how it is used, and `docs/adr/0073-slots-with-states.md` why it is so.
#![forbid(unsafe_code)]

#[macro_use]
extern crate pmem;

#[cfg(feature = "planted-bugs")]
pub mod planted;

mod batch;
mod compact;
mod directory;
mod engine;
mod error;
mod expiry;
mod group;
mod held;
mod index;
mod iter;
mod journal;
mod key;
mod kv;
mod opening;
mod owned;
mod places;
#[doc(hidden)]
pub mod protocol;
mod put_off;
mod record;
mod scrub;
mod search;
mod session;
mod settle;
mod shape;
mod slot;
mod snapshot;
mod split;
mod store;
mod tree;
mod version;

pub use batch::{BATCH_MAX, Change};
pub use error::{Error, Result};
pub use expiry::{Clock, Expiry};
pub use iter::{Entries, Walking};
pub use kv::{Expect, Hash, Kv, Stats};
pub use opening::Kind;
pub use owned::{Owned, OwnedReader, OwnedSnapshot, SnapshotWalk, Walk};
pub use scrub::{Damage, OnDamage, Scrub, Scrubbed};
pub use session::{Reader, ValueRef};
pub use shape::Shape;
pub use snapshot::{Snapshot, SnapshotEntries};
pub use store::{Entries as AnyEntries, Entry, Scrubs, Store};
pub use tree::{Range, Tree, TreeShape};

/// The page's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/KV.md")]
struct KvPage;
