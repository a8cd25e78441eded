//! Goal: a comment says what it is about before it says more. Method: comments and their sentences
//! are searched for first words for which a noun can stand.

use std::fs;
use std::path::{Path, PathBuf};

/// First words for which a noun can stand, and words that continue a sentence of another place.
const FIRST_WORDS: [&str; 20] = [
    "Again", "Also", "And", "As", "Asked", "But", "Else", "Likewise", "Of", "Or", "Ours", "Told",
    "What", "What's", "Whatever", "Who", "Whoever", "Whom", "Whose", "Why",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() {
            if name.is_some_and(|name| name != "target" && !name.starts_with('.')) {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The text of a line's comment, and whether code stands before it.
fn comment(line: &str) -> Option<(&str, bool)> {
    let code = line.trim_start();
    if code.starts_with("//") {
        let text = code.trim_start_matches('/').trim_start_matches('!');
        return Some((text.trim(), false));
    }
    let (code, text) = line.split_once(" // ")?;
    let quotes = code.matches('"').count() - code.matches("\\\"").count();
    let is_in_text = quotes % 2 == 1;
    (!is_in_text).then_some((text.trim(), true))
}

fn is_first_word(text: &str) -> bool {
    let word = text.split([' ', ',', ':', ';', '.']).next().unwrap_or("");
    FIRST_WORDS.contains(&word)
}

/// Returns whether a sentence of a line begins so. `before` is the comment line above, if any.
fn begins_badly(text: &str, before: Option<&str>) -> bool {
    let ends = |text: &str| text.ends_with(['.', '!', '?']) || text.ends_with(".)");
    let item = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
    let is_start = item.is_some()
        || before
            .is_none_or(|before| before.is_empty() || before.starts_with("# ") || ends(before));
    let at_start = is_start && is_first_word(item.unwrap_or(text));
    let words: Vec<&str> = text.split(' ').collect();
    let within = (words.windows(2)).any(|two| ends(two[0]) && is_first_word(two[1]));
    at_start || within
}

/// The findings in a source: numbers of lines, and their comments.
fn findings(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut before: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        let this = comment(line);
        if let Some((text, is_behind_code)) = this
            && begins_badly(text, before.filter(|_| !is_behind_code))
        {
            found.push((at + 1, text.to_owned()));
        }
        before = this.filter(|(_, behind)| !behind).map(|(text, _)| text);
    }
    found
}

#[test]
fn sentences_are_found() {
    let lines = |text: &str| -> Vec<usize> {
        let all = findings(text);
        all.into_iter().map(|(at, _)| at).collect()
    };
    assert_eq!(lines("/// As there.\nfn a() {}\n// Why."), [1, 3]);
    assert_eq!(lines("//! One line. Who waits\n//! As that"), [1]);
    assert_eq!(lines("/// A line.\n/// Of it"), [2]);
    assert_eq!(lines("/// Locks.\n/// And files. Also locks."), [2]);
    assert_eq!(
        lines("// Told of it. Else not.\n//\n// A line or\n// Or"),
        [1]
    );
    assert_eq!(lines("/// # Errors\n/// As of that."), [2]);
    assert_eq!(lines("/// - What is so.\n///\n/// Whatever"), [1, 3]);
    assert_eq!(lines("let a = 1; // As it was.\n// Ask. Often."), [1]);
    assert_eq!(
        lines("let a = \"x // As it was.\";\n// A name,\n// As"),
        [0; 0]
    );
}

#[test]
fn comments_begin_with_a_subject() {
    let mut paths = Vec::new();
    sources(&root(), &mut paths);
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a source");
        let path = path.strip_prefix(root()).expect("below the root");
        let found = findings(&text).into_iter();
        wrong.extend(found.map(|(at, text)| format!("{}:{at}: {text}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
