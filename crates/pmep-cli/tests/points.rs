//! Goal: a file of points leads to predictions or to one line that names the place. Method: small
//! files, whole and damaged, through the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const HEAD: &str = "id,figure,machine,media,dimms,interleaved,op,pattern,access_B,stride_B,threads,power_mW,metric,rep,value,tier,note\n";
const CHAIN: &str = "b,perma-latency,perma-6dimms,optane,6,1,\"rp_64,wp_64_cache\",custom,,,32,,throughput,1,1,A,\n";
const ROW: &str = "a,sweep,ucsd-aep1,optane,6,1,load,rand,256,,4,15000,bandwidth,1,1,C,\n";

fn pmep(arguments: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_pmep"))
        .args(arguments)
        .output();
    run.expect("pmep runs")
}

fn file(dir: &TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("points.csv");
    fs::write(&path, text).unwrap();
    path
}

fn predict(path: &Path, out: &Path) -> Output {
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    pmep(&["predict", "--points", path, "-o", out])
}

#[test]
fn answered_rows_are_written_and_others_counted() {
    let dir = TempDir::new().unwrap();
    let dram = ROW.replace("optane", "dram");
    let path = file(&dir, &format!("{HEAD}{ROW}{dram}"));
    let out = dir.path().join("out.csv");
    let run = predict(&path, &out);
    assert!(run.status.success());
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.starts_with("1 of 2 rows are predicted"), "{said}");
    let text = fs::read_to_string(&out).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    let value: f64 = text.trim_end().rsplit(',').next().unwrap().parse().unwrap();
    assert!((5.0..20.0).contains(&value), "{value}");
}

/// Goal: chains are answered, and what of them is not modelled is told. Method: one row of each.
#[test]
fn chains_are_answered_but_for_percentiles() {
    let dir = TempDir::new().unwrap();
    let average = CHAIN.replace("throughput", "latency_avg");
    let percentile = CHAIN.replace("throughput", "latency_percentile_99");
    let beside = CHAIN.replace("p_64", "d_64");
    let path = file(&dir, &format!("{HEAD}{CHAIN}{average}{percentile}{beside}"));
    let out = dir.path().join("out.csv");
    let run = predict(&path, &out);
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.starts_with("2 of 4 rows are predicted"), "{said}");
    assert!(said.contains("only the average is modelled"), "{said}");
    assert!(said.contains("meets no module"), "{said}");
    let text = fs::read_to_string(&out).unwrap();
    let values: Vec<f64> = (text.lines().skip(1))
        .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
        .collect();
    assert!((2e7..8e7).contains(&values[0]), "{values:?}");
    assert!((300.0..2000.0).contains(&values[1]), "{values:?}");
}

/// Goal: groups of threads and modules, fences and hot spots are answered by the forms of patterns.
/// Method: a row of each, beside the row of the pattern that it is.
#[test]
fn further_figures_are_answered_by_the_same_forms() {
    let rows = "\
        sweep|1|load|rand|256|4|bandwidth
        fast20-16|6|load|rand; threads-per-DIMM spread 1 thread(s) per DIMM|256|24|bandwidth
        sweep|6|load|rand|256|24|bandwidth
        fast20-16|6|load|rand; threads-per-DIMM spread 6 thread(s) per DIMM|256|24|bandwidth
        sweep|1|ntstore|seq|64|1|bandwidth
        fast20-14|1|ntstore|seq; fence interval|64|1|bandwidth
        fast20-14|1|ntstore|seq; fence interval|1048576|1|bandwidth
        fast20-3|1|ntstore|hotspot|4096|1|latency_p99.999
        fast20-3|1|ntstore|hotspot|1048576|1|latency_p99.999
        fast20-16|6|load|rand; threads-per-DIMM spread 4 thread(s) per DIMM|256|24|bandwidth
        fast20-3|1|ntstore|hotspot|1048576|1|latency_max";
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim().split('|').collect();
        let [figure, dimms, op, pattern, bytes, threads, metric] = cells[..] else {
            panic!("{line}");
        };
        format!(
            "a,{figure},ucsd,optane,{dimms},1,{op},{pattern},{bytes},,{threads},15000,{metric},1,1,A,\n"
        )
    };
    let rows: String = rows.lines().map(row).collect();
    let dir = TempDir::new().unwrap();
    let path = file(&dir, &format!("{HEAD}{rows}"));
    let out = dir.path().join("out.csv");
    let said = String::from_utf8(predict(&path, &out).stderr).unwrap();
    assert!(said.starts_with("9 of 11 rows are predicted"), "{said}");
    let text = fs::read_to_string(&out).unwrap();
    let values: Vec<f64> = (text.lines().skip(1))
        .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
        .collect();
    assert!(
        (values[1] / values[0] / 6.0 - 1.0).abs() < 1e-5,
        "{values:?}"
    );
    assert_eq!(values[2], values[3]);
    // A fence behind each 64 B waits; one behind each MiB does not matter.
    assert!(
        values[5] < values[4] / 4.0 && values[6] > values[4] * 0.9,
        "{values:?}"
    );
    assert_eq!(values[7..], [52.0, 0.37]);
}

