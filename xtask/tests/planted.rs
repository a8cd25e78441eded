//! Goal: a planted bug of the heap or of the engines on it is listed once, and one that is listed
//! can be compiled in. Method: the names in each crate's list are compared with those for which
//! its source asks. (`crates/pm-store/src/planted/tests.rs` has the file system's.)

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The crates with a list of their own.
const CRATES: [&str; 2] = ["pmlib", "pmkv"];
const LIST: &str = "planted/list.rs";

/// The names of bugs in a text that stand behind `before`, in order.
fn names(text: &str, before: &str) -> Vec<String> {
    let pieces = text.split(before).skip(1);
    let found = pieces.filter_map(|piece| piece.split_once('"').map(|(name, _)| name.to_owned()));
    found.filter(|name| name.starts_with("bug-")).collect()
}

fn asked_for(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            asked_for(&path, found);
        } else {
            let text = fs::read_to_string(&path).expect("a source");
            found.extend(names(&text, "planted!(\""));
        }
    }
}

#[test]
fn the_source_asks_for_the_bugs_that_are_listed() {
    for name in CRATES {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let dir = crates.join(name).join("src");
        let text = fs::read_to_string(dir.join(LIST)).expect("a list");
        let listed = names(&text, "\n    \"");
        let once: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(
            once.len(),
            listed.len(),
            "{name}: a name stands for one bug"
        );
        let mut found = BTreeSet::new();
        asked_for(&dir, &mut found);
        assert!(!found.is_empty(), "{name} asks for none");
        assert_eq!(found, once, "{name}: asked for, and listed");
    }
}
