//! Builds `calls.c`, the program that uses the library for C, and the same one that
//! makes system calls.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::face::mount_dir;
use crate::worker::Orders;

fn program(dir: &Path) -> PathBuf {
    dir.join("calls")
}

fn by_system_calls(dir: &Path) -> PathBuf {
    dir.join("calls below run")
}

/// Compiles both, one against the header and the shared library that were built with this test.
pub fn build(dir: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let deps = std::env::current_exe().expect("this program");
    let library = deps.with_file_name("libpmfs_c.so");
    let soname = dir.join("libpmfs.so.0");
    fs::copy(&library, &soname).expect("libpmfs_c.so is built first");
    let include = here.join("../pmfs-capi/include");
    let (include, soname) = (include.as_os_str(), soname.as_os_str());
    compile(&program(dir), &["-I".as_ref(), include, soname]);
    compile(&by_system_calls(dir), &["-DBY_SYSTEM_CALLS".as_ref()]);
    // The programs lie as they are installed.
    let installed = dir.join("bin");
    fs::create_dir(&installed).expect("a directory");
    let shim = deps.with_file_name("libpmfs_shim.so");
    fs::copy(shim, installed.join("libpmfs_shim.so")).expect("the library is built first");
    fs::copy(env!("CARGO_BIN_EXE_pmfs"), installed.join("pmfs")).expect("the command");
}

fn compile(program: &Path, more: &[&OsStr]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"])
        .args(["-O1", "-g", "-Wno-format-truncation"])
        .arg(here.join("tests/torture/calls.c"))
        .args(more)
        .arg("-o")
        .arg(program)
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

/// Becomes the program that makes system calls.
pub fn intercepted(dir: &Path, mount: usize) -> Command {
    let mut command = Command::new(dir.join("bin/pmfs"));
    command.args(["run", "--pool"]).arg(Orders::pool(dir));
    command.arg("--at").arg(mount_dir(dir, mount)).arg("--");
    command.arg(by_system_calls(dir));
    command.env("PMFS_LOG", "/dev/stderr");
    command
}
