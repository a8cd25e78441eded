//! Goal: a newcomer who types the tutorial gets the answers that it shows. Method: its commands,
//! one after the other in one shell, each with its output compared.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::works;

const PAGE: &str = include_str!("../../../../docs/PMMON-TUTORIAL.md");
/// The file of the page, in whose place a test has its own.
const FILE: &str = "/dev/shm/tutorial";

/// A command and the output that the page shows.
type Typed = (String, Vec<String>);

fn typed(page: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_inside = line == "```console";
        } else if let (true, Some(command)) = (is_inside, line.strip_prefix("$ ")) {
            all.push((command.to_owned(), Vec::new()));
        } else if is_inside {
            let (_, shown) = all.last_mut().expect("output follows a command");
            shown.push(line.to_owned());
        }
    }
    all
}

/// `...` stands for anything within a line.
fn fits(line: &str, shown: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut left) = line.strip_prefix(parts.next().unwrap_or("")) else {
        return false;
    };
    let mut parts = parts.peekable();
    let mut is_open = false;
    while let Some(part) = parts.next() {
        is_open = part.is_empty();
        let found = match parts.peek() {
            None => left.ends_with(part).then(|| left.len() - part.len()),
            Some(_) => left.find(part),
        };
        let Some(at) = found else { return false };
        left = &left[at + part.len()..];
    }
    is_open || left.is_empty()
}

#[test]
fn lines_fit_their_patterns() {
    for (line, shown, expected) in [
        ("abc", "abc", true),
        ("abcd", "abc", false),
        ("abc", "a...", true),
        ("a-b-c", "a...b...c", true),
        ("a-c", "a...b...c", false),
        ("x 1 GiB", "...GiB", true),
        ("x 1 MiB", "...GiB", false),
    ] {
        assert_eq!(fits(line, shown), expected, "{line} {shown}");
    }
}

#[test]
fn the_tutorial_is_true() {
    if !works("watch") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("tutorial");
    let file = file.to_str().unwrap();
    let all = typed(&PAGE.replace(FILE, file));
    assert!(all.len() > 10, "{all:?}");
    let mut script = String::new();
    for (number, (command, _)) in all.iter().enumerate() {
        // A command that goes on is followed by the assignment of its number.
        let _ = writeln!(script, "{{ {command}\n}} >out{number} 2>&1 </dev/null");
    }
    // A shell that ends leaves no load behind.
    script.insert_str(0, "trap 'kill $quiet $busy 2>/dev/null' EXIT\n");
    let programs = Path::new(env!("CARGO_BIN_EXE_pmmon")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let run = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", programs.display()))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(run.stderr.is_empty(), "{run:?}");
    for (number, (command, shown)) in all.iter().enumerate() {
        let said = fs::read_to_string(dir.path().join(format!("out{number}"))).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let is_shown = lines.len() == shown.len()
            && lines
                .iter()
                .zip(shown)
                .all(|(line, shown)| fits(line, shown));
        assert!(
            is_shown,
            "$ {command}\n{said}\nexpected:\n{}",
            shown.join("\n")
        );
    }
    assert!(!Path::new(file).exists());
}
