//! `pmkv bench`: a quick measurement of an engine's calls.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use pm_cli::Size;
use pmkv::{Change, Error, Kind, Store};
use pmkv_cli::Bench;
use pmlib::{Heap, Options};
use serde::Serialize;

use crate::Outcome;
use crate::failure::{of_engine, of_heap};
use crate::keys::COULD_NOT_RUN;

const BATCH: usize = 100;
const FIRST_BYTES: u64 = 64 << 20;

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    kind: String,
    medium: String,
    flush: String,
    keys: u64,
    value_bytes: u64,
    heap_bytes: u64,
    calls: Vec<Call>,
}

#[derive(Serialize)]
struct Call {
    call: &'static str,
    /// Time of a call on one key.
    ns: f64,
    per_second: f64,
}

/// Removes the heap's file, however it ends.
struct Gone<'p>(Option<&'p Path>);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

pub fn run(arguments: &Bench) -> Outcome {
    let path = arguments.heap.as_deref();
    let shown = path.unwrap_or(Path::new("memory"));
    let options = Options::default();
    let heap = match path {
        Some(path) => Heap::create(path, FIRST_BYTES, &options),
        None => Heap::private(FIRST_BYTES, &options),
    };
    let heap = heap.map_err(|error| of_heap(shown, &error).with_code(COULD_NOT_RUN))?;
    let _gone = Gone(path);
    let kind = Kind::from(arguments.kind);
    let failed = |error: &Error| of_engine(shown, error).with_code(COULD_NOT_RUN);
    let engine = kind.open(&heap, "kv").map_err(|error| failed(&error))?;
    let calls = measured(&*engine, arguments).map_err(|error| failed(&error))?;
    drop(engine);
    let medium = heap.medium();
    let report = Report {
        kind: kind.to_string(),
        medium: medium.kind.to_string(),
        flush: medium.flush.to_string(),
        keys: arguments.keys,
        value_bytes: arguments.value,
        heap_bytes: heap.size(),
        calls,
    };
    let closed = heap.close().map(drop);
    closed.map_err(|error| of_heap(shown, &error).with_code(COULD_NOT_RUN))?;
    pm_cli::print(arguments.json, &report, Report::text)?;
    Ok(ExitCode::SUCCESS)
}

/// Keys in a mixed order, each once: an odd factor permutes the numbers of 64 bits.
fn key(nth: u64) -> [u8; 16] {
    let mixed = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&mixed.to_be_bytes());
    key
}

fn measured(engine: &dyn Store, arguments: &Bench) -> Result<Vec<Call>, Error> {
    let count = arguments.keys;
    let value = vec![b'v'; arguments.value as usize];
    let mut calls = Vec::new();
    let mut time = |call, body: &mut dyn FnMut() -> Result<(), Error>| {
        let start = Instant::now();
        body()?;
        let ns = start.elapsed().as_nanos() as f64 / count as f64;
        let per_second = 1e9 / ns;
        calls.push(Call {
            call,
            ns,
            per_second,
        });
        Ok::<_, Error>(())
    };
    let mut found = Vec::new();
    time("put", &mut || {
        (0..count).try_for_each(|nth| engine.put(&key(nth), &value))
    })?;
    time("put over", &mut || {
        (0..count).try_for_each(|nth| engine.put(&key(nth), &value))
    })?;
    time("get", &mut || {
        (0..count).try_for_each(|nth| engine.get_into(&key(nth), &mut found).map(drop))
    })?;
    time("get of none", &mut || {
        (count..2 * count).try_for_each(|nth| engine.get_into(&key(nth), &mut found).map(drop))
    })?;
    time("walk", &mut || {
        engine.entries().try_for_each(|entry| entry.map(drop))
    })?;
    time("batch of 100", &mut || {
        let all: Vec<u64> = (0..count).collect();
        all.chunks(BATCH).try_for_each(|part| {
            let keys: Vec<[u8; 16]> = part.iter().map(|&nth| key(nth)).collect();
            let puts = keys.iter().map(|key| Change::Put(key, &value));
            engine.batch(&puts.collect::<Vec<_>>())
        })
    })?;
    time("delete", &mut || {
        (0..count).try_for_each(|nth| engine.delete(&key(nth)).map(drop))
    })?;
    Ok(calls)
}

impl Report {
    fn text(&self) -> String {
        let mut lines = vec![format!(
            "{} of {} keys with values of {} bytes; {}, flush {}, heap {}",
            self.kind,
            self.keys,
            self.value_bytes,
            self.medium,
            self.flush,
            Size(self.heap_bytes)
        )];
        for Call {
            call,
            ns,
            per_second,
        } in &self.calls
        {
            lines.push(format!("{call:<14}{ns:>10.0} ns{per_second:>14.0} /s"));
        }
        lines.join("\n")
    }
}
