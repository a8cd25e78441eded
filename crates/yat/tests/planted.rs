//! Goal: the checker finds the bugs that the engine can be given on purpose, and nothing when it has none.
//! Method: a twelfth of the list's bugs, chosen by their names, so that a new one changes nothing of it (`YAT_BUG`: those with this in
//! their name), is hunted; then the same searches, with few workloads each, with no bug there. `yat bugs` hunts them all.

use pmfs::planted::{BUGS, Bug};
use yat::planted::Hunter;

/// By the name's FNV-1a hash.
fn is_in_slice(name: &str) -> bool {
    const PARTS: u64 = 12;
    const PART: u64 = 5;
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 32) % PARTS == PART
}

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
        Err(_) => BUGS.iter().filter(|bug| is_in_slice(bug.name)).collect(),
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
