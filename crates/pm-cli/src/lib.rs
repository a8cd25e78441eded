//! Parts that the commands `pmfs` and `pmkv` have in common: sizes as people write them, errors in
//! a line, results as text or as JSON.
#![forbid(unsafe_code)]

pub mod failure;
pub mod fields;
pub mod size;

use std::io::{self, Write};

pub use failure::Failure;
pub use fields::{Fields, Shown};
use serde::Serialize;
pub use size::Size;

/// Prints `value` as one line of JSON, or else `text`.
///
/// # Errors
/// Those of stdout, but for a reader that went away.
pub fn print<T: Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> io::Result<()> {
    let mut line = if json {
        serde_json::to_string(value)?
    } else {
        text(value)
    };
    line.push('\n');
    match io::stdout().write_all(line.as_bytes()) {
        // The reader of the result has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
