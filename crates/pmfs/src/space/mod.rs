//! The state of blocks: which are free, and which in use.

pub mod alloc;
pub mod bitmap;
pub(crate) mod budget;
mod hints;
