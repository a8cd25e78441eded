//! The state of blocks: which are free, and which in use.

pub(crate) mod alloc;
pub(crate) mod bitmap;
pub(crate) mod budget;
mod hints;
