//! A run's directory: `rows.ndjson`, one line a measurement, written when it is made; `run.json`,
//! what was asked for; `machine.json`; `data/`, the experiments and targets as they were.

use super::template::Values;
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A measurement, or the reason why there is none.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// The measurement that it is of.
    #[serde(flatten)]
    pub key: Key,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The time that it took in all, with what comes before and after it and all attempts.
    #[serde(default)]
    pub seconds: f64,
    /// The run step, as it ran.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// The name of a measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Key {
    /// The experiment's name.
    pub experiment: String,
    /// The point's labels.
    pub point: Values,
    /// The target's name.
    pub target: String,
    /// The round's number, from 0 on.
    pub round: usize,
}

/// The outcome of a measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// A value.
    Measured {
        /// The value in the experiment's unit.
        value: f64,
        /// The number of times that it was made.
        attempts: u32,
        /// The machine was not quiet even then.
        strayed: bool,
        /// The control loop before and after.
        control_ns: [f64; 2],
    },
    /// The measurement was tried and failed.
    Error {
        /// The reason, in words.
        reason: String,
    },
    /// The measurement can't be done here.
    Skipped {
        /// The reason, in words.
        reason: String,
    },
}

/// The request: a run that goes on has to be asked for the same.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Asked {
    /// The smaller sizes were asked for.
    pub quick: bool,
    /// The commit of the sources that this was built from.
    pub commit: Option<String>,
}

/// The rows of a run, old and new.
pub struct Results {
    file: File,
    /// All of them.
    pub rows: Vec<Row>,
}

impl Results {
    /// Opens a run's directory to go on, or makes it.
    pub fn open(dir: &Path, asked: &Asked) -> anyhow::Result<Results> {
        std::fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
        let path = dir.join("run.json");
        if path.exists() {
            let before: Asked = read_json(&path)?;
            ensure!(
                before == *asked,
                "{} holds a run of another kind: it had {before:?}, this has {asked:?}; take another --out",
                dir.display()
            );
        } else {
            write_json(&path, asked)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        let mut file = options.open(dir.join("rows.ndjson"))?;
        let rows = whole_rows(&mut file)?;
        Ok(Results { file, rows })
    }

    /// Reads the rows of a run that no process is making.
    pub fn read(dir: &Path) -> anyhow::Result<Vec<Row>> {
        let path = dir.join("rows.ndjson");
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| {
            format!(
                "{} is no run: {} can't be read",
                dir.display(),
                path.display()
            )
        })?;
        parse(&text)
    }

    /// Returns whether this has been measured. Measurements that were skipped or failed may succeed
    /// when a run goes on.
    pub fn has(&self, key: &Key) -> bool {
        let done = |row: &&Row| matches!(row.outcome, Outcome::Measured { .. });
        self.rows.iter().filter(done).any(|row| row.key == *key)
    }

    /// Writes it down at once.
    pub fn add(&mut self, row: Row) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(&row)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.rows.retain(|old| old.key != row.key);
        self.rows.push(row);
        Ok(())
    }
}

/// The rows that are whole. A last one that was cut off is taken away, so that the next one begins
/// a line.
fn whole_rows(file: &mut File) -> anyhow::Result<Vec<Row>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64)?;
    parse(&text[..whole])
}

fn parse(text: &str) -> anyhow::Result<Vec<Row>> {
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let mut rows: Vec<Row> = Vec::new();
    for (at, line) in whole.lines().enumerate() {
        let row: Row = serde_json::from_str(line)
            .with_context(|| format!("line {} of rows.ndjson", at + 1))?;
        // A run that went on may have measured what it skipped before.
        rows.retain(|old| old.key != row.key);
        rows.push(row);
    }
    Ok(rows)
}

/// Reads a document.
pub fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("{} can't be read", path.display()))?;
    match serde_json::from_str(&text) {
        Ok(document) => Ok(document),
        Err(why) => bail!("{}: {why}", path.display()),
    }
}

/// Writes a document.
pub fn write_json(path: &Path, document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(document)? + "\n";
    std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: usize, outcome: Outcome) -> Row {
        Row {
            key: Key {
                experiment: "e".into(),
                point: Values::from([("x".into(), "1".into())]),
                target: "t".into(),
                round,
            },
            outcome,
            seconds: 0.0,
            command: String::new(),
        }
    }

    fn measured(value: f64) -> Outcome {
        Outcome::Measured {
            value,
            attempts: 1,
            strayed: false,
            control_ns: [1.0, 1.0],
        }
    }

    const ASKED: Asked = Asked {
        quick: true,
        commit: None,
    };

    #[test]
    fn a_row_that_was_cut_off_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::open(dir.path(), &ASKED).unwrap();
        results.add(row(0, measured(2.5))).unwrap();
        results.add(row(1, measured(3.5))).unwrap();
        let path = dir.path().join("rows.ndjson");
        let length = std::fs::metadata(&path).unwrap().len();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length - 3).unwrap();

        let mut again = Results::open(dir.path(), &ASKED).unwrap();
        assert!(again.has(&row(0, measured(0.0)).key));
        assert!(!again.has(&row(1, measured(0.0)).key));
        again.add(row(1, measured(4.5))).unwrap();
        let values = Results::read(dir.path()).unwrap();
        assert_eq!(values, [row(0, measured(2.5)), row(1, measured(4.5))]);
    }

    #[test]
    fn what_was_skipped_or_failed_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::open(dir.path(), &ASKED).unwrap();
        let reason = || "no tool".to_owned();
        let (skipped, failed) = (
            Outcome::Skipped { reason: reason() },
            Outcome::Error { reason: reason() },
        );
        for outcome in [skipped, failed] {
            results.add(row(0, outcome)).unwrap();
            assert!(!results.has(&row(0, measured(0.0)).key));
        }
        results.add(row(0, measured(1.0))).unwrap();
        let rows = Results::read(dir.path()).unwrap();
        assert_eq!(rows, [row(0, measured(1.0))]);
    }

    #[test]
    fn a_run_of_another_kind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Results::open(dir.path(), &ASKED).unwrap();
        let full = Asked {
            quick: false,
            commit: None,
        };
        let why = Results::open(dir.path(), &full).map(|_| ()).unwrap_err();
        assert!(why.to_string().contains("--out"), "{why}");
    }
}
