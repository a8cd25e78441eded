//! Goal: a build without the feature `record` has no cost of the recorder and holds nothing of it.
//! Method: `pmem` is built, optimised, as it is and from sources out of which every hook was cut,
//! declarations included (so a call that stays doesn't compile); each function's instructions, and
//! those of callers into which the hot paths are inlined, must be the same. The same with `record`
//! on shows that the comparison can fail.
//!
//! `-- --ignored` does it for the engine too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that uses `pmem`: one caller for each hot path.
const HOT: &str = r#"
use pmem::{Fault, Pmem};
#[inline(never)]
pub fn load(mem: &Pmem, off: u64) -> u64 { mem.load(off) }
#[inline(never)]
pub fn read(mem: &Pmem, off: u64) -> [u64; 4] { mem.read(off) }
#[inline(never)]
pub fn store(mem: &Pmem, off: u64, value: u64) { mem.store(off, value) }
#[inline(never)]
pub fn store_pair(mem: &Pmem, off: u64, value: [u64; 2]) { mem.store_pair(off, value) }
#[inline(never)]
pub fn cas(mem: &Pmem, off: u64, old: u64, new: u64) -> Result<u64, u64> { mem.cas(off, old, new) }
#[inline(never)]
pub fn write(mem: &Pmem, off: u64, words: &[u64]) { mem.write(off, words) }
#[inline(never)]
pub fn write_bytes(mem: &Pmem, off: u64, bytes: &[u8]) { mem.write_bytes(off, bytes) }
#[inline(never)]
pub fn write_nt(mem: &Pmem, off: u64, bytes: &[u8]) -> Result<(), Fault> { mem.write_nt(off, bytes) }
#[inline(never)]
pub fn copy_out(mem: &Pmem, off: u64, to: &mut [u8]) -> Result<(), Fault> { mem.copy_out(off, to) }
#[inline(never)]
pub fn flush(mem: &Pmem, off: u64, len: u64) { mem.flush(off, len) }
#[inline(never)]
pub fn fence(mem: &Pmem) { mem.fence() }
"#;

const HOT_ENGINE: &str = r"
#[inline(never)]
pub fn fs_read(fs: &pmfs::Fs, ino: u64, to: &mut [u8]) -> pmfs::Result<usize> { fs.read(ino, 0, to) }
#[inline(never)]
pub fn fs_write(fs: &pmfs::Fs, ino: u64, data: &[u8]) -> pmfs::Result<usize> { fs.write(ino, 0, data) }
";

/// Names of the recorder in mangled symbols, which have lengths before them.
const NAMES: [&str; 5] = [
    "6record",
    "8Observer",
    "9note_load",
    "9may_store",
    "10note_fence",
];

/// A workspace of copies, which goes when it is dropped.
struct Workspace {
    dir: tempfile::TempDir,
    crates: &'static [&'static str],
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

impl Workspace {
    fn new(crates: &'static [&'static str]) -> Workspace {
        let dir = tempfile::tempdir().expect("a directory");
        let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
        let (_, shared) = manifest
            .split_once("[workspace.package]")
            .expect("what the crates share");
        let manifest = format!(
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n[workspace.package]{shared}"
        );
        fs::write(dir.path().join("Cargo.toml"), manifest).expect("a manifest");
        fs::copy(root().join("Cargo.lock"), dir.path().join("Cargo.lock")).expect("a copy");
        let workspace = Workspace { dir, crates };
        let hot = workspace.source("hot");
        fs::create_dir_all(&hot).expect("a directory");
        let engine = crates.contains(&"pmfs");
        let mut manifest = String::from(
            "[package]\nname = \"hot\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [features]\nrecord = [\"pmem/record\"]\n\n[dependencies]\npmem.workspace = true\n",
        );
        let mut source = String::from(HOT);
        if engine {
            manifest.push_str("pmfs.workspace = true\n");
            source.push_str(HOT_ENGINE);
        }
        fs::write(hot.join("../Cargo.toml"), manifest).expect("a manifest");
        fs::write(hot.join("lib.rs"), source).expect("a source");
        workspace.restore();
        workspace
    }

    fn source(&self, name: &str) -> PathBuf {
        self.dir.path().join("crates").join(name).join("src")
    }

    /// The crates as they are.
    fn restore(&self) {
        // pmem's tests need pmep, and so its manifest does.
        for name in self.crates.iter().chain(&["pmep"]) {
            let to = self.dir.path().join("crates").join(name);
            copy_tree(&root().join("crates").join(name), &to);
        }
    }

    /// `pmem` without hooks. Answers how many were cut out.
    fn cut_hooks(&self) -> usize {
        let mut cut = 0;
        let mut left = vec![self.source("pmem")];
        while let Some(path) = left.pop() {
            if path.is_dir() {
                let entries = fs::read_dir(&path).expect("a directory");
                left.extend(entries.map(|entry| entry.expect("an entry").path()));
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str());
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source");
            let text = match name {
                Some("record.rs") => String::new(),
                Some("unrecorded.rs") => text.split("impl Pmem").next().unwrap_or("").to_owned(),
                _ => without_hooks(&text, &mut cut),
            };
            fs::write(&path, text).expect("a source");
        }
        cut
    }

    /// Builds everything; each function's instructions, by its mangled name.
    fn build(&self, record: bool) -> BTreeMap<String, Vec<String>> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "--offline", "--release", "-p", "hot"])
            .current_dir(self.dir.path())
            .env("CARGO_TARGET_DIR", self.dir.path().join("target"))
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env_remove("RUSTFLAGS");
        if record {
            cargo.args(["--features", "record"]);
        }
        let output = cargo.output().expect("cargo runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let mut functions = BTreeMap::new();
        let deps = self.dir.path().join("target/release/deps");
        let entries = fs::read_dir(deps).expect("what was built");
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or("");
            let mut names = self.crates.iter().chain(&["hot"]);
            let ours = names.any(|one| name.starts_with(&format!("lib{}-", one.replace('-', "_"))));
            if ours && name.ends_with(".rlib") {
                disassemble(&path, &mut functions);
                fs::remove_file(&path).expect("a file of the build");
            }
        }
        functions
    }
}

