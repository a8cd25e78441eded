//! A measurement that can't be made is an error or is skipped, with the reason in the rows and in
//! the report.

use crate::{Bench, pmbench, text};

/// The reasons of rows with this status.
fn reasons(bench: &Bench, status: &str) -> Vec<String> {
    let rows = bench.rows();
    let of = rows.iter().filter(|row| row["status"] == status);
    of.map(|row| row["reason"].as_str().expect("a reason").to_owned())
        .collect()
}

fn report(bench: &Bench) -> String {
    let output = pmbench(&["report"])
        .arg(bench.path("out"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::read_to_string(bench.path("out/report.html")).unwrap()
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_of_that_point_alone() {
    let bench =
        Bench::new("[steps]\nrun = 'if [ {what} = one ]; then echo sorry; else echo value 5; fi'");
    bench.run(&["--rounds", "1", "--targets", "a"]);
    let errors = reasons(&bench, "error");
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("nothing in the output matches"),
        "{errors:?}"
    );
    assert_eq!(bench.rows()[1]["value"], 5.0);
    assert!(report(&bench).contains("failed: nothing in the output matches"));
}

#[test]
fn a_step_that_fails_tells_what_it_said() {
    let bench = Bench::new("[steps]\nrun = 'echo this is why >&2; exit 3'");
    bench.run(&["--rounds", "1", "--targets", "a"]);
    let errors = reasons(&bench, "error");
    assert_eq!(errors.len(), 2);
    assert!(errors[0].contains("this is why"), "{errors:?}");
}

#[test]
fn a_step_that_ends_with_77_is_skipped_with_what_it_said() {
    let bench = Bench::new(
        "[steps]\nrun = 'if [ {what} = one ]; then echo no keys; exit 77; fi; echo value 5'",
    );
    bench.run(&["--rounds", "1", "--targets", "a"]);
    assert_eq!(reasons(&bench, "skipped"), ["no keys"]);
    assert!(reasons(&bench, "error").is_empty());
    assert_eq!(bench.rows()[1]["value"], 5.0);
    assert!(report(&bench).contains("skipped: no keys"));
}

#[test]
fn a_missing_tool_skips_the_experiment_and_a_missing_target_only_itself() {
    let needs =
        "[needs]\nprograms = { no-such-tool = 'its-package' }\n[steps]\nrun = 'echo value 1'";
    let bench = Bench::new(needs);
    bench.run(&["--rounds", "2"]);
    let skipped = reasons(&bench, "skipped");
    assert_eq!(skipped.len(), 6, "one a point and target");
    assert!(
        skipped[0].contains("apt-get install its-package"),
        "{skipped:?}"
    );

    let bench = Bench::new("[steps]\nrun = 'echo value 1'");
    bench.target(
        "b",
        "title = 'b'\ndir = '{place}'\n[needs]\nfilesystems = ['no-such-fs']",
    );
    bench.run(&["--rounds", "1"]);
    assert_eq!(reasons(&bench, "skipped").len(), 2);
    assert_eq!(bench.rows().len(), 6);
    assert!(report(&bench).contains("b: skipped: the kernel has no no-such-fs"));
}

#[test]
fn a_target_that_cannot_be_made_is_an_error_and_is_taken_down() {
    let bench = Bench::new("[steps]\nrun = 'echo value 1'");
    let broken = "title = 'b'\ndir = '{place}'\nmake = ['echo no room >&2; false']\nunmount = ['echo down >>$LOG']";
    bench.target("b", broken);
    bench.run(&["--rounds", "1"]);
    let errors = reasons(&bench, "error");
    assert!(
        errors.len() == 2 && errors[0].contains("no room"),
        "{errors:?}"
    );
    assert!(bench.log().contains(&"down".to_owned()));
    let measured = bench
        .rows()
        .iter()
        .filter(|row| row["status"] == "measured")
        .count();
    assert_eq!(measured, 4, "the others are measured");
}

/// Goal: what a target can't do is no failure of it. Method: a trial that fails on one, and a step
/// that must not run there then.
#[test]
fn a_target_that_cannot_do_it_is_skipped_and_is_taken_down() {
    let bench = Bench::new(
        "[steps]\ntrial = ['case {dir} in */b/*) echo no direct I/O >&2; false;; esac']\nprepare = ['echo {dir} >>$LOG']\nrun = 'echo value 1'",
    );
    bench.run(&["--rounds", "1"]);
    let skipped = reasons(&bench, "skipped");
    assert_eq!(skipped.len(), 2);
    assert!(
        skipped[0].contains("b can't do this") && skipped[0].contains("no direct I/O"),
        "{skipped:?}"
    );
    assert_eq!(reasons(&bench, "error").len(), 0);
    let log = bench.log();
    assert!(log.contains(&"unmount b".to_owned()));
    let prepared = log.iter().filter(|line| line.ends_with("/files"));
    assert_eq!(prepared.count(), 2, "{log:?}");
}

#[test]
fn names_that_nobody_knows_are_refused() {
    let bench = Bench::new("[steps]\nrun = 'echo value 1'");
    for (words, wanted) in [
        (
            &["--targets", "d"][..],
            "there is no target d; there are: a b c",
        ),
        (
            &["no-such"],
            "there is no experiment no-such; there are: tiny",
        ),
    ] {
        let output = bench.command(words).output().unwrap();
        assert!(!output.status.success());
        assert!(
            text(&output.stderr).contains(wanted),
            "{}",
            text(&output.stderr)
        );
    }
}
