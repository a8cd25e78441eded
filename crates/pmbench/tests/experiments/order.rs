//! Round by round, point by point, the targets in turn, each time another one first.

use crate::Bench;

const STEPS: &str = r#"
[steps]
shared = ["echo shared >>$LOG; echo 7 >{shared}/given"]
prepare = ["echo prepare >>$LOG"]
before = ["echo before >>$LOG"]
run = "echo run {what} $(basename {place}) >>$LOG; echo value $(cat {shared}/given)"
after = ["echo after >>$LOG"]
"#;

#[test]
fn targets_take_turns_and_rounds_rotate_them() {
    let bench = Bench::new(STEPS);
    bench.run(&["--rounds", "2"]);
    let log = bench.log();
    let ran: Vec<String> = log
        .iter()
        .filter_map(|line| line.strip_prefix("run "))
        .map(str::to_owned)
        .collect();
    let rotated = |first: [&str; 3]| {
        ["one", "two"].map(|what| first.map(|target| format!("{what} {target}")))
    };
    let rounds = [rotated(["a", "b", "c"]), rotated(["b", "c", "a"])];
    // An outlier among this machine's control loops repeats a measurement at once.
    let mut wanted = Vec::new();
    for line in ran {
        if wanted.last() != Some(&line) {
            wanted.push(line);
        }
    }
    assert_eq!(wanted, rounds.concat().concat());
}

#[test]
fn steps_stand_in_their_order() {
    let bench = Bench::new(STEPS);
    bench.run(&["--rounds", "1", "--targets", "a"]);
    let log = bench.log();
    assert_eq!(log[..3], ["shared", "make a", "prepare"]);
    assert_eq!(log[3..6], ["before", "run one a", "after"]);
    assert_eq!(log.last().map(String::as_str), Some("unmount a"));
    let rows = bench.rows();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["value"], 7.0);
    assert_eq!(rows[0]["status"], "measured");
}

#[test]
fn any_directory_is_a_target() {
    let bench = Bench::new(STEPS);
    let dir = bench.path("mine");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    bench.run(&["--rounds", "1", "--targets", "a", "--dir", dir]);
    let rows = bench.rows();
    let of_dir = rows
        .iter()
        .filter(|row| row["target"] == format!("dir:{dir}"));
    assert_eq!(of_dir.count(), 2);
    assert_eq!(
        std::fs::read_dir(dir).unwrap().count(),
        0,
        "nothing is left in it"
    );
}
