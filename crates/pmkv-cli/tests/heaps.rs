//! The command from outside: heaps made, looked into, checked; and what is said of other files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pmlib::{Heap, Options};
use serde_json::Value;

fn pmkv(words: &[&str], heap: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
    command.args(words).arg(heap);
    command.output().expect("the program")
}

/// The JSON of a command that was done.
fn answer(words: &[&str], heap: &Path) -> Value {
    let output = pmkv(words, heap);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The exit code and the only line of stderr.
fn refusal(words: &[&str], heap: &Path) -> (Option<i32>, String) {
    let output = pmkv(words, heap);
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(output.stdout.is_empty());
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("pmkv: "), "{error}");
    (output.status.code(), error)
}

fn heap_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("heap")
}

#[test]
fn made_filled_and_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = heap_in(&dir);
    let made = answer(&["create", "--json", "--size", "4M"], &path);
    assert_eq!(made["size_bytes"], 4 << 20);
    assert_eq!(made["classes"], Value::Array(Vec::new()));

    let heap = Heap::open(&path, &Options::default()).expect("the heap");
    let alloc = |size: u64| heap.tx(|tx| tx.alloc(size)).expect("an object");
    let objects: Vec<u64> = [64, 64, 100_000].map(alloc).into();
    heap.tx(|tx| tx.set_root(objects[0])).expect("a root");
    heap.close().expect("closed");

    let stat = answer(&["stat", "--json"], &path);
    assert_eq!(stat["classes"][0]["object_bytes"], 64);
    let check = answer(&["check", "--json"], &path);
    assert_eq!(
        (&check["clean"], &check["objects"]),
        (&true.into(), &3.into())
    );
    let parts = ["object_bytes", "spare_bytes", "free_bytes", "own_bytes"];
    let sum: u64 = parts.iter().filter_map(|part| check[part].as_u64()).sum();
    assert_eq!(sum, 4 << 20);
    for words in [&["stat"][..], &["check"]] {
        let text = String::from_utf8(pmkv(words, &path).stdout).expect("text");
        assert!(text.contains("heap"), "{text}");
    }
}

#[test]
fn damage_is_told_by_the_exit_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = heap_in(&dir);
    answer(&["create", "--json", "--size", "2M"], &path);
    let mut bytes = fs::read(&path).expect("the file");
    // In the first group of the chunk table.
    bytes[8192 + 16] ^= 4;
    fs::write(&path, &bytes).expect("the file");
    let output = pmkv(&["check", "--json"], &path);
    assert_eq!(output.status.code(), Some(4));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["clean"], false);
    assert!(
        report["damage"]
            .as_str()
            .is_some_and(|text| text.contains("offset 0x"))
    );
    let (code, said) = refusal(&["stat"], &path);
    assert_eq!(code, Some(1));
    assert!(said.contains("damaged"), "{said}");
}

#[test]
fn other_files_are_refused_with_a_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = heap_in(&dir);
    let (code, said) = refusal(&["check"], &path);
    assert_eq!(code, Some(8));
    assert!(said.contains("check the path"), "{said}");
    fs::write(&path, [7; 8192]).expect("a file");
    let (code, said) = refusal(&["check"], &path);
    assert_eq!(code, Some(8));
    assert!(said.contains("no heap"), "{said}");
    let (code, said) = refusal(&["create"], &path);
    assert_eq!(code, Some(1));
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(fs::read(&path).expect("the file"), [7; 8192]);
    let (_, said) = refusal(&["create", "--size", "100K"], &dir.path().join("small"));
    assert!(said.contains("at least"), "{said}");
    assert_eq!(
        pmkv(&["create", "--size", "1X"], &path).status.code(),
        Some(2)
    );
}

/// Goal: a heap is looked into by a user who may only read it, and its users are not disturbed.
/// Method: nobody may write the file, and root runs the command as another user; a process has it.
#[test]
fn the_right_to_read_is_enough() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = heap_in(&dir);
    answer(&["create", "--json", "--size", "2M"], &path);
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner");
    };
    let is_root = fs::metadata("/proc/self").expect("a process").uid() == 0;
    let program = dir.path().join("pmkv");
    fs::copy(env!("CARGO_BIN_EXE_pmkv"), &program).expect("a copy");
    mode(dir.path(), 0o755);
    let run = |word: &str| {
        let mut command = Command::new(&program);
        if is_root {
            command.uid(65534).gid(65534);
        }
        command.args([word, "--json"]).arg(&path);
        command.output().expect("the program")
    };
    let heap = Heap::open(&path, &Options::default()).expect("the heap");
    heap.tx(|tx| tx.alloc(64)).expect("an object");
    mode(&path, 0o444);
    let before = fs::read(&path).expect("the file");
    for word in ["stat", "check"] {
        let output = run(word);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{word}: {error}");
    }
    assert_eq!(fs::read(&path).expect("the file"), before);
    // Its process is gone, and it can't be recovered without the right to write.
    drop(heap.into_memory());
    let refused = run("stat");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("needs recovery"), "{error}");
    mode(&path, 0o644);
    answer(&["check", "--json"], &path);
    mode(&path, 0o444);
    assert!(run("stat").status.success());
}
