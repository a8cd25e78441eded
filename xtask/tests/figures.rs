//! Goal: the figures that README and PERFORMANCE show are those of the run in the tree. Method:
//! each cell of their tables is compared with the median of the run's rows (`rows.csv`), or with
//! its report.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

const RUN: &str = "bench/runs/2026-11-26-full";
/// Rows of README's table: how a row begins, experiment, point, and what the run's unit is divided
/// by.
const ROWS: [(&str, &str, &str, f64); 9] = [
    (
        "random reads of 4 KiB",
        "nvmfs-1",
        "random read, 1 thread",
        1.0,
    ),
    (
        "random writes of 4 KiB",
        "nvmfs-1",
        "random write, 1 thread",
        1.0,
    ),
    ("open, write 4 KiB", "optane-23", "write 4 KiB", 1.0),
    ("open, append 4 KiB", "optane-23", "append 4 KiB", 1.0),
    ("create and close", "optane-23", "create", 1.0),
    (
        "fileserver mix",
        "pmfs-8",
        "fileserver, memory for all data",
        1000.0,
    ),
    ("untar", "pmfs-7", "untar, all is durable", 1.0),
    (
        "random writes of 256 KiB",
        "pmfs-6",
        "random write, 256 KiB",
        1.0,
    ),
    ("durable puts of LMDB", "optane-31", "mapped", 1000.0),
];
/// The columns behind the first: targets of the run.
const COLUMNS: [&str; 4] = ["tmpfs", "ext4-loop", "pmfs-mount", "pmfs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The fields of a line of the run, of which some are in quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("one").push(letter),
        }
    }
    fields
}

/// The median of each point of each target. A target that was not measured has a reason there.
fn medians() -> HashMap<(String, String, String), f64> {
    let text = read(&format!("{RUN}/rows.csv"));
    let mut medians = HashMap::new();
    for table in text.split("\n\n") {
        let mut lines = table.lines().map(fields);
        let head = lines.next().expect("a head");
        let (experiment, _) = head[0].split_once(" in ").expect("a unit");
        for row in lines {
            assert_eq!(row.len(), head.len(), "{row:?}");
            for (target, cell) in head.iter().zip(&row).skip(1) {
                let Some(median) = median(cell) else { continue };
                let key = (experiment.to_owned(), row[0].clone(), target.clone());
                medians.insert(key, median);
            }
        }
    }
    assert!(medians.len() > 1000, "{} medians", medians.len());
    medians
}

fn median(rounds: &str) -> Option<f64> {
    let values = rounds.split(';').map(str::parse);
    let mut values: Vec<f64> = values.collect::<Result<_, _>>().ok()?;
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim().strip_prefix('|').unwrap_or(line);
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(str::trim).collect()
}

/// Returns whether a cell shows this value, as far as its digits go.
fn shows(cell: &str, value: f64) -> bool {
    let number = cell.replace(['*', ','], "");
    let number = number.split(' ').next().unwrap_or("");
    let after = number.split_once('.').map_or(0, |(_, after)| after.len());
    format!("{value:.after$}") == number
}

#[test]
fn the_table_of_the_readme_is_of_the_run() {
    let medians = medians();
    let readme = read("README.md");
    assert!(readme.contains(RUN));
    let mut findings = Vec::new();
    for (begin, experiment, point, unit) in ROWS {
        let begin = format!("| {begin}");
        let line = readme.lines().find(|line| line.starts_with(&begin));
        let Some(line) = line else {
            findings.push(format!("no row {begin}"));
            continue;
        };
        let row = cells(line);
        for (cell, target) in row[1..].iter().zip(COLUMNS) {
            let key = (experiment.into(), point.into(), target.into());
            let value = medians.get(&key).map(|value| value / unit);
            if !value.is_some_and(|value| shows(cell, value)) {
                findings.push(format!("{begin}: {target}: {cell}, the run has {value:?}"));
            }
        }
    }
    let section = readme.split("\n## ").find(|one| one.starts_with("Figures"));
    let table = section.unwrap_or("").lines();
    let table = table.filter(|line| line.starts_with("| ")).count();
    assert_eq!(table, ROWS.len() + 1, "a row of README is in no list");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// Each line of the table of ratios, without what the page leaves out, is a line of the run's
/// report.
#[test]
fn the_ratios_of_the_page_are_of_the_run() {
    let report = read(&format!("{RUN}/report.md"));
    let page = read("docs/PERFORMANCE.md");
    assert!(page.contains(RUN));
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|line| cells(line).into_iter().map(str::to_owned).collect())
            .collect()
    };
    // In the report: experiment, what, then ratio, loses and mount loses of tmpfs, ext4 and XFS.
    let kept = rows(&report)
        .into_iter()
        .filter(|row| !(row[2].is_empty() && row[5].is_empty()));
    let kept: Vec<Vec<String>> = kept
        .map(|row| [0, 1, 2, 3, 5, 6, 7].map(|at| row[at].clone()).to_vec())
        .collect();
    assert!(kept.len() > 20, "{} rows", kept.len());
    let shown = rows(&page).into_iter().filter(|row| row.len() == 7);
    assert_eq!(shown.collect::<Vec<_>>(), kept);
}

/// Writes of the library, with and without page permissions.
#[test]
fn the_windows_of_the_page_are_of_the_run() {
    let medians = medians();
    let page = read("docs/PERFORMANCE.md");
    let rows = page
        .lines()
        .filter(|line| line.contains(" B | ") || line.contains(" KiB | "));
    let rows: Vec<&str> = rows.filter(|line| cells(line).len() == 3).collect();
    assert_eq!(rows.len(), 6, "{rows:?}");
    for line in rows {
        let row = cells(line);
        for (cell, kind) in row[1..].iter().zip(["none", "page permissions"]) {
            let point = format!("write {}, {kind}", row[0]);
            let key = ("pmfs-11".to_owned(), point, "library".to_owned());
            assert!(shows(cell, medians[&key]), "{line}: {}", medians[&key]);
        }
    }
}
