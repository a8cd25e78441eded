//! Goal: a heap's engines are the same in a new one, and what can't be copied leaves none. Method:
//! engines of both kinds, more keys than a batch has, and one that expires; then a damaged record,
//! an engine of another version, and a file that is there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pmlib::{Heap, Options};
use serde_json::Value;

/// How an engine's head is told from other named roots.
const FINGERPRINT: u64 = u64::from_le_bytes(*b"PMKVHEAD");
const HEAD_BYTES: u64 = 64;

fn run(words: &[&str], heap: &Path, rest: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
    let command = command.args(words).arg(heap).args(rest);
    command.output().expect("the program")
}

fn done(words: &[&str], heap: &Path, rest: &[&str]) -> Vec<u8> {
    let output = run(words, heap, rest);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    output.stdout
}

/// The words of a migration that could not be done, which leaves no file.
fn refused(old: &Path, new: &Path) -> String {
    let output = run(&["migrate"], old, &[new.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(8));
    assert!(!new.exists());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn filled(dir: &Path) -> PathBuf {
    let path = dir.join("heap");
    let heap = Heap::create(&path, 4 << 20, &Options::default()).expect("a heap");
    let kv = pmkv::Hash::open(&heap, "kv").expect("an engine");
    for nth in 0..2500 {
        let value = format!("the value {nth}.");
        kv.put(format!("key {nth}").as_bytes(), value.as_bytes())
            .expect("room");
    }
    drop(kv);
    let years = pmkv::Tree::open(&heap, "years").expect("an engine");
    years.put(b"1815", b"Ada").expect("room");
    years.put_until(b"1906", b"Grace", 1 << 42).expect("room");
    drop(years);
    heap.close().expect("whole");
    path
}

#[test]
fn a_heap_is_migrated() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let (old, new) = (filled(dir.path()), dir.path().join("new"));
    let to = new.to_str().expect("text");
    let report = done(&["migrate", "--json"], &old, &[to]);
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let engine = |nth: usize| {
        let engine = &report["engines"][nth];
        (&engine["name"], &engine["kind"], &engine["keys"])
    };
    assert_eq!(engine(0), (&"kv".into(), &"hash".into(), &2500.into()));
    assert_eq!(engine(1), (&"years".into(), &"tree".into(), &2.into()));
    let saved = |heap: &Path| done(&["save", "-e", "years"], heap, &[]);
    assert_eq!(saved(&new), saved(&old));
    assert_eq!(done(&["get"], &new, &["key 7"]), b"the value 7.");
    done(&["check"], &new, &[]);
    // A file that is there is somebody's.
    assert_eq!(run(&["migrate"], &old, &[to]).status.code(), Some(8));
    assert_eq!(saved(&new), saved(&old));
}

#[test]
fn a_damaged_record_is_an_error() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let (old, new) = (filled(dir.path()), dir.path().join("new"));
    let all = std::fs::read(&old).expect("a file");
    let wanted = b"the value 77.";
    let at = all.windows(wanted.len()).position(|bytes| bytes == wanted);
    let file = File::options().write(true).open(&old).expect("a file");
    file.write_all_at(b"T", at.expect("the value") as u64)
        .expect("written");
    assert!(refused(&old, &new).contains("its key has lost its value"));
}

#[test]
fn an_engine_of_another_version_is_told() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let (old, new) = (filled(dir.path()), dir.path().join("new"));
    let heap = Heap::open(&old, &Options::default()).expect("a heap");
    let head = heap.find_root_of("kv", FINGERPRINT, HEAD_BYTES);
    let head = head.expect("a root").expect("an engine");
    heap.close().expect("whole");
    let file = File::options().write(true).open(&old).expect("a file");
    file.write_all_at(&[99], head + 8).expect("written");
    assert!(refused(&old, &new).contains("the engine kv is of another version"));
}
