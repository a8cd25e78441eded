//! `pmfs mkfs`

use std::os::unix::fs::FileTypeExt;
use std::process::ExitCode;

use pmfs::{Fs, MkfsOptions};
use pmfs_fuse::presence;

use crate::Outcome;
use crate::cli::Mkfs;
use crate::failure::Failure;
use crate::progress::Watch;
use crate::report::{self, PoolReport};

pub fn run(arguments: &Mkfs) -> Outcome {
    let options = MkfsOptions {
        size: arguments.size.map(|size| size.0),
        force: arguments.force,
        sparse: arguments.sparse,
        inodes: arguments.inodes,
        open_files: arguments.open_files,
        ..MkfsOptions::default()
    };
    let there = std::fs::metadata(&arguments.pool).ok();
    let len = there.as_ref().map_or(0, std::fs::Metadata::len);
    let is_device = there.is_some_and(|there| there.file_type().is_char_device());
    let pool = arguments.pool.display();
    if is_device && options.size.is_some() {
        return Err(Failure::new(
            format!("{pool} is a device, which a pool takes as a whole"),
            format!("leave the size out: `pmfs mkfs {pool}`"),
        ));
    }
    if options.size.is_none() && len == 0 && !is_device {
        return Err(Failure::new(
            format!("{pool} has no size yet"),
            format!("give one: `pmfs mkfs --size 1G {pool}`"),
        ));
    }
    presence::wait_if_ending(&arguments.pool);
    let watch = Watch::allocation(
        arguments.json,
        "allocating",
        &arguments.pool,
        options.size.unwrap_or(len),
    );
    let info = Fs::mkfs(&arguments.pool, &options)
        .map_err(|error| Failure::engine(&arguments.pool, &error))?;
    drop(watch);
    let pool = arguments
        .pool
        .canonicalize()
        .unwrap_or_else(|_| arguments.pool.clone());
    report::print(
        arguments.json,
        &PoolReport::new(&pool, &info),
        PoolReport::text,
    )?;
    Ok(ExitCode::SUCCESS)
}
