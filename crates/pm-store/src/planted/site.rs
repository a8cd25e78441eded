//! Planted bugs that act from outside the source: at stores, flushes, fences and log entries, which
//! their text names. The source itself has no trace of them.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The action at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Stores.
    Store,
    /// Begins the write-back of a range.
    Flush,
    /// Waits for what was flushed and streamed.
    Fence,
    /// Puts words into a log.
    Log,
    /// All stores, flushes and fences of the line.
    Call,
}

/// The fault at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The action is left out.
    LeftOut,
    /// Only the first line of a range is flushed.
    FirstLine,
    /// Only the first of several flushes between two fences of the thread is done.
    OnlyFirst,
    /// The first of several flushes between two fences of the thread is left out.
    AllButFirst,
    /// The count of lines is computed from the length alone, without the offset.
    LengthAlone,
    /// The last line is left out if the range ends at the offset within a line at which it began.
    SameOffset,
    /// A last line that the range does not fill is left out.
    LastPart,
    /// The line is flushed before the store instead of after it.
    FlushedFirst,
    /// The last word of a line is stored before the others.
    LastWordFirst,
    /// One wide store becomes a store for each word.
    Torn,
    /// Bytes that should go past the caches go through them and are not flushed.
    Cached,
    /// Only this word of a line is left out.
    Word(u64),
    /// The action is delayed until the thread reaches the landmark, given as a site's file and
    /// text.
    Behind(&'static str, &'static str),
}

/// A place in the source, and the fault there.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The action there.
    pub what: What,
    /// The fault there.
    pub rule: Rule,
    /// The end of the source file's name; empty for any file.
    pub file: &'static str,
    /// The function that contains it; empty for any function.
    pub function: &'static str,
    /// The code of its line or lines, compared without spaces.
    pub text: &'static str,
}

impl Site {
    /// Creates a site whose action is left out.
    const fn new(
        what: What,
        file: &'static str,
        function: &'static str,
        text: &'static str,
    ) -> Site {
        let rule = Rule::LeftOut;
        Site {
            what,
            rule,
            file,
            function,
            text,
        }
    }

    /// Replaces the site's fault.
    pub(super) const fn by(mut self, rule: Rule) -> Site {
        self.rule = rule;
        self
    }

    /// Delays the site's action until the thread reaches a text of a file.
    pub(super) const fn behind(self, file: &'static str, text: &'static str) -> Site {
        self.by(Rule::Behind(file, text))
    }

    /// The landmark of a delayed site.
    #[must_use]
    pub fn landmark(&self) -> Option<Site> {
        match self.rule {
            Rule::Behind(file, text) => Some(Site::new(What::Call, file, "", text)),
            _ => None,
        }
    }

    /// The current places of the site: paths from the root of the tree, and lines.
    #[must_use]
    pub fn places(&self) -> Vec<(String, RangeInclusive<u32>)> {
        let mut places = Vec::new();
        for path in sources() {
            if !path.to_string_lossy().ends_with(self.file) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let name = path.strip_prefix(root()).unwrap_or(&path);
            let name = name.to_string_lossy().into_owned();
            let lines = self.lines_in(&text).into_iter();
            places.extend(lines.map(|lines| (name.clone(), lines)));
        }
        places
    }

    /// The lines of its text in a file.
    fn lines_in(&self, text: &str) -> Vec<RangeInclusive<u32>> {
        let lines: Vec<&str> = text.lines().collect();
        let mut found = Vec::new();
        for range in functions(&lines, self.function) {
            let first = *range.start();
            found.extend(matches(&lines[range], self.text).map(|(from, to)| {
                let line = |at: usize| (first + at + 1) as u32;
                line(from)..=line(to)
            }));
        }
        found
    }
}

pub(super) const fn store(file: &'static str, function: &'static str, text: &'static str) -> Site {
    Site::new(What::Store, file, function, text)
}

