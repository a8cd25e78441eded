//! Goal: comments can be read without scrolling sideways. Method: comment lines of more than 100
//! columns are counted in each crate. No count may rise, and one that falls is to be lowered here.

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 100;
/// Folders, and how many longer comment lines each has.
const LONGER: [(&str, usize); 35] = [
    ("crates/pm-cli", 0),
    ("crates/pm-journal", 0),
    ("crates/pm-space", 0),
    ("crates/pm-store", 0),
    ("crates/pmbench", 0),
    ("crates/pmem", 0),
    ("crates/pmemkv-capi", 0),
    ("crates/pmep", 0),
    ("crates/pmep-cli", 0),
    ("crates/pmfs", 0),
    ("crates/pmfs-admin", 3),
    ("crates/pmfs-capi", 0),
    ("crates/pmfs-cli", 0),
    ("crates/pmfs-format", 0),
    ("crates/pmfs-fuse", 0),
    ("crates/pmfs-patch", 1),
    ("crates/pmfs-posix", 0),
    ("crates/pmfs-shim", 0),
    ("crates/pmkv", 0),
    ("crates/pmkv-capi", 0),
    ("crates/pmkv-cli", 0),
    ("crates/pmkv-peers", 0),
    ("crates/pmkv-peers-sys", 0),
    ("crates/pmkv-python", 0),
    ("crates/pmlib", 0),
    ("crates/pmlib-derive", 0),
    ("crates/pmlib-format", 0),
    ("crates/pmmon", 0),
    ("crates/pmmon-cli", 0),
    ("crates/pmmon-sys", 0),
    ("crates/pmshare", 0),
    ("crates/yat", 0),
    ("fuzz", 0),
    ("tests", 0),
    ("xtask", 0),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The longer comment lines of each source below a folder.
fn longer(dir: &Path, found: &mut Vec<(PathBuf, usize)>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() {
            if name.is_some_and(|name| name != "target" && !name.starts_with('.')) {
                longer(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let count = text.lines().filter(|line| is_longer(line)).count();
            found.push((path, count));
        }
    }
}

fn is_longer(line: &str) -> bool {
    line.trim_start().starts_with("//") && line.chars().count() > COLUMNS_MAX
}

#[test]
fn columns_are_counted_in_letters() {
    let comment = |letters: usize| format!("    //{}", "ä".repeat(letters));
    assert!(!is_longer(&comment(94)) && is_longer(&comment(95)));
    assert!(!is_longer(&"x".repeat(200)));
}

#[test]
fn comments_fit_into_lines() {
    let mut findings = Vec::new();
    for (folder, known) in LONGER {
        let mut found = Vec::new();
        longer(&root().join(folder), &mut found);
        let count: usize = found.iter().map(|(_, count)| count).sum();
        if count > known {
            found.retain(|(_, count)| *count > 0);
            found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            found.truncate(5);
            findings.push(format!(
                "{folder}: {count} long comment lines, {known} before: {found:?}"
            ));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
