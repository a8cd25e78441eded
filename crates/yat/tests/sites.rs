//! Goal: the checker sees what it must see, and the engine flushes and fences no more than it must.
//! Method: every place in the engine that flushes or fences is taken out of the traces, one at a time; some
//! workload must then have a crash state that is neither before nor after. A place whose absence shows in no
//! workload is listed below with its reason, or is not needed.

use pmfs::DataMode;
use std::collections::BTreeMap;
use std::path::Path;
use yat::explore::{Recorded, explore_recorded, record};
use yat::trace::{Event, Place};
use yat::workload::one_call;

/// Places whose absence no single call shows: file, what the source says there, why it is there.
const UNSEEN: [(&str, &str, &str); 14] = [
    ("dir/split.rs", ".publish(dir.root_slot()", COVERED),
    ("dir/split.rs", ".publish(slot, word.0", REUSE),
    ("file/allocate.rs", "pm.barrier()", PLACEMENT),
    ("file/allocate.rs", "self.swing(Class::Ordinary", PLACEMENT),
    ("file/allocate.rs", "pm.publish_hidden(", PLACEMENT),
    ("file/allocate.rs", "block.copy(0,", NEIGHBOUR),
    ("file/extend.rs", "self.swing(", REUSE),
    ("file/extend.rs", "zero(0, head)", NEIGHBOUR),
    ("file/overwrite.rs", "pm.barrier()", TORN),
    ("file/overwrite.rs", "stray_write(", TORN),
    ("file/replace.rs", "block.", NEIGHBOUR),
    ("file/truncate.rs", "self.swing(", REUSE),
    (
        "namespace/attributes.rs",
        "tx.set(&range, 0, set.atime_ns",
        NEIGHBOUR,
    ),
    (
        "namespace/create.rs",
        "LINKABLE",
        "nothing durable names an O_TMPFILE; its link logs the inode",
    ),
];
const COVERED: &str = "the call's own transaction fences again, unless it fails in between";
const REUSE: &str = "old blocks are free on return; a later call that gets them would show it";
const PLACEMENT: &str = "which blocks a range has that reads as zeros is promised to nobody";
const NEIGHBOUR: &str = "the same line is flushed again by the store beside it";
const TORN: &str = "`ordered`: content is not compared, as it may tear";

/// The source at a place: a few lines, for a call may be spread over them.
fn source(place: Place) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(place.file());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = place.line() as usize;
    let lines: Vec<&str> = text.lines().skip(line.saturating_sub(1)).take(2).collect();
    lines.join(" ")
}

fn places(recorded: &[Recorded]) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for event in recorded.iter().flat_map(|recorded| &recorded.events) {
        match event {
            Event::Flush { at, .. } => {
                places.insert(format!("flush {at}"), *at);
            }
            Event::Fence { at } => {
                places.insert(format!("fence {at}"), *at);
            }
            Event::Store { .. } | Event::Death => {}
        }
    }
    places
}

#[test]
fn every_flush_and_fence_is_needed() {
    let recorded: Vec<Recorded> = [DataMode::Atomic, DataMode::Ordered]
        .iter()
        .flat_map(|&mode| {
            one_call()
                .into_iter()
                .map(move |workload| record(&workload, mode))
        })
        .collect();
    let mut unseen = Vec::new();
    for (name, place) in places(&recorded) {
        let caught = recorded.iter().find_map(|recorded| {
            let here = |event: &Event| match event {
                Event::Flush { at, .. } | Event::Fence { at } => *at == place,
                Event::Store { .. } | Event::Death => false,
            };
            if !recorded.events.iter().any(here) {
                return None;
            }
            explore_recorded(recorded, Some(place)).err()
        });
        match caught {
            Some(text) => println!("{name}: {}", text.lines().next().unwrap_or_default()),
            None => {
                let source = source(place);
                let known = UNSEEN
                    .iter()
                    .find(|(file, text, _)| place.file().ends_with(file) && source.contains(text));
                match known {
                    Some((_, _, why)) => println!("{name}: not seen: {why}"),
                    None => unseen.push(format!("{name}: {}", source.trim())),
                }
            }
        }
    }
    assert!(
        unseen.is_empty(),
        "without these nothing goes wrong: {unseen:#?}"
    );
}
