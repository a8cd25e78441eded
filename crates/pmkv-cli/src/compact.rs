//! `pmkv compact` and `pmkv grow`: room given back to the medium, and taken from it.

use std::path::Path;
use std::process::ExitCode;

use pm_cli::{Failure, Size};
use pmkv::{Hash, Kind};
use pmkv_cli::{Compact, Grow};
use pmlib::{Error, Heap, Options};
use serde::Serialize;

use crate::Outcome;
use crate::failure::{of_engine, of_heap};

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    heap: String,
    engine_bytes: u64,
    freed_bytes: u64,
    cut_bytes: u64,
    hole_bytes: u64,
    in_use: bool,
}

pub fn run(arguments: &Compact) -> Outcome {
    let path = &arguments.heap;
    let engine_bytes = engines(path)?;
    let done = Heap::compact(path).map_err(|error| of_heap(path, &error))?;
    let report = Report {
        heap: path.display().to_string(),
        engine_bytes,
        freed_bytes: done.freed_bytes,
        cut_bytes: done.cut_bytes,
        hole_bytes: done.hole_bytes,
        in_use: done.is_shared,
    };
    pm_cli::print(arguments.json, &report, |report| {
        let rest = match report.in_use {
            true => {
                format!(
                    "{} of it are holes; it is in use, and keeps its length: run it again when \
                     nobody has it",
                    Size(report.hole_bytes)
                )
            }
            false => format!(
                "{} shorter, {} of it are holes",
                Size(report.cut_bytes),
                Size(report.hole_bytes)
            ),
        };
        let records = match report.engine_bytes {
            0 => String::new(),
            bytes => format!("{} in chunks without records freed; ", Size(bytes)),
        };
        let freed = Size(report.freed_bytes);
        format!(
            "{}: {records}{freed} in chunks without objects freed; {rest}",
            report.heap
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Has the heap's engines give back what they do not need; answers how many bytes.
fn engines(path: &Path) -> Result<u64, Failure> {
    let failed = |error: pmkv::Error| of_engine(path, &error);
    let heap = Heap::open(path, &Options::default()).map_err(|error| of_heap(path, &error))?;
    let mut freed = 0;
    for name in Hash::names(&heap).map_err(failed)? {
        if let Some(kind) = Kind::of_engine(&heap, &name).map_err(failed)? {
            let kv = kind.open(&heap, &name).map_err(failed)?;
            freed += kv.compact().map_err(failed)?;
        }
    }
    heap.close().map_err(|error| of_heap(path, &error))?;
    Ok(freed)
}

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Grown {
    heap: String,
    size_bytes: u64,
    grown_bytes: u64,
}

pub fn grow(arguments: &Grow) -> Outcome {
    let path = &arguments.heap;
    let grown = Heap::open(path, &Options::default()).and_then(|heap| {
        let before = heap.size();
        let size = heap.grow(arguments.size.0)?;
        heap.close()?;
        Ok::<_, Error>((before, size))
    });
    let (before, size_bytes) = grown.map_err(|error| of_heap(path, &error))?;
    let report = Grown {
        heap: path.display().to_string(),
        size_bytes,
        grown_bytes: size_bytes - before,
    };
    pm_cli::print(arguments.json, &report, |report| {
        format!("{}: {}", report.heap, Size(report.size_bytes))
    })?;
    Ok(ExitCode::SUCCESS)
}
