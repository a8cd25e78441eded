//! Recordings: a line of JSON for each [`Event`].

use std::io::{self, BufRead, Write};

use thiserror::Error;

use crate::Event;
use crate::event::SCHEMA;

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// A recording that can not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BadRecording {
    /// The kernel's error.
    #[error("line {line}: {error}")]
    Io {
        /// The line, from 1.
        line: u64,
        /// The cause.
        error: io::Error,
    },
    /// Not an event.
    #[error("line {line}: {cause}; take a file that `pmmon record` has made")]
    NotAnEvent {
        /// The line, from 1.
        line: u64,
        /// The cause.
        cause: String,
    },
    /// Another version's.
    #[error("schema {0}, and this version reads {SCHEMA}; take the pmmon that has recorded it")]
    Schema(u32),
}

/// Appends events to a recording.
///
/// # Errors
/// Those of writing.
pub fn write(events: &[Event], to: &mut impl Write) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut *to, event)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads a recording, and gives each event to `take`. The answer says whether the recording has its
/// end: a monitor that was killed leaves none, and its last line may be cut.
///
/// # Errors
/// A line that is no event, with its number.
pub fn read(from: &mut impl BufRead, mut take: impl FnMut(Event)) -> Result<bool, BadRecording> {
    let mut is_whole = false;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = io::Read::take(&mut *from, LINE_BYTES_MAX);
        let got = limited.read_until(b'\n', &mut line);
        let got = got.map_err(|error| BadRecording::Io {
            line: number,
            error,
        })?;
        if got == 0 && number > 1 {
            break;
        }
        let event: Event = match serde_json::from_slice(&line) {
            Ok(event) => event,
            Err(_) if number > 1 && line.last() != Some(&b'\n') => return Ok(false),
            Err(error) => {
                return Err(BadRecording::NotAnEvent {
                    line: number,
                    cause: error.to_string(),
                });
            }
        };
        match event {
            Event::Begin { schema, .. } if schema != SCHEMA => {
                return Err(BadRecording::Schema(schema));
            }
            Event::Begin { .. } => {}
            _ if number == 1 => {
                return Err(BadRecording::NotAnEvent {
                    line: 1,
                    cause: "no beginning".to_owned(),
                });
            }
            _ => {}
        }
        is_whole = matches!(event, Event::End { .. });
        take(event);
    }
    Ok(is_whole)
}
