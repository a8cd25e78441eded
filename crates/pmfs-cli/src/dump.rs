//! `pmfs dump`: a pool's structures as they stand, for people and as JSON. Nothing is changed.

use std::path::Path;
use std::process::ExitCode;

use pm_cli::{Fields, Shown};
use pmfs::Error;
use pmfs_admin::dump::{Dumped, Part, Value, dump_superblocks};
use pmfs_admin::{Inspector, PoolState};
use serde_json::Value as Json;

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
    let shown = fields(dumped);
    report::print(arguments.json, &shown.json(), |_| shown.text())?;
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

fn fields(dumped: Dumped) -> Fields {
    let word = |text: String, json: Json| Shown::Word(text, json);
    let all = dumped.0.into_iter().map(|(name, value)| {
        let shown = match value {
            Value::Number(number) => word(number.to_string(), number.into()),
            Value::Address(address) => word(format!("{address:#x}"), address.into()),
            Value::Octal(bits) => word(format!("{bits:04o}"), format!("{bits:04o}").into()),
            Value::Time(ns) => word(format!("{} ({ns} ns)", utc(ns)), ns.into()),
            Value::Text(text) => word(text.clone(), text.into()),
            Value::List(list) => Shown::List(list.into_iter().map(fields).collect()),
        };
        (name, shown)
    });
    Fields(all.collect())
}
