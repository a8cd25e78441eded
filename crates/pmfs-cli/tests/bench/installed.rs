//! The command beside the library that `pmfs run` preloads, as they are installed: cargo leaves the two in different places.

use std::fs;
use std::path::{Path, PathBuf};

/// Makes the directory, with both in it; answers the command.
pub fn install(dir: &Path) -> PathBuf {
    fs::create_dir(dir).expect("a directory");
    let library = std::env::current_exe()
        .expect("this program")
        .with_file_name("libpmfs_shim.so");
    fs::copy(library, dir.join("libpmfs_shim.so")).expect("the library is built first");
    let pmfs = dir.join("pmfs");
    fs::copy(env!("CARGO_BIN_EXE_pmfs"), &pmfs).expect("the command");
    pmfs
}