pub(super) const fn flush(file: &'static str, function: &'static str, text: &'static str) -> Site {
    Site::new(What::Flush, file, function, text)
}

pub(super) const fn fence(file: &'static str, function: &'static str, text: &'static str) -> Site {
    Site::new(What::Fence, file, function, text)
}

pub(super) const fn log(file: &'static str, function: &'static str, text: &'static str) -> Site {
    Site::new(What::Log, file, function, text)
}

pub(super) const fn call(file: &'static str, function: &'static str, text: &'static str) -> Site {
    Site::new(What::Call, file, function, text)
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = crates.and_then(Path::parent);
    root.expect("a crate is two levels below the root").into()
}

/// The sources of all crates, except this list and crates with lists of their own.
pub(super) fn sources() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_apart = |path: &Path| path != own && path.join("src/planted/list.rs").is_file();
    let mut all = Vec::new();
    let mut left = vec![root().join("crates")];
    while let Some(dir) = left.pop() {
        let entries = std::fs::read_dir(&dir).into_iter().flatten();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let is_ours = path.components().any(|part| part.as_os_str() == "src");
            if path.is_dir() {
                if !path.ends_with("planted") && !is_apart(&path) {
                    left.push(path);
                }
            } else if is_ours && path.extension().is_some_and(|end| end == "rs") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// The lines of each function of that name, by indices; all lines if the name is empty.
fn functions(lines: &[&str], name: &str) -> Vec<RangeInclusive<usize>> {
    if name.is_empty() {
        return (!lines.is_empty())
            .then(|| 0..=lines.len() - 1)
            .into_iter()
            .collect();
    }
    let is_head = |line: &&str| {
        let behind = line.split_once("fn ").map(|(_, behind)| behind);
        let behind = behind.and_then(|behind| behind.strip_prefix(name));
        behind.is_some_and(|behind| behind.starts_with(['(', '<']))
    };
    let heads = (0..lines.len()).filter(|&at| is_head(&lines[at]));
    heads
        .filter_map(|head| {
            let indent = lines[head].len() - lines[head].trim_start().len();
            let end = format!("{}}}", &lines[head][..indent]);
            let behind = lines[head..].iter().position(|&line| line == end)?;
            Some(head..=head + behind)
        })
        .collect()
}

/// Where a text begins and ends among lines, spaces left out.
fn matches(lines: &[&str], text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bare = |text: &str| -> String { text.split_whitespace().collect() };
    let (mut code, mut line_of) = (String::new(), Vec::new());
    for (at, line) in lines.iter().enumerate() {
        code.push_str(&bare(line));
        line_of.resize(code.len(), at);
    }
    let text = bare(text);
    let found: Vec<usize> = code.match_indices(&text).map(|(at, _)| at).collect();
    let len = text.len().max(1);
    found
        .into_iter()
        .map(move |at| (line_of[at], line_of[at + len - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn close<T>(mem: &T) {
    if mem.is_open() {
        mem.fence();
        finish(mem)
    }
    mem.fence();
}

impl Other {
    fn close(&self) {
        self
            .mem
            .fence();
    }
    fn closes(&self) {
        mem.fence();
    }
}
";

    /// Goal: a text stands for the lines that have it, in functions of that name alone, however it
    /// is broken into lines.
    #[test]
    fn lines_of_a_text() {
        for (function, text, lines) in [
            ("", "mem.fence()", vec![3..=3, 6..=6, 12..=13, 16..=16]),
            ("close", "mem.fence()", vec![3..=3, 6..=6, 12..=13]),
            ("close", "mem.fence(); finish(mem)", vec![3..=4]),
            ("close", "} mem.fence();", vec![5..=6]),
            ("closes", "mem.fence()", vec![16..=16]),
            ("clos", "mem.fence()", vec![]),
            ("close", "mem.flush()", vec![]),
        ] {
            let found = fence("", function, text).lines_in(SOURCE);
            assert_eq!(found, lines, "{text} in {function}");
        }
    }
}
