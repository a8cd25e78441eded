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
    // The process of the lane is gone, and recovery needs the right to write.
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

/// Goal: damage is told by numbers, mended, and gone; a dry run says the same and changes nothing.
#[test]
fn damage_is_mended() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = heap_in(&dir);
    answer(&["create", "--json", "--size", "2M"], &path);
    let mut bytes = fs::read(&path).expect("the file");
    bytes[8192 + 16] ^= 4;
    bytes[4096 + 20] ^= 1;
    fs::write(&path, &bytes).expect("the file");
    let run = |words: &[&str], code| -> Value {
        let output = pmkv(words, &path);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let numbers = |report: &Value, name: &str| -> Vec<u64> {
        let list = report[name].as_array().expect("a list");
        list.iter()
            .filter_map(|found| found["number"].as_u64())
            .collect()
    };
    let checked = run(&["check", "--json"], 4);
    assert_eq!(numbers(&checked, "findings"), [2, 10, 11]);
    let dry = run(&["repair", "--dry-run", "--json"], 4);
    assert_eq!(numbers(&dry, "repaired"), [2, 10]);
    assert_eq!(fs::read(&path).expect("the file"), bytes);
    let text = String::from_utf8(pmkv(&["dump"], &path).stdout).expect("text");
    assert!(text.contains("H0002"), "{text}");
    let mended = run(&["repair", "--json"], 1);
    assert_eq!(numbers(&mended, "repaired"), [2, 10]);
    assert_eq!(run(&["check", "--json"], 0)["clean"], true);
    assert_eq!(run(&["repair", "--json"], 0)["clean"], true);
}

#[test]
fn structures_are_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = heap_in(&dir);
    answer(&["create", "--json", "--size", "2M"], &path);
    let heap = Heap::open(&path, &Options::default()).expect("the heap");
    let root = heap.root::<[u64; 8]>("name of a root").expect("a root");
    heap.tx(|tx| tx.edit(root).map(|mut words| words.fill(7)))
        .expect("an edit");
    heap.close().expect("left");
    let shown = |words: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
        let output = command
            .args(["dump", "--json"])
            .arg(&path)
            .args(words)
            .output();
        let output = output.expect("the program");
        assert!(output.status.success(), "{words:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(shown(&[])["magic"], "PMHEAP01");
    assert_eq!(shown(&["lanes"])["lanes"][1]["lane"], 1);
    let records: usize = (0..2)
        .map(|lane| {
            shown(&["lane", &format!("{lane}")])["records"]
                .as_array()
                .map_or(0, Vec::len)
        })
        .sum();
    assert!(records > 0);
    assert_eq!(shown(&["chunks"])["chunks"][0]["kind"], "the heap's own");
    let named = &shown(&["roots"])["roots"][0];
    assert_eq!(
        (&named["name"], &named["bytes"]),
        (&"name of a root".into(), &64.into())
    );
    let object = named["object"].as_u64().expect("an offset");
    let chunk = shown(&["chunk", &(object >> 16).to_string()]);
    assert_eq!(chunk["objects"][0]["object"], object);
    let bytes = shown(&["bytes", &format!("{object:#x}"), "16"]);
    assert_eq!(
        bytes["bytes"][0]["bytes"],
        "0700000000000000 0700000000000000"
    );
    let (code, said) = refusal(&["dump"], &dir.path().join("none"));
    assert_eq!(code, Some(1), "{said}");
}

/// Goal: room is taken and given back. Method: a heap is made longer, filled, emptied, compacted.
#[test]
fn room_is_taken_and_given_back() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = heap_in(&dir);
    answer(&["create", "--json", "--size", "16M"], &path);
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&path).expect("the file"));
    let run = |words: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
        let output = command.arg(words[0]).arg(&path).args(&words[1..]).output();
        let output = output.expect("the program");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(run(&["grow", "24M", "--json"])["size_bytes"], 24 << 20);
    let heap = Heap::open(&path, &Options::default()).expect("the heap");
    let alloc = |size: u64| heap.tx(|tx| tx.alloc(size)).expect("an object");
    let small: Vec<u64> = (0..2000).map(|_| alloc(64)).collect();
    let large = alloc(12 << 20);
    let beyond = alloc(2 << 20);
    small
        .into_iter()
        .for_each(|each| heap.tx(|tx| tx.free(each)).expect("freed"));
    let full = blocks();
    let busy = run(&["compact", "--json"]);
    assert_eq!(
        (&busy["in_use"], &busy["cut_bytes"]),
        (&true.into(), &0.into())
    );
    let holes = busy["hole_bytes"].as_u64().expect("a number");
    assert!(holes >= 2 << 20, "{busy}");
    assert_eq!(blocks() + holes / 512, full, "beside its user");
    heap.tx(|tx| tx.free(large)).expect("freed");
    heap.close().expect("left");
    let reader = Heap::open(&path, &Options::read_only()).expect("a reader");
    let len = fs::metadata(&path).expect("the file").len();
    let done = run(&["compact", "--json"]);
    let cut = done["cut_bytes"].as_u64().expect("a number");
    assert!(cut >= 4 << 20, "{done}");
    assert!(done["hole_bytes"].as_u64() >= Some(8 << 20), "{done}");
    assert_eq!(fs::metadata(&path).expect("the file").len(), len - cut);
    assert!(blocks() + (12 << 20) / 512 <= full);
    let refused = reader.size_of(beyond);
    assert!(matches!(refused, Err(pmlib::Error::Shorter)), "{refused:?}");
    // A hole gets space again, and the heap grows again.
    let heap = Heap::open(&path, &Options::default()).expect("the heap");
    assert!(heap.size_of(beyond).expect("an object") >= 2 << 20);
    let large = heap.tx(|tx| {
        let large = tx.alloc(12 << 20)?;
        tx.edit_bytes(large, 11 << 20, 1 << 20)?.fill(9);
        Ok::<_, pmlib::Error>(large)
    });
    large.expect("room");
    heap.tx(|tx| tx.alloc(12 << 20)).expect("growth");
    heap.close().expect("left");
    assert_eq!(answer(&["check", "--json"], &path)["clean"], true);
}
