//! Goal: a process killed at any store harms nobody: another one cleans up on the live memory while a third is in the
//! middle of a call, and finds the dead one's call wholly done or wholly undone, nothing locked, no bit, lane or intent
//! left.
//! Method: the kill model, exhaustive over the stores of every kind of call, in both data modes.

use pmfs::DataMode;
use yat::files::FileSystem;
use yat::files::kinds::kinds;
use yat::kill::kill_everywhere;

fn run(mode: DataMode) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let only = std::env::var("YAT_ONLY").ok();
    let (mut total, mut failures) = (0, Vec::new());
    for kind in kinds() {
        if only
            .as_ref()
            .is_some_and(|only| !kind.name.contains(only.as_str()))
        {
            continue;
        }
        match kill_everywhere(&FileSystem::of_kind(&kind, mode), 0, dir.path()) {
            Ok(kills) => {
                println!(
                    "{mode:?} {:34} {:4} kills, {:4} undone",
                    kind.name, kills.kills, kills.undone
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
