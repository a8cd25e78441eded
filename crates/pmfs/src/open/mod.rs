//! Open files, locks on files, and files that have no name yet.

#[allow(missing_docs, reason = "seen by `parts` alone")]
pub mod file_lock;
pub(crate) mod hold;
pub(crate) mod open_file;
