//! `pmfs dump`: a pool's structures as they stand, for people and as JSON. Nothing is changed.

use std::path::Path;
use std::process::ExitCode;

use pmfs::Error;
use pmfs_admin::dump::{Dumped, Part, Value, dump_superblocks};
use pmfs_admin::{Inspector, PoolState};
use serde_json::{Map, Value as Json};

use crate::Outcome;
use crate::cli::{Dump, DumpPart};
use crate::failure::Failure;
use crate::time::utc;
use crate::{pool, report};

pub fn run(arguments: &Dump) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let failed = |error: &Error| failed(&path, error);
    let part = part(arguments)?;
    // Held or damaged: the superblock of a pool in use stands still, and may be what
    // keeps it from opening.
    let dumped = match part {
        None => dump_superblocks(&path).map_err(|error| failed(&error))?,
        Some(part) => {
            let look = Inspector::open(&path).map_err(|error| failed(&error))?;
            if look.state() == PoolState::InUse {
                return Err(failed(&Error::Held { pid: 0 }));
            }
            look.dump(part).map_err(|error| failed(&error))?
        }
    };
    report::print(arguments.json, &json(&dumped), |_| {
        let mut lines = Vec::new();
        text(&dumped, 0, &mut lines);
        lines.join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `None`: the superblock.
fn part(arguments: &Dump) -> Result<Option<Part>, Failure> {
    let usage = |what: &str, example: &str| {
        Failure::new(
            what,
            format!(
                "write it like `pmfs dump {}`",
                example.replace("POOL", &arguments.pool.display().to_string())
            ),
        )
        .with_code(2)
    };
    let number = |example| {
        arguments
            .number
            .ok_or_else(|| usage("which inode is to be shown?", example))
    };
    let none = |part| match arguments.number {
        None => Ok(part),
        Some(_) => Err(usage(
            "a number is for inode, dir, tree and lane",
            "POOL slots",
        )),
    };
    match arguments.part {
        DumpPart::Superblock => none(None),
        DumpPart::Slots => none(Some(Part::Slots)),
        DumpPart::Inode => Ok(Some(Part::Inode(number("POOL inode 2")?))),
        DumpPart::Dir => Ok(Some(Part::Directory(number("POOL dir 2")?))),
        DumpPart::Tree => Ok(Some(Part::Tree(number("POOL tree 2")?))),
        DumpPart::Lane => Ok(Some(Part::Lane(arguments.number))),
    }
}

fn failed(path: &Path, error: &Error) -> Failure {
    let pool = path.display();
    match error {
        Error::Stale => Failure::new(
            format!("{pool}: the inode table has no such number"),
            format!("`pmfs ls -R --json {pool}` tells the numbers; the root is 2"),
        ),
        Error::NotDirectory => Failure::new(
            format!("{pool}: that inode is no directory"),
            "try `inode` or `tree` instead of `dir`",
        ),
        Error::Invalid(what) => Failure::new(
            format!("{pool}: {what}"),
            "choose another number, or another part",
        ),
        // A check would recover it first; here is what there is.
        Error::Corrupt(_) => Failure::whole(format!("{pool}: {error}")),
        _ => Failure::engine(path, error),
    }
}

fn json(dumped: &Dumped) -> Json {
    let mut object = Map::new();
    for (name, value) in &dumped.0 {
        let value = match value {
            Value::Number(number) | Value::Address(number) => Json::from(*number),
            Value::Time(ns) => Json::from(*ns),
            Value::Octal(bits) => Json::from(format!("{bits:04o}")),
            Value::Text(text) => Json::from(text.as_str()),
            Value::List(list) => list.iter().map(json).collect(),
        };
        object.insert(name.replace(' ', "_"), value);
    }
    Json::Object(object)
}

/// A line a field; in a list, a line an item, and its own lists below it.
fn text(dumped: &Dumped, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let width = dumped
        .0
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    for (name, value) in &dumped.0 {
        match value {
            Value::List(list) if list.is_empty() => {}
            Value::List(list) => {
                lines.push(format!("{indent}{name}"));
                for item in list {
                    let plain = |(name, value): &(&'static str, Value)| {
                        shown(value).map(|shown| format!("{name} {shown}"))
                    };
                    let fields: Vec<String> = item.0.iter().filter_map(plain).collect();
                    lines.push(format!("{indent}  {}", fields.join(", ")));
                    let lists = item.0.iter().filter(|(_, value)| shown(value).is_none());
                    text(&Dumped(lists.cloned().collect()), depth + 2, lines);
                }
            }
            value => lines.push(format!(
                "{indent}{name:width$}  {}",
                shown(value).unwrap_or_default()
            )),
        }
    }
}

/// In a word; a list isn't one.
fn shown(value: &Value) -> Option<String> {
    Some(match value {
        Value::Number(number) => number.to_string(),
        Value::Address(address) => format!("{address:#x}"),
        Value::Octal(bits) => format!("{bits:04o}"),
        Value::Time(ns) => format!("{} ({ns} ns)", utc(*ns)),
        Value::Text(text) => text.clone(),
        Value::List(_) => return None,
    })
}