#[test]
fn a_fault_names_its_line_and_ends_with_2() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out.csv");
    let cases = [
        (ROW.replace(",4,15000", ",0,15000"), "line 3"),
        (ROW.replace(",4,15000", ",four,15000"), "line 3"),
        (ROW.replace("rand,256", "rand,0"), "line 3"),
        (ROW.replace(",6,1,load", ",0,1,load"), "line 3"),
        (ROW.replace("15000", "-1"), "line 3"),
        (CHAIN.replace("_cache", ""), "line 3, column `op`, step 2"),
        (CHAIN.replace(",32,", ",0,"), "line 3"),
        ("a,b\n".to_owned(), "line 3"),
        ("\"\u{0}".to_owned(), "line 3"),
    ];
    for (row, place) in cases {
        let path = file(&dir, &format!("{HEAD}{ROW}{row}"));
        let run = predict(&path, &out);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{row}: {said}");
        assert!(said.contains(place), "{row}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let path = file(&dir, &HEAD.replace("threads", "thread"));
    let run = predict(&path, &out);
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(
        said.contains("line 1") && said.contains("`threads`"),
        "{said}"
    );
}

#[test]
fn wrong_options_are_one_line_each() {
    let cases: [&[&str]; 7] = [
        &["predict", "--device", "no"],
        &["predict", "--dimms", "0"],
        &["predict", "--access", "0"],
        &[
            "predict",
            "--pattern",
            "strided",
            "--access",
            "256",
            "--stride",
            "64",
        ],
        &["predict", "--power", "lots"],
        &["predict", "--op", "erase"],
        &["devices", "/nowhere/x.toml"],
    ];
    for arguments in cases {
        let run = pmep(arguments);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(';'), "no way out: {said}");
    }
}

