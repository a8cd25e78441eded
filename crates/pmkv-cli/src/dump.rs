//! `pmkv dump`: a heap's structures as they stand, for people and as JSON. Nothing is changed.

use std::process::ExitCode;

use pm_cli::{Failure, Fields, Shown};
use pmkv_cli::{Dump, DumpPart};
use pmlib::{Dumped, Inspector, Part, Value};

use crate::Outcome;
use crate::failure::of_heap;

/// Bytes that are shown if no number of them is asked for.
const BYTES: u64 = 256;

pub fn run(arguments: &Dump) -> Outcome {
    let path = &arguments.heap;
    let part = part(arguments)?;
    let failed = |error| of_heap(path, &error);
    let heap = Inspector::open(path).map_err(failed)?;
    let dumped = fields(heap.dump(&part).map_err(failed)?);
    pm_cli::print(arguments.json, &dumped.json(), |_| dumped.text())?;
    Ok(ExitCode::SUCCESS)
}

fn part(arguments: &Dump) -> Result<Part, Failure> {
    let heap = arguments.heap.display();
    let usage = |what: &str, example: &str| {
        Failure::new(what, format!("write it like `pmkv dump {heap} {example}`")).with_code(2)
    };
    let none = |part| match (arguments.number, arguments.bytes) {
        (None, None) => Ok(part),
        _ => Err(usage("a number is for lane, chunk and bytes", "lane 0")),
    };
    let number = |example| {
        arguments
            .number
            .ok_or_else(|| usage("which one is to be shown?", example))
    };
    match arguments.part {
        DumpPart::Header => none(Part::Header),
        DumpPart::Lanes => none(Part::Lanes),
        DumpPart::Chunks => none(Part::Chunks),
        DumpPart::Roots => none(Part::Roots),
        DumpPart::Lane => {
            let lane = number("lane 0")?;
            Ok(Part::Lane(u32::try_from(lane).unwrap_or(u32::MAX)))
        }
        DumpPart::Chunk => Ok(Part::Chunk(number("chunk 5")?)),
        DumpPart::Bytes => {
            let start = number("bytes 0x2000 64")?;
            let len = arguments.bytes.unwrap_or(BYTES);
            Ok(Part::Bytes(start..start.saturating_add(len)))
        }
    }
}

fn fields(dumped: Dumped) -> Fields {
    let all = dumped.0.into_iter().map(|(name, value)| {
        let shown = match value {
            Value::Number(number) => Shown::Word(number.to_string(), number.into()),
            Value::Address(address) => Shown::Word(format!("{address:#x}"), address.into()),
            Value::Text(text) => Shown::Word(text.clone(), text.into()),
            Value::List(list) => Shown::List(list.into_iter().map(fields).collect()),
        };
        (name, shown)
    });
    Fields(all.collect())
}
