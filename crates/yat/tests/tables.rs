//! Goal: what processes share beside the tree stays right when one of them dies or stops at any
//! store: open files, open counts, file locks, pages of mounts, slots for children; also if who
//! dies is cleaning up after another. Method: scenes of two processes, exhaustive over the stores
//! of the first one's call.

use yat::tables::{play, scenes};

#[test]
fn every_scene() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    for scene in scenes().iter().filter(|scene| scene.name.contains(&only)) {
        let mut stops = 0;
        match play(scene, dir.path(), &mut stops) {
            Ok(()) => println!("{:70} {stops:5} stops", scene.name),
            Err(text) => failures.push(text),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
