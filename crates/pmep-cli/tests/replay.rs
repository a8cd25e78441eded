//! Goal: a trace leads to its media bytes by stream, or to one line with the place. Method: small
//! traces through the program.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn replay(text: &str) -> Output {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace");
    fs::write(&path, text).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_pmep"))
        .args(["replay", path.to_str().unwrap(), "--json"])
        .output();
    run.expect("pmep runs")
}

#[test]
fn whole_lines_are_written_once_and_parts_stay_in_the_buffer() {
    let whole: String = (0..100)
        .map(|at| format!("0 0 nt {} 256\n", at * 256))
        .collect();
    let part = "0 1 nt 0x1000000 64\n";
    let run = replay(&(whole + part));
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let of = |stream: usize, name: &str| json["streams"][stream][name].as_f64().unwrap();
    assert_eq!(of(0, "written"), 25_600.0);
    // A second stream pushes a line in parts out now and then.
    assert!((25_600.0..26_000.0).contains(&of(0, "media_written")));
    assert_eq!(of(1, "media_written"), 0.0);
    assert_eq!(json["buffered_bytes"], 256);
    assert!(json["time_ns"].as_f64().unwrap() > 1000.0);
}

#[test]
fn a_trace_that_is_none_names_its_line() {
    let long = "x".repeat(10_000);
    for (text, place) in [
        ("0 0 r 0 64\n5 0 r 0 64\n4 0 r 0 64\n", "line 3"),
        ("0 0 r 0 64\n0 0 r 0", "line 2"),
        (long.as_str(), "line 1"),
        ("\u{0}\n", "line 1"),
    ] {
        let run = replay(text);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(place) && said.lines().count() == 1, "{said}");
    }
}

/// Goal: the binary form leads to what its text leads to, or to one line with the offset. Method: a
/// text is converted, then cut off, and its steps are put in another order.
#[test]
fn the_binary_form_is_replayed_as_its_text() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (text, binary) = (at("text"), at("binary"));
    let lines =
        "# a trace\n1 0 nt 0 256\n2 1 clwb 0x40 128\n3 1 fence\n9 2 r 4096 64\n9 3 w 0 64\n";
    fs::write(&text, lines).unwrap();
    let pmep = |arguments: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_pmep"))
            .args(arguments)
            .output();
        run.unwrap()
    };
    let json = |path: &str| -> serde_json::Value {
        let run = pmep(&["replay", path, "--json"]);
        serde_json::from_slice(&run.stdout).unwrap()
    };
    assert!(pmep(&["convert", &text, "-o", &binary]).status.success());
    let (mut first, mut second) = (json(&text), json(&binary));
    assert_eq!((&first["lines"], &second["lines"]), (&6.into(), &5.into()));
    first["lines"] = 0.into();
    second["lines"] = 0.into();
    assert_eq!(first, second);
    let again = at("again");
    assert!(pmep(&["convert", &binary, "-o", &again]).status.success());
    assert_eq!(fs::read(&again).unwrap(), fs::read(&binary).unwrap());

    let whole = fs::read(&binary).unwrap();
    assert_eq!(whole.len(), 16 + 5 * 32);
    let mut back = whole.clone();
    back[16..80].rotate_left(32);
    for (bytes, place) in [
        (&whole[..175], "offset 144"),
        (&whole[..12], "offset 12"),
        (&back, "offset 48"),
    ] {
        fs::write(&again, bytes).unwrap();
        let run = pmep(&["replay", &again]);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(place) && said.lines().count() == 1, "{said}");
        // Part of a trace is not left behind, nor is a trace written over itself.
        let out = at("out");
        assert_eq!(
            pmep(&["convert", &again, "-o", &out]).status.code(),
            Some(2)
        );
        assert!(!Path::new(&out).exists());
    }
    assert_eq!(
        pmep(&["convert", &text, "-o", &text]).status.code(),
        Some(2)
    );
    assert_eq!(fs::read_to_string(&text).unwrap(), lines);
}

/// Goal: advice names the change that gains. Method: a trace of small flushed stores at random,
/// which whole lines make faster, and cached stores do not change at all.
#[test]
fn advice_names_what_gains() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace");
    let mut random: u64 = 88_172_645_463_325_252;
    let mut text = String::new();
    for _ in 0..20_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        text += &format!(
            "0 {} clwb {} 64\n",
            random % 8,
            (random >> 8) % (1 << 30) / 64 * 64
        );
    }
    fs::write(&path, text).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_pmep"))
        .args(["advise", path.to_str().unwrap(), "--json"])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let best = &json[1];
    assert_eq!(best["change"], "whole lines of 256 B instead of parts");
    assert!(best["gain"].as_f64().unwrap() > 1.5, "{json}");
    let cached = json.as_array().unwrap().iter();
    let cached = cached.filter(|it| it["change"] == "ntstore instead of cached stores");
    assert!(cached.clone().count() == 1);
    for it in cached {
        assert_eq!(it["gain"], 1.0);
    }
}
