//! Goal: the workloads on a key-value engine find the bugs that it can be given on purpose, each of
//! them. Method: the workloads are explored until one sees something wrong, and killed at each
//! store for those that only a living process can see. One bug in three (`YAT_BUGS_ONE_IN`) is
//! hunted, others each day (`YAT_SEED`).

#[path = "common/hunts.rs"]
mod hunts;
#[path = "common/part.rs"]
mod part;

use hunts::{hunt_each, hunted};
use part::of_the_day;
use pmkv::planted::{BUGS, select};
use std::time::Duration;
use yat::explore::{IMAGES_MAX, Options, explore};
use yat::heap::keyed::seen_early;
use yat::heap::kill::{Finds, What, kill_everywhere};
use yat::heap::snapshots::seen_at_once;
use yat::heap::{keyed, keyed_killed, treed};
use yat::program::Program;

/// Returns the workload that finds a bug, and after how many images. At first points with many
/// images are sampled: those of a directory that is doubled would take most of the time.
fn found(bug: &str) -> Option<(String, u64)> {
    let limits = [IMAGES_MAX / 16, IMAGES_MAX];
    limits.into_iter().find_map(|max| found_within(bug, max))
}

/// Returns what [`found`] does, with so many images of a point before they are sampled. Bugs of
/// batches show in batches.
fn found_within(bug: &str, images_max: u64) -> Option<(String, u64)> {
    let is_meant = |name: String| !bug.contains("batch") || name.contains("Batch");
    // Most bugs are in what both kinds share.
    let workloads = treed().into_iter().chain(keyed());
    let mut meant = workloads.filter(|workload| is_meant(workload.name()));
    meant.find_map(|workload| {
        // A step that fails by itself is found too: it does not do what it should.
        let options = Options {
            images_max,
            ..Options::default()
        };
        match explore(&workload, options) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some((violation.workload, violation.after_images)),
            Err(text) => Some((text, 0)),
        }
    })
}

/// Returns the kill that finds something.
fn found_by_kill() -> Option<(String, u64)> {
    keyed_killed().iter().find_map(|program| {
        (0..program.steps()).find_map(|step| {
            let kills = kill_everywhere(program, What::Step(step), Finds::Looking);
            kills.err().map(|text| (text, 0))
        })
    })
}

/// Bugs that show to those who live on.
const OF_A_KILL: [&str; 4] = [
    "bug-record-of-the-dead-only-flushed",
    "bug-batch-mark-ignored",
    "bug-snapshot-unsettled",
    "bug-snapshot-of-half-a-batch",
];
/// Bugs of snapshots beside threads that write.
const OF_SNAPSHOTS: [&str; 3] = [
    "bug-snapshot-chunk-by-chunk",
    "bug-snapshot-holds-too-late",
    "bug-snapshot-believed-after-its-end",
];
/// A race may need several looks.
const LOOKS: Duration = Duration::from_secs(60);
/// Bugs of two who live at once: `kv_protocol.rs` and `kv_sessions.rs` look for them.
const OF_ORDERS: [&str; 3] = [
    "bug-place-read-after-its-owner",
    "bug-place-of-a-session-free",
    "bug-held-place-free-at-once",
];
/// Bugs that show to readers.
const OF_READERS: [&str; 2] = [
    "bug-delete-visible-before-fence",
    "bug-put-seen-before-fence",
];

/// Bugs that show where a bit of a record is flipped.
const OF_DAMAGE: [&str; 2] = ["bug-key-unchecked", "bug-least-key-unchecked"];

/// Bugs that show to a walk beside changes.
const OF_WALKS: [&str; 2] = ["bug-order-of-other-slots", "bug-moved-keys-missed"];

/// Returns the change after which a walk does not come to each key once, in order.
fn seen_in_walks() -> Option<(String, u64)> {
    let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default()).unwrap();
    let tree = pmkv::Tree::open(&heap, "kv").unwrap();
    let mut keys: std::collections::BTreeSet<[u8; 2]> = (0..30).map(|nth| [nth, 7]).collect();
    for key in &keys {
        tree.put(key, b"").unwrap();
    }
    (0..15u8).find_map(|nth| {
        let mut walk = tree.iter();
        let first = walk.next().map(|entry| entry.unwrap().0);
        tree.put(&[29 - nth, 7], &[nth]).unwrap();
        let others = walk.map(|entry| entry.unwrap().0);
        let is_seen = first.into_iter().chain(others).eq(keys.iter().copied());
        tree.delete(&[nth, 7]).unwrap();
        tree.put(&[nth, 8], &[nth]).unwrap();
        keys.remove(&[nth, 7]);
        keys.insert([nth, 8]);
        let found = tree.iter().map(|entry| entry.unwrap().0);
        let is_right = is_seen && found.eq(keys.iter().copied());
        (!is_right).then(|| (format!("a walk after change {nth}"), 0))
    })
}

