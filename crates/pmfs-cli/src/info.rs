//! `pmfs info`

use std::process::ExitCode;

use pmfs::{Fs, OpenOptions};

use crate::Outcome;
use crate::cli::Info;
use crate::failure::Failure;
use crate::report::{self, PoolReport};

pub fn run(arguments: &Info) -> Outcome {
    let pool = arguments
        .pool
        .canonicalize()
        .unwrap_or_else(|_| arguments.pool.clone());
    let failed = |error| Failure::engine(&pool, &error);
    let fs = Fs::open(&pool, &OpenOptions::default()).map_err(failed)?;
    let report = PoolReport::new(&pool, &fs.info());
    fs.close().map_err(failed)?;
    report::print(arguments.json, &report, PoolReport::text)?;
    Ok(ExitCode::SUCCESS)
}
