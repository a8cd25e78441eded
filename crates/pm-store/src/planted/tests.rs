//! Goal: each bug of the list can be planted, at a site or inline, and each inline place has a bug
//! in the list. Method: the list is compared with the sources of all crates.

use super::site::sources;
use super::{BUGS, Plant, Site};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The most bugs that the source may ask for: each costs the engine a condition to read past.
const INLINE_MAX: usize = 66;
/// The most places that may ask for them.
const PLACES_MAX: usize = 68;

/// The count of places in the sources that ask for each bug.
fn asked_for() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a source");
        for piece in text.split("planted!(\"bug-").skip(1) {
            if let Some((name, _)) = piece.split_once("\")") {
                *found.entry(format!("bug-{name}")).or_default() += 1;
            }
        }
    }
    found
}

#[test]
fn each_is_listed_once_and_told_of() {
    for (at, bug) in BUGS.iter().enumerate() {
        assert!(bug.name.starts_with("bug-"), "{bug:?}");
        assert!(!bug.twin.is_empty() && !bug.what.is_empty(), "{bug:?}");
        let again = BUGS[at + 1..].iter().find(|other| other.name == bug.name);
        assert!(again.is_none(), "a name stands for one bug: {again:?}");
    }
}

/// Inline bugs are those that the source asks for, and their number rises with the features that
/// they break alone.
#[test]
fn the_source_asks_for_those_that_are_inline() {
    let mut found = asked_for();
    // The documentation of `planted!` has this name as an example.
    found.remove("bug-x");
    let is_inline = |bug: &&super::Bug| matches!(bug.plant, Plant::Inline(_));
    let inline = BUGS.iter().filter(is_inline).map(|bug| bug.name);
    let mut inline: Vec<&str> = inline.collect();
    inline.sort_unstable();
    assert_eq!(found.keys().collect::<Vec<_>>(), inline);
    let places: usize = found.values().sum();
    let counts = (inline.len(), places);
    assert_eq!(counts, (INLINE_MAX, PLACES_MAX), "fewer: lower the maxima");
}

#[test]
fn each_site_is_there() {
    let mut gone: Vec<(&str, &Site)> = Vec::new();
    for bug in BUGS {
        if let Plant::Sites(sites) = bug.plant {
            assert!(!sites.is_empty(), "{} is nowhere", bug.name);
            let is_gone = |site: &Site| site.places().is_empty();
            let stale = (sites.iter())
                .filter(|site| is_gone(site) || site.landmark().is_some_and(|to| is_gone(&to)));
            gone.extend(stale.map(|site| (bug.name, site)));
        }
    }
    assert!(gone.is_empty(), "the source has no longer: {gone:#?}");
}

/// Returns whether the function around a line, counted from 1, is `#[track_caller]`: its actions
/// then belong to the sites of its callers.
fn passes_place_on(lines: &[&str], line: u32) -> bool {
    let is_head = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        words.first() == Some(&"fn") || words.contains(&"fn") && words[0].starts_with("pub")
    };
    let up = lines[..line as usize].iter().rev();
    let above = up.skip_while(|line| !is_head(line)).skip(1);
    let mut attributes = above.take_while(|line| line.trim_start().starts_with(['#', '/']));
    attributes.any(|line| line.trim() == "#[cfg_attr(feature = \"record\", track_caller)]")
}

/// No site lies in a `#[track_caller]` function: its actions count as its callers', so that a bug
/// planted there would never act.
#[test]
fn each_site_is_its_own_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut passing = Vec::new();
    for bug in BUGS {
        let Plant::Sites(sites) = bug.plant else {
            continue;
        };
        let landmarks = sites.iter().filter_map(Site::landmark);
        let all_sites = sites.iter().copied().chain(landmarks);
        for (file, lines) in all_sites.flat_map(|site| site.places()) {
            let text = fs::read_to_string(root.join(&file)).expect("a source");
            let all: Vec<&str> = text.lines().collect();
            if passes_place_on(&all, *lines.end()) {
                passing.push((bug.name, file, lines));
            }
        }
    }
    assert!(passing.is_empty(), "{passing:#?}");
}
