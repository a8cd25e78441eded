//! Goal: the engine stores to the pool in the ways that `pm-store` and `pm-journal` have, and in no
//! other. Method: in the sources of its other modules, without tests, no storing method is called
//! of a mapping, by that name or as `mem`.

use std::fs;
use std::path::{Path, PathBuf};

/// Methods of `pmem::Pmem` that change the pool, or decide when a change is durable.
const STORING: [&str; 14] = [
    "store",
    "store_pair",
    "cas",
    "swap",
    "write",
    "write_nt",
    "write_bytes",
    "zero_nt",
    "copy_nt",
    "count",
    "flush",
    "fence",
    "fence_stores",
    "window",
];

/// Files that may call them.
const ALLOWED: [&str; 2] = ["pm-journal/src/transaction.rs", "pm-journal/src/redo.rs"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The storing methods that a text calls of a mapping.
fn stores(text: &str) -> Vec<String> {
    let (code, _) = text.split_once("#[cfg(test)]\nmod ").unwrap_or((text, ""));
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let is_mapping = |before: &str| {
        let before = before.trim_end();
        let name = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_');
        before.ends_with("mapping()")
            || before.ends_with("mem()")
            || name.into_iter().next() == Some("mem")
    };
    let called = |(at, _): (usize, &str)| {
        let method = code[at + 1..].split('(').next().unwrap_or("");
        let found = STORING.contains(&method) && is_mapping(&code[..at]);
        found.then(|| method.to_owned())
    };
    code.match_indices('.').filter_map(called).collect()
}

#[test]
fn others_do_not_store_to_the_pool() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut found = Vec::new();
    for src in [
        "pmshare/src",
        "pm-journal/src",
        "pm-space/src",
        "pmfs/src",
        "pmfs-admin/src",
    ] {
        sources(&crates.join(src), &mut found);
    }
    let is_test = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("src/tests"));
    let is_allowed =
        |path: &Path| is_test(path) || ALLOWED.iter().any(|file| path == Path::new(file));
    let mut findings = Vec::new();
    for path in found {
        let inside = path.strip_prefix(&crates).expect("below it");
        let text = fs::read_to_string(&path).expect("a source");
        let stores = stores(&text);
        if !stores.is_empty() && !is_allowed(inside) {
            findings.push(format!("{}: {}", inside.display(), stores.join(", ")));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn stores_are_found() {
    let text = "fn f() {\n    self.pm\n        .mapping()\n        .write_nt(off, bytes);\n    let mem = pm.mapping();\n    mem.flush(off, 8);\n    runtime.store(off, 1); // mem.fence()\n    mem.load(off);\n}\n#[cfg(test)]\nmod tests { mem.fence() }";
    assert_eq!(stores(text), ["write_nt", "flush"]);
}
