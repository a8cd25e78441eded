//! Goal: reports and comparisons tell the right numbers. Method: two small runs, kept beside the
//! tests, whose ratios are easy.
//!
//! In `before`, PMFS writes 200, 210 and 190 where tmpfs writes 100, 105 and 190, and reads 50
//! where it reads 100; in `after` it reads 150.

use crate::{kept, pmbench, text};
use serde_json::Value;

fn report_of_before() -> String {
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("report.html");
    let mut command = pmbench(&["report"]);
    let output = command
        .arg(kept("before"))
        .arg("--html")
        .arg(&html)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::read_to_string(html).unwrap()
}

#[test]
fn losses_come_first_and_are_told_in_numbers() {
    let html = report_of_before();
    let loss = "tmpfs is better than pmfs at read: 0.50x (0.50x to 0.50x)";
    let (loss_at, claim_at) = (html.find(loss), html.find("The source"));
    assert!(loss_at.is_some() && loss_at < claim_at, "{html}");
    let row = "<td class=\"bad\">1 of 2</td><td>0.50x</td><td>0.50x to 2.00x</td>";
    assert!(html.contains(row), "of two in the middle the worse");
}

/// A point at which PMFS failed must not look like a win.
#[test]
fn what_failed_is_no_win() {
    let dir = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(kept("after"))
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(copied.success());
    let run = dir.path().join("after");
    let rows = std::fs::read_to_string(run.join("rows.ndjson")).unwrap();
    let kept = rows
        .lines()
        .filter(|row| !(row.contains("\"write\"") && row.contains("\"pmfs\"")));
    let failed = r#"{"experiment":"two","point":{"what":"write"},"target":"pmfs","round":0,"status":"error","reason":"it broke"}"#;
    let rows: String = kept.chain([failed]).map(|row| format!("{row}\n")).collect();
    std::fs::write(run.join("rows.ndjson"), rows).unwrap();
    let output = pmbench(&["report"]).arg(&run).output().unwrap();
    assert!(output.status.success());
    let html = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(html.contains("<td class=\"bad\">0 of 1, 1 failed</td>"));
    assert!(html.contains("At 1 of 2 points pmfs was not measured"));
    assert!(!html.contains("No other is better than pmfs"));
    assert!(html.contains("pmfs: failed: it broke"));
}

/// Goal: a loss carries its profile, and so does a claim that is missed; who does not fall short
/// has none. Method: the run with two targets of ours, of which one loses; then without the loss;
/// then with a claim that asks for more.
#[test]
fn why_it_loses_is_told_where_it_loses() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r").arg(kept("before")).arg(&run);
    assert!(copy.status().unwrap().success());
    let path = run.join("data/experiments/two.toml");
    let experiment = std::fs::read_to_string(&path).unwrap();
    let why = "[why]\npmfs = 'Half of it is <msync>.'\npmfs-mount = 'It is not here.'\n";
    let experiment = experiment + "\n" + why;
    std::fs::write(&path, &experiment).unwrap();
    let told = |run: &std::path::Path| {
        let output = pmbench(&["report"]).arg(run).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read_to_string(run.join("report.html")).unwrap()
    };
    let html = told(&run);
    assert!(html.contains("<h3>Why pmfs</h3><p>Half of it is &lt;msync&gt;.</p>"));
    assert!(!html.contains("It is not here."));
    let rows = std::fs::read_to_string(run.join("rows.ndjson")).unwrap();
    let wins = rows.lines().filter(|row| !row.contains("\"read\""));
    let wins: String = wins.map(|row| format!("{row}\n")).collect();
    std::fs::write(run.join("rows.ndjson"), wins).unwrap();
    assert!(!told(&run).contains("<h3>Why"));
    let dearer = experiment.replace("times = 1.5", "times = 2.5");
    assert_ne!(dearer, experiment);
    std::fs::write(&path, dearer).unwrap();
    assert!(told(&run).contains("<h3>Why pmfs"));
}

#[test]
fn claims_stand_beside_what_was_measured() {
    let html = report_of_before();
    // The rounds' ratios are 2, 2 and 1.
    assert!(html.contains("there 1.5x, <span class=\"good\">here 2.00x (met)</span>"));
    assert!(html.contains("there 3x, <span class=\"bad\">here 0.50x (missed)</span>"));
}

#[test]
fn the_report_needs_nothing_else_and_says_how_noisy_it_was() {
    let html = report_of_before();
    for outside in ["http:", "https:", "<script", "src=", "<link"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("12 measurements; 1 of them were made again"));
    assert!(html.contains("prefers-color-scheme: dark"));
    assert!(html.contains("xfs-loop: skipped: the kernel has no xfs"));
}

#[test]
fn comparing_tells_what_became_better() {
    let mut command = pmbench(&["compare", "--json"]);
    let output = command
        .arg(kept("before"))
        .arg(kept("after"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |point: &str, target: &str| {
        let is = |row: &&Value| row["point"] == point && row["target"] == target;
        rows.iter().find(is).expect("a row").clone()
    };
    assert_eq!(of("read", "pmfs")["times"], 3.0);
    assert_eq!(of("read", "pmfs")["clear"], true);
    assert_eq!(of("write", "pmfs")["times"], 1.0);
    assert_eq!(of("write", "pmfs")["clear"], false);
}

#[test]
fn what_is_no_run_is_refused() {
    let output = pmbench(&["report", "/no/such/run"]).output().unwrap();
    assert!(text(&output.stderr).contains("/no/such/run is no run"));
}

#[test]
fn a_reader_that_stops_is_no_failure() {
    let mut command = pmbench(&["compare", "--json"]);
    command.arg(kept("before")).arg(kept("after"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

/// A figure's file is drawn from the same numbers, and needs nothing but itself.
#[test]
fn figures_are_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let figures = dir.path().join("figures");
    let output = pmbench(&["report"])
        .arg(kept("before"))
        .arg("--html")
        .arg(dir.path().join("report.html"))
        .arg("--figures")
        .arg(&figures)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files: Vec<_> = std::fs::read_dir(&figures).unwrap().collect();
    assert_eq!(files.len(), 1);
    let svg = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    assert!(svg.contains(">200<") && svg.contains(">50.0<"), "{svg}");
    assert!(!svg.contains("var("), "{svg}");
}

/// Goal: what the tree keeps of a run has each round's value, each ratio and each reason. Method:
/// the run whose ratios are easy, condensed.
#[test]
fn a_condensed_run_keeps_values_ratios_and_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    let mut command = pmbench(&["report"]);
    command.arg(kept("before")).arg("--html");
    command.arg(dir.path().join("report.html"));
    let output = command.arg("--condensed").arg(&small).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(small.join(name)).unwrap();
    let rows = "two in MB/s: higher is better,pmfs,tmpfs,xfs-loop\n\
        write,200;210;190,100;105;190,skipped: the kernel has no xfs\n\
        read,50;50;50,100;100;100,skipped: the kernel has no xfs\n";
    assert_eq!(read("rows.csv"), rows);
    let report = read("report.md");
    for part in [
        "12 measurements; 1 of them were made again",
        "| 0.50x (0.50x to 2.00x) | 1 of 2 |",
        "- read: 0.50x of tmpfs (0.50x to 0.50x)\n",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(read("machine.json").contains("\"processor\""));
    assert_eq!(std::fs::read_dir(&small).unwrap().count(), 3);
}
