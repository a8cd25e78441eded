//! Open files, locks on files, and files without a name.

#[allow(missing_docs, reason = "seen by `parts` alone")]
pub mod file_lock;
pub(crate) mod hold;
pub(crate) mod open_file;
