//! Goal: the header and the library agree, and each function does what its namesake does. Method:
//! C programs, compiled here against both libraries; the example of the documentation, too.

use pmfs_admin::Admin;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where cargo has put the libraries that were built with this test.
fn built(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let library = deps.parent().unwrap().join(name);
    assert!(library.is_file(), "{} is built first", library.display());
    library
}

/// Compiles a program, against the shared library or the archive, and runs it on a pool of its own.
fn compile_and_run(source: &str, shared: bool) -> String {
    let dir = tempfile::TempDir::with_prefix_in("pmfs-capi-", "/dev/shm").unwrap();
    let program = dir.path().join("program");
    let mut compile = Command::new("cc");
    compile.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
    ]);
    compile.arg("-I").arg(here("include")).arg(here(source));
    if shared {
        let soname = dir.path().join("libpmfs.so.0");
        std::fs::copy(built("libpmfs_c.so"), &soname).unwrap();
        compile.arg(&soname);
    } else {
        compile.arg(built("libpmfs_c.a"));
    }
    compile
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program);
    let compiled = compile.output().expect("cc, of the package gcc");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let ran = Command::new(&program)
        .arg(dir.path().join("pool"))
        .env("LD_LIBRARY_PATH", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{:?} {said}", ran.status);
    let pool = pmfs::Fs::open(&dir.path().join("pool"), &pmfs::OpenOptions::default()).unwrap();
    assert_eq!(pool.check().unwrap().findings, []);
    assert_eq!(pool.recovery().kind, pmfs::RecoveryKind::None);
    pool.close().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn every_function() {
    compile_and_run("tests/all.c", true);
}

/// A name under which others put new files all the time can be opened at all times.
#[test]
fn a_name_that_is_replaced() {
    compile_and_run("tests/replaced.c", true);
}

/// Links are followed where Linux follows them, and a slash asks for a directory.
#[test]
fn slashes_behind_names() {
    compile_and_run("tests/slashes.c", true);
}

#[test]
fn the_archive() {
    assert_eq!(compile_and_run("examples/hello.c", false), "hello\n");
}

#[test]
fn the_shared_library() {
    assert_eq!(compile_and_run("examples/hello.c", true), "hello\n");
}

/// The library exports to C exactly the functions of the header.
#[test]
fn the_header_names_all() {
    let header = std::fs::read_to_string(here("include/pmfs.h")).unwrap();
    let words = |text: &str| -> std::collections::BTreeSet<String> {
        let is_part = |c: char| !(c.is_alphanumeric() || c == '_');
        let all = text.split(is_part).filter(|word| word.starts_with("pmfs_"));
        all.map(str::to_owned).collect()
    };
    let mut declared = std::collections::BTreeSet::new();
    for line in header
        .lines()
        .filter(|line| line.contains("(") && !line.trim_start().starts_with(['/', '*']))
    {
        let before = &line[..line.find('(').unwrap()];
        declared.extend(
            before
                .rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()
                .map(str::to_owned),
        );
    }
    declared.retain(|name| name.starts_with("pmfs_"));
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(built("libpmfs_c.so"))
        .output();
    let symbols = String::from_utf8(symbols.expect("nm, of the package binutils").stdout).unwrap();
    assert_eq!(declared, words(&symbols));
}
