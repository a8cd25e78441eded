//! `pmkv put`, `pmkv get` and `pmkv del`: one key. Exit codes: 0 done, 1 the key is not there, 8
//! could not be done.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pm_cli::Failure;
use pmkv::{Hash, Kind, Store};
use pmkv_cli::{Del, Engine, Get, Put};
use pmlib::{Heap, Options};

use crate::Outcome;
use crate::failure::{of_engine, of_heap};
use crate::shown::Entry;

pub const NOT_THERE: u8 = 1;
pub const COULD_NOT_RUN: u8 = 8;
/// A value that a record can't have is not read further than this.
const VALUE_BYTES_MAX: u64 = 4 << 30;

pub fn put(arguments: &Put) -> Outcome {
    let key = arguments.key.as_bytes();
    let heap = opened(&arguments.heap)?;
    let value = match &arguments.value {
        Some(value) if value != "-" => value.as_bytes().to_vec(),
        _ => from_stdin()?,
    };
    let failed = |error| of_engine(&arguments.heap, &error).with_code(COULD_NOT_RUN);
    let name = &arguments.engine.engine;
    let kind = match arguments.kind {
        Some(kind) => kind.into(),
        None => Kind::of_engine(&heap, name)
            .map_err(failed)?
            .unwrap_or(Kind::Hash),
    };
    let engine = kind.open(&heap, name).map_err(failed)?;
    match arguments.ttl {
        Some(seconds) => engine.put_ttl(key, &value, Duration::from_secs(seconds)),
        None => engine.put(key, &value),
    }
    .map_err(failed)?;
    drop(engine);
    closed(&arguments.heap, heap)?;
    if arguments.json {
        let entry = Entry::of_key(key).with_length(&value);
        pm_cli::print(true, &entry, |_| String::new())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn from_stdin() -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin().lock();
    if stdin.is_terminal() {
        eprintln!("pmkv: the value is read from here; Ctrl-D ends it");
    }
    let mut value = Vec::new();
    let read = stdin.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value);
    read.map_err(|error| {
        let cause = format!("reading the value: {error}");
        Failure::new(cause, "see where stdin comes from").with_code(COULD_NOT_RUN)
    })?;
    Ok(value)
}

pub fn get(arguments: &Get) -> Outcome {
    let key = arguments.key.as_bytes();
    let heap = opened(&arguments.heap)?;
    let failed = |error| of_engine(&arguments.heap, &error).with_code(COULD_NOT_RUN);
    let value = found(&arguments.heap, &heap, &arguments.engine)?.get(key);
    let value = value.map_err(failed)?;
    closed(&arguments.heap, heap)?;
    let Some(value) = value else {
        return Ok(ExitCode::from(NOT_THERE));
    };
    if arguments.json {
        let entry = Entry::of_key(key).with_value(&value);
        pm_cli::print(true, &entry, |_| String::new())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&value).and_then(|()| stdout.flush()) {
        // The reader of the result has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done.map_err(|error| Failure::from(error).with_code(COULD_NOT_RUN))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn del(arguments: &Del) -> Outcome {
    let key = arguments.key.as_bytes();
    let heap = opened(&arguments.heap)?;
    let failed = |error| of_engine(&arguments.heap, &error).with_code(COULD_NOT_RUN);
    let was_there = found(&arguments.heap, &heap, &arguments.engine)?.delete(key);
    let was_there = was_there.map_err(failed)?;
    closed(&arguments.heap, heap)?;
    if !was_there {
        return Ok(ExitCode::from(NOT_THERE));
    }
    if arguments.json {
        pm_cli::print(true, &Entry::of_key(key), |_| String::new())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The heap, opened to write: an engine settles what power loss left, when it is read as well.
pub fn opened(path: &Path) -> Result<Heap, Failure> {
    let opened = Heap::open(path, &Options::default());
    opened.map_err(|error| of_heap(path, &error).with_code(COULD_NOT_RUN))
}

pub fn closed(path: &Path, heap: Heap) -> Result<(), Failure> {
    let closed = heap.close().map(drop);
    closed.map_err(|error| of_heap(path, &error).with_code(COULD_NOT_RUN))
}

/// The engine, of any kind; one that is missing is not made, so that a mistyped name leaves no
/// trace.
pub fn found<'h>(
    path: &Path,
    heap: &'h Heap,
    engine: &Engine,
) -> Result<Box<dyn Store + 'h>, Failure> {
    let failed = |error| of_engine(path, &error).with_code(COULD_NOT_RUN);
    match Kind::of_engine(heap, &engine.engine).map_err(failed)? {
        Some(kind) => kind.open(heap, &engine.engine).map_err(failed),
        None => Err(missing(path, heap, &engine.engine)),
    }
}

fn missing(path: &Path, heap: &Heap, name: &str) -> Failure {
    let names = match Hash::names(heap) {
        Ok(names) => names,
        Err(error) => return of_engine(path, &error).with_code(COULD_NOT_RUN),
    };
    let way_out = match names.is_empty() {
        true => format!("a first `pmkv put {}` makes it", path.display()),
        false => format!("name one with --engine: {}", names.join(", ")),
    };
    let cause = format!("{}: no engine {name:?} is there", path.display());
    Failure::new(cause, way_out).with_code(NOT_THERE)
}
