//! Facts that processes and threads sharing a pool need about each other.

pub(crate) mod active;
pub mod counters;
pub mod death;
pub(crate) mod futex;
pub mod life;
pub mod published;
pub mod request;
pub mod slots;
#[cfg(feature = "started")]
pub mod started;
pub mod thread;
pub mod watch;
