//! Goal: a process killed at any store of a key-value engine's call harms none of those that share
//! its heap: the call is wholly done or wholly undone, and what others saw survives power. Method:
//! the kill model, exhaustive over stores, flushes and fences, with a third process in the middle
//! of a transaction.

use yat::heap::keyed::seen_early;
use yat::heap::keyed_killed;
use yat::heap::kill::{Finds, Kills, What, kill_everywhere};
use yat::program::Program;

#[test]
fn calls_of_an_engine_are_killed() {
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let mut total = Kills::default();
    for program in keyed_killed() {
        if !program.name().contains(&only) {
            continue;
        }
        for what in (0..program.steps()).map(What::Step) {
            let kills = kill_everywhere(&program, what, Finds::Looking);
            let kills = kills.unwrap_or_else(|text| panic!("{text}"));
            println!("{kills:?}: {what:?} of {}", program.name());
            total += kills;
        }
    }
    println!("{total:?}");
    assert!(total.undone > 0 && total.undone < total.kills);
}

/// Goal: a reader sees nothing of a call that is not durable. Method: it looks before each store
/// and flush up to the call's fence.
#[test]
fn nothing_is_seen_before_its_fence() {
    let looks = seen_early(&keyed_killed()[0]).unwrap_or_else(|text| panic!("{text}"));
    println!("{looks} looks");
    assert!(looks > 10);
}
