//! What processes that have the pool open know of each other, and how the dead are found.

pub(crate) mod attach;
pub(crate) mod counters;
pub(crate) mod entrance;
pub(crate) mod freeze;
pub(crate) mod inherit;
pub(crate) mod lease;
pub(crate) mod lock_bytes;
pub(crate) mod locks;
pub(crate) mod owner;
pub(crate) mod patrol;
pub(crate) mod slot;
pub(crate) mod traces;
