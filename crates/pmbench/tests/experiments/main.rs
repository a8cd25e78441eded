//! Goal: runs are interleaved as they say, go on where they were, and show what could not be
//! measured. Method: the program itself, with tiny experiments on directories that stand for file
//! systems.

mod counts;
mod files;
mod interrupted;
mod order;
mod outcomes;
mod reports;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A data directory, a run's directory, and a log that steps write to.
struct Bench {
    dir: tempfile::TempDir,
}

const TARGET: &str = r#"
title = "a directory, {kind}"
make = ["echo make NAME >>$LOG"]
unmount = ["echo unmount NAME >>$LOG"]
dir = "{place}/files"
[values]
kind = "plain"
"#;

/// Two points on the targets a, b and c; what a step says is its value.
const EXPERIMENT: &str = r#"
title = "Tiny"
source = "Nobody"
figure = "figure 0"
claim = "none"
theirs = "none"
ours = "{count} of them"
unit = "things"
better = "higher"
targets = ["a", "b", "c"]
size_mib = 1
timeout_s = 20
[chart]
kind = "bars"
x = "what"
[values]
count = "2"
[[axes]]
name = "what"
values = ["one", "two"]
[value]
from = "regex"
pattern = "value ([0-9.]+)"
"#;

impl Bench {
    /// With one experiment, called tiny, that has these further lines.
    fn new(steps: &str) -> Bench {
        let bench = Bench {
            dir: tempfile::tempdir().expect("a directory"),
        };
        for name in ["a", "b", "c"] {
            bench.target(name, &TARGET.replace("NAME", name));
        }
        bench.experiment("tiny", &format!("{EXPERIMENT}\n{steps}"));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("written");
    }

    fn target(&self, name: &str, text: &str) {
        self.write(&format!("data/targets/{name}.toml"), text);
    }

    fn experiment(&self, name: &str, text: &str) {
        self.write(&format!("data/experiments/{name}.toml"), text);
    }

    /// `pmbench run tiny` with these words.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = pmbench(&["run", "tiny", "--pmfs", "/bin/true"]);
        command.arg("--data").arg(self.path("data"));
        command.arg("--out").arg(self.path("out")).args(words);
        command.env("LOG", self.path("log"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let output = self.command(words).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn rows(&self) -> Vec<Value> {
        let rows = std::fs::read_to_string(self.path("out/rows.ndjson")).unwrap_or_default();
        let row = |line: &str| serde_json::from_str(line).expect("a row");
        rows.lines().map(row).collect()
    }
}

fn pmbench(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbench"));
    command.args(words);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that is kept beside the tests.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/experiments/runs")
        .join(name)
}
