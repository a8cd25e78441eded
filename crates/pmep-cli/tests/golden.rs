//! Goal: answers change when they are meant to, and not by accident. Method: each line of the files
//! in `golden/` is a run of the program and its answer, which must come out again to four digits.
//! `PMEP_GOLDEN=write` writes the answers anew. None of them is a measured value.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The least number of predictions in the file.
const PREDICTIONS_MIN: usize = 40;
/// The least number of replays.
const REPLAYS_MIN: usize = 12;
/// Accesses of a trace.
const ACCESSES: u64 = 8_000;

fn path(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("golden").join(name)
}

/// The JSON that the program answers to arguments and stdin, or its error in a string.
fn answer(arguments: &[&str], input: &[u8]) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pmep"))
        .args(arguments)
        .arg("--json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that refuses its arguments does not read.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let run = child.wait_with_output().unwrap();
    writer.join().unwrap();
    match run.status.code() {
        Some(0) => serde_json::from_slice(&run.stdout).unwrap(),
        _ => Value::String(String::from_utf8(run.stderr).unwrap().trim_end().to_owned()),
    }
}

/// Leaves of a JSON value as `name=value`, numbers to four digits.
fn leaves(name: &str, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = match name.is_empty() {
                    true => key.clone(),
                    false => format!("{name}.{key}"),
                };
                leaves(&name, value, out);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                leaves(&format!("{name}.{at}"), value, out);
            }
        }
        Value::Number(number) if number.is_f64() => {
            out.push(format!("{name}={:.3e}", number.as_f64().unwrap()));
        }
        Value::String(text) => out.push(format!("{name}={text}")),
        other => out.push(format!("{name}={other}")),
    }
}

/// A trace of that name: most have all accesses ready at once, of one stream or four.
fn trace(name: &str) -> String {
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut text = String::new();
    for step in 0..ACCESSES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let anywhere = random % (1 << 32) / 256 * 256;
        let stream = step % 4;
        text += &match name {
            "seq-nt" => format!("0 0 nt {} 256\n", step * 256),
            "rand-read" => format!("0 {stream} r {anywhere} 64\n"),
            "parts" => format!("0 {stream} nt {} 64\n", anywhere + 64),
            "strided" => format!("0 {stream} nt {} 64\n", (stream << 32) + step / 4 * 16_384),
            "fenced" => format!("0 {stream} clwb {anywhere} 128\n0 {stream} fence\n"),
            "mixed" if stream == 0 => format!("{} 0 nt {} 4096\n", step * 100, step * 1024),
            "mixed" => format!("{} {stream} r {anywhere} 256\n", step * 100),
            "hot" => format!("0 0 nt {} 1024\n", step * 1024 % 65_536),
            "chase" => format!("0 0 r {} 64\n0 0 fence\n", random % (1 << 20) / 64 * 64),
            "cached" => format!("0 {stream} w {anywhere} 256\n"),
            "" => break,
            other => panic!("no trace {other}"),
        };
    }
    text
}

/// Compares each line, `arguments < trace => answer`, with what the program answers now.
fn compare(name: &str) -> usize {
    let text = fs::read_to_string(path(name)).unwrap();
    let mut now = String::new();
    let mut count = 0;
    for line in text.lines() {
        let asked = line.split(" => ").next().unwrap();
        if asked.is_empty() || asked.starts_with('#') {
            now += line;
        } else {
            let (arguments, input) = asked.split_once(" < ").unwrap_or((asked, ""));
            let words: Vec<&str> = arguments.split_ascii_whitespace().collect();
            let mut found = Vec::new();
            leaves("", &answer(&words, trace(input).as_bytes()), &mut found);
            // A map's order depends on a feature that others may choose.
            found.sort();
            now += &format!("{asked} => {}", found.join(" "));
            count += 1;
        }
        now.push('\n');
    }
    if std::env::var_os("PMEP_GOLDEN").is_some_and(|mode| mode == "write") {
        fs::write(path(name), &now).unwrap();
        return count;
    }
    assert_eq!(text.lines().count(), now.lines().count());
    for (line, (was, is)) in text.lines().zip(now.lines()).enumerate() {
        assert_eq!(was, is, "{name}, line {}", line + 1);
    }
    count
}

#[test]
fn predictions_are_the_golden_ones() {
    let count = compare("predict.txt");
    assert!(count >= PREDICTIONS_MIN, "{count} predictions");
}

#[test]
fn replays_are_the_golden_ones() {
    let count = compare("replay.txt");
    assert!(count >= REPLAYS_MIN, "{count} replays");
}
