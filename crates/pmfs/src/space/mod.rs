//! Which blocks are free, and which are in use by whom.

pub(crate) mod alloc;
