//! The tables of open files and file locks, and the blocks into which they grow.

pub mod annex;
pub mod open_table;
pub mod shares;
