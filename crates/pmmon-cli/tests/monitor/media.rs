//! Goal: media bytes are those of a program whose amplification is known, marked as a model.
//! Method: `pmm-writer` in order and anywhere, recorded with pairs of words, and traces of the
//! same orders.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::{Load, json, number, output, recorded_for, report, works};

/// The amplification that a recording of a load tells, and its ends.
fn amplification(arguments: &[&str]) -> (f64, f64, f64) {
    let load = Load::new(arguments);
    let (_, _dir, to) = recorded_for(load, &["--media"], Some(Duration::from_secs(4)));
    let round = report(&to, "process");
    assert_eq!(round["media_model"]["kind"], "model", "{round}");
    assert_eq!(round["media_model"]["device"], "optane-100");
    let assumes = round["media_model"]["assumes"].as_array().unwrap();
    assert!(assumes.len() >= 3, "{round}");
    let row = &round["processes"][0];
    let media = &row["media"];
    assert_eq!(
        (&media["kind"], &media["by"]),
        (&Value::from("model"), &Value::from("neighbours"))
    );
    let ratio = &media["amplification"];
    println!("{arguments:?}: {ratio}, {} hits", row["written"]["hits"]);
    (
        number(&ratio["value"]),
        number(&ratio["low"]),
        number(&ratio["high"]),
    )
}

#[test]
fn orders_are_told_apart() {
    if !works("watch") {
        return;
    }
    let load = |order, access| {
        let total = ["--total", "3072T", "--size", "3M", "--store", "nt"];
        amplification(&[&["--access", access, "--order", order], &total[..]].concat())
    };
    let stores_lines = is_x86_feature_detected!("avx512f");
    let (value, low, high) = load("seq", if stores_lines { "256" } else { "16" });
    assert!(
        (0.95..=1.25).contains(&value),
        "in order: {value} ({low} to {high})"
    );
    // Words anywhere have too few neighbours among those that are watched to tell; the traces below
    // have this order for every CPU.
    if stores_lines {
        let (value, low, high) = load("random", "64");
        assert!(
            (3.5..=4.1).contains(&value),
            "anywhere: {value} ({low} to {high})"
        );
    }
}

/// A trace of stores as text, and its table.
fn traced(bytes: u64, address: impl Fn(u64) -> u64) -> Value {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace");
    let mut text = String::new();
    for turn in 0..20_000 {
        writeln!(text, "{turn} {} nt {} {bytes}", turn % 2, address(turn)).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    json(&output(&[
        "report",
        path.to_str().unwrap(),
        "--by",
        "thread",
        "--json",
    ]))
}

#[test]
fn a_trace_has_its_media_bytes() {
    let mut place = 1_u64;
    let places: Vec<u64> = (0..20_000)
        .map(|_| {
            place = place
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (place >> 40) * 64
        })
        .collect();
    let (ordered, random) = (
        traced(256, |turn| turn * 256),
        traced(64, |turn| places[turn as usize]),
    );
    for (round, bytes, expected) in [(ordered, 256.0, 1.0), (random, 64.0, 4.0)] {
        let row = &round["processes"][0];
        assert_eq!(round["backend"][0], "replay");
        assert_eq!(number(&row["written"]["bytes"]), bytes * 20_000.0);
        assert_eq!(
            row["written"]["low"], row["written"]["high"],
            "exact: {row}"
        );
        let media = &row["media"];
        assert_eq!(
            (&media["kind"], &media["by"]),
            (&Value::from("model"), &Value::from("trace"))
        );
        let ratio = number(&media["amplification"]["value"]);
        assert!((ratio / expected - 1.0).abs() < 0.05, "{row}");
        assert!((number(&media["ewr"]) * ratio - 1.0).abs() < 1e-9);
        let threads = row["threads"].as_array().unwrap().iter();
        let sum: f64 = threads
            .map(|one| number(&one["media"]["written_bytes"]))
            .sum();
        assert!(
            (sum / number(&media["written_bytes"]) - 1.0).abs() < 1e-6,
            "{row}"
        );
    }
}
