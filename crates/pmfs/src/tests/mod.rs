//! Tests of the storeys below by calls on files.

mod committed_redo;
mod pending;
mod table_blocks;
mod transaction;