#[test]
fn many_threads_are_marked() {
    let run = pmep(&["predict", "--threads", "48"]);
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(
        said.contains("extrapolated") && said.contains("GiB/s"),
        "{said}"
    );
    let run = pmep(&["predict", "--threads", "48", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(json["extrapolated"], true);
    assert!(json["bandwidth_gib_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn numbers_have_unit_source_and_uncertainty() {
    let run = pmep(&["devices", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    for device in json.as_array().unwrap() {
        assert!(device["free_numbers"].as_u64().unwrap() <= 40);
        for number in device["numbers"].as_array().unwrap() {
            assert!(!number["unit"].as_str().unwrap().is_empty());
            assert!(number["source"].as_str().unwrap().len() > 3);
            assert_eq!(number["fitted"], number["uncertainty"].is_number());
        }
    }
}

/// Goal: a reader that went away is no error. Method: stdout is a pipe that nobody reads.
#[test]
fn a_reader_that_went_away_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = Command::new(env!("CARGO_BIN_EXE_pmep"))
        .args(["devices", "--json"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0));
    assert!(
        run.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

/// The measured points beside the repository, or the place that an environment variable names.
fn measured() -> Option<PathBuf> {
    let named = std::env::var_os("PMEP_DATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/optane/train.csv");
    let path = named.unwrap_or(beside);
    match path.exists() {
        true => Some(path),
        false => {
            println!("skipped: no {}", path.display());
            None
        }
    }
}

/// Goal: a mixed-up column, unit, buffer or interleaving is found without the measured points, by
/// the assertion that it breaks. Method: each is planted.
#[test]
fn planted_faults_break_an_assertion() {
    let run = pmep(&["check"]);
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success() && !said.contains("MISSED"), "{said}");
    for (planted, broken) in [
        (
            "swapped-columns",
            "a thread stores 4.2 GiB/s past the cache",
        ),
        ("gigabytes", "3 six modules read 39.4 GB/s"),
        ("buffer32", "16 KiB fit into the buffer"),
        ("interleave8k", "8 random reads dip at 4 KiB"),
    ] {
        let run = pmep(&["check", "--planted", planted]);
        let said = String::from_utf8(run.stdout).unwrap();
        assert_eq!(run.status.code(), Some(1), "{planted}: {said}");
        assert!(said.contains(&format!("MISSED {broken}")), "{said}");
    }
}

#[test]
fn goals_are_met_and_planted_faults_are_found() {
    let Some(data) = measured() else {
        return;
    };
    let data = data.to_str().unwrap();
    let run = pmep(&["check", "--quick", "--data", data]);
    let said = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{said}");
    for planted in ["swapped-columns", "gigabytes", "buffer32", "interleave8k"] {
        let run = pmep(&["check", "--data", data, "--planted", planted]);
        assert_eq!(run.status.code(), Some(1), "{planted}");
    }
}

/// Goal: the same data give the same bytes, and the shipped device is their fit. Method: two fits.
#[test]
fn a_fit_is_the_shipped_device() {
    let Some(data) = measured() else {
        return;
    };
    let shipped = include_str!("../../pmep/src/device/optane-100.toml");
    let shipped: String = shipped
        .lines()
        .skip(1)
        .map(|line| format!("{line}\n"))
        .collect();
    for _ in 0..2 {
        let run = pmep(&["fit", "--data", data.to_str().unwrap()]);
        assert_eq!(String::from_utf8(run.stdout).unwrap(), shipped);
    }
}

/// Goal: no measured value is in the tree. Method: values of at least five digits, as texts, are
/// looked for in the crates' files.
#[test]
fn no_measured_value_is_in_the_tree() {
    let Some(data) = measured() else {
        return;
    };
    let text = fs::read_to_string(data).unwrap();
    let column = text
        .lines()
        .next()
        .unwrap()
        .split(',')
        .position(|name| name == "value");
    let digits = |value: &str| {
        let of_zeros = value.trim_start_matches(['0', '.']);
        of_zeros.bytes().filter(u8::is_ascii_digit).count()
    };
    // The column stands behind a quoted one in some rows: numbers of a row's end are enough.
    let from_end = text.lines().next().unwrap().split(',').count() - column.unwrap();
    let values: std::collections::HashSet<&str> = (text.lines().skip(1))
        .filter_map(|line| line.rsplit(',').nth(from_end - 1))
        .filter(|value| value.parse::<f64>().is_ok() && digits(value) >= 5)
        .collect();
    assert!(values.len() > 1000);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in [
        "src",
        "tests",
        "../pmep/src",
        "../pmep/src/device",
        "../pmep/src/analytic",
    ] {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                files.push(path);
            }
        }
    }
    files.push(root.join("../../docs/MODEL.md"));
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for word in text.split(|c: char| !(c.is_ascii_digit() || c == '.')) {
            assert!(!values.contains(word), "{word} in {}", path.display());
        }
    }
}
