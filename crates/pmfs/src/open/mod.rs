//! Open files, locks on files, and files that have no name yet.

pub(crate) mod file_lock;
pub(crate) mod hold;
pub(crate) mod open_file;
