//! The ways by which system calls come to the library: by images and in place, those of libc and
//! those of other libraries.

use std::path::PathBuf;

use crate::program::{Run, Said};

/// A shared library with system calls of its own, in a directory of its own.
fn own_calls(run: &Run) -> PathBuf {
    let flags = [
        "-shared",
        "-fPIC",
        "-Wl,--build-id",
        "-Wl,-soname,libown.so",
    ];
    let built = run.build("own_calls.c", &flags);
    let dir = built.with_file_name("libraries");
    std::fs::create_dir(&dir).expect("a directory");
    let library = dir.join("libown.so");
    std::fs::rename(built, &library).expect("the library");
    library
}

fn succeeds(run: &Run, said: &Said) {
    assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
    run.check();
}

/// Runs `libraries.c` without a mount.
fn of_library(what: &str, named: bool, in_place: bool) {
    let mut run = Run::unmounted();
    let library = own_calls(&run);
    let dir = library.parent().expect("its directory");
    if named {
        run.set("PMFS_PATCH", "libown.so".as_ref());
        run.set("LD_LIBRARY_PATH", dir.as_os_str());
    }
    if in_place {
        run.set("PMFS_PATCH_MODE", "place".as_ref());
    }
    let program = run.build("libraries.c", &["-ldl"]);
    let library = library.to_str().expect("a path in UTF-8");
    let said = run.apart(&program, &[what, library]);
    succeeds(&run, &said);
}

#[test]
fn a_library_that_is_named_is_served() {
    of_library("served", true, false);
}

#[test]
fn a_library_that_is_named_is_served_in_place() {
    of_library("served", true, true);
}

#[test]
fn a_library_that_is_not_named_is_refused_loudly() {
    of_library("unserved", false, false);
}

#[test]
fn a_library_in_the_pool_is_loaded() {
    of_library("pool", false, false);
}

#[test]
fn a_library_that_is_named_is_served_with_a_mount() {
    let Some(mut run) = Run::new() else { return };
    let library = own_calls(&run);
    let dir = library.parent().expect("its directory");
    run.set("PMFS_PATCH", "libown.so".as_ref());
    run.set("LD_LIBRARY_PATH", dir.as_os_str());
    let program = run.build("libraries.c", &["-ldl"]);
    let library = library.to_str().expect("a path in UTF-8");
    let said = run.inside(&program, &["served", library]);
    succeeds(&run, &said);
}

/// Returns whether this test may mount, in a namespace of its own.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

/// The pool's own blocks can't be code then: a copy is.
#[test]
fn a_library_in_a_pool_that_may_not_be_executed() {
    if !is_root() {
        return;
    }
    let mut run = Run::unmounted();
    let library = own_calls(&run);
    let library = library.to_str().expect("a path in UTF-8");
    let program = run.build("libraries.c", &["-ldl"]);
    run.forbid_execution(&run.pool());
    let said = run.apart(&program, &["pool", library]);
    succeeds(&run, &said);
}

/// Nor can images be mapped where they may not be executed: sites are overwritten.
#[test]
fn images_that_may_not_be_executed() {
    if !is_root() {
        return;
    }
    let mut run = Run::unmounted();
    let program = run.build("descriptors.c", &[]);
    run.apart(&program, &["table"]);
    run.forbid_execution("/var/cache/pmfs/images".as_ref());
    let said = run.apart(&program, &["table"]);
    succeeds(&run, &said);
    let log = run.log();
    assert!(log.contains("patched in place, 0 left alone"), "{log}");
}

#[test]
fn liburing_finds_no_io_uring() {
    if !std::path::Path::new("/usr/include/liburing.h").exists() {
        eprintln!("skipped: liburing.h is missing (apt-get install liburing-dev)");
        return;
    }
    let run = Run::unmounted();
    let program = run.build("liburing.c", &["-luring"]);
    let said = run.apart(&program, &["all"]);
    succeeds(&run, &said);
}

/// Programs of this directory, all sites overwritten.
fn in_place(source: &str, argument: &str) {
    let Some(mut run) = Run::new() else { return };
    run.set("PMFS_PATCH_MODE", "place".as_ref());
    let program = run.build(source, &[]);
    let plain = run.plain(&program, &[argument]);
    let inside = run.inside(&program, &[argument]);
    run.same(&inside, &plain);
    let log = run.log();
    assert!(log.contains("patched in place, 0 left alone"), "{log}");
}

#[test]
fn descriptors_in_place() {
    in_place("descriptors.c", "table");
}

#[test]
fn children_in_place() {
    in_place("children.c", "spawn");
}

#[test]
fn signals_in_place() {
    in_place("signals.c", "storm");
}

#[test]
fn cancelled_threads_in_place() {
    in_place("cancelled.c", "all");
}

#[test]
fn exceptions_in_place() {
    in_place("exceptions.cc", "all");
}

/// Images are served where memory that was written to can't be made executable; all else goes
/// through the mount.
#[test]
fn memory_that_denies_execution() {
    let Some(mut run) = Run::new() else { return };
    let program = run.build("denied.c", &[]);
    let served = run.inside(&program, &["served"]);
    succeeds(&run, &served);
    run.set("PMFS_PATCH_MODE", "place".as_ref());
    let left = run.inside(&program, &["left"]);
    succeeds(&run, &left);
    let log = run.log();
    assert!(
        log.contains("(MDWE); the mount serves this process"),
        "{log}"
    );
}

/// Without a mount nothing serves such a process: it is told where its user sees it,
/// and not by missing files alone.
#[test]
fn a_process_that_nothing_serves_says_so() {
    let mut run = Run::unmounted();
    let program = run.build("denied.c", &[]);
    run.set("PMFS_PATCH_MODE", "place".as_ref());
    let left = run.apart(&program, &["left"]);
    let said = "(MDWE); nothing serves this process";
    assert!(left.text.contains(said), "{}", left.text);
}
