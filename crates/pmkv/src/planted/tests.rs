//! Goal: a bug in the list is one that can be compiled in, and the other way round. Method: the
//! names in the list and in the source are compared.

use super::BUGS;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

type Names = BTreeSet<String>;

/// Quoted words of a text that are bugs' names, if they stand between `before` and `after`.
fn names(text: &str, before: &str, after: &str) -> Vec<String> {
    let pieces = text.split(before).skip(1);
    let found = pieces.filter_map(|piece| piece.split_once(after).map(|(name, _)| name.to_owned()));
    found.filter(|name| name.starts_with("bug-")).collect()
}

fn listed() -> Names {
    BUGS.iter().map(|bug| bug.name.to_owned()).collect()
}

fn asked_for(dir: &Path, names_found: &mut Names) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            asked_for(&path, names_found);
        } else {
            let text = fs::read_to_string(&path).expect("a source");
            names_found.extend(names(&text, "planted!(\"", "\")"));
        }
    }
}

#[test]
fn each_is_listed_once_and_told_of() {
    assert_eq!(listed().len(), BUGS.len(), "a name stands for one bug");
    for bug in BUGS {
        assert!(!bug.what.is_empty(), "{bug:?}");
    }
}

#[test]
fn the_source_asks_for_the_same() {
    let mut found = Names::new();
    asked_for(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut found,
    );
    // The mechanism's own example.
    found.remove("bug-x");
    assert_eq!(found, listed());
}
