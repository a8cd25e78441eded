//! Goal: the library is libpmemkv.so.1 to a program. Method: a program in C that calls every
//! function is linked to it and run, with declarations of our own and, where it is installed, with
//! the original's header.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pmkv::Hash;
use pmlib::{Heap, Options};
use tempfile::TempDir;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn place() -> TempDir {
    TempDir::with_prefix_in("pmemkv-capi-", "/dev/shm").unwrap()
}

fn succeeds(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {:?} {said}", ran.status);
    String::from_utf8(ran.stdout).unwrap()
}

/// The shared library, linked as an installation's is.
fn library(dir: &Path) -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let built = fs::read_dir(deps.parent().unwrap()).unwrap();
    let archives = built.map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with("libpmemkv_c-") && name.ends_with(".a")
    });
    // The one that was built with this test; older builds may have left theirs.
    let archive = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    let archive = archive.expect("a static library is built first").path();
    let library = dir.join("libpmemkv.so.1");
    succeeds(Command::new(here("link.sh")).arg(&archive).arg(&library));
    library
}

/// Where the original's header is: installed, or in a directory that is given.
fn original() -> Option<Vec<String>> {
    if let Some(given) = std::env::var_os("PMEMKV_INCLUDE") {
        let given = given.into_string().unwrap();
        return Some(given.split(':').map(|dir| format!("-I{dir}")).collect());
    }
    let is_there = Path::new("/usr/include/libpmemkv.h").is_file()
        && Path::new("/usr/include/libpmemobj/pool_base.h").is_file();
    is_there.then(Vec::new)
}

fn run_calls(flags: &[String]) {
    let (dir, data) = (place(), place());
    let library = library(dir.path());
    let program = dir.path().join("calls");
    let mut compile = Command::new("gcc");
    compile.args([
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-g",
    ]);
    compile.args(flags).arg("-I").arg(here("tests"));
    succeeds(
        compile
            .arg(here("tests/calls.c"))
            .arg(&library)
            .arg("-o")
            .arg(&program),
    );
    succeeds(
        Command::new(&program)
            .arg(data.path())
            .env("LD_LIBRARY_PATH", dir.path()),
    );
    let heap = Heap::open(&data.path().join("left"), &Options::default()).unwrap();
    let left = Hash::existing(&heap, "pmemkv").unwrap().unwrap();
    assert_eq!(left.get(b"ada").unwrap().as_deref(), Some(&b"1815"[..]));
    drop(left);
    heap.close().unwrap();
}

#[test]
fn every_function() {
    run_calls(&[]);
}

#[test]
fn every_function_by_the_original_header() {
    match original() {
        Some(mut flags) => {
            flags.push("-DORIGINAL".to_owned());
            run_calls(&flags);
        }
        None => println!("skip libpmemkv.h: not installed"),
    }
}

/// The library exports the functions of its list, with the version that programs ask for.
#[test]
fn symbols_have_their_version() {
    let dir = place();
    let library = library(dir.path());
    let list = fs::read_to_string(here("pmemkv.map")).unwrap();
    let listed = list.lines().filter(|line| line.contains("pmemkv_"));
    let listed: BTreeSet<String> = listed
        .map(|line| format!("{}@@LIBPMEMKV_1.0", line.trim().trim_end_matches(';')))
        .collect();
    assert_eq!(listed.len(), 68);
    let symbols = succeeds(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let functions = symbols.lines().filter(|line| line.contains(" T "));
    let exported: BTreeSet<String> = functions
        .filter_map(|line| line.split(' ').next_back().map(str::to_owned))
        .collect();
    assert_eq!(exported, listed);
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libpmemkv.so.1]"), "{dynamic}");
}
