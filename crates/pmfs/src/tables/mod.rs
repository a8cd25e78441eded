//! The tables of who has what open, and the blocks into which they grow.

pub mod annex;
pub mod open_table;
