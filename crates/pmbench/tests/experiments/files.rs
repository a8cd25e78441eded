//! Goal: experiments find the files that they bring, and what `setup` fetched for them. Method: a
//! file, and a cache of the test's own.

use crate::{Bench, pmbench, text};
use std::process::Command;

/// The experiment's own lines come before its tables.
fn bench(more: &str, steps: &str) -> Bench {
    let bench = Bench::new("");
    bench.experiment("tiny", &format!("{more}\n{}\n{steps}", crate::EXPERIMENT));
    bench.write("data/tool/note.txt", "value 17\n");
    bench
}

#[test]
fn files_are_laid_out_and_kept_with_the_run() {
    let bench = bench(
        "files = ['tool/note.txt']",
        "[steps]\nrun = 'cat {shared}/note.txt'",
    );
    bench.run(&["--rounds", "1", "--targets", "a"]);
    assert_eq!(bench.rows()[0]["value"], 17.0);
    let kept = std::fs::read_to_string(bench.path("out/data/tool/note.txt"));
    assert_eq!(kept.unwrap(), "value 17\n");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let bench = bench("files = ['tool/other']", "[steps]\nrun = 'true'");
    let output = bench.command(&[]).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("tool/other can't be read"));
}

fn with_cache(bench: &Bench, mut command: Command) -> String {
    let output = command.env("XDG_CACHE_HOME", bench.path("cache")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn setup(bench: &Bench) -> String {
    let mut command = pmbench(&["setup", "--data"]);
    command.arg(bench.path("data"));
    with_cache(bench, command)
}

#[test]
fn what_setup_fetched_is_found_and_until_then_the_experiment_is_skipped() {
    let cached = "[needs]\ncached = { 'tool-1' = 'cp {shared}/note.txt {new}/got' }";
    let bench = bench(
        "files = ['tool/note.txt']",
        &format!("{cached}\n[steps]\nrun = 'cat {{cache}}/tool-1/got'"),
    );
    let words = ["--rounds", "1", "--targets", "a"];
    with_cache(&bench, bench.command(&words));
    let reason = bench.rows()[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("tool-1 is missing (pmbench setup)"));
    assert!(setup(&bench).contains("fetched: tool-1"));
    assert!(setup(&bench).contains("everything is there"));
    with_cache(&bench, bench.command(&words));
    let rows = bench.rows();
    assert_eq!(rows[rows.len() - 1]["value"], 17.0);
}

/// A file that is half fetched must not be taken for the whole.
#[test]
fn what_cannot_be_fetched_leaves_nothing() {
    let cached = "[needs]\ncached = { 'tool-1' = 'touch {new}/half; echo no network >&2; false' }";
    let bench = bench("", &format!("{cached}\n[steps]\nrun = 'true'"));
    let said = setup(&bench);
    assert!(
        said.contains("missing: tool-1") && said.contains("no network"),
        "{said}"
    );
    let left = std::fs::read_dir(bench.path("cache/pmbench")).unwrap();
    assert_eq!(left.count(), 0);
}
