//! Builds `calls.c`, the program that uses the library for C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn program(dir: &Path) -> PathBuf {
    dir.join("calls")
}

/// Compiles it, against the header and the shared library that were built with this test.
pub fn build(dir: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let deps = std::env::current_exe().expect("this program");
    let library = deps.with_file_name("libpmfs_c.so");
    let soname = dir.join("libpmfs.so.0");
    fs::copy(&library, &soname).expect("libpmfs_c.so is built first");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"])
        .args(["-O1", "-g", "-I"])
        .arg(here.join("../pmfs-capi/include"))
        .arg(here.join("tests/torture/calls.c"))
        .arg(&soname)
        .arg("-o")
        .arg(program(dir))
        .output()
        .expect("cc, of the package gcc");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}

pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(program(dir));
    command.env("LD_LIBRARY_PATH", dir);
    command
}