/// Returns the flipped bit of a least key in a tree's directory by which a key is missing.
fn seen_in_directory() -> Option<(String, u64)> {
    let shape = pmkv::TreeShape {
        groups: 1,
        leaves: 2,
        lines: 1,
        places_log2: 6,
    };
    let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default()).unwrap();
    let tree = pmkv::Tree::open_as(&heap, "kv", shape).unwrap();
    for nth in 0..40u8 {
        tree.put(&[nth; 4], b"").unwrap();
    }
    let fingerprint = u64::from_le_bytes(*b"PMKVHEAD");
    let head = heap.find_root_of("kv", fingerprint, 64).unwrap().unwrap();
    let mem = heap.ground().mem();
    // The second entry's key.
    let at = (mem.load(head) & ((1 << 42) - 1)) * 16 + 64 + 8;
    (0..8).find_map(|bit| {
        let flip = || {
            let _window = mem.window();
            mem.store(at, mem.load(at) ^ 1 << bit);
        };
        flip();
        let again = pmkv::Tree::open_as(&heap, "kv", shape);
        let is_there = |nth: u8| {
            let again = again.as_ref().ok();
            again.is_some_and(|again| matches!(again.get(&[nth; 4]), Ok(Some(_))))
        };
        let is_missing = !(0..40).all(is_there);
        flip();
        is_missing.then(|| (format!("bit {bit} of a least key"), bit))
    })
}

/// Returns after how many flipped bits a delete takes a record for whole whose head or key is not.
fn seen_in_damage() -> Option<(String, u64)> {
    let key = *b"a key of 16 byte";
    let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default()).unwrap();
    let kv = pmkv::Hash::open(&heap, "kv").unwrap();
    kv.put(&key, &[7; 40]).unwrap();
    let mem = heap.ground().mem();
    let mut all = vec![0; heap.size() as usize];
    mem.copy_out(0, &mut all).unwrap();
    let at = all.windows(key.len()).position(|part| part == key).unwrap() as u64 - 24;
    (0..(24 + key.len() as u64) * 8).find_map(|bit| {
        let flip = || {
            let (_window, word) = (mem.window(), at + bit / 64 * 8);
            mem.store(word, mem.load(word) ^ 1 << (bit % 64));
        };
        flip();
        let deleted = kv.delete(&key);
        if matches!(deleted, Err(pmkv::Error::Corrupt { .. })) {
            flip();
            return None;
        }
        Some((format!("bit {bit} of a record"), bit))
    })
}

#[test]
fn each_bug_of_an_engine_is_found() {
    let names = BUGS.iter().map(|bug| bug.name);
    let sought = names.filter(|name| !OF_ORDERS.contains(name));
    hunt_each(of_the_day(sought, 3));
}

#[test]
#[ignore = "run as a child"]
fn one_hunt() {
    let bug = hunted();
    assert!(BUGS.iter().any(|known| known.name == bug), "no such bug");
    select(Some(&bug));
    let seen = if OF_READERS.contains(&bug.as_str()) {
        let early = seen_early(&keyed_killed()[0]);
        early.err().map(|text| (text, 0))
    } else if OF_SNAPSHOTS.contains(&bug.as_str()) {
        seen_at_once(LOOKS).err().map(|text| (text, 0))
    } else if OF_A_KILL.contains(&bug.as_str()) {
        found_by_kill()
    } else if OF_DAMAGE.contains(&bug.as_str()) {
        seen_in_damage().or_else(seen_in_directory)
    } else if OF_WALKS.contains(&bug.as_str()) {
        select(None);
        assert_eq!(seen_in_walks(), None);
        select(Some(&bug));
        seen_in_walks()
    } else {
        found(&bug)
    };
    let (workload, images) = seen.expect("it is found");
    println!("\nhunted {bug}: {workload}, {images} images");
}
