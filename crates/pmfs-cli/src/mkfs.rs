//! `pmfs mkfs`

use std::os::unix::fs::FileTypeExt;
use std::process::ExitCode;

use pmfs_admin::{MkfsOptions, PoolInfo};
use pmfs_fuse::presence;

use crate::Outcome;
use crate::cli::Mkfs;
use crate::failure::Failure;
use crate::progress::{Progress, Watch};
use crate::report::{self, PoolReport};

/// Space comes first, of which the file tells. In memory all of it is there at once,
/// and then zeroed.
fn make(arguments: &Mkfs, options: &MkfsOptions, bytes: u64) -> pmfs::Result<PoolInfo> {
    let json = arguments.json;
    let mut allocating = Some(Watch::allocation(
        json,
        "allocating",
        &arguments.pool,
        bytes,
    ));
    let mut zeroing = Progress::new(json, "zeroing", bytes);
    pmfs_admin::mkfs_watched(&arguments.pool, options, &mut |done, of| {
        drop(allocating.take());
        zeroing.of(done, of);
    })
}

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
    let info = make(arguments, &options, options.size.unwrap_or(len))
        .map_err(|error| Failure::engine(&arguments.pool, &error))?;
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
