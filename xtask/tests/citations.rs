//! Goal: a reader who follows a citation finds the page. Method: each path below `docs/` that a
//! text of the tree names, and each link of a Markdown page with its heading, is looked up; the
//! pages of decisions are compared with their table of contents.

use std::fs;
use std::path::{Path, PathBuf};

/// Ends of the names of files that are read.
const TEXTS: [&str; 11] = [
    "rs", "md", "sh", "toml", "c", "cc", "h", "s", "go", "awk", "Makefile",
];
/// Results of other days: they show what was there then.
const RESULTS: &str = "bench/runs";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn collect(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or("");
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') && !path.ends_with(RESULTS) {
                collect(&path, found);
            }
        } else if TEXTS.contains(&name.rsplit('.').next().unwrap_or(""))
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push((path, text));
        }
    }
}

/// The texts of the tree, each with its path from the root.
fn texts() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    for (path, _) in &mut found {
        *path = path.strip_prefix(root()).expect("below").to_path_buf();
    }
    assert!(found.len() > 300, "{} texts", found.len());
    found
}

fn assert_none(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n{}", findings.join("\n"));
}

/// Paths from the root, below `docs/`, that a line names.
fn cited(line: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let starts = line.match_indices("docs/").map(|(at, _)| at);
    let own = starts.filter(|&at| !line[..at].ends_with(is_path));
    own.map(|at| {
        let end = line[at..]
            .find(|c| !is_path(c))
            .map_or(line.len(), |len| at + len);
        line[at..end].trim_end_matches('.')
    })
    .collect()
}

#[test]
fn paths_are_found_in_a_line() {
    let line = "//! (docs/A.md), `docs/b/c.md`. ../docs/D.md https://docs.rs/x docs/e.md.";
    assert_eq!(cited(line), ["docs/A.md", "docs/b/c.md", "docs/e.md"]);
}

#[test]
fn citations_lead_somewhere() {
    let mut findings = Vec::new();
    let mut count = 0;
    for (path, text) in texts() {
        // This file has examples of its own.
        if path.ends_with("citations.rs") {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            for page in cited(line) {
                count += 1;
                if !root().join(page).exists() {
                    findings.push(format!("{}:{}: {page}", path.display(), at + 1));
                }
            }
        }
    }
    assert!(count > 50, "{count} citations");
    assert_none("nothing is there", &findings);
}

/// Pages that are not in the tree: nobody who has it alone could follow such a citation.
#[test]
fn no_citation_leaves_the_tree() {
    let numbered = [["DECI", "SIONS "].concat(), ["DES", "IGN "].concat()];
    let pages = [
        "DECISIONS",
        "DESIGN",
        "STYLE",
        "TESTS",
        "PEERS",
        "MONITOR",
        "INTERCEPT",
        "PMLIB",
    ];
    let pages = pages.map(|page| [page, ".md"].concat());
    let is_cited = |line: &str| {
        numbered.iter().any(|name| {
            let mut rest = line.match_indices(name.as_str());
            rest.any(|(at, _)| line[at + name.len()..].starts_with(|c: char| c.is_ascii_digit()))
        }) || pages.iter().any(|page| line.contains(page.as_str()))
    };
    let mut findings = Vec::new();
    for (path, text) in texts() {
        for (at, line) in text.lines().enumerate() {
            if is_cited(line) {
                findings.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert_none("not in the tree", &findings);
}

/// A heading's anchor, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The lines of a Markdown page outside blocks of code, counted from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut kept = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            kept.push((at + 1, line));
        }
    }
    kept
}

/// The fault in a link of a page in `dir`; `None`: it leads somewhere.
fn fault(page: &Path, target: &str) -> Option<&'static str> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let dir = root().join(page).parent()?.to_path_buf();
    let path = match file {
        "" => root().join(page),
        _ => dir.join(file),
    };
    if !path.exists() {
        return Some("no such file");
    }
    if heading.is_empty() || path.extension().is_none_or(|end| end != "md") {
        return None;
    }
    let text = fs::read_to_string(&path).ok()?;
    let lines = prose(&text);
    let mut headings = lines.iter().filter(|(_, line)| line.starts_with('#'));
    let is_there = headings.any(|(_, line)| anchor(line.trim_start_matches('#').trim()) == heading);
    (!is_there).then_some("no such heading")
}

#[test]
fn links_of_pages_lead_somewhere() {
    let mut findings = Vec::new();
    let mut count = 0;
    for (path, text) in texts() {
        if path.extension().is_none_or(|end| end != "md") {
            continue;
        }
        for (at, line) in prose(&text) {
            let links = line.split("](").skip(1);
            for target in links.filter_map(|rest| rest.split(')').next()) {
                if target.contains(':') {
                    continue;
                }
                count += 1;
                if let Some(why) = fault(&path, target) {
                    findings.push(format!("{}:{at}: {target}: {why}", path.display()));
                }
            }
        }
    }
    assert!(count > 100, "{count} links");
    assert_none("links", &findings);
}

/// Each page of a decision has its number, a date and a status, and stands in the table.
#[test]
fn decisions_are_listed() {
    let dir = root().join("docs/adr");
    let table = fs::read_to_string(dir.join("README.md")).expect("the table");
    let mut findings = Vec::new();
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&dir).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        let name = name.into_string().expect("a name");
        if name == "README.md" {
            continue;
        }
        let text = fs::read_to_string(dir.join(&name)).expect("a page");
        let number: u32 = name[..4].parse().expect("a page begins with its number");
        numbers.push(number);
        let title = text.lines().next().unwrap_or("");
        let title = title.strip_prefix(&format!("# {number}. ")).unwrap_or("");
        let state = text.lines().nth(2).unwrap_or("");
        let status = state
            .split_once(" Status: ")
            .map_or("", |(_, status)| status);
        let status = status.trim_end_matches('.');
        let row = format!("| [{}]({name}) | {title} |", &name[..4]);
        let is_whole = !title.is_empty() && state.starts_with("Date: 20") && !status.is_empty();
        let is_listed = |line: &str| line.starts_with(&row) && line.contains(status);
        if !is_whole || !table.lines().any(is_listed) {
            findings.push(format!("{name}: {row} ... {status} |"));
        }
    }
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u32));
    assert_none("pages without a date, a status or a row", &findings);
}
