//! Goal: the checker finds the bugs that the engine can be given on purpose, and nothing when it has none.
//! Method: every twelfth bug of the list (`YAT_BUG`: those with this in their name) is hunted; then the same searches,
//! with few workloads each, with no bug there. `yat bugs` hunts them all.

use pmfs::planted::{BUGS, Bug};
use yat::planted::Hunter;

/// One test, for what is selected is the process's.
#[test]
fn a_slice_is_found_and_nothing_else() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let hunter = |one_in| Hunter {
        dir: dir.path(),
        one_in,
    };
    let chosen: Vec<&Bug> = match std::env::var("YAT_BUG") {
        Ok(name) => BUGS.iter().filter(|bug| bug.name.contains(&name)).collect(),
        Err(_) => BUGS.iter().skip(3).step_by(12).collect(),
    };
    assert!(!chosen.is_empty());
    let mut missed = Vec::new();
    for bug in chosen {
        let hunt = hunter(1).hunt(bug);
        match &hunt.finding {
            Some(finding) => println!(
                "{}: {}, {}, after {} states",
                bug.name,
                finding.search,
                finding.workload,
                hunt.states()
            ),
            None => missed.push(bug.name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
    let clean = hunter(40).clean();
    println!("no bug: {:?}", clean.seen);
    assert!(clean.finding.is_none(), "{:#?}", clean.finding);
}
