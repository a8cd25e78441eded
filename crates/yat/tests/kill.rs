//! Goal: a process killed at any store harms nobody: another one cleans up on the live memory, and finds the
//! call wholly done or wholly undone, nothing locked, no bit, lane or intent left.
//! Method: the kill model, exhaustive over the stores of every kind of call, in both data modes.

use pmfs::DataMode;
use yat::kill::kill_everywhere;
use yat::workload::one_call;

fn run(mode: DataMode) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let only = std::env::var("YAT_ONLY").ok();
    let (mut total, mut failures) = (0, Vec::new());
    for workload in one_call() {
        if only
            .as_ref()
            .is_some_and(|only| !workload.name.contains(only.as_str()))
        {
            continue;
        }
        match kill_everywhere(&workload, mode, dir.path()) {
            Ok(kills) => {
                println!(
                    "{mode:?} {:34} {:4} kills, {:4} undone",
                    workload.name, kills.kills, kills.undone
                );
                total += kills.kills;
            }
            Err(text) => failures.push(text),
        }
    }
    println!("{mode:?}: {total} kills");
    assert!(
        failures.is_empty(),
        "{} violations:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn atomic() {
    run(DataMode::Atomic);
}

#[test]
fn ordered() {
    run(DataMode::Ordered);
}
