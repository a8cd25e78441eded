//! Goal: mapped bytes and accesses by thread are those that the program has counted, for each
//! size, kind of store, order and number of threads, and intervals of 95 % hold the truth as often
//! as they say. Method: `pmm-writer` for some seconds in each row of a table, recorded from its
//! beginning.
//!
//! `PMMON_MATRIX_SECONDS` is the time of a row of `the_whole_matrix`, `PMMON_MATRIX_SIZE` the size
//! of its file: a large one has few hits, a small one many traps, which slow the program.
//! `PMMON_MATRIX_EACH` takes each n-th row alone, `PMMON_MATRIX_RUNS` runs each so often.

use std::collections::BTreeMap;
use std::env;
use std::panic::catch_unwind;
use std::time::Duration;

use serde_json::Value;

use super::{Load, number, recorded_for, report, works};

const ORDERS: [&str; 3] = ["seq", "random", "zipf:0.99"];

/// A row: bytes of an access, kind, order, threads.
type Row = (u32, &'static str, &'static str, u32);

/// The figures of threads against their counts.
#[derive(Debug, Default)]
struct Errors {
    bytes: f64,
    accesses: f64,
    /// Half of the widest interval of bytes, in parts of the truth.
    half: f64,
    hits: f64,
    held: u32,
    intervals: u32,
    /// The writer got a debug trap without a cause, which would have ended another program.
    is_stray: bool,
}

impl Errors {
    fn add(&mut self, row: &Value, counted: &Value, pieces: f64) {
        let written = &row["written"];
        let truth = number(&counted["written_bytes"]);
        let accesses = number(&counted["written_accesses"]) * pieces;
        let (low, high) = (number(&written["low"]), number(&written["high"]));
        let off = |value: &Value, truth: f64| (number(value) / truth - 1.0).abs();
        self.bytes = self.bytes.max(off(&written["bytes"], truth));
        self.accesses = self
            .accesses
            .max(off(&written["accesses"]["value"], accesses));
        self.half = self.half.max((high - low) / 2.0 / truth);
        self.hits += number(&written["hits"]);
        self.intervals += 2;
        self.held += u32::from(low <= truth && truth <= high);
        let ends = &written["accesses"];
        self.held +=
            u32::from(number(&ends["low"]) <= accesses && accesses <= number(&ends["high"]));
    }
}

/// Runs a row. `None` where the CPU has no such store.
fn measure((bytes, store, order, threads): Row, size: &str, time: Duration) -> Option<Errors> {
    let text = |number: u32| number.to_string();
    let (access, threads) = (text(bytes), text(threads));
    // More than can be written in the time: SIGTERM ends it.
    let load = Load::maybe(&[
        "--size",
        size,
        "--total",
        "3072T",
        "--access",
        &access,
        "--store",
        store,
        "--order",
        order,
        "--threads",
        &threads,
    ])?;
    let (truth, _dir, to) = recorded_for(load, &[], Some(time));
    let round = report(&to, "thread");
    let process = &round["processes"][0];
    let rows = process["threads"].as_array().unwrap();
    let mut errors = Errors {
        is_stray: truth["stray_trap"] == true,
        ..Errors::default()
    };
    for counted in truth["threads"].as_array().unwrap() {
        let row = rows.iter().find(|row| row["tid"] == counted["tid"]);
        let row = row.unwrap_or_else(|| panic!("no thread {}: {round}", counted["tid"]));
        errors.add(row, counted, f64::from(bytes.div_ceil(64)));
        let sizes = row["written"]["sizes"].as_object().unwrap();
        // No hit, no size.
        let piece = text(bytes.min(64));
        assert!(sizes.keys().all(|size| *size == piece), "{row}");
    }
    Some(errors)
}

/// Prints the table, and returns by order how many intervals there were and how many held.
fn table(rows: &[Row], size: &str, time: Duration) -> BTreeMap<&'static str, (u32, u32)> {
    println!(
        "| bytes | stores | order | threads | bytes off | accesses off | half interval | hits | held |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut shares = BTreeMap::<_, (u32, u32)>::new();
    let mut stray = 0;
    for row in rows {
        let (bytes, store, order, threads) = row;
        let measured = catch_unwind(|| measure(*row, size, time));
        let Ok(Some(errors)) = measured else {
            let why = measured.map_or("not measured", |_| "no such instruction");
            println!("| {bytes} | {store} | {order} | {threads} | {why} |");
            continue;
        };
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        println!(
            "| {bytes} | {store} | {order} | {threads} | {} | {} | {} | {} | {} of {} |",
            percent(errors.bytes),
            percent(errors.accesses),
            percent(errors.half),
            errors.hits,
            errors.held,
            errors.intervals
        );
        stray += u32::from(errors.is_stray);
        let share = shares.entry(*order).or_default();
        share.0 += errors.intervals;
        share.1 += errors.held;
    }
    if stray > 0 {
        println!("in {stray} rows a debug trap without a cause came to the writer");
    }
    for (order, (intervals, held)) in &shares {
        let share = f64::from(*held) / f64::from(*intervals) * 100.0;
        println!("{order}: {held} of {intervals} intervals hold the truth, {share:.1} %");
    }
    shares
}

#[test]
fn a_slice_of_the_matrix() {
    if !works("watch") {
        return;
    }
    let rows = [
        (1, "temporal", "random", 1),
        (64, "nt", "seq", 2),
        (256, "temporal", "random", 1),
        (8, "temporal", "seq", 4),
    ];
    let shares = table(&rows, "2M", Duration::from_secs(1));
    let (intervals, held) = shares
        .values()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(intervals >= 4, "{shares:?}");
    // Eight threads, two figures each: more than a half outside is no matter of luck.
    assert!(held * 2 >= intervals, "{shares:?}");
}

#[test]
#[ignore = "the whole table: an hour and a half with 20 s a row, in `make check-long`"]
fn the_whole_matrix() {
    if !works("watch") {
        return;
    }
    let given = |name: &str, default: f64| {
        env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let seconds = given("PMMON_MATRIX_SECONDS", 20.0);
    let each = given("PMMON_MATRIX_EACH", 1.0) as usize;
    let runs = given("PMMON_MATRIX_RUNS", 1.0) as usize;
    let size = env::var("PMMON_MATRIX_SIZE").unwrap_or_else(|_| "3M".to_owned());
    let mut rows = Vec::new();
    for order in ORDERS {
        for store in ["temporal", "nt"] {
            for bytes in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
                rows.extend((1..=4).map(|threads| (bytes, store, order, threads)));
            }
        }
    }
    let rows: Vec<Row> = rows.into_iter().step_by(each.max(1)).collect();
    let rows = rows.iter().flat_map(|row| vec![*row; runs]);
    let rows: Vec<Row> = rows.collect();
    // A machine whose debug traps are not sound refuses some of them, which is told above.
    let shares = table(&rows, &size, Duration::from_secs_f64(seconds));
    assert!(!shares.is_empty(), "no row could be measured");
}
