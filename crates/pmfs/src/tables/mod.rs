//! Who has what open, and the blocks into which the tables of that grow.

pub(crate) mod annex;
pub(crate) mod open_table;
