//! Goal: a process killed at any store harms nobody: another one cleans up on the live memory while
//! a third is in the middle of a call, and finds the dead one's call wholly done or wholly undone,
//! nothing locked, no bit, lane or intent left. Method: the kill model over one store in six of
//! every kind of call, others each day (`YAT_SEED`), in `ordered` mode of the calls that it
//! changes; over one in twenty of those that store hundreds of words alike, and none of one that
//! stores thousands. The campaign has them all (`yat kill --set kinds`).

use pmfs::{DataMode, ROOT_INO};
use std::time::Duration;
use yat::campaign::seed_of_the_day;
use yat::files::FileSystem;
use yat::files::kinds::kinds;
use yat::kill::{kill_and_call, kill_one_in};

/// 512 blocks that are copied.
const LONG: &str = "merge of leaves that lie apart";
/// Hundreds of pointers, or of names, in a large pool: four fifths of the time that all kinds take.
const ALIKE: [&str; 3] = [
    "write over the edge of two such holes",
    "create that splits a bucket down to a second node",
    "write in a hole that takes a large leaf",
];
const ONE_IN_ALIKE: u64 = 20;
/// One store in so many of the others.
const ONE_IN: u64 = 6;

fn run(mode: DataMode) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let only = std::env::var("YAT_ONLY").ok();
    let seed = seed_of_the_day();
    println!("YAT_SEED={seed}");
    let (mut total, mut failures) = (0, Vec::new());
    for kind in kinds() {
        if only
            .as_ref()
            .is_some_and(|only| !kind.name.contains(only.as_str()))
        {
            continue;
        }
        let same = mode == DataMode::Ordered && !kind.overwrites;
        if only.is_none() && (kind.name == LONG || same) {
            continue;
        }
        let one_in = match ALIKE.contains(&kind.name) {
            _ if only.is_some() => 1,
            true => ONE_IN_ALIKE,
            false => ONE_IN,
        };
        let program = FileSystem::of_kind(&kind, mode);
        match kill_one_in(&program, 0, dir.path(), one_in, seed) {
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

/// Goal: a process that meets a lock of a dead one while it holds others cleans up without waiting
/// for itself. Method: the dead one held open the file that the survivor appends to, and dies at
/// any store of an append to another: also with a block group locked, which the survivor needs when
/// it has locked the file.
#[test]
fn a_waiter_cleans_up_whatever_it_holds() {
    let kinds = kinds();
    let kind = kinds
        .iter()
        .find(|kind| kind.name == "append across blocks")
        .expect("a kind");
    let program = FileSystem::of_kind(kind, DataMode::Atomic);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
        let kills = kill_and_call(&program, dir.path(), |fs| {
            let dir = fs.lookup(ROOT_INO, b"dir")?.ino;
            let blank = fs.lookup(dir, b"blank")?.ino;
            fs.append(blank, &[b'b'; 9000]).map(drop)
        });
        done.send(kills).expect("somebody waits");
    });
    let kills = is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("nobody waits for ever");
    assert!(kills.expect("no violation") > 20);
}