/// The text without calls of hooks; lines stay where they are, since panics name theirs.
fn without_hooks(text: &str, cut: &mut usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let statement = ["load", "flush", "fence", "wait", "window"]
            .iter()
            .any(|hook| line.contains(&format!(".note_{hook}(")) && line.ends_with(");"));
        let attribute = line.contains("cfg_attr(feature = \"record\", track_caller)");
        let mut line = line.to_owned();
        if statement || attribute {
            line.clear();
            *cut += 1;
        }
        for (hook, value) in [("self.may_store(", "true"), ("self.is_observed(", "false")] {
            while let Some(start) = line.find(hook) {
                let end = start + call_len(&line[start..]);
                line.replace_range(start..end, value);
                *cut += 1;
            }
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Bytes of a call, to the parenthesis that closes it.
fn call_len(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 1 => return at + 1,
            b')' => depth -= 1,
            _ => {}
        }
    }
    panic!("a call ends on its line: {text}");
}

/// Adds a library's functions: instructions and relocations without their addresses.
fn disassemble(library: &Path, functions: &mut BTreeMap<String, Vec<String>>) {
    let output = Command::new("objdump")
        .args(["-d", "-r", "--no-show-raw-insn", "-M", "intel"])
        .arg(library)
        .output()
        .expect("objdump runs");
    let mut name = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((_, symbol)) = line
            .strip_suffix(">:")
            .and_then(|line| line.split_once(" <"))
        {
            name = without_numbers(symbol);
        } else if let Some((address, text)) = line.split_once(':')
            && address
                .trim()
                .chars()
                .all(|digit| digit.is_ascii_hexdigit())
            && !text.trim().is_empty()
        {
            let functions = functions.entry(name.clone()).or_default();
            functions.push(without_numbers(text.trim()));
        }
    }
}

/// The text without numbers that the compiler gives out anew for each build: those of unnamed
/// constants, and of functions that are shared between its units.
fn without_numbers(text: &str) -> String {
    let text = match text.find(".Lanon.") {
        Some(at) => format!("{}constant", &text[..at]),
        None => text.to_owned(),
    };
    let mut parts = text.split(".llvm.");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        out.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    out
}

fn compare(crates: &'static [&'static str]) {
    if Command::new("objdump").arg("--version").output().is_err() {
        println!("skip recorder: objdump is missing");
        return;
    }
    let workspace = Workspace::new(crates);
    let plain = workspace.build(false);
    let of_recorder = |name: &&String| NAMES.iter().any(|part| name.contains(part));
    let found: Vec<&String> = plain.keys().filter(of_recorder).collect();
    assert!(found.is_empty(), "the recorder is in: {found:#?}");
    let cut = workspace.cut_hooks();
    assert!(cut > 20, "hooks were found: {cut}");
    let without = workspace.build(false);
    let instructions =
        |build: &BTreeMap<String, Vec<String>>| -> usize { build.values().map(Vec::len).sum() };
    println!(
        "as it is: {} functions, {} lines of assembly; with {cut} hooks cut out: {} functions, {} lines",
        plain.len(),
        instructions(&plain),
        without.len(),
        instructions(&without)
    );
    let differing: Vec<&String> = plain
        .keys()
        .chain(without.keys())
        .filter(|&name| plain.get(name) != without.get(name))
        .collect();
    assert!(differing.is_empty(), "other instructions: {differing:#?}");
    for name in ["store", "flush", "fence", "write_nt"] {
        let mut symbols = plain.keys().filter(|symbol| symbol.contains("3hot"));
        assert!(
            symbols.any(|symbol| symbol.contains(name)),
            "{name} was compared"
        );
    }
    workspace.restore();
    let recording = workspace.build(true);
    assert!(recording.keys().any(|name| of_recorder(&name)));
    let hot = |build: &BTreeMap<String, Vec<String>>| -> usize {
        let ours = build.iter().filter(|(name, _)| name.contains("3hot"));
        ours.map(|(_, lines)| lines.len()).sum()
    };
    println!(
        "hot paths: {} lines, recording {}",
        hot(&plain),
        hot(&recording)
    );
    assert!(hot(&recording) > hot(&plain), "what records does more");
}

#[test]
fn normal_builds_have_nothing_of_it() {
    compare(&["pmem"]);
}

#[test]
#[ignore = "builds the engine three times"]
fn the_engine_has_nothing_of_it() {
    compare(&[
        "pmem",
        "pmfs-format",
        "pm-store",
        "pmshare",
        "pm-journal",
        "pm-space",
        "pmfs",
        "pmfs-admin",
    ]);
}
