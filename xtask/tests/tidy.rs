//! Goal: the tree stays readable. Method: lengths of files and functions, names, where `unsafe` may
//! be, which crate may depend on which, and nothing left undone are checked here, so that no review
//! has to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// Names that say nothing of what is inside.
const BANNED_NAMES: [&str; 5] = ["util", "utils", "misc", "common", "helpers"];
/// Crates that may hold `unsafe`: the one that touches the medium, those that take pointers from C
/// or give some to Python, the one that lives in foreign programs, the one that asks the kernel for
/// traps, and the one that calls other engines' libraries.
const UNSAFE_ALLOWED: [&str; 8] = [
    "pmem",
    "pmemkv-capi",
    "pmfs-capi",
    "pmfs-shim",
    "pmkv-capi",
    "pmkv-peers-sys",
    "pmkv-python",
    "pmmon-sys",
];
/// The crates of ours on which each may depend.
const MAY_USE: [(&str, &[&str]); 32] = [
    ("pmfs-format", &[]),
    ("pmem", &[]),
    ("pm-store", &["pmem", "pmfs-format"]),
    ("pmshare", &["pm-store", "pmem", "pmfs-format"]),
    (
        "pm-journal",
        &["pm-store", "pmem", "pmfs-format", "pmshare"],
    ),
    (
        "pm-space",
        &["pm-journal", "pm-store", "pmem", "pmfs-format", "pmshare"],
    ),
    (
        "pmfs",
        &[
            "pm-journal",
            "pm-space",
            "pm-store",
            "pmem",
            "pmfs-format",
            "pmshare",
        ],
    ),
    (
        "pmfs-admin",
        &[
            "pm-journal",
            "pm-space",
            "pm-store",
            "pmem",
            "pmfs",
            "pmfs-format",
            "pmshare",
        ],
    ),
    ("pmfs-posix", &["pmfs"]),
    ("pmfs-capi", &["pmfs", "pmfs-admin", "pmfs-posix"]),
    ("pmfs-fuse", &["pmem", "pmfs", "pmfs-posix"]),
    ("pmfs-patch", &[]),
    ("pmfs-shim", &["pmem", "pmfs", "pmfs-posix"]),
    (
        "pmfs-cli",
        &[
            "pm-cli",
            "pmem",
            "pmfs",
            "pmfs-admin",
            "pmfs-fuse",
            "pmfs-patch",
            "pmfs-posix",
            "pmlib",
        ],
    ),
    ("pm-cli", &[]),
    ("pmkv", &["pmem", "pmlib", "pmlib-format"]),
    ("pmkv-capi", &["pmem", "pmkv", "pmlib"]),
    ("pmemkv-capi", &["pmem", "pmkv", "pmlib"]),
    ("pmkv-python", &["pmkv", "pmlib"]),
    ("pmkv-peers", &["pmem", "pmkv", "pmkv-peers-sys", "pmlib"]),
    ("pmkv-peers-sys", &[]),
    ("pmkv-cli", &["pm-cli", "pmkv", "pmlib"]),
    ("pmep", &[]),
    ("pmep-cli", &["pm-cli", "pmep"]),
    ("pmmon", &["pmep"]),
    ("pmmon-sys", &["pm-journal", "pmem", "pmfs-format", "pmmon"]),
    ("pmmon-cli", &["pm-cli", "pmep", "pmmon", "pmmon-sys"]),
    ("pmlib-format", &[]),
    ("pmlib-derive", &[]),
    (
        "pmlib",
        &[
            "pm-store",
            "pmem",
            "pmlib-derive",
            "pmlib-format",
            "pmshare",
        ],
    ),
    (
        "yat",
        &["pmem", "pmfs", "pmfs-admin", "pmfs-format", "pmkv", "pmlib"],
    ),
    (
        "pmbench",
        &["pmem", "pmep", "pmfs", "pmfs-admin", "pmlib", "pmmon"],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    sources(&root(), &mut paths);
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a source");
            (path, text)
        })
        .collect()
}

fn assert_none(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n{}", findings.join("\n"));
}

