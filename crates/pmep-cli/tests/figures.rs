//! Goal: a file of points becomes a page, or one line that names the cause. Method: invented points
//! through the program; the dots, lines and errors of the page are counted.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

const HEAD: &str = "figure,machine,media,dimms,interleaved,op,pattern,access_B,stride_B,threads,power_mW,metric,value\n";

fn row(threads: u32, value: f64) -> String {
    format!("fast20-4-optane6,a<b,optane,6,1,load,seq,256,256,{threads},15000,bandwidth,{value}\n")
}

fn pmep(arguments: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_pmep"))
        .args(arguments)
        .env_remove("PMEP_DATA")
        .output();
    run.expect("pmep runs")
}

#[test]
fn points_become_a_page() {
    let dir = TempDir::new().unwrap();
    let (data, page) = (dir.path().join("points.csv"), dir.path().join("page.html"));
    // The second is a hundred times what modules give.
    let text = format!("{HEAD}{}{}{}", row(1, 3.0), row(4, 1000.0), row(8, 20.0));
    fs::write(&data, text).unwrap();
    let (data, out) = (data.to_str().unwrap(), page.to_str().unwrap());
    let run = pmep(&["figures", "--data", data, "-o", out]);
    assert!(run.status.success(), "{run:?}");
    let page = fs::read_to_string(&page).unwrap();
    // Three points and twelve of Memory Mode.
    assert_eq!(page.matches("<circle").count(), 15, "{page}");
    assert_eq!(page.matches("<polyline class=").count(), 2);
    assert!(page.contains("of 3 points"), "{page}");
    assert!(page.contains("a&lt;b") && !page.contains("a<b"), "{page}");
    let worst = page.split("Furthest off").nth(1).unwrap();
    let first = worst.split("<tr>").nth(2).unwrap();
    assert!(
        first.ends_with("<td>3"),
        "the row of 1000 GiB/s is in line 3: {first}"
    );
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

/// Goal: pairs of ratio and bandwidth are a chart of their own, of stores past the cache alone.
#[test]
fn ratios_and_bandwidths_are_drawn() {
    let dir = TempDir::new().unwrap();
    let (data, page) = (dir.path().join("points.csv"), dir.path().join("page.html"));
    let mut text = format!("{},note\n", HEAD.trim_end());
    let mut add = |op: &str, note: &str| {
        text += &format!("fast20-9,m,optane,,,{op},unknown run 1,,,,,EWR,0.5,{note}\n");
    };
    for (op, note) in [
        ("ntstore", "bandwidth 1.25 GiB/s"),
        ("ntstore", "bandwidth NaN GiB/s"),
        ("ntstore", "another note"),
        ("store", "bandwidth 0.5 GiB/s"),
    ] {
        add(op, note);
    }
    text += &row(1, 3.0).replace('\n', ",\n");
    fs::write(&data, text).unwrap();
    let (data, out) = (data.to_str().unwrap(), page.to_str().unwrap());
    let run = pmep(&["figures", "--data", data, "-o", out]);
    assert!(run.status.success(), "{run:?}");
    let page = fs::read_to_string(&page).unwrap();
    // One of each figure, and twelve of Memory Mode.
    assert_eq!(page.matches("<circle").count(), 14, "{page}");
    assert_eq!(page.matches("of 1 points").count(), 2, "{page}");
    assert!(
        page.contains("FAST'20 9") || page.contains("FAST&#39;20 9"),
        "{page}"
    );
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn what_gives_no_page_is_told() {
    let dir = TempDir::new().unwrap();
    let (data, out) = (dir.path().join("points.csv"), dir.path().join("page.html"));
    fs::write(&data, HEAD).unwrap();
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    for (arguments, way_out) in [
        (vec!["figures", "-o", out], "PMEP_DATA"),
        (
            vec!["figures", "--data", data, "-o", out],
            "the column `figure`",
        ),
        (
            vec!["figures", "--data", "/none", "-o", out],
            "give a CSV file",
        ),
        (
            vec!["figures", "--data", data, "--device", "dram", "-o", out],
            "optane-100",
        ),
    ] {
        let run = pmep(&arguments);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(
            said.contains(way_out) && said.lines().count() == 1,
            "{said}"
        );
    }
}
