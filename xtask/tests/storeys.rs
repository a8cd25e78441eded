//! Goal: imports run one way, from upper storeys to lower ones. Method: inside each crate the
//! folders have an order, lowest first. The imports between modules are read from the sources,
//! without tests; counted are those that run upward, and the modules of the largest circle. Neither
//! figure may rise, and one that falls is to be lowered here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

struct Storeys {
    krate: &'static str,
    /// Folders and modules of the crate's root, lowest first. One that is missing here stands above
    /// all.
    order: &'static [&'static str],
    /// Imports from a lower storey to a higher one.
    upward: usize,
    /// Modules in the largest circle of imports; 1: there is none.
    circle: usize,
}

const CRATES: [Storeys; 3] = [
    Storeys {
        krate: "pmem",
        order: &[
            "cpu",
            "error",
            "raw",
            "address_space",
            "medium",
            "processes",
            "emulate",
            "recorder",
            "protection",
            "access",
            "mapping",
            "program",
        ],
        upward: 0,
        circle: 1,
    },
    Storeys {
        krate: "pmfs",
        order: &[
            "types",
            "clock",
            "options",
            "error",
            "planted",
            "persist",
            "medium",
            "share",
            "journal",
            "space",
            "pool",
            "pages",
            "tables",
            "tree",
            "inode",
            "settle",
            "dir",
            "open",
            "file",
            "recovery",
            "mapping",
            "namespace",
            "fs",
            "admin",
        ],
        upward: 0,
        circle: 2,
    },
    Storeys {
        krate: "pmfs-shim",
        order: &[
            "call",
            "own",
            "thread",
            "program",
            "descriptors",
            "stubs",
            "maps",
            "names",
            "signals",
            "process",
            "calls",
            "entry",
            "start",
        ],
        upward: 0,
        circle: 1,
    },
];

/// Modules, as `folder/module` or `module`, and what each imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The module of a file: what lies deeper than one folder belongs to the module that it lies in.
fn module_of(src: &Path, file: &Path) -> Option<String> {
    let inside = file.strip_prefix(src).expect("below it").with_extension("");
    let parts: Vec<&str> = inside
        .iter()
        .map(|part| part.to_str().expect("a name"))
        .collect();
    match parts[..] {
        ["lib" | "main"] => None,
        [folder, "mod"] => Some(format!("{folder}/")),
        [module] => Some(module.to_owned()),
        [folder, module, ..] => Some(format!("{folder}/{module}")),
        [] => None,
    }
}

/// Without comments and tests.
fn code_of(text: &str) -> String {
    let (code, _) = text.split_once("#[cfg(test)]\nmod ").unwrap_or((text, ""));
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// Paths behind `crate::`, those in braces each on its own, to a depth of two.
fn paths(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for piece in code.split("crate::").skip(1) {
        expand(piece, &mut found);
    }
    found
}

fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

/// What stands between the first brace and its end, parted by commas.
fn braced(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 1, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => {
                items.push(text[start..at].trim());
                return items;
            }
            '}' => depth -= 1,
            ',' if depth == 1 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items
}

fn expand(path: &str, found: &mut Vec<(String, String)>) {
    if path.starts_with('{') {
        for item in braced(path) {
            expand(item, found);
        }
        return;
    }
    let first = word(path);
    match path[first.len()..].strip_prefix("::") {
        Some(rest) if rest.starts_with('{') => {
            for item in braced(rest) {
                found.push((first.to_owned(), word(item).to_owned()));
            }
        }
        Some(rest) => found.push((first.to_owned(), word(rest).to_owned())),
        None => found.push((first.to_owned(), String::new())),
    }
}

fn graph(src: &Path) -> Graph {
    let mut paths_of = Vec::new();
    let mut all = Vec::new();
    files(src, &mut all);
    for file in all {
        if let Some(module) = module_of(src, &file) {
            let text = fs::read_to_string(&file).expect("a source");
            paths_of.push((module, paths(&code_of(&text))));
        }
    }
    let known: BTreeSet<String> = paths_of.iter().map(|(module, _)| module.clone()).collect();
    let mut graph = Graph::new();
    for (module, paths) in paths_of {
        let imports = graph.entry(module.clone()).or_default();
        for (first, second) in paths {
            let named = [format!("{first}/{second}"), format!("{first}/"), first];
            let target = named.into_iter().find(|name| known.contains(name));
            imports.extend(target.filter(|target| *target != module));
        }
    }
    graph
}

fn reached<'g>(graph: &'g Graph, from: &'g str) -> BTreeSet<&'g str> {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    seen
}

/// Modules that reach each other, of the largest such set.
fn largest_circle(graph: &Graph) -> Vec<&str> {
    let reached: BTreeMap<&str, _> = graph
        .keys()
        .map(|module| (module.as_str(), reached(graph, module)))
        .collect();
    let circle_of = |module: &&str| -> Vec<&str> {
        let others = reached[*module]
            .iter()
            .filter(|other| reached[*other].contains(*module));
        others.copied().collect()
    };
    reached
        .keys()
        .map(circle_of)
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

#[test]
fn imports_run_downward() {
    let mut findings = Vec::new();
    for storeys in &CRATES {
        let src = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates")
            .join(storeys.krate)
            .join("src");
        let graph = graph(&src);
        let level = |module: &str| {
            let folder = module.split('/').next().unwrap_or(module);
            storeys
                .order
                .iter()
                .position(|it| *it == folder)
                .unwrap_or(storeys.order.len())
        };
        let mut upward = Vec::new();
        for (module, imports) in &graph {
            let up = imports
                .iter()
                .filter(|import| level(import) > level(module));
            upward.extend(up.map(|import| format!("{module} -> {import}")));
        }
        let circle = largest_circle(&graph);
        if (upward.len(), circle.len().max(1)) != (storeys.upward, storeys.circle) {
            findings.push(format!(
                "{}: {} imports run upward ({} expected), {} modules in the largest circle ({} expected)\n  {}\n  circle: {}",
                storeys.krate,
                upward.len(),
                storeys.upward,
                circle.len().max(1),
                storeys.circle,
                upward.join("\n  "),
                circle.join(" "),
            ));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