#[test]
fn files_are_short_and_well_named() {
    let mut findings = Vec::new();
    for (path, text) in all_sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(format!("{}: {lines} lines", path.display()));
        }
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or("");
        if BANNED_NAMES.contains(&stem) {
            findings.push(format!("{}: a name that says nothing", path.display()));
        }
    }
    assert_none("files", &findings);
}

/// The functions of a formatted source: name and lines, from `fn` to the brace that closes it.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_fn = code.starts_with("fn ") || (code.contains(" fn ") && code.starts_with("pub"));
        if !is_fn || code.ends_with(';') {
            continue;
        }
        let indent = &line[..line.len() - code.len()];
        let close = format!("{indent}}}");
        let length = lines[at..]
            .iter()
            .position(|line| *line == close)
            .map_or(1, |end| end + 1);
        let name = code
            .split("fn ")
            .nth(1)
            .unwrap_or("")
            .split(['(', '<'])
            .next()
            .unwrap_or("");
        found.push((name.to_owned(), length));
    }
    found
}

#[test]
fn functions_fit_a_screen() {
    let mut findings = Vec::new();
    for (path, text) in all_sources() {
        for (name, lines) in functions(&text) {
            if lines > FUNCTION_LINES_MAX {
                findings.push(format!("{}: {name}: {lines} lines", path.display()));
            }
        }
    }
    assert_none("functions", &findings);
}

#[test]
fn unsafe_is_where_it_belongs() {
    let mut findings = Vec::new();
    for (krate, _) in MAY_USE {
        if UNSAFE_ALLOWED.contains(&krate) {
            continue;
        }
        let dir = root().join("crates").join(krate).join("src");
        let head = ["lib.rs", "main.rs"]
            .iter()
            .find_map(|name| fs::read_to_string(dir.join(name)).ok());
        if !head.is_some_and(|text| text.contains("#![forbid(unsafe_code)]")) {
            findings.push(format!("{krate} does not forbid unsafe code"));
        }
    }
    assert_none("unsafe", &findings);
}

/// A crate that is not in the table would be bound by nothing.
#[test]
fn every_crate_is_known() {
    let crates = fs::read_dir(root().join("crates")).expect("a directory");
    let names = crates.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a name"));
    let unknown = |name: &String| !MAY_USE.iter().any(|(krate, _)| krate == name);
    let findings: Vec<String> = names.filter(unknown).collect();
    assert_none("not in MAY_USE", &findings);
}

#[test]
fn dependencies_run_one_way() {
    let mut findings = Vec::new();
    for (krate, allowed) in MAY_USE {
        let path = root().join("crates").join(krate).join("Cargo.toml");
        let text = fs::read_to_string(path).expect("a manifest");
        let normal = text.split("[dev-dependencies]").next().unwrap_or("");
        for (other, _) in MAY_USE {
            let uses = normal
                .lines()
                .any(|line| line.split(['.', ' ', '=']).next() == Some(other));
            if uses && !allowed.contains(&other) {
                findings.push(format!("{krate} must not use {other}"));
            }
        }
    }
    assert_none("dependencies", &findings);
}

#[test]
fn nothing_is_left_undone() {
    let marks = ["to", "do!("].concat();
    let others = [
        marks,
        ["unimple", "mented!("].concat(),
        ["FIX", "ME"].concat(),
    ];
    let mut findings = Vec::new();
    for (path, text) in all_sources() {
        for (at, line) in text.lines().enumerate() {
            if others.iter().any(|mark| line.contains(mark.as_str())) {
                findings.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert_none("left undone", &findings);
}

/// A file that a tool has left in the tree is added with the rest before anybody looks: no file of
/// ours but a picture is binary.
#[test]
fn what_is_tracked_is_text() {
    if !root().join(".git").exists() {
        // Not a clone: nothing is tracked.
        return;
    }
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(listed.status.success());
    let names = String::from_utf8(listed.stdout).expect("names in UTF-8");
    let binary: Vec<String> = names
        .split_terminator('\0')
        .filter(|name| !name.ends_with(".png"))
        .filter(|name| fs::read(root().join(name)).is_ok_and(|bytes| bytes.contains(&0)))
        .map(str::to_owned)
        .collect();
    assert!(names.split_terminator('\0').count() > 100);
    assert_none("binary", &binary);
}
