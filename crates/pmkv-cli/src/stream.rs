//! `pmkv save` and `pmkv load`: all keys of an engine, as it is at one instant, as a stream.
//!
//! The stream begins with a line of text, `pmkv-stream 1 hash|tree`. Then come entries, and an end:
//! a byte that tells which, three numbers of eight bytes, lowest byte first, the key and the value,
//! and a check (XXH3 of all of that, seeded with the entry's number, so that none can be left out
//! or change places). An entry's numbers are the bytes of its key, those of its value, and the
//! moment at which it expires, in milliseconds since 1970, or all ones; the end's are the count of
//! entries and two zeros. Nothing of an entry is used before its check was found right.

use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pm_cli::Failure;
use pmkv::{Change, Error, Expiry, Kind};
use pmkv_cli::{Load, Save};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Outcome;
use crate::failure::of_engine;
use crate::keys::{COULD_NOT_RUN, closed, found, opened};

const BEGINNING: &str = "pmkv-stream 1 ";
const ENTRY: u8 = 1;
const END: u8 = 2;
const HEAD_BYTES: usize = 25;
const KEY_BYTES_MAX: u64 = 64 << 10;
const VALUE_BYTES_MAX: u64 = 4 << 30;
/// A batch ends with so many entries, or bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    heap: String,
    engine: String,
    kind: String,
    keys: u64,
}

/// An entry of a stream.
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    expires: u64,
}

fn head(tag: u8, numbers: [u64; 3]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    bytes
}

/// Writes an entry or the end, number `nth`.
fn write(out: &mut impl Write, nth: u64, mut bytes: Vec<u8>, rest: [&[u8]; 2]) -> io::Result<()> {
    bytes.extend_from_slice(rest[0]);
    bytes.extend_from_slice(rest[1]);
    let check = xxh3_64_with_seed(&bytes, nth);
    bytes.extend_from_slice(&check.to_le_bytes());
    out.write_all(&bytes)
}

pub fn save(arguments: &Save) -> Outcome {
    let path = &arguments.heap;
    let failed = |error: &Error| of_engine(path, error).with_code(COULD_NOT_RUN);
    let unwritten = |error: io::Error| Failure::from(error).with_code(COULD_NOT_RUN);
    if io::stdout().is_terminal() {
        let way_out = "send it to a file: pmkv save HEAP >FILE";
        return Err(Failure::new("the stream is no text", way_out).with_code(COULD_NOT_RUN));
    }
    let heap = opened(path)?;
    let engine = found(path, &heap, &arguments.engine)?;
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{BEGINNING}{}", engine.kind()).map_err(unwritten)?;
    let snapshot = engine.snapshot(Duration::MAX);
    let snapshot = snapshot.map_err(|error| failed(&error))?;
    let (mut count, mut value, mut entries) = (0, Vec::new(), snapshot.iter());
    while let Some(entry) = entries.next_into(&mut value) {
        let (key, expiry) = entry.map_err(|error| failed(&error))?;
        let expires = match expiry {
            Expiry::Never => u64::MAX,
            Expiry::At(at) => at,
        };
        let numbers = [key.len() as u64, value.len() as u64, expires];
        write(&mut out, count, head(ENTRY, numbers), [&key, &value]).map_err(unwritten)?;
        count += 1;
    }
    drop(entries);
    drop(snapshot);
    write(&mut out, count, head(END, [count, 0, 0]), [&[], &[]]).map_err(unwritten)?;
    out.flush().map_err(unwritten)?;
    drop(engine);
    closed(path, heap)?;
    Ok(ExitCode::SUCCESS)
}

/// The cause why a stream is none, or not whole.
fn no_stream(cause: impl std::fmt::Display) -> Failure {
    Failure::whole(format!("stdin: {cause}"))
}

/// The kind that a stream's first line tells.
fn beginning(stream: &mut impl BufRead) -> Result<Kind, Failure> {
    let mut line = Vec::new();
    let read = stream.take(64).read_until(b'\n', &mut line);
    read.map_err(no_stream)?;
    let text = String::from_utf8_lossy(&line);
    match text.strip_prefix(BEGINNING).map(str::trim_end) {
        Some("hash") => Ok(Kind::Hash),
        Some("tree") => Ok(Kind::Tree),
        Some(kind) => Err(no_stream(format!(
            "a stream of a kind {kind:?} that this build does not know; load it with a later one"
        ))),
        None => Err(no_stream(
            "no stream of this version; give it the output of `pmkv save`",
        )),
    }
}

