//! `pmkv scan`: all keys of an engine.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pm_cli::Failure;
use pmkv::{Error, Kind};
use pmkv_cli::Scan;

use crate::Outcome;
use crate::failure::of_engine;
use crate::keys::{COULD_NOT_RUN, closed, found, opened};
use crate::shown::{Entry, escaped};

pub fn run(arguments: &Scan) -> Outcome {
    let heap = opened(&arguments.heap)?;
    let engine = found(&arguments.heap, &heap, &arguments.engine)?;
    let failed = |error: &Error| of_engine(&arguments.heap, error).with_code(COULD_NOT_RUN);
    let prefix = arguments.prefix.as_bytes();
    // A tree begins with the first key that may be shown, and ends behind the last one.
    let start = arguments
        .from
        .as_deref()
        .map_or(prefix, |from| prefix.max(from.as_bytes()));
    let end = arguments.to.as_deref().map(OsStr::as_bytes);
    let bounds = (
        Bound::Included(start.to_vec()),
        end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec())),
    );
    let snapshot = arguments.snapshot.then(|| engine.snapshot(Duration::MAX));
    let snapshot = snapshot.transpose().map_err(|error| failed(&error))?;
    let mut entries: Box<dyn Iterator<Item = pmkv::Result<pmkv::Entry>> + '_> = match &snapshot {
        Some(snapshot) => Box::new(snapshot.range::<Vec<u8>, _>(bounds)),
        None => Box::new(engine.between(bounds.0, bounds.1)),
    };
    let is_ordered = engine.kind() == Kind::Tree;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut progress = Progress::begin();
    let mut damaged = 0u64;
    for entry in &mut entries {
        progress.step();
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error @ Error::Corrupt { .. }) => {
                damaged += 1;
                eprintln!("pmkv: {}", failed(&error));
                continue;
            }
            Err(error) => return Err(failed(&error)),
        };
        if !key.starts_with(prefix) {
            match is_ordered {
                true => break,
                false => continue,
            }
        }
        match out.write_all(line(arguments, &key, &value)?.as_bytes()) {
            // The reader of the result has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(done(damaged)),
            written => written.map_err(unwritten)?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.map_err(unwritten)?,
    }
    progress.end();
    drop(entries);
    drop(snapshot);
    drop(engine);
    closed(&arguments.heap, heap)?;
    Ok(done(damaged))
}

fn done(damaged: u64) -> ExitCode {
    match damaged {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(COULD_NOT_RUN),
    }
}

fn unwritten(error: io::Error) -> Failure {
    Failure::from(error).with_code(COULD_NOT_RUN)
}

fn line(arguments: &Scan, key: &[u8], value: &[u8]) -> Result<String, Failure> {
    let mut line = match (arguments.json, arguments.keys) {
        (true, keys) => {
            let entry = Entry::of_key(key);
            let entry = if keys { entry } else { entry.with_value(value) };
            serde_json::to_string(&entry).map_err(|error| unwritten(error.into()))?
        }
        (false, true) => escaped(key),
        (false, false) => format!("{}\t{}", escaped(key), escaped(value)),
    };
    line.push('\n');
    Ok(line)
}

/// The count of keys so far, on a terminal on which no result appears.
struct Progress {
    is_shown: bool,
    count: u64,
    next: Instant,
    was_shown: bool,
}

impl Progress {
    /// Looks at the clock are so many keys apart.
    const STRIDE: u64 = 1024;
    const FIRST_AFTER: Duration = Duration::from_secs(2);
    const EACH: Duration = Duration::from_millis(500);

    fn begin() -> Progress {
        Progress {
            is_shown: io::stderr().is_terminal() && !io::stdout().is_terminal(),
            count: 0,
            next: Instant::now() + Self::FIRST_AFTER,
            was_shown: false,
        }
    }

    fn step(&mut self) {
        self.count += 1;
        if self.is_shown && self.count.is_multiple_of(Self::STRIDE) && Instant::now() >= self.next {
            eprint!("\r{} keys", self.count);
            self.was_shown = true;
            self.next = Instant::now() + Self::EACH;
        }
    }

    fn end(&self) {
        if self.was_shown {
            eprintln!("\r{} keys", self.count);
        }
    }
}
