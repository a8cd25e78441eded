//! `pmkv migrate`: all engines of a heap, each as it is at one instant, in a new heap of this
//! version.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pm_cli::Failure;
use pmkv::{Change, Error, Expiry, Hash, Kind, Store};
use pmkv_cli::Migrate;
use pmlib::{Heap, Options};
use serde::Serialize;

use crate::Outcome;
use crate::failure::{of_engine, of_heap};
use crate::keys::{COULD_NOT_RUN, closed, opened};

/// A batch ends with so many entries, or bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    from: String,
    to: String,
    engines: Vec<Engine>,
}

#[derive(Serialize)]
struct Engine {
    name: String,
    kind: String,
    keys: u64,
}

/// An entry that is to be put: key, value, and when it expires.
type Entry = (Vec<u8>, Vec<u8>, Expiry);

pub fn run(arguments: &Migrate) -> Outcome {
    let (from, to) = (&arguments.from, &arguments.to);
    let old = opened(from)?;
    let size = arguments.size.map_or(old.size(), |size| size.0);
    let names = Hash::names(&old).map_err(|error| failure(from, &error))?;
    let kinds: Result<Vec<Kind>, Failure> =
        names.iter().map(|name| kind_of(from, &old, name)).collect();
    let kinds = kinds?;
    let made = Heap::create(to, size, &Options::default());
    let new = made.map_err(|error| of_heap(to, &error).with_code(COULD_NOT_RUN))?;
    let mut engines = Vec::new();
    // The oldest first, so that they are listed in the same order.
    for (name, kind) in names.into_iter().zip(kinds).rev() {
        match copy((from, &old), (to, &new), &name, kind) {
            Ok(keys) => {
                let kind = kind.to_string();
                engines.push(Engine { name, kind, keys });
            }
            Err(failure) => {
                drop(new);
                // Half of a heap is of no use.
                let _ = std::fs::remove_file(to);
                return Err(failure);
            }
        }
    }
    closed(to, new)?;
    closed(from, old)?;
    let report = Report {
        from: from.display().to_string(),
        to: to.display().to_string(),
        engines,
    };
    pm_cli::print(arguments.json, &report, |report| {
        let line = |one: &Engine| format!("{}: {} keys ({})", one.name, one.keys, one.kind);
        let lines: Vec<String> = report.engines.iter().map(line).collect();
        lines.join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn failure(path: &Path, error: &Error) -> Failure {
    of_engine(path, error).with_code(COULD_NOT_RUN)
}

/// The kind of an engine; one that is not of this version is told with the way out.
fn kind_of(path: &Path, heap: &Heap, name: &str) -> Result<Kind, Failure> {
    let of_another = || {
        let said = format!(
            "{}: the engine {name} is of another version; have the pmkv that made it `save` it, \
             and this one `load` the stream",
            path.display()
        );
        Failure::whole(said).with_code(COULD_NOT_RUN)
    };
    let kind = Kind::of_engine(heap, name).and_then(|kind| {
        // To open it shows if its version is this one's.
        kind.map(|kind| kind.open(heap, name).map(|_| kind))
            .transpose()
    });
    match kind {
        Ok(Some(kind)) => Ok(kind),
        Ok(None) | Err(Error::Shape { .. }) => Err(of_another()),
        Err(error) => Err(failure(path, &error)),
    }
}

/// Copies an engine; answers its keys.
fn copy(
    (from, old): (&Path, &Heap),
    (to, new): (&Path, &Heap),
    name: &str,
    kind: Kind,
) -> Result<u64, Failure> {
    let source = kind
        .open(old, name)
        .map_err(|error| failure(from, &error))?;
    let target = kind.open(new, name).map_err(|error| failure(to, &error))?;
    let snapshot = source.snapshot(Duration::MAX);
    let snapshot = snapshot.map_err(|error| failure(from, &error))?;
    let (mut count, mut bytes) = (0, 0);
    let (mut value, mut part, mut entries) = (Vec::new(), Vec::new(), snapshot.iter());
    while let Some(entry) = entries.next_into(&mut value) {
        let (key, expiry) = entry.map_err(|error| failure(from, &error))?;
        count += 1;
        bytes += key.len() + value.len();
        part.push((key, std::mem::take(&mut value), expiry));
        if part.len() == BATCH_ENTRIES || bytes >= BATCH_BYTES {
            put(&*target, &part).map_err(|error| failure(to, &error))?;
            part.clear();
            bytes = 0;
        }
    }
    put(&*target, &part).map_err(|error| failure(to, &error))?;
    Ok(count)
}

fn put(target: &dyn Store, part: &[Entry]) -> Result<(), Error> {
    let changes: Vec<Change<'_>> = part
        .iter()
        .map(|(key, value, expiry)| match expiry {
            Expiry::Never => Change::Put(key, value),
            Expiry::At(at) => Change::PutUntil(key, value, *at),
        })
        .collect();
    target.batch(&changes)
}
