//! Goal: a persistent heap may be a file of a pool, as it may be a plain one.
//!
//! Method: this test's program runs again below `pmfs run`, with a mount and without. It makes a
//! heap, fills it past its first length, and is killed in a transaction; then it looks at what is
//! there. It says the same of a plain directory.

use std::env;
use std::fs;
use std::path::Path;

use pmlib::{Error, Heap, Options};
use rustix::process::{Signal, getpid, kill_process};

use crate::program::{Run, Said};

/// A heap of up to so many bytes; 0: as many as there is room for.
fn up_to(max: u64) -> Options {
    Options {
        max,
        ..Options::default()
    }
}

/// Fills a heap of 1 MiB as far as it goes, with a chain of objects from the root on.
fn fill(path: &Path, max: u64) {
    let heap = Heap::create(path, 1 << 20, &up_to(max)).expect("a heap");
    let mut made = 0u64;
    let full = loop {
        let before = heap.root_offset().expect("a root");
        let done = heap.tx(|tx| {
            let object = tx.alloc(4000)?;
            let head = [before.to_le_bytes(), made.to_le_bytes()].concat();
            tx.edit_bytes(object, 0, 16)?.copy_from_slice(&head);
            tx.set_root(object)
        });
        match done {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    println!("heap: {made} objects in {} bytes", heap.size());
    let _ = heap.tx(|tx| {
        tx.set_root(0)?;
        kill_process(getpid(), Signal::KILL).expect("killed");
        Ok::<(), Error>(())
    });
}

/// Counts the chain.
fn look(path: &Path) {
    let heap = Heap::open(path, &Options::default()).expect("the heap");
    let census = heap.check().expect("sound");
    let mut object = heap.root_offset().expect("a root");
    let mut left = census.objects;
    while object != 0 {
        let mut head = [0; 16];
        heap.read_bytes(object, 0, &mut head).expect("an object");
        let (before, number) = head.split_at(8);
        left -= 1;
        assert_eq!(number, left.to_le_bytes());
        object = u64::from_le_bytes(before.try_into().expect("eight bytes"));
    }
    println!("heap: {} objects, {left} not found", census.objects);
    heap.close().expect("closed");
}

/// Runs below `pmfs run`, with a step and a directory; without them it does nothing.
#[test]
fn again() {
    let arguments: Vec<_> = env::args().collect();
    let [.., step, dir] = &arguments[..] else {
        return;
    };
    let path = Path::new(dir).join("heap");
    match &step[..] {
        "--fill" => fill(&path, 24 << 20),
        "--fill-all" => fill(&path, 0),
        "--look" => look(&path),
        _ => {}
    }
}

/// The lines that the program says itself.
fn lines(said: &Said) -> Vec<&str> {
    let all = said.text.lines();
    all.filter_map(|line| line.split_once("heap: ").map(|(_, text)| text))
        .collect()
}

/// Words for the test harness: it runs `again` alone, and takes the words behind `--` for names of
/// tests, of which it has none.
fn arguments(step: &str) -> [&str; 5] {
    ["heap::again", "--exact", "--nocapture", "--", step]
}

fn filled_and_found(run: Run, options: &[&str]) {
    let program = env::current_exe().expect("this program");
    for (step, is_killed) in [("--fill", true), ("--look", false)] {
        let plain = run.plain(&program, &arguments(step));
        let inside = run.below_run(options, &program, &arguments(step));
        for said in [&plain, &inside] {
            assert_ne!(said.code == Some(0), is_killed, "{step}: {}", said.text);
        }
        assert_eq!(lines(&plain).len(), 1, "{}", plain.text);
        assert_eq!(lines(&plain), lines(&inside), "{}", run.log());
    }
    run.check();
    let _ = fs::remove_file(run.pool());
}

#[test]
fn in_a_pool() {
    if let Some(run) = Run::new() {
        filled_and_found(run, &[]);
    }
}

#[test]
fn in_a_pool_without_a_mount() {
    filled_and_found(Run::unmounted(), &["--no-mount"]);
}

/// Goal: a heap takes the room that there is, though there is none for a step of 64 MiB. Method: a
/// pool of 64 MiB is filled.
#[test]
fn as_large_as_a_pool() {
    let run = Run::unmounted();
    let program = env::current_exe().expect("this program");
    let said = run.apart(&program, &arguments("--fill-all"));
    let line = lines(&said).concat();
    let bytes = line.split(' ').nth(3).and_then(|word| word.parse().ok());
    assert!(bytes.is_some_and(|bytes: u64| bytes > 48 << 20), "{line}");
    run.check();
}
