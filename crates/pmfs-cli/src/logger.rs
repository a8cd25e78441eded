//! The log of a serving process: stderr in the foreground, a file if one was named, else nothing.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::failure::Failure;

/// The target of lines.
pub enum Target<'a> {
    /// Without time: the reader is present.
    Stderr,
    /// Each line with seconds since the epoch.
    File(&'a Path),
}

struct Logger {
    to: Mutex<Box<dyn Write + Send>>,
    with_time: bool,
}

/// Starts logging; panics go there as well.
pub fn start(target: &Target<'_>) -> Result<(), Failure> {
    let (to, with_time): (Box<dyn Write + Send>, bool) = match target {
        Target::Stderr => (Box::new(io::stderr()), false),
        Target::File(path) => {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|error| {
                    Failure::new(
                        format!("log file {}: {error}", path.display()),
                        "name another one",
                    )
                })?;
            (Box::new(file), true)
        }
    };
    let logger = Logger {
        to: Mutex::new(to),
        with_time,
    };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(LevelFilter::Info);
        std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    }
    Ok(())
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Warnings and errors are enough from other crates.
        metadata.target().starts_with("pmfs") || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = record.level().as_str().to_lowercase();
        let line = if self.with_time {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            format!(
                "{}.{:03} {level}: {}\n",
                now.as_secs(),
                now.subsec_millis(),
                record.args()
            )
        } else {
            format!("pmfs: {level}: {}\n", record.args())
        };
        // A log that can't be written must not stop the mount.
        let _ = self
            .to
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes());
    }

    fn flush(&self) {}
}
