//! Goal: a clone of a tree, a snapshot, its deletion and its second place are there whole or not at
//! all after any crash, and the next such call cleans up what is left. Method: both models over
//! such calls on a prepared pool: power loss in one kind in two (`YAT_TREES_ONE_IN`), and kills at
//! one store in 100, others each day (`YAT_SEED`). The campaign has them all (`yat power|kill --set
//! trees`).

use pmfs::DataMode;
use yat::campaign::{number, seed_of_the_day};
use yat::explore::{Options, explore};
use yat::files::FileSystem;
use yat::files::trees::kinds;
use yat::kill::kill_one_in;

const ONE_IN: u64 = 100;

#[test]
fn power_loss() {
    let (one_in, seed) = (number("YAT_TREES_ONE_IN", 2), seed_of_the_day());
    println!("YAT_TREES_ONE_IN={one_in} YAT_SEED={seed}");
    let chosen = (seed..).zip(kinds());
    for (_, kind) in chosen.filter(|(number, _)| number.is_multiple_of(one_in)) {
        let program = FileSystem::of_kind(&kind, DataMode::Atomic);
        let explored = explore(&program, Options::default());
        let counts = match explored.expect("a call that can be made") {
            Ok(counts) => counts,
            Err(violation) => panic!("{violation:#?}"),
        };
        println!(
            "{:36} {:4} points {:6} images, {} points sampled",
            kind.name, counts.points, counts.images, counts.sampled
        );
        assert!(counts.points > 20, "{}", kind.name);
    }
}

#[test]
fn kills() {
    let seed = seed_of_the_day();
    println!("YAT_SEED={seed}");
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    for kind in kinds() {
        let program = FileSystem::of_kind(&kind, DataMode::Atomic);
        let kills = kill_one_in(&program, 0, dir.path(), ONE_IN, seed);
        let kills = kills.unwrap_or_else(|text| panic!("{}: {text}", kind.name));
        println!(
            "{:36} {:4} kills, {:4} undone",
            kind.name, kills.kills, kills.undone
        );
        assert!(kills.kills > 5, "{}", kind.name);
    }
}
