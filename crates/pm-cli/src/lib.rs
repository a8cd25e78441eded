//! Parts that the commands `pmfs` and `pmkv` have in common: sizes as people write them, errors in
//! a line, results as text or as JSON.
#![forbid(unsafe_code)]

mod escape;
pub mod failure;
pub mod fields;
pub mod size;

use std::io::{self, Write};

pub use escape::escaped;
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
    print_round(json, value, text).map(drop)
}

/// Prints one of several values as [`print`] does. Returns whether somebody reads them still.
///
/// # Errors
/// Those of stdout, but for a reader that went away.
pub fn print_round<T: Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> io::Result<bool> {
    let mut line = if json {
        serde_json::to_string(value)?
    } else {
        text(value)
    };
    line.push('\n');
    match io::stdout().write_all(line.as_bytes()) {
        // The reader of the result has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// Parses the seconds between two rounds of output, and brings them between 0.05 and 3,600.
///
/// # Errors
/// It is no number.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match seconds.is_nan() {
        true => Err("not a number".to_owned()),
        false => Ok(seconds.clamp(0.05, 3600.0)),
    }
}
