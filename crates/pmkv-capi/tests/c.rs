//! Goal: `pmkv.h` and the library do what the header says, for C and for C++. Method: programs of
//! this directory are compiled, without a warning, against both libraries, and run; so is the
//! example of the documentation, which is killed. `PMKV_SANITIZER=address` has them run under
//! AddressSanitizer (`tests/asan.sh`).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pmkv::Hash;
use pmlib::containers::{PBytes, PMap, PTree};
use pmlib::{Heap, Options};
use tempfile::TempDir;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where cargo has put the libraries that were built with this test.
fn built(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let library = deps.parent().unwrap().join(name);
    assert!(library.is_file(), "{} is built first", library.display());
    library
}

const C11: &[&str] = &["gcc", "-std=c11", "-D_GNU_SOURCE"];
const CPP: &[&str] = &["g++", "-std=c++14", "-x", "c++"];

/// The compiler's sanitizer under which the programs run, if one is wanted.
fn sanitizer() -> Option<String> {
    std::env::var("PMKV_SANITIZER").ok()
}

/// A compiled program, in a place of its own.
struct Program {
    dir: TempDir,
}

impl Program {
    fn compile(compiler: &[&str], source: &Path, shared: bool) -> Program {
        let dir = TempDir::with_prefix_in("pmkv-capi-", "/dev/shm").unwrap();
        let mut compile = Command::new(compiler[0]);
        compile.args(&compiler[1..]);
        compile.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"]);
        if let Some(sanitizer) = sanitizer() {
            compile.arg(format!("-fsanitize={sanitizer}"));
        }
        compile.arg("-I").arg(here("include")).arg(source);
        compile.args(["-x", "none"]);
        if shared {
            let soname = dir.path().join("libpmkv.so.0");
            fs::copy(built("libpmkv_c.so"), &soname).unwrap();
            compile.arg(&soname);
        } else {
            compile.arg(built("libpmkv_c.a"));
        }
        compile.args(["-lpthread", "-ldl", "-lm", "-o"]);
        let compiled = compile.arg(dir.path().join("program")).output();
        let compiled = compiled.expect("gcc and g++, of the packages of these names");
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{said}");
        Program { dir }
    }

    fn heap(&self) -> PathBuf {
        self.dir.path().join("heap")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.dir.path().join("program"));
        command.arg(self.heap());
        command.env("LD_LIBRARY_PATH", self.dir.path());
        command
    }

    /// Runs it to its end.
    fn run(&self) -> String {
        let ran = self.command().output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{:?} {said}", ran.status);
        String::from_utf8(ran.stdout).unwrap()
    }
}

/// The heap that a program has left is sound, and Rust's too.
fn sound(path: &Path) {
    let heap = Heap::open(path, &Options::default()).unwrap();
    heap.check().unwrap();
    heap.close().unwrap();
}

#[test]
fn every_function() {
    for (compiler, shared) in [(C11, true), (C11, false), (CPP, true)] {
        let program = Program::compile(compiler, &here("tests/all.c"), shared);
        program.run();
        sound(&program.heap());
    }
}

/// Goal: AddressSanitizer sees what programs and the library do. Method: a program that stores
/// behind its memory has to be ended.
#[test]
fn a_sanitizer_sees_an_overrun() {
    if sanitizer().as_deref() != Some("address") {
        return;
    }
    let program = Program::compile(C11, &here("tests/overrun.c"), true);
    let ran = program.command().output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success(), "{said}");
    assert!(said.contains("heap-buffer-overflow"), "{said}");
}

#[test]
fn maps_and_trees_of_bytes() {
    for compiler in [C11, CPP] {
        let program = Program::compile(compiler, &here("tests/maps.c"), true);
        program.run();
        let heap = Heap::open(&program.heap(), &Options::default()).unwrap();
        let map = heap.root::<PMap<PBytes, PBytes>>("map").unwrap();
        let tree = heap.root::<PTree<PBytes, PBytes>>("tree").unwrap();
        assert_eq!(
            heap.at(map).len().unwrap() + heap.at(tree).len().unwrap(),
            0
        );
        heap.close().unwrap();
        sound(&program.heap());
    }
}

#[test]
fn vectors_queues_logs_and_texts() {
    for compiler in [C11, CPP] {
        let program = Program::compile(compiler, &here("tests/sequences.c"), true);
        program.run();
        sound(&program.heap());
    }
}

#[test]
fn every_code() {
    Program::compile(C11, &here("tests/codes.c"), true).run();
}

/// Goal: what C puts is what Rust gets. Method: the program leaves two keys.
#[test]
fn keys_and_values() {
    for (compiler, shared) in [(C11, true), (C11, false), (CPP, true)] {
        let program = Program::compile(compiler, &here("tests/keys.c"), shared);
        program.run();
        sound(&program.heap());
        let heap = Heap::open(&program.heap(), &Options::default()).unwrap();
        let left = Hash::existing(&heap, "left").unwrap().unwrap();
        assert_eq!(left.get(b"ada").unwrap().as_deref(), Some(&b"1815"[..]));
        assert_eq!(left.count().unwrap(), 2);
    }
}

