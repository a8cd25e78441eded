//! Goal: a process killed at any store harms none of those that share its heap: what it did is
//! wholly done or wholly undone, what it held is free, no room is lost, and what others saw
//! survives power. Method: the kill model, exhaustive over stores, flushes and fences, of
//! transactions, of containers' calls, of attaching, of leaving, and of a rescue. One call in eight
//! (`YAT_HEAP_ONE_IN`) is tried, another part each day (`YAT_SEED`).

use yat::campaign::{number, seed_of_the_day};
use yat::heap::kill::{Finds, Kills, OnHeap, What, kill_everywhere, race_everywhere};
use yat::heap::{containers_killed, killed};
use yat::program::Program;

fn all<P: OnHeap>(programs: &[P], what: impl Fn(&P) -> Vec<What>, finds: Finds) -> Kills {
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let one_in = number("YAT_HEAP_ONE_IN", 8);
    let mut call = seed_of_the_day();
    let mut total = Kills::default();
    for program in programs {
        for what in what(program) {
            call += 1;
            if !call.is_multiple_of(one_in) {
                continue;
            }
            if !format!("{}: {what:?}", program.name()).contains(&only) {
                continue;
            }
            let kills =
                kill_everywhere(program, what, finds).unwrap_or_else(|text| panic!("{text}"));
            println!("{kills:?}: {what:?} of {}", program.name());
            total += kills;
        }
    }
    println!("{finds:?}: {total:?}");
    total
}

fn steps(program: &impl OnHeap) -> Vec<What> {
    (0..program.steps()).map(What::Step).collect()
}

#[test]
fn transactions_are_killed() {
    let kills = all(&killed(), steps, Finds::Looking);
    assert!(kills.undone > 0 && kills.undone < kills.kills);
}

/// Calls of containers: with a new segment and without, alone and in transactions.
#[test]
fn calls_of_containers_are_killed() {
    let kills = all(&containers_killed(), steps, Finds::Looking);
    assert!(kills.undone > 0 && kills.undone < kills.kills);
}

#[test]
fn who_needs_a_container_of_the_dead_cleans_up() {
    all(&containers_killed(), steps, Finds::Waiting);
}

#[test]
fn who_needs_what_the_dead_held_cleans_up() {
    all(&killed(), steps, Finds::Waiting);
}

/// The cleaner after a dead one is killed too, at each of its stores; of three places where the
/// first one may die, one.
#[test]
fn a_cleaner_may_die() {
    let programs = killed();
    let mut total = Kills::default();
    for program in [&programs[2], &programs[5], &programs[9]] {
        for what in (1..400).step_by(3).map(What::Rescue) {
            let kills = kill_everywhere(program, what, Finds::Looking);
            let kills = kills.unwrap_or_else(|text| panic!("{text}"));
            if kills.kills == 0 {
                break;
            }
            total += kills;
        }
    }
    println!("{total:?} after another");
    assert!(total.kills > 1000);
}

/// Nothing that another one has committed since is stored over.
#[test]
fn who_comes_after_the_dead_comes_last() {
    let program = &killed()[10];
    assert!(program.name().contains("Edit(1, 1)"));
    let kills = race_everywhere(program).unwrap_or_else(|text| panic!("{text}"));
    println!("{kills} kills with another one at the same word");
    assert!(kills > 20);
}

#[test]
fn attaching_and_leaving_are_killed() {
    let program = &killed()[0];
    for what in [What::Attach, What::Leave] {
        let kills = kill_everywhere(program, what, Finds::Looking);
        let kills = kills.unwrap_or_else(|text| panic!("{text}"));
        println!("{kills:?}: {what:?}");
        assert!(kills.kills > 10);
    }
}
