//! Keys and values by the command: kept, shown, taken away; and what is said when that can't be.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pmem::slots::Prober;
use pmshare::lock_bytes::BYTE_POOL;
use serde_json::Value;

struct Place {
    _dir: tempfile::TempDir,
    heap: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let heap = dir.path().join("heap");
    let place = Place { _dir: dir, heap };
    place.done("create", &["--size", "4M"]);
    place
}

impl Place {
    fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
        command.arg(name).arg(&self.heap).args(words);
        command
    }

    fn run(&self, name: &str, words: &[&str]) -> Output {
        let mut command = self.command(name, words);
        command.stdin(Stdio::null()).output().expect("the program")
    }

    /// The output of a command that was done.
    fn done(&self, name: &str, words: &[&str]) -> Vec<u8> {
        let output = self.run(name, words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {words:?}: {error}");
        assert_eq!(error, "", "{name} {words:?}");
        output.stdout
    }

    fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = String::from_utf8(self.done("scan", words)).expect("text");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

/// The one line of an error.
fn refused(output: &Output, code: i32) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("pmkv: "), "{error}");
    error
}

/// Exit code 1, and not a word.
fn silent(output: &Output) {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn kept_shown_and_taken_away() {
    let place = place();
    assert_eq!(place.done("put", &["ada", "1815"]), b"");
    place.done("put", &["alan", "1912"]);
    assert_eq!(place.done("get", &["ada"]), b"1815");
    place.done("put", &["ada", "10 December 1815"]);
    assert_eq!(place.lines(&[]), ["ada\t10 December 1815", "alan\t1912"]);
    assert_eq!(place.lines(&["--prefix", "al", "--keys"]), ["alan"]);
    place.done("put", &["--", "-key-", "-value-"]);
    assert_eq!(place.done("get", &["--", "-key-"]), b"-value-");
    assert_eq!(place.done("del", &["ada"]), b"");
    silent(&place.run("get", &["ada"]));
    silent(&place.run("del", &["ada"]));
    place.done("put", &["", ""]);
    assert_eq!(place.done("get", &[""]), b"");
}

/// Goal: bytes of any kind go in and come out as they are, and JSON and lines keep them apart.
#[test]
fn any_bytes_are_values() {
    let place = place();
    let bytes: Vec<u8> = (0..200_000u32).map(|nth| (nth * 7 % 256) as u8).collect();
    let put = |words: &[&str], bytes: &[u8]| {
        let mut command = place.command("put", words);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(bytes).expect("it reads");
        drop(stdin);
        assert!(child.wait().expect("it ran").success());
    };
    put(&["all"], &bytes);
    assert_eq!(place.done("get", &["all"]), bytes);
    put(&["all", "-"], b"a\tb\n");
    assert_eq!(place.done("get", &["all"]), b"a\tb\n");
    assert_eq!(place.lines(&[]), [r"all	a\tb\n"]);
    let mut command = place.command("put", &[]);
    command.args([OsStr::from_bytes(b"k\xff"), OsStr::from_bytes(b"\xfe")]);
    assert!(command.status().expect("it runs").success());
    let lines = place.lines(&["--json"]);
    assert_eq!(lines[0], r#"{"key":"all","value":"a\tb\n"}"#);
    assert_eq!(lines[1], r#"{"key_hex":"6bff","value_hex":"fe"}"#);
    let keys = place.lines(&["--json", "--keys"]);
    assert_eq!(keys[1], r#"{"key_hex":"6bff"}"#);
    let json = |name, words: &[&str]| -> Value {
        serde_json::from_slice(&place.done(name, words)).expect("JSON")
    };
    assert_eq!(json("get", &["all", "--json"])["value"], "a\tb\n");
    assert_eq!(json("put", &["n", "four", "--json"])["value_bytes"], 4);
    assert_eq!(json("del", &["n", "--json"])["key"], "n");
}

/// Goal: engines are apart, and a mistyped name makes none.
#[test]
fn engines_have_names() {
    let place = place();
    let said = refused(&place.run("get", &["ada"]), 1);
    assert!(said.contains("pmkv put"), "{said}");
    place.done("put", &["--engine", "users", "ada", "1815"]);
    let said = refused(&place.run("get", &["ada"]), 1);
    assert!(said.contains("--engine: users"), "{said}");
    refused(&place.run("scan", &["--engine", "user"]), 1);
    place.done("put", &["ada", "another"]);
    assert_eq!(place.done("get", &["-e", "users", "ada"]), b"1815");
    let stat: Value = serde_json::from_slice(&place.done("stat", &["--json"])).expect("JSON");
    let engines = stat["engines"].as_array().expect("a list");
    let names: Vec<_> = engines.iter().map(|engine| &engine["name"]).collect();
    assert_eq!(names, ["kv", "users"]);
    let text = String::from_utf8(place.done("stat", &[])).expect("text");
    assert!(text.contains("engine      users (hash)"), "{text}");
    let said = refused(&place.run("put", &["-e", "", "ada", "1"]), 8);
    assert!(said.contains("1 to 255 bytes"), "{said}");
}

/// Goal: a tree is made on request, and its keys come in order; scrubs know it.
#[test]
fn a_tree_is_in_order() {
    let place = place();
    let tree = ["--engine", "tree"];
    let done = |name: &str, words: &[&str]| {
        String::from_utf8(place.done(name, &[&tree, words].concat())).expect("text")
    };
    done("put", &["--kind", "tree", "m", "1"]);
    for key in ["z", "b", "ba", "a", "bz", "c"] {
        done("put", &[key, "1"]);
    }
    let keys = |words: &[&str]| done("scan", &[&["--keys"], words].concat()).replace('\n', " ");
    assert_eq!(keys(&[]), "a b ba bz c m z ");
    assert_eq!(keys(&["--from", "b", "--to", "c"]), "b ba bz ");
    assert_eq!(keys(&["--prefix", "b"]), "b ba bz ");
    assert_eq!(
        keys(&["--prefix", "b", "--from", "ba", "--to", "bz"]),
        "ba "
    );
    assert_eq!(keys(&["--from", "c", "--to", "b"]), "");
    assert_eq!(done("get", &["ba"]), "1");
    done("del", &["ba"]);
    assert_eq!(keys(&["--prefix", "b"]), "b bz ");
    for key in ["b", "a", "c"] {
        place.done("put", &[key, "1"]);
    }
    assert_eq!(place.lines(&["--from", "b", "--keys"]), ["b", "c"]);
    let stat = String::from_utf8(place.done("stat", &[])).expect("text");
    assert!(stat.contains("engine      tree (tree)\n"), "{stat}");
    assert!(stat.contains("engine      kv (hash)\n"), "{stat}");
    let text = refused(
        &place.run("put", &["--kind", "hash", "-e", "tree", "k", "v"]),
        8,
    );
    assert!(text.contains("the engine is a tree"), "{text}");
    let scrubbed = String::from_utf8(place.done("scrub", &tree)).expect("text");
    assert!(scrubbed.contains("all whole"), "{scrubbed}");
}

/// The output of a load of such a stream.
fn loaded(place: &Place, stream: &[u8], words: &[&str]) -> Output {
    let mut command = place.command("load", words);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program");
    // One that refuses the beginning does not read the rest.
    let _ = child.stdin.take().expect("stdin").write_all(stream);
    child.wait_with_output().expect("its end")
}

/// Goal: a saved engine comes back with values and expiries, also as the other kind, and no damaged
/// byte of a stream is believed. Method: a stream is loaded by another heap; then with each byte
/// changed, and cut off at each.
#[test]
fn keys_are_saved_and_loaded() {
    let (one, two) = (place(), place());
    for (key, value) in [("ada", "1815"), ("", ""), ("line\n", "a\tb")] {
        one.done("put", &["--", key, value]);
    }
    one.done("put", &["--ttl", "3600", "token", "7f3a"]);
    let stream = one.done("save", &[]);
    assert!(stream.starts_with(b"pmkv-stream 1 hash\n"));
    let said = loaded(&two, &stream, &["--kind", "tree", "--json"]);
    let report: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_eq!(
        (&report["keys"], &report["kind"]),
        (&4.into(), &"tree".into())
    );
    assert_eq!(two.lines(&[]), one.lines(&[]));
    // A tree's stream is in order; the moments are those that were saved.
    let sorted = two.done("save", &[]);
    assert!(
        loaded(&one, &sorted, &["-e", "copy", "--kind", "tree"])
            .status
            .success()
    );
    assert_eq!(one.done("save", &["-e", "copy"]), sorted);

    for nth in 0..sorted.len() {
        let mut damaged = sorted.clone();
        damaged[nth] ^= 1 << (nth % 8);
        refused(&loaded(&two, &damaged, &["-e", "other"]), 8);
    }
    for end in (0..sorted.len()).step_by(7) {
        let said = refused(&loaded(&two, &sorted[..end], &["-e", "other"]), 8);
        assert!(said.contains("stdin: "), "{said}");
    }
    // A key that is there already gets the stream's value.
    two.done("put", &["-e", "other", "ada", "else"]);
    assert!(loaded(&two, &sorted, &["-e", "other"]).status.success());
    assert_eq!(two.done("save", &["-e", "other"]).len(), sorted.len());
    assert_eq!(two.done("get", &["-e", "other", "ada"]), b"1815");
    refused(&two.run("save", &["-e", "none"]), 1);
}

/// Goal: what is saved or shown by a snapshot was there at one instant. Method: two keys that
/// batches of another process change together, in streams that are saved beside it.
#[test]
fn a_stream_is_of_one_instant() {
    let place = place();
    for nth in 0..300 {
        place.done("put", &[&format!("other {nth}"), "x"]);
    }
    let shown = place.lines(&["--snapshot", "--prefix", "other 29"]);
    assert_eq!(shown, place.lines(&["--prefix", "other 29"]));
    assert_eq!(shown.len(), 11);
    let heap = pmlib::Heap::open(&place.heap, &pmlib::Options::default()).expect("a heap");
    let kv = pmkv::Hash::open(&heap, "kv").expect("an engine");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0u64.. {
                let value = nth.to_string();
                let change =
                    |key: &'static str| pmkv::Change::Put(key.as_bytes(), value.as_bytes());
                kv.batch(&[change("one"), change("two")]).expect("room");
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..20 {
            let lines = place.lines(&["--snapshot"]);
            let value = |key: &str| {
                let line = lines.iter().find_map(|line| line.strip_prefix(key));
                line.map(str::to_owned)
            };
            assert_eq!(value("one"), value("two"));
            assert!(place.done("save", &[]).len() > 300);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Goal: a measurement tells each call, and leaves nothing. Method: both kinds, in memory and in a
/// file.
#[test]
fn calls_are_measured() {
    let place = place();
    let file = place.heap.with_extension("bench");
    for kind in ["hash", "tree"] {
        for path in [None, Some(&file)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pmkv"));
            command.args(["bench", "--json", "--keys", "500", "--kind", kind]);
            let output = command.args(path).output().expect("the program");
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let calls = report["calls"].as_array().expect("calls");
            assert_eq!((calls.len(), &report["kind"]), (7, &kind.into()));
            assert!(calls.iter().all(|call| call["ns"].as_f64() > Some(0.0)));
            assert!(!file.exists());
        }
    }
    // A file that is there is somebody's.
    let said = refused(&place.run("bench", &[]), 8);
    assert!(place.heap.exists(), "{said}");
}

/// Goal: what can't be done is told in a line, and changes nothing.
#[test]
fn what_can_not_be_is_told() {
    let mut place = place();
    place.done("put", &["ada", "1815"]);
    let long = "k".repeat(65_537);
    let said = refused(&place.run("put", &[&long, "1"]), 8);
    assert!(said.contains("keys have 64 KiB"), "{said}");
    place.done("put", &[&long[1..], "1"]);
    assert_eq!(place.done("get", &[&long[1..]]), b"1");
    silent(&place.run("get", &[&long]));

    fs::set_permissions(&place.heap, fs::Permissions::from_mode(0o444)).expect("its owner");
    let dir = place.heap.parent().expect("a directory");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("its owner");
    for (name, words) in [("put", &["ada", "1"][..]), ("get", &["ada"]), ("scan", &[])] {
        let mut command = place.command(name, words);
        if is_root() {
            command.uid(65_534).gid(65_534);
        }
        let said = refused(&command.output().expect("the program"), 8);
        assert!(said.contains("ermission"), "{said}");
    }
    let old = place.heap.clone();
    place.heap = dir.join("none");
    for name in ["put", "get", "del"] {
        let said = refused(&place.run(name, &["ada"]), 8);
        assert!(said.contains("check the path"), "{said}");
        assert!(!place.heap.exists());
    }
    place.heap = old;
    assert_eq!(place.done("get", &["ada"]), b"1815");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Goal: a heap that can't grow says that it is full, and keeps what it has. Method: the limit of
/// the length of files is the heap's.
#[test]
fn a_full_heap_is_told() {
    let place = place();
    place.done("put", &["ada", "1815"]);
    let script = r#"trap "" XFSZ; ulimit -f 8192; head -c 6000000 /dev/zero | "$0" put "$1" large"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_pmkv")]);
    let output = command.arg(&place.heap).output().expect("a shell");
    let said = refused(&output, 8);
    assert!(said.contains("no room"), "{said}");
    silent(&place.run("get", &["large"]));
    assert_eq!(place.done("get", &["ada"]), b"1815");
}

/// Goal: a heap that somebody has alone is told. Method: this process has it so, as a repair does.
#[test]
fn a_locked_heap_is_told() {
    let place = place();
    let prober = Prober::open(&place.heap).expect("the heap");
    let lock = prober.try_exclusive(BYTE_POOL).expect("a lock");
    assert!(lock.is_some());
    for (name, words) in [("put", &["ada", "1"][..]), ("get", &["ada"])] {
        let said = refused(&place.run(name, words), 8);
        assert!(said.contains("is held by process"), "{said}");
    }
    drop(lock);
    place.done("put", &["ada", "1"]);
}

/// Goal: a reader that goes away ends a command without a word. Method: its pipe is closed.
#[test]
fn a_closed_pipe_is_the_end() {
    let place = place();
    for nth in 0..20 {
        place.done("put", &[&format!("key {nth}"), &"v".repeat(20_000)]);
    }
    place.done("put", &["large", &"v".repeat(100_000)]);
    for (name, words) in [
        ("scan", &[][..]),
        ("scan", &["--json"]),
        ("get", &["large"]),
    ] {
        let mut command = place.command(name, words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ran");
        assert!(output.status.success(), "{name}: {:?}", output.status);
        assert!(output.stderr.is_empty(), "{name}");
    }
}

/// Goal: the room of keys that were taken away goes back to the medium.
#[test]
fn a_heap_is_compacted() {
    let place = place();
    let large = "v".repeat(60_000);
    for nth in 0..60 {
        place.done("put", &[&nth.to_string(), &large]);
    }
    for nth in 1..60 {
        place.done("del", &[&nth.to_string()]);
    }
    let report = place.done("compact", &["--json"]);
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let bytes = |name: &str| report[name].as_u64().expect("a number");
    assert_eq!(bytes("engine_bytes"), 59 * (64 << 10));
    assert!(bytes("hole_bytes") + bytes("cut_bytes") > 0, "{report}");
    assert_eq!(place.done("get", &["0"]), large.as_bytes());
}

/// Goal: a key that expires is there before, and missing after.
#[test]
fn a_key_expires() {
    let place = place();
    place.done("put", &["--ttl", "3600", "ada", "1815"]);
    assert_eq!(place.done("get", &["ada"]), b"1815");
    place.done("put", &["--ttl", "0", "ada", "1816"]);
    silent(&place.run("get", &["ada"]));
    assert_eq!(place.lines(&[]), Vec::<String>::new());
    silent(&place.run("del", &["ada"]));
    let refused = place.run("put", &["--ttl", "-1", "ada", "1"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Goal: a damaged record is told by `get` and `scan`, which shows all others.
#[test]
fn a_damaged_record_is_told() {
    let place = place();
    for nth in 0..50 {
        place.done(
            "put",
            &[&format!("key {nth:02}"), &format!("value of {nth:02}")],
        );
    }
    flip(&place.heap, b"value of 17");
    let said = refused(&place.run("get", &["key 17"]), 8);
    assert!(
        said.contains("is damaged") && said.contains("other keys"),
        "{said}"
    );
    assert_eq!(place.done("get", &["key 18"]), b"value of 18");
    let output = place.run("scan", &["--keys"]);
    refused(&output, 8);
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text.lines().count(), 49, "{text}");
    assert!(!text.contains("key 17"));
    a_damaged_record_is_dropped(&place);
}

fn a_damaged_record_is_dropped(place: &Place) {
    let found = place.run("scrub", &[]);
    assert_eq!(found.status.code(), Some(4));
    let text = String::from_utf8(found.stdout).expect("text");
    assert!(
        text.contains("\tkey 17\n") && text.contains("50 records"),
        "{text}"
    );
    let dropped = place.run("scrub", &["--drop", "--json"]);
    assert_eq!(dropped.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&dropped.stdout).expect("JSON");
    assert_eq!(report["damaged"][0]["key"], "key 17");
    assert_eq!(report["damaged"].as_array().map(Vec::len), Some(1));
    let whole = place.done("scrub", &[]);
    assert!(String::from_utf8_lossy(&whole).contains("49 records"));
    silent(&place.run("get", &["key 17"]));
    place.done("put", &["key 17", "new value"]);
    // A value is not read when it is put over or taken away, and may be damaged.
    flip(&place.heap, b"new value");
    refused(&place.run("get", &["key 17"]), 8);
    place.done("put", &["key 17", "newest value"]);
    assert_eq!(place.done("get", &["key 17"]), b"newest value");
    flip(&place.heap, b"newest value");
    place.done("del", &["key 17"]);
    silent(&place.run("get", &["key 17"]));
}

fn flip(heap: &Path, wanted: &[u8]) {
    let mut bytes = fs::read(heap).expect("the heap");
    let mut parts = bytes.windows(wanted.len());
    let at = parts.position(|part| part == wanted).expect("the value");
    bytes[at] ^= 1;
    fs::write(heap, bytes).expect("the heap");
}

/// Goal: the page's shell part is true. Method: the lines behind `$` of its console block are run,
/// one shell for all, and its other lines are their output.
#[test]
fn the_page_is_true() {
    let page = include_str!("../../../docs/KV.md");
    let (_, rest) = page.split_once("```console\n").expect("a console block");
    let (block, _) = rest.split_once("```").expect("its end");
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let typed: Vec<&str> = block
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    let script: String = typed
        .iter()
        .map(|line| format!("printf '%s\\n' {}\n{line}\n", quoted(&format!("$ {line}"))))
        .collect();
    let script = script.replace("/dev/shm", &dir.path().display().to_string());
    let built = Path::new(env!("CARGO_BIN_EXE_pmkv"))
        .parent()
        .expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", built.display()));
    let output = command.stderr(Stdio::inherit()).output().expect("a shell");
    let said = String::from_utf8(output.stdout).expect("text");
    let said = said.replace(&dir.path().display().to_string(), "/dev/shm");
    assert_eq!(said, block);
    assert!(typed.len() > 5);
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
