//! Goal: the checker sees what it must see, and the engine flushes and fences no more than it must.
//! Method: every place in the engine that flushes or fences is taken out of the traces, one at a time; some
//! workload must then have a crash state that is neither before nor after. A place whose absence shows in no
//! workload is listed below with its reason, or is not needed.

use pmfs::DataMode;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use yat::files::FileSystem;
use yat::files::ace::{sequences, wide};
use yat::files::kinds::kinds;
use yat::sites::{Recorded, Site};

/// Places whose absence no workload shows: file, what the source says there, why it is there.
const UNSEEN: [(&str, &str, &str); 8] = [
    ("dir/split.rs", ".publish(dir.root_slot()", COVERED),
    ("dir/split.rs", ".publish(slot, word.0", REUSE),
    ("file/allocate.rs", "pm.barrier()", PLACEMENT),
    ("file/allocate.rs", "pm.publish_hidden(", PLACEMENT),
    ("file/allocate.rs", "block.copy(0,", NEIGHBOUR),
    ("file/extend.rs", "zero(0, head)", NEIGHBOUR),
    ("file/replace.rs", "block.", NEIGHBOUR),
    (
        "namespace/create.rs",
        "LINKABLE",
        "nothing durable names an O_TMPFILE; its link logs the inode",
    ),
];
const COVERED: &str = "the call's own transaction fences again, unless it fails in between";
const REUSE: &str =
    "the old bucket is free on return; a later call that gets its block would show it";
const PLACEMENT: &str = "which blocks a range has that reads as zeros is promised to nobody";
const NEIGHBOUR: &str = "the same line is flushed again by the store beside it";

/// The source at a place: a few lines, for a call may be spread over them.
fn source(site: &Site) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(site.place.file());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = site.place.line() as usize;
    let lines: Vec<&str> = text.lines().skip(line.saturating_sub(1)).take(2).collect();
    lines.join(" ")
}

/// The first workload that misses each site, on all cores.
fn caught(recorded: &[Recorded], sites: &BTreeMap<String, Site>) -> BTreeMap<String, String> {
    let left = Mutex::new(sites.iter());
    let caught = Mutex::new(BTreeMap::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("not poisoned").next();
                    let Some((name, site)) = next else {
                        return;
                    };
                    let by = recorded
                        .iter()
                        .find(|recorded| recorded.without(site).is_some());
                    if let Some(by) = by {
                        let mut caught = caught.lock().expect("not poisoned");
                        caught.insert(name.clone(), by.name());
                    }
                }
            });
        }
    });
    caught.into_inner().expect("not poisoned")
}

#[test]
fn every_flush_and_fence_is_needed() {
    let modes = [DataMode::Atomic, DataMode::Ordered];
    let set = wide();
    let programs = modes.into_iter().flat_map(|mode| {
        let calls = sequences(&set, 2).step_by(61);
        let calls = calls.map(move |calls| FileSystem::of_calls(&calls, mode));
        let kinds = kinds().into_iter();
        kinds
            .map(move |kind| FileSystem::of_kind(&kind, mode))
            .chain(calls)
    });
    let recorded: Vec<Recorded> = programs
        .map(|program| Recorded::of(program).expect("a workload that can be done"))
        .collect();
    let sites: BTreeMap<String, Site> = recorded.iter().flat_map(Recorded::sites).collect();
    let caught = caught(&recorded, &sites);
    let mut unseen = Vec::new();
    for (name, site) in &sites {
        if let Some(workload) = caught.get(name) {
            println!("{name}: {workload}");
            continue;
        }
        let source = source(site);
        let is_known = |(file, text, _): &&(&str, &str, &str)| {
            site.place.file().ends_with(file) && source.contains(text)
        };
        match UNSEEN.iter().find(is_known) {
            Some((_, _, why)) => println!("{name}: not seen: {why}"),
            None => unseen.push(format!("{name}: {}", source.trim())),
        }
    }
    println!("{} sites", sites.len());
    assert!(
        unseen.is_empty(),
        "without these nothing goes wrong: {unseen:#?}"
    );
}
