//! The tables of who has what open, and the blocks into which they grow.

pub(crate) mod annex;
pub(crate) mod open_table;
