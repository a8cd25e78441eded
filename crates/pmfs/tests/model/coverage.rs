//! The coverage of a run: calls, answers, tree heights, recoveries. A branch that a long run never
//! saw is a hole in the test.

use std::collections::BTreeMap;
use std::fmt;

/// Calls that a run is too short for below this many.
pub const LONG_RUN: u64 = 100_000;

/// Answers that a long run has to have met.
const EXPECTED: &[(&str, &[&str])] = &[
    ("lookup", &["ok", "NOENT", "NOTDIR", "NAMETOOLONG"]),
    ("getattr", &["ok", "STALE"]),
    ("setattr", &["ok", "STALE", "ISDIR", "INVAL", "FBIG"]),
    (
        "create",
        &[
            "ok",
            "EXIST",
            "NOENT",
            "NOTDIR",
            "NAMETOOLONG",
            "INVAL",
            "NOSPC",
        ],
    ),
    ("mkdir", &["ok", "EXIST", "NOENT", "NOTDIR", "NOSPC"]),
    ("mknod", &["ok", "EXIST", "NOTDIR", "INVAL"]),
    ("symlink", &["ok", "EXIST", "NOENT", "NAMETOOLONG", "NOSPC"]),
    ("tmpfile", &["ok", "NOTDIR", "NFILE"]),
    ("link", &["ok", "EXIST", "NOENT", "PERM", "NAMETOOLONG"]),
    ("unlink", &["ok", "NOENT", "ISDIR", "NOTDIR", "NAMETOOLONG"]),
    ("rmdir", &["ok", "NOENT", "NOTDIR", "NOTEMPTY", "INVAL"]),
    (
        "rename",
        &[
            "ok",
            "whiteout",
            "NOENT",
            "EXIST",
            "NOTDIR",
            "ISDIR",
            "NOTEMPTY",
            "INVAL",
            "BUSY",
            "NAMETOOLONG",
        ],
    ),
    ("readlink", &["ok", "INVAL", "STALE"]),
    ("readdir", &["ok", "NOTDIR", "STALE", "NOENT"]),
    ("readon", &["ok"]),
    ("hold", &["ok", "STALE", "NFILE"]),
    ("merge", &["ok", "merged", "busy", "STALE"]),
    ("defrag", &["ok"]),
    ("release", &["ok", "INVAL", "STALE"]),
    ("read", &["ok", "ISDIR", "INVAL", "STALE"]),
    ("write", &["ok", "ISDIR", "INVAL", "STALE", "FBIG", "NOSPC"]),
    (
        "append",
        &["ok", "ISDIR", "INVAL", "STALE", "FBIG", "NOSPC"],
    ),
    (
        "fallocate",
        &[
            "ok",
            "ISDIR",
            "INVAL",
            "STALE",
            "FBIG",
            "OPNOTSUPP",
            "NOSPC",
        ],
    ),
    (
        "collapse",
        &["ok", "ISDIR", "INVAL", "STALE", "FBIG", "BUSY"],
    ),
    ("pin", &["ok"]),
    ("unpin", &["ok"]),
    (
        "insert",
        &["ok", "ISDIR", "INVAL", "STALE", "FBIG", "BUSY", "NOSPC"],
    ),
    ("seekdata", &["ok", "NXIO", "ISDIR", "STALE"]),
    ("seekhole", &["ok", "NXIO", "ISDIR", "STALE"]),
    (
        "copyrange",
        &["ok", "ISDIR", "INVAL", "STALE", "FBIG", "NOSPC"],
    ),
    (
        "clonerange",
        &["ok", "ISDIR", "INVAL", "STALE", "FBIG", "BUSY", "NOSPC"],
    ),
    ("fsync", &["ok"]),
    (
        "getxattr",
        &["ok", "NODATA", "STALE", "RANGE", "OPNOTSUPP", "INVAL"],
    ),
    (
        "setacl",
        &["ok", "INVAL", "OPNOTSUPP", "ACCES", "STALE", "NOSPC"],
    ),
    (
        "setxattr",
        &[
            "ok", "EXIST", "NODATA", "STALE", "RANGE", "2BIG", "NOSPC", "PERM",
        ],
    ),
    ("listxattr", &["ok", "STALE"]),
    ("removexattr", &["ok", "NODATA", "STALE", "RANGE"]),
    ("statfs", &["ok"]),
    ("height", &["0", "1", "2", "3", "4"]),
    ("recovery", &["None", "Slots", "Walk"]),
    ("short", &["write", "append", "copyrange"]),
    ("round", &["all space came back"]),
];

/// Counts by topic and answer.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<(String, String), u64>);

impl Coverage {
    pub fn count(&mut self, topic: &str, answer: &str) {
        let key = (topic.to_string(), answer.to_string());
        *self.0.entry(key).or_default() += 1;
    }

    pub fn add(&mut self, other: &Coverage) {
        for (key, count) in &other.0 {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    /// Returns what should have been seen and was not.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for &(topic, answers) in EXPECTED {
            for &answer in answers {
                let key = (topic.to_string(), answer.to_string());
                if !self.0.contains_key(&key) {
                    missing.push(format!("{topic}: {answer}"));
                }
            }
        }
        missing
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut topics: Vec<&String> = self.0.keys().map(|(topic, _)| topic).collect();
        topics.dedup();
        for topic in topics {
            let answers = self.0.iter().filter(|((of, _), _)| of == topic);
            let total: u64 = answers.clone().map(|(_, count)| count).sum();
            write!(f, "{topic:12} {total:>8} ")?;
            for ((_, answer), count) in answers {
                write!(f, " {answer} {count}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
