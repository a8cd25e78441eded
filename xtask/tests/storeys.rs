//! Goal: imports run one way, from upper storeys to lower ones. Method: inside each crate the
//! folders have an order, lowest first. The imports between modules are read from the sources,
//! without tests; counted are those that run upward, and the modules of the largest circle. Then
//! the same with calls of methods, for `pool.name()` reaches the module whose `impl Pool` has it
//! without an import. No figure may rise, and one that falls is to be lowered here.

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
    /// Both, with calls of methods.
    with_calls: (usize, usize),
}

/// Names of std's methods and of this tree's: the name does not tell whose is called.
const AMBIGUOUS: [&str; 54] = [
    "all", "any", "as_ptr", "begin", "clone", "cmp", "contains", "count", "default", "drop", "end",
    "entry", "eq", "expect", "extend", "fill", "filter", "find", "first", "flush", "fmt", "from",
    "get", "hash", "id", "insert", "into", "is_empty", "iter", "join", "kind", "last", "len",
    "load", "lock", "map", "max", "min", "name", "new", "next", "parse", "path", "peek", "pop",
    "position", "push", "read", "remove", "set", "size", "store", "take", "write",
];

/// Lowest first.
const CRATES: [Storeys; 8] = [
    Storeys {
        krate: "pmem",
        order: &[
            "cpu",
            "planted",
            "error",
            "raw",
            "pagemap",
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
        upward: 11,
        circle: 4,
        with_calls: (14, 5),
    },
    Storeys {
        krate: "pm-store",
        order: &[
            "planted", "clock", "error", "annexes", "runtime", "lazy", "pm", "pending", "fresh",
            "publish", "restore",
        ],
        upward: 0,
        circle: 1,
        with_calls: (0, 1),
    },
    Storeys {
        krate: "pmshare",
        order: &[
            "error",
            "layout",
            "traces",
            "lock_bytes",
            "threads",
            "holder",
            "cleaning",
            "counting",
            "others",
            "member",
            "waits",
            "publish",
            "counters",
            "slot",
            "lease",
            "owner",
            "rescue",
            "patrol",
            "attach",
            "inherit",
        ],
        upward: 1,
        circle: 2,
        with_calls: (1, 2),
    },
    Storeys {
        krate: "pm-journal",
        order: &[
            "types",
            "error",
            "medium",
            "log_entry",
            "checksum",
            "scan",
            "lane",
            "undo",
            "pending",
            "committed_redo",
            "redo",
            "transaction",
            "change",
            "locks",
        ],
        upward: 0,
        circle: 2,
        with_calls: (0, 2),
    },
    Storeys {
        krate: "pm-space",
        order: &["lane", "claim", "bitmap", "hints", "budget", "alloc"],
        upward: 0,
        circle: 1,
        with_calls: (0, 1),
    },
    Storeys {
        krate: "pmfs",
        order: &[
            "types",
            "options",
            "purpose",
            "pool",
            "pages",
            "tables",
            "tree",
            "inode",
            "resolve",
            "dir",
            "open",
            "file",
            "recovery",
            "mapping",
            "namespace",
            "fs",
            "parts",
        ],
        upward: 0,
        circle: 1,
        with_calls: (0, 1),
    },
    Storeys {
        krate: "pmfs-admin",
        order: &[
            "info",
            "holders",
            "name_of",
            "mkfs",
            "inspect",
            "owner_words",
            "staging",
            "check",
            "repair",
            "dump",
            "dump_stream",
            "grow",
            "defrag",
            "clone_tree",
            "snapshot",
            "difference",
        ],
        upward: 0,
        circle: 1,
        with_calls: (0, 1),
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
        with_calls: (0, 1),
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

/// Without comments, tests and the texts in a line, which may look like calls.
fn code_of(text: &str) -> String {
    let (code, _) = text.split_once("#[cfg(test)]\nmod ").unwrap_or((text, ""));
    let lines = code.lines().map(|line| {
        let code = line.split("//").next().unwrap_or("");
        code.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
    });
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

/// The items between the first brace and its end, parted by commas.
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

/// Modules and their code.
fn codes(src: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    files(src, &mut all);
    let code = |file: &PathBuf| code_of(&fs::read_to_string(file).expect("a source"));
    all.iter()
        .filter_map(|file| Some((module_of(src, file)?, code(file))))
        .collect()
}

/// Names that the crate's root gives out, and the modules that have them.
fn given_out(src: &Path) -> BTreeMap<String, (String, String)> {
    let root = fs::read_to_string(src.join("lib.rs")).unwrap_or_default();
    let mut names = BTreeMap::new();
    for given in root.split("pub use ").skip(1) {
        let given = given.split(';').next().unwrap_or("");
        let mut words = given.split("::");
        let module = [words.next(), words.next()].map(|word| word.unwrap_or("").to_owned());
        let last = given.rsplit("::").next().unwrap_or("");
        let items = if last.starts_with('{') {
            braced(last)
        } else {
            vec![last]
        };
        for item in items {
            names.insert(word(item).to_owned(), module.clone().into());
        }
    }
    names
}

fn graph(src: &Path, codes: &[(String, String)]) -> Graph {
    let known: BTreeSet<&str> = codes.iter().map(|(module, _)| module.as_str()).collect();
    let given_out = given_out(src);
    let mut graph = Graph::new();
    for (module, code) in codes {
        let imports = graph.entry(module.clone()).or_default();
        for (first, second) in paths(code) {
            let (first, second) = given_out.get(&first).cloned().unwrap_or((first, second));
            let named = [format!("{first}/{second}"), format!("{first}/"), first];
            let target = named.into_iter().find(|name| known.contains(name.as_str()));
            imports.extend(target.filter(|target| target != module));
        }
    }
    graph
}

/// The name of the function that a line begins to declare.
fn declared(line: &str) -> Option<&str> {
    let words = line.split(' ').map(str::trim).filter(|it| !it.is_empty());
    let mut words = words.skip_while(|it| {
        it.starts_with("pub") || matches!(*it, "const" | "unsafe" | "async" | "extern" | "\"C\"")
    });
    (words.next() == Some("fn")).then(|| word(words.next().unwrap_or("")))
}

/// Methods whose name no other function has, of the crate or of those `below` it, and the module
/// that has each.
fn methods<'c>(
    codes: &'c [(String, String)],
    below: &BTreeSet<String>,
) -> BTreeMap<&'c str, &'c str> {
    let mut found: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (module, code) in codes {
        let mut inherent = false;
        for line in code.lines() {
            if line.starts_with("impl") {
                inherent = !line.contains(" for ");
            } else if line.starts_with('}') {
                inherent = false;
            }
            if let Some(name) = declared(line) {
                let own = inherent && line.starts_with("    ") && !line.starts_with("     ");
                let owner = own.then_some(module.as_str());
                found
                    .entry(name)
                    .and_modify(|it| *it = None)
                    .or_insert(owner);
            }
        }
    }
    let single = found
        .into_iter()
        .filter(|(name, _)| !AMBIGUOUS.contains(name) && !below.contains(*name));
    single
        .filter_map(|(name, owner)| Some((name, owner?)))
        .collect()
}

/// Names that stand behind a dot or two colons and are called.
fn called(code: &str) -> BTreeSet<&str> {
    let ends = [".", "::"]
        .into_iter()
        .flat_map(|mark| code.match_indices(mark));
    let names = ends.map(|(at, mark)| {
        let behind = &code[at + mark.len()..];
        let name = word(behind);
        let rest = &behind[name.len()..];
        (rest.starts_with('(') || rest.starts_with("::<")).then_some(name)
    });
    names.flatten().collect()
}

/// Adds what modules reach by calls of methods.
fn add_calls(graph: &mut Graph, codes: &[(String, String)], below: &BTreeSet<String>) {
    let methods = methods(codes, below);
    for (module, code) in codes {
        let owners = called(code)
            .into_iter()
            .filter_map(|name| methods.get(name));
        let others = owners.filter(|owner| **owner != module.as_str());
        let reached = graph.entry(module.clone()).or_default();
        reached.extend(others.map(|owner| (*owner).to_owned()));
    }
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

/// Imports that run upward in a graph, and its largest circle.
fn judged(storeys: &Storeys, graph: &Graph) -> (Vec<String>, Vec<String>) {
    let level = |module: &str| {
        let folder = module.split('/').next().unwrap_or(module);
        let found = storeys.order.iter().position(|it| *it == folder);
        found.unwrap_or(storeys.order.len())
    };
    let mut upward = Vec::new();
    for (module, imports) in graph {
        let up = imports
            .iter()
            .filter(|import| level(import) > level(module));
        upward.extend(up.map(|import| format!("{module} -> {import}")));
    }
    let circle = largest_circle(graph);
    (upward, circle.into_iter().map(str::to_owned).collect())
}

#[test]
fn imports_run_downward() {
    let (mut findings, mut below) = (Vec::new(), BTreeSet::new());
    for storeys in &CRATES {
        let src = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates")
            .join(storeys.krate)
            .join("src");
        let codes = codes(&src);
        let mut graph = graph(&src, &codes);
        let mut judge = |what: &str, graph: &Graph, expected: (usize, usize)| {
            let (upward, circle) = judged(storeys, graph);
            let found = (upward.len(), circle.len().max(1));
            if found != expected {
                findings.push(format!(
                    "{}, {what}: (upward, largest circle) {found:?}, {expected:?} expected\n  {}\n  circle: {}",
                    storeys.krate,
                    upward.join("\n  "),
                    circle.join(" "),
                ));
            }
        };
        judge("imports", &graph, (storeys.upward, storeys.circle));
        add_calls(&mut graph, &codes, &below);
        judge("with calls of methods", &graph, storeys.with_calls);
        let lines = codes.iter().flat_map(|(_, code)| code.lines());
        below.extend(lines.filter_map(declared).map(str::to_owned));
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// Goal: a call that reaches upward through a type of a lower storey is seen. Method: two modules,
/// of which the lower one calls a method that the upper one gives to that type.
#[test]
fn calls_of_methods_are_seen() {
    let lower = "fn call(pool: &Pool) {\n    pool.far();\n    pool.near();\n}\nfn near() {}";
    let upper = "impl Pool {\n    pub(crate) fn far(&self) {}\n    fn near(&self) {}\n}\nimpl Drop for It {\n    fn gone(&self) {}\n}";
    let codes = [("low", lower), ("high", upper)]
        .map(|(module, code)| (module.to_owned(), code.to_owned()));
    let below = BTreeSet::new();
    assert_eq!(methods(&codes, &below), BTreeMap::from([("far", "high")]));
    let mut graph = Graph::new();
    add_calls(&mut graph, &codes, &below);
    assert_eq!(graph["low"], BTreeSet::from(["high".to_owned()]));
    assert!(graph["high"].is_empty());
    let below = BTreeSet::from(["far".to_owned()]);
    assert_eq!(methods(&codes, &below), BTreeMap::new());
}
