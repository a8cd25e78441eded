//! Goal: what processes share beside the tree stays right when one of them dies or stops at any
//! store: open files, open counts, file locks, pages of mounts, slots for children; also if who
//! dies is cleaning up after another. Method: scenes of two processes, exhaustive over the stores
//! of the first one's call; one scene in two (`YAT_TABLES_ONE_IN`), others each day (`YAT_SEED`).

use yat::campaign::{number, seed_of_the_day};
use yat::tables::{play, scenes};

#[test]
fn every_scene() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    let one_in = match only.is_empty() {
        true => number("YAT_TABLES_ONE_IN", 2),
        false => 1,
    };
    let seed = seed_of_the_day();
    println!("YAT_TABLES_ONE_IN={one_in} YAT_SEED={seed}");
    let chosen = (seed..).zip(scenes());
    let chosen = chosen
        .filter(|(number, scene)| number.is_multiple_of(one_in) && scene.name.contains(&only));
    for (_, scene) in &chosen.collect::<Vec<_>>() {
        let mut stops = 0;
        match play(scene, dir.path(), &mut stops) {
            Ok(()) => println!("{:70} {stops:5} stops", scene.name),
            Err(text) => failures.push(text),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
