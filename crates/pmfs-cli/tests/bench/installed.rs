//! The command beside the library that `pmfs run` preloads, as they are installed:
//! cargo leaves the two in different places.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the directory, with both in it; answers the command.
pub fn install(dir: &Path) -> PathBuf {
    fs::create_dir(dir).expect("a directory");
    let library = std::env::current_exe()
        .expect("this program")
        .with_file_name("libpmfs_shim.so");
    copy_program(&library, &dir.join("libpmfs_shim.so"));
    let pmfs = dir.join("pmfs");
    copy_program(Path::new(env!("CARGO_BIN_EXE_pmfs")), &pmfs);
    pmfs
}

/// Not by this process: a child that another thread starts meanwhile would have the copy open for
/// writing, and it could not be executed (ETXTBSY) until that child executes something itself.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    let copied = copied.expect("cp").success();
    assert!(copied, "{} is there, and is copied", from.display());
}
