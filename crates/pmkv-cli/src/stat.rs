//! `pmkv create` and `pmkv stat`: a heap's size, space, durability and engines.

use std::path::Path;
use std::process::ExitCode;

use pm_cli::Size;
use pmkv::{Hash, Kind};
use pmkv_cli::{Create, Stat};
use pmlib::{Heap, Options};
use serde::Serialize;

use crate::Outcome;
use crate::failure::{of_engine, of_heap};

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    heap: String,
    size_bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    classes: Vec<Class>,
    lanes: u32,
    spans: u64,
    medium: String,
    durability: String,
    flush: String,
    engines: Vec<Engine>,
}

#[derive(Serialize)]
struct Engine {
    name: String,
    kind: String,
}

#[derive(Serialize)]
struct Class {
    object_bytes: u64,
    chunks: u64,
}

pub fn create(arguments: &Create) -> Outcome {
    let options = Options {
        lanes: arguments.lanes,
        ..Options::default()
    };
    let made = Heap::create(&arguments.heap, arguments.size.0, &options);
    let heap = made.map_err(|error| of_heap(&arguments.heap, &error))?;
    show(&arguments.heap, heap, arguments.json)
}

pub fn run(arguments: &Stat) -> Outcome {
    let opened = looked_into(&arguments.heap);
    let heap = opened.map_err(|error| of_heap(&arguments.heap, &error))?;
    show(&arguments.heap, heap, arguments.json)
}

/// The heap, opened to be read: its users are not disturbed, and the right to write is not needed.
/// One that needs recovery is opened to write, and recovered by that.
pub fn looked_into(path: &Path) -> Result<Heap, pmlib::Error> {
    let refused = match Heap::open(path, &Options::read_only()) {
        Err(error @ pmlib::Error::NeedsRecovery { .. }) => error,
        opened => return opened,
    };
    match Heap::open(path, &Options::default()) {
        // It can't be written.
        Err(pmlib::Error::Medium(_)) => Err(refused),
        opened => opened,
    }
}

fn show(path: &Path, heap: Heap, json: bool) -> Outcome {
    let report = Report::new(path, &heap).map_err(|error| of_engine(path, &error))?;
    heap.close().map_err(|error| of_heap(path, &error))?;
    pm_cli::print(json, &report, Report::text)?;
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn new(path: &Path, heap: &Heap) -> Result<Report, pmkv::Error> {
        let stats = heap.stats()?;
        let engine = |name: String| {
            let kind = match Kind::of_engine(heap, &name) {
                Ok(Some(kind)) => kind.to_string(),
                Ok(None) => "begun".to_owned(),
                Err(pmkv::Error::Shape { .. }) => "of another version".to_owned(),
                Err(error) => return Err(error),
            };
            Ok(Engine { name, kind })
        };
        let medium = heap.medium();
        let class = |(object_bytes, chunks)| Class {
            object_bytes,
            chunks,
        };
        Ok(Report {
            heap: path.display().to_string(),
            size_bytes: stats.bytes,
            free_bytes: stats.free_bytes,
            largest_free_bytes: stats.largest_free_bytes,
            classes: stats.classes.into_iter().map(class).collect(),
            lanes: stats.lanes,
            spans: stats.spans,
            medium: medium.kind.to_string(),
            durability: medium.durability.to_string(),
            flush: medium.flush.to_string(),
            engines: Hash::names(heap)?
                .into_iter()
                .map(engine)
                .collect::<Result<_, _>>()?,
        })
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!("heap        {}", self.heap),
            format!("medium      {}", self.medium),
            format!("durability  {}", self.durability),
            format!("flush       {}", self.flush),
            format!("size        {}", Size(self.size_bytes)),
            format!(
                "free        {} (largest object {})",
                Size(self.free_bytes),
                Size(self.largest_free_bytes)
            ),
            format!("lanes       {}", self.lanes),
            format!("growth      {} steps", self.spans.saturating_sub(1)),
        ];
        for Engine { name, kind } in &self.engines {
            lines.push(format!("engine      {name} ({kind})"));
        }
        for class in &self.classes {
            lines.push(format!(
                "objects     of {}: {} in use",
                Size(class.object_bytes),
                Size(class.chunks * (64 << 10))
            ));
        }
        lines.join("\n")
    }
}