/// Goal: a record that is damaged is told, and hides no other. Method: one bit of a value, in the
/// file, with the heap closed.
#[test]
fn a_damaged_record_is_told() {
    let program = Program::compile(C11, &here("tests/damaged.c"), true);
    let heap = Heap::create(&program.heap(), 4 << 20, &Options::default()).unwrap();
    let left = Hash::open(&heap, "left").unwrap();
    left.put(b"bad", b"this value will be damaged").unwrap();
    left.put(b"good", b"this one will not").unwrap();
    drop(left);
    heap.close().unwrap();
    let mut bytes = fs::read(program.heap()).unwrap();
    let at = bytes
        .windows(10)
        .position(|it| it == b"this value")
        .unwrap();
    bytes[at] ^= 1;
    fs::write(program.heap(), bytes).unwrap();
    program.run();
}

/// Goal: the program of the page keeps what it counts. Method: it runs three times.
#[test]
fn hello_of_the_page() {
    let page = fs::read_to_string(here("../../docs/KV.md")).unwrap();
    assert!(page.contains(&fs::read_to_string(here("examples/hello.c")).unwrap()));
    let program = Program::compile(C11, &here("examples/hello.c"), true);
    for start in 1..=3 {
        let said = program.run();
        let lines: BTreeSet<&str> = said.lines().collect();
        let starts = format!("starts: {start}");
        assert_eq!(lines, BTreeSet::from(["first: hello", &starts]));
    }
    sound(&program.heap());
}

#[test]
fn processes_that_are_killed() {
    let program = Program::compile(C11, &here("tests/two.c"), true);
    print!("{}", program.run());
    sound(&program.heap());
}

/// Goal: a heap takes more than it was made for, untold. Method: two processes at once fill one of
/// 64 MiB twice over (`tests/heaps.sh` does so on other media, and with more).
#[test]
fn a_heap_grows_untold() {
    let program = Program::compile(C11, &here("tests/grow.c"), true);
    let ran = program.command().arg("128").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{:?} {said}", ran.status);
    print!("{}", String::from_utf8_lossy(&ran.stdout));
    sound(&program.heap());
}

/// Goal: the bank of the documentation survives `kill -9`. Method: the program that stands on the
/// page is compiled, started and killed ten times; it tells how many transfers it finds.
#[test]
fn the_bank_of_the_page() {
    let page = fs::read_to_string(here("../../docs/HEAP.md")).unwrap();
    let text = page.split("```c\n").nth(1).expect("a program in C");
    let text = text.split("```").next().unwrap();
    assert_eq!(
        text,
        fs::read_to_string(here("examples/bank.c")).unwrap(),
        "the page and the file"
    );
    let program = Program::compile(C11, &here("examples/bank.c"), true);
    let mut before = 0;
    for round in 0..10 {
        let mut child = program.command().stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        std::thread::sleep(Duration::from_millis(30 + 17 * round));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "it works until it is killed");
        let transfers: u64 = line.split(' ').next().unwrap().parse().expect(&line);
        assert!(transfers >= before, "{transfers} after {before}");
        before = transfers;
    }
    println!("{before} transfers");
    assert!(before > 0);
    sound(&program.heap());
}

/// The library exports to C exactly the functions of the header.
#[test]
fn the_header_names_all() {
    let header = fs::read_to_string(here("include/pmkv.h")).unwrap();
    let is_part = |c: char| !(c.is_alphanumeric() || c == '_');
    let code = header.lines().filter(|line| {
        let line = line.trim_start();
        line.contains('(') && !line.starts_with(['/', '*'])
    });
    let names = code.filter_map(|line| {
        let before = line.split('(').next()?;
        before.rsplit(is_part).next().map(str::to_owned)
    });
    let declared = names.filter(|name| name.starts_with("pmheap_") || name.starts_with("pmkv_"));
    let declared: BTreeSet<String> = declared.collect();
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(built("libpmkv_c.so"))
        .output();
    let symbols = String::from_utf8(symbols.expect("nm, of the package binutils").stdout).unwrap();
    let words = symbols.split(is_part).map(str::to_owned);
    let exported: BTreeSet<String> = words.filter(|name| name.starts_with("pm")).collect();
    assert_eq!(declared, exported);
    assert!(declared.len() > 37, "{declared:?}");
}

/// The enum of the header and the library's have the same numbers: each name of the one stands in
/// the other with its number.
#[test]
fn codes_have_the_same_numbers() {
    let numbers = |text: &str, prefix: &str| -> BTreeSet<(String, u32)> {
        let lines = text.lines().filter_map(|line| {
            let (name, number) = line.trim().trim_end_matches(',').split_once(" = ")?;
            let name = name.strip_prefix(prefix)?;
            Some((name.replace('_', "").to_lowercase(), number.parse().ok()?))
        });
        lines.collect()
    };
    let header = fs::read_to_string(here("include/pmkv.h")).unwrap();
    let source = fs::read_to_string(here("src/answer.rs")).unwrap();
    let mut in_c = numbers(&header, "PMHEAP_E_");
    in_c.insert(("ok".to_owned(), 0));
    assert_eq!(in_c, numbers(&source, ""));
    assert!(in_c.len() > 25);
}
