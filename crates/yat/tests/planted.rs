//! Goal: the checker finds the bugs that the engine can be given on purpose, and nothing when it
//! has none. Method: a twelfth of the list's bugs, chosen by their names, so that a new one changes
//! nothing of it (`YAT_BUG`: those with this in their name), is hunted; beside them the same
//! searches, with few workloads each, with no bug there. The selection is a process's, so each hunt
//! is one, and as many go on at once as there are processors. `yat bugs` hunts them all.

use pmfs::planted::{BUGS, Bug};
use std::process::{Command, Output};
use std::sync::Mutex;
use yat::planted::Hunter;

/// The bug that a child hunts; empty: none.
const HUNT: &str = "YAT_HUNT";
/// A clean search tries one in so many of its workloads.
const CLEAN_ONE_IN: usize = 40;

/// The name's FNV-1a hash decides.
fn is_in_slice(name: &str) -> bool {
    const PARTS: u64 = 12;
    const PART: u64 = 5;
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 32) % PARTS == PART
}

#[test]
fn a_slice_is_found_and_nothing_else() {
    let chosen: Vec<&str> = match std::env::var("YAT_BUG") {
        Ok(part) => named(|name| name.contains(&part)),
        Err(_) => named(is_in_slice),
    };
    assert!(!chosen.is_empty());
    // The clean one is long, and begins first.
    let left = Mutex::new([""].into_iter().chain(chosen));
    let next = || left.lock().expect("no hunt panics").next();
    let failed = Mutex::new(Vec::new());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(bug) = next() {
                    let ended = in_a_process(bug);
                    let said = said(&ended);
                    print!("{said}");
                    // A child that ran no test succeeds too, and says nothing.
                    if !ended.status.success() || said.is_empty() {
                        failed.lock().expect("no hunt panics").push(bug);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no hunt panics");
    assert!(
        failed.is_empty(),
        "not found, or, without a name, found: {failed:?}"
    );
}

fn named(is_chosen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let names = BUGS.iter().map(|bug| bug.name);
    names.filter(|name| is_chosen(name)).collect()
}

fn in_a_process(bug: &str) -> Output {
    let program = std::env::current_exe().expect("a test has a file");
    Command::new(program)
        .args(["--exact", "one_hunt", "--ignored", "--nocapture"])
        .env(HUNT, bug)
        .output()
        .expect("a child")
}

/// The words of a hunt, without the frame of a test; all of one that failed.
fn said(ended: &Output) -> String {
    let text = String::from_utf8_lossy(&ended.stdout);
    if !ended.status.success() {
        return format!("{text}{}", String::from_utf8_lossy(&ended.stderr));
    }
    let lines = text.lines().filter(|line| line.starts_with("hunted "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
#[ignore = "run as a child"]
fn one_hunt() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let hunter = |one_in| Hunter {
        dir: dir.path(),
        one_in,
    };
    let name = std::env::var(HUNT).expect("a bug's name, or none");
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
