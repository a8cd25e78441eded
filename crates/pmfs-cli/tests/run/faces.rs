//! The rules of POSIX and Linux on names, rights and flags, on every face: a program says what each
//! of many calls answers, and what became of the files. It runs on a tmpfs first, then through a
//! mount, then below `pmfs run`, with a mount and without, and has to say the same.

use std::path::Path;

use crate::program::{Run, Said};

/// A line is only told if it differs, and no more than so many of them.
const TOLD_MAX: usize = 40;

/// A program on all faces.
fn same(source: &str, arguments: &[&str]) {
    let run = Run::unmounted();
    let program = run.build(source, &[]);
    same_of(run, &program, arguments);
}

fn same_of(mut run: Run, program: &Path, arguments: &[&str]) {
    let wanted = run.plain(program, arguments);
    assert_eq!(wanted.code, Some(0), "on a tmpfs: {}", wanted.text);
    let mut said = Vec::new();
    if crate::bench::can_mount() {
        said.push(("through the mount", run.mounted(program, arguments)));
        run.check();
        run.renew();
        said.push(("below pmfs run", run.inside(program, arguments)));
        run.check();
        run.renew();
    }
    said.push(("without a mount", run.apart(program, arguments)));
    compare(&run, &said, &wanted);
}

fn compare(run: &Run, said: &[(&str, Said)], wanted: &Said) {
    let mut wrong = Vec::new();
    for (face, said) in said {
        differences(face, said, wanted, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), run.log());
    run.check();
}

fn differences(face: &str, said: &Said, wanted: &Said, wrong: &mut Vec<String>) {
    let (lines, right) = (said.text.lines(), wanted.text.lines());
    let pairs = lines
        .zip(right.clone())
        .filter(|(line, right)| line != right);
    let count = pairs.clone().count();
    for (line, right) in pairs.take(TOLD_MAX) {
        wrong.push(format!("{face}: {line}\n    on a tmpfs: {right}"));
    }
    if count > TOLD_MAX {
        wrong.push(format!("{face}: {count} lines"));
    }
    if said.code != wanted.code || said.text.lines().count() != right.count() {
        let last = said.text.lines().last().unwrap_or_default();
        wrong.push(format!("{face}: ended with {:?} after: {last}", said.code));
    }
}

macro_rules! tests {
    ($($name:ident: $source:literal $argument:literal;)*) => {
        $(#[test]
        fn $name() {
            same($source, &[$argument]);
        })*
    };
}

tests! {
    slashes_behind_names: "slashes.c" "absolute";
    slashes_behind_relative_names: "slashes.c" "relative";
    slashes_behind_names_in_a_directory: "slashes.c" "descriptor";
    slashes_behind_links_from_outside: "slashes.c" "outside";
    what_calls_take_away: "privileges.c" "lost";
    new_files_in_set_gid_directories: "privileges.c" "made";
    flags_of_each_call: "flags.c" "all";
    mappings_that_are_validated: "validated.c" "all";
    calls_at_their_edges: "edges.c" "all";
    calls_that_nobody_knows: "unknown.c" "all";
    answers_of_each_call: "answers.c" "all";
    splices_of_files_and_pipes: "splices.c" "all";
    descriptors_that_nobody_opened: "unseen.c" "numbers";
    descriptors_that_the_next_program_did_not_open: "unseen.c" "next";
    programs_of_users_without_the_pool: "unseen.c" "users";
}

/// Goal: cachestat(2) says of a file of a pool what it says of a tmpfs's, and on a
/// kernel without it nothing. Method: below `pmfs run` alone, for through a mount the
/// kernel's own page cache is asked.
#[test]
fn pages_in_memory() {
    let run = Run::unmounted();
    let program = run.build("cached.c", &[]);
    let wanted = run.plain(&program, &["all"]);
    assert_eq!(wanted.code, Some(0), "on a tmpfs: {}", wanted.text);
    let mut said = Vec::new();
    if crate::bench::can_mount() {
        said.push(("below pmfs run", run.inside(&program, &["all"])));
        run.check();
        run.renew();
    }
    said.push(("without a mount", run.apart(&program, &["all"])));
    compare(&run, &said, &wanted);
}

/// Goal: what the kernel protects in directories that many may write, a pool protects too.
/// Method: with the settings that the machine has. They are everybody's, and a run that is
/// killed would leave others behind; what each of them does is a unit of `pmfs-posix`.
#[test]
fn what_a_machine_protects() {
    same("protected.c", &["all"]);
}

/// PMDK's libraries map files with MAP_SHARED_VALIDATE.
#[test]
fn programs_for_persistent_memory() {
    if !Path::new("/usr/include/libpmemobj.h").exists() {
        eprintln!("skipped: libpmemobj.h is missing (apt-get install libpmem-dev libpmemobj-dev)");
        return;
    }
    let run = Run::unmounted();
    let program = run.build("pmdk.c", &["-lpmem", "-lpmemobj"]);
    same_of(run, &program, &["all"]);
}

#[test]
fn pools_of_pmempool() {
    if !Path::new("/usr/bin/pmempool").exists() {
        eprintln!("skipped: pmempool is missing (apt-get install pmdk-tools)");
        return;
    }
    let script = r#"pmempool create --layout=l obj "$1/objects" && pmempool create blk 512 "$1/blocks" &&
        pmempool check "$1/objects" && pmempool info "$1/blocks" | grep -c 'Block size'"#;
    same_of(
        Run::unmounted(),
        Path::new("/bin/sh"),
        &["-c", script, "sh"],
    );
}
