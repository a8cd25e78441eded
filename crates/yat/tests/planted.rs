//! Goal: the checker finds the bugs that the engine can be given on purpose, and nothing when it
//! has none. Method: one of the list's bugs in sixteen (`YAT_BUGS_ONE_IN`), others each day
//! (`YAT_SEED`), is hunted; beside them the same searches, with few workloads each, with no bug
//! there. `yat bugs` hunts them all.

#[path = "common/hunts.rs"]
mod hunts;
#[path = "common/part.rs"]
mod part;

use hunts::{hunt_each, hunted};
use part::of_the_day;
use pmfs::planted::{BUGS, Bug};
use yat::planted::Hunter;

/// A clean search tries one in so many of its workloads.
const CLEAN_ONE_IN: usize = 40;

#[test]
fn a_slice_is_found_and_nothing_else() {
    let chosen = of_the_day(BUGS.iter().map(|bug| bug.name), 16);
    // The clean one is long, and begins first.
    hunt_each([""].into_iter().chain(chosen).collect());
}

#[test]
#[ignore = "run as a child"]
fn one_hunt() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let hunter = |one_in| Hunter {
        dir: dir.path(),
        one_in,
    };
    let name = hunted();
    let Some(bug) = BUGS.iter().find(|bug| bug.name == name) else {
        assert!(name.is_empty(), "no bug is named {name}");
        let clean = hunter(CLEAN_ONE_IN).clean();
        println!("\nhunted nothing: {:?}", clean.seen);
        assert!(clean.finding.is_none(), "{:#?}", clean.finding);
        return;
    };
    found(&hunter(1), bug);
}

fn found(hunter: &Hunter<'_>, bug: &Bug) {
    let hunt = hunter.hunt(bug);
    let finding = hunt.finding.as_ref();
    let finding = finding.unwrap_or_else(|| panic!("not found: {}", bug.name));
    println!(
        "\nhunted {}: {}, {}, after {} states",
        bug.name,
        finding.search,
        finding.workload,
        hunt.states()
    );
}
