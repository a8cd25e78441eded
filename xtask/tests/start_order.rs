//! Goal: what a program's start runs in the preloaded library lies together. Method:
//! `crates/pmfs-shim/start.ld` names it by mangled names, and a pattern that matches nothing is no
//! error: so each module that it names has to be there.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates by the beginning of their mangled names.
const CRATES: [(&str, &str); 7] = [
    ("pmfs_shim", "pmfs-shim"),
    ("4pmem", "pmem"),
    ("8pm_store", "pm-store"),
    ("7pmshare", "pmshare"),
    ("10pm_journal", "pm-journal"),
    ("8pm_space", "pm-space"),
    ("4pmfs", "pmfs"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names with their lengths before them, as `5entry8dispatch`, up to what is none.
fn names(mut text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    loop {
        let digits = text
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(0);
        let name = text[..digits]
            .parse()
            .ok()
            .and_then(|len: usize| text[digits..].get(..len));
        let Some(name) = name else { return names };
        names.push(name);
        text = &text[digits + name.len()..];
    }
}

/// Returns whether these lead to a module: of folders each, and the last may be a function or a
/// type in it.
fn leads(src: &Path, names: &[&str]) -> bool {
    let mut at = src.to_path_buf();
    for (index, name) in names.iter().enumerate() {
        let file = at.join(name).with_extension("rs");
        at.push(name);
        if file.exists() {
            return true;
        }
        if !at.is_dir() {
            let parent = at.with_file_name(if index == 0 { "lib.rs" } else { "mod.rs" });
            let text = fs::read_to_string(parent).unwrap_or_default();
            let kinds = ["fn", "static", "struct"];
            return kinds
                .iter()
                .any(|kind| text.contains(&format!("{kind} {name}")));
        }
    }
    true
}

#[test]
fn what_a_start_runs_is_there() {
    let text = fs::read_to_string(root().join("crates/pmfs-shim/start.ld")).expect("the script");
    let mut lost = Vec::new();
    let mut count = 0;
    for pattern in text.split(|letter: char| letter.is_whitespace() || "*()".contains(letter)) {
        for (mangled, krate) in CRATES {
            let Some(rest) = pattern.strip_prefix(mangled) else {
                continue;
            };
            let names = names(rest);
            count += names.len();
            if !leads(&root().join("crates").join(krate).join("src"), &names) {
                lost.push(pattern.to_owned());
            }
        }
    }
    assert!(count > 30, "{count} names");
    assert!(lost.is_empty(), "these match nothing: {lost:?}");
}