/// The next entry, number `nth`; `None`: the stream has ended as it should.
fn next(stream: &mut impl Read, nth: u64) -> Result<Option<Entry>, Failure> {
    let damaged = |what: &str| {
        no_stream(format!(
            "{what} at entry {nth}; save it again, or copy it again"
        ))
    };
    let mut bytes = vec![0; HEAD_BYTES];
    stream
        .read_exact(&mut bytes)
        .map_err(|_| damaged("it ends early"))?;
    let number = |at: usize| {
        let number = bytes[1 + 8 * at..].first_chunk();
        number.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let (tag, [key_bytes, value_bytes, expires]) = (bytes[0], [number(0), number(1), number(2)]);
    let rest = match tag {
        ENTRY if key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX => {
            key_bytes + value_bytes
        }
        END => 0,
        _ => return Err(damaged("damaged bytes")),
    };
    let read = stream.take(rest + 8).read_to_end(&mut bytes);
    if read.map_err(no_stream)? as u64 != rest + 8 {
        return Err(damaged("it ends early"));
    }
    let check = bytes.split_off(bytes.len() - 8);
    if xxh3_64_with_seed(&bytes, nth).to_le_bytes() != check[..] {
        return Err(damaged("damaged bytes"));
    }
    if tag == END {
        return match key_bytes == nth {
            true => Ok(None),
            false => Err(damaged("another count")),
        };
    }
    let value = bytes.split_off(HEAD_BYTES + key_bytes as usize);
    let key = bytes.split_off(HEAD_BYTES);
    Ok(Some(Entry {
        key,
        value,
        expires,
    }))
}

pub fn load(arguments: &Load) -> Outcome {
    let path = &arguments.heap;
    let mut stream = BufReader::new(io::stdin().lock());
    let kind = beginning(&mut stream).map_err(|failure| failure.with_code(COULD_NOT_RUN))?;
    let kind = arguments.kind.map_or(kind, Kind::from);
    let heap = opened(path)?;
    let name = &arguments.engine.engine;
    let failed = |error: &Error| of_engine(path, error).with_code(COULD_NOT_RUN);
    let engine = kind.open(&heap, name).map_err(|error| failed(&error))?;
    let mut count = 0;
    loop {
        let (entries, last) = part(&mut stream, count);
        let changes: Vec<Change<'_>> = entries.iter().map(change).collect();
        engine.batch(&changes).map_err(|error| failed(&error))?;
        count += entries.len() as u64;
        match last {
            Ok(true) => break,
            Ok(false) => {}
            Err(failure) => return Err(unfinished(path, count, &failure)),
        }
    }
    drop(engine);
    closed(path, heap)?;
    let report = Report {
        heap: path.display().to_string(),
        engine: name.clone(),
        kind: kind.to_string(),
        keys: count,
    };
    pm_cli::print(arguments.json, &report, |report| {
        format!("{}: {} keys ({})", report.engine, report.keys, report.kind)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Entries for one batch, and whether the stream has ended behind them, or why it can't be read on.
fn part(stream: &mut impl Read, mut nth: u64) -> (Vec<Entry>, Result<bool, Failure>) {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while entries.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
        match next(stream, nth) {
            Ok(Some(entry)) => {
                bytes += entry.key.len() + entry.value.len();
                entries.push(entry);
            }
            Ok(None) => return (entries, Ok(true)),
            Err(failure) => return (entries, Err(failure)),
        }
        nth += 1;
    }
    (entries, Ok(false))
}

fn change(entry: &Entry) -> Change<'_> {
    match entry.expires {
        u64::MAX => Change::Put(&entry.key, &entry.value),
        at => Change::PutUntil(&entry.key, &entry.value, at),
    }
}

fn unfinished(path: &Path, count: u64, failure: &Failure) -> Failure {
    let heap = path.display();
    let said = format!("{failure}; the {count} keys before it are in {heap}");
    Failure::whole(said).with_code(COULD_NOT_RUN)
}
