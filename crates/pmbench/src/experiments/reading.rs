//! The reading of a measurement's value: the run step's seconds, figures of a JSON document that it
//! prints, or a pattern in its output.
//!
//! A value that can't be read, or is not a positive number, is an error of that measurement, never
//! a zero.

use anyhow::{Context, ensure};
use serde::Deserialize;

/// The place of the value.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase", deny_unknown_fields)]
pub enum Reading {
    /// Seconds from the start of the run step to its end.
    Wall {
        /// Multiplied by this, for the experiment's unit.
        #[serde(default = "one")]
        scale: f64,
    },
    /// JSON pointers; figures of several are added up.
    Json {
        /// The pointers of RFC 6901.
        paths: Vec<String>,
        /// The factor, as above.
        #[serde(default = "one")]
        scale: f64,
    },
    /// The first group of a regular expression, where it matches last.
    Regex {
        /// The expression.
        pattern: String,
        /// A count, divided by the seconds of the run step.
        #[serde(default)]
        each_second: bool,
        /// The factor, as above.
        #[serde(default = "one")]
        scale: f64,
    },
}

fn one() -> f64 {
    1.0
}

impl Reading {
    /// Reads it.
    pub fn read(&self, output: &str, seconds: f64) -> anyhow::Result<f64> {
        let value = match self {
            Reading::Wall { scale } => seconds * scale,
            Reading::Json { paths, scale } => json(output, paths)? * scale,
            Reading::Regex {
                pattern,
                each_second,
                scale,
            } => {
                let figure = matched(output, pattern)? * scale;
                figure / if *each_second { seconds } else { 1.0 }
            }
        };
        ensure!(
            value.is_finite() && value > 0.0,
            "the value is {value}, which no measurement gives"
        );
        Ok(value)
    }

    /// Finds mistakes before anything runs.
    pub fn check(&self) -> anyhow::Result<()> {
        match self {
            Reading::Regex { pattern, .. } => {
                let groups = regex::Regex::new(pattern)?.captures_len();
                ensure!(groups >= 2, "the pattern `{pattern}` has no group");
            }
            Reading::Json { paths, .. } => {
                ensure!(!paths.is_empty(), "no JSON path is given");
                let wrong = paths.iter().find(|path| !path.starts_with('/'));
                ensure!(wrong.is_none(), "a JSON pointer starts with a slash");
            }
            Reading::Wall { .. } => {}
        }
        Ok(())
    }
}

fn json(output: &str, paths: &[String]) -> anyhow::Result<f64> {
    // Programs print notes before the document.
    let start = output.find('{').context("the output has no JSON")?;
    let document: serde_json::Value =
        serde_json::from_str(&output[start..]).context("the output's JSON can't be read")?;
    paths.iter().try_fold(0.0, |sum, path| {
        let figure = document.pointer(path).and_then(serde_json::Value::as_f64);
        Ok(sum + figure.with_context(|| format!("the output's JSON has no figure at {path}"))?)
    })
}

fn matched(output: &str, pattern: &str) -> anyhow::Result<f64> {
    let found = regex::Regex::new(pattern)?
        .captures_iter(output)
        .filter_map(|captures| captures.get(1))
        .last()
        .with_context(|| format!("nothing in the output matches `{pattern}`"))?;
    let figure = found.as_str().replace(',', "");
    figure
        .parse()
        .with_context(|| format!("`{figure}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_json(paths: &[&str]) -> Reading {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Reading::Json { paths, scale: 0.5 }
    }

    #[test]
    fn figures_are_read() {
        let output = "note\n{\"jobs\":[{\"read\":{\"bw\":7},\"write\":{\"bw\":1}}]}";
        let sum = of_json(&["/jobs/0/read/bw", "/jobs/0/write/bw"]);
        assert_eq!(sum.read(output, 9.0).unwrap(), 4.0);
        let regex = |each_second| Reading::Regex {
            pattern: r"([0-9,.]+) ops/s".to_owned(),
            each_second,
            scale: 1.0,
        };
        let output = "10 ops/s\n1,234.5 ops/s";
        assert_eq!(regex(false).read(output, 2.0).unwrap(), 1234.5);
        assert_eq!(regex(true).read(output, 2.0).unwrap(), 617.25);
        assert_eq!(Reading::Wall { scale: 1e3 }.read("", 0.25).unwrap(), 250.0);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for output in ["", "{\"jobs\": 1", "{\"bw\": \"7\"}", "{\"bw\": 0}"] {
            assert!(of_json(&["/bw"]).read(output, 1.0).is_err(), "{output}");
        }
        let pattern = "took (.*)".to_owned();
        let regex = Reading::Regex {
            pattern,
            each_second: false,
            scale: 1.0,
        };
        for output in ["", "took long", "took nan", "took 0"] {
            assert!(regex.read(output, 1.0).is_err(), "{output}");
        }
    }

    #[test]
    fn a_pattern_without_a_group_is_refused() {
        let pattern = "took .*".to_owned();
        let reading = Reading::Regex {
            pattern,
            each_second: false,
            scale: 1.0,
        };
        assert!(reading.check().is_err());
    }
}
