//! Open files, locks on files, and files that have no name yet.

pub(crate) mod annex;
pub(crate) mod file_lock;
pub(crate) mod new_file;
pub(crate) mod open_file;
pub(crate) mod open_table;
