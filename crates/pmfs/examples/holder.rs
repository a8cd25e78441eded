//! Opens a pool, says so, and has it until stdin ends: who holds a pool while something else is
//! tried.
//!
//!     cargo run -p pmfs --example holder -- POOL

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(pool) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: holder POOL");
        return ExitCode::from(2);
    };
    let fs = match pmfs::Fs::open(&pool, &pmfs::OpenOptions::default()) {
        Ok(fs) => fs,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("open");
    let _ = std::io::stdin().read_line(&mut String::new());
    match fs.close() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
