//! The workloads.

use super::{Act, Heaps, Step};

fn one(lane: usize, acts: &[Act]) -> Step {
    Step::One(lane, acts.to_vec())
}

fn workload(prepared: &[Step], steps: &[Step]) -> Heaps {
    Heaps {
        prepared: prepared.to_vec(),
        steps: steps.to_vec(),
        lane_bytes: 4096,
        is_shared: false,
    }
}

fn second(lane: usize, acts: &[Act]) -> Step {
    Step::Second(lane, acts.to_vec())
}

/// Workloads of two processes: lanes and chunks are handed over.
#[must_use]
pub fn shared() -> Vec<Heaps> {
    use Act::{Edit, Free, Make};
    let objects = two_objects();
    let sequences = [
        vec![
            one(0, &[Edit(1, 1)]),
            second(0, &[Edit(1, 1)]),
            one(0, &[Edit(1, 1)]),
        ],
        vec![
            one(0, &[Edit(0, 2)]),
            second(0, &[Edit(1, 1)]),
            second(0, &[Edit(1, 1)]),
        ],
        vec![
            second(0, &[Edit(0, 2)]),
            one(1, &[Edit(0, 1)]),
            one(0, &[Edit(1, 1)]),
            second(1, &[Edit(0, 1)]),
        ],
        vec![
            one(0, &[Make(2, 64)]),
            second(0, &[Free(2)]),
            second(0, &[Make(3, 64)]),
            one(0, &[Make(2, 64)]),
        ],
        vec![
            one(0, &[Make(2, 64)]),
            second(1, &[Free(2), Make(3, 64)]),
            one(1, &[Edit(3, 1)]),
            one(0, &[Make(2, 64)]),
        ],
        vec![
            second(1, &[Make(2, 120_000)]),
            one(1, &[Free(2)]),
            second(1, &[Edit(1, 1)]),
            second(1, &[Make(2, 120_000)]),
        ],
        vec![
            second(1, &[Make(2, WIDE)]),
            one(1, &[Make(3, WIDE), Free(2)]),
            second(1, &[Edit(3, 1)]),
            second(1, &[Make(2, WIDE)]),
        ],
        vec![
            second(0, &[Edit(1, 1)]),
            Step::Rejoin,
            one(0, &[Edit(1, 1)]),
        ],
        vec![
            one(0, &[Edit(1, 1)]),
            Step::Rejoin,
            second(0, &[Edit(1, 1)]),
        ],
        vec![Step::AroundSecond(vec![Make(2, 64)], vec![Free(1)])],
        vec![Step::AroundSecond(vec![Edit(0, 2)], vec![Edit(1, 1)])],
    ];
    let mut all: Vec<Heaps> = sequences
        .iter()
        .map(|steps| workload(&objects, steps))
        .collect();
    all.push(kept_of_an_older_record());
    all.push(grown_by_the_other());
    all.push(over_two_spans());
    all.extend(holes());
    for heap in &mut all {
        heap.is_shared = true;
    }
    all
}

/// Holes of what an object was in, and beside objects that the one who makes them does not know of.
fn holes() -> Vec<Heaps> {
    use Act::{Edit, Free, Make};
    // So much that few chunks are free, for few bytes to be lost.
    let mut full = two_objects();
    full.push(one(0, &[Make(2, 120_000), Make(3, 500_000)]));
    let sequences = [
        vec![
            one(0, &[Edit(2, 2)]),
            one(0, &[Free(2)]),
            Step::Holes(false),
            one(1, &[Make(4, 120_000)]),
        ],
        vec![
            one(0, &[Edit(2, 2), Free(2)]),
            Step::Holes(true),
            one(0, &[Edit(1, 1)]),
            one(0, &[Edit(1, 1)]),
            Step::Holes(true),
        ],
        vec![second(1, &[Make(4, 120_000)]), Step::Holes(false)],
        vec![Step::AroundHoles(vec![Make(4, 120_000)])],
        vec![Step::AroundHoles(vec![Free(2), Make(4, 64)])],
    ];
    let workloads = sequences.iter().map(|steps| workload(&full, steps));
    workloads.collect()
}

/// The heap grows, and the other process uses what was added.
fn grown_by_the_other() -> Heaps {
    let mut full = two_objects();
    full.push(one(0, &[Act::Make(2, 600_000)]));
    let steps = [
        one(0, &[Act::Make(3, 400_000)]),
        second(1, &[Act::Edit(3, 1)]),
    ];
    workload(&full, &steps)
}

/// One transaction changes the tables of two spans of a heap that has grown: entries of chunks on
/// both sides of the border.
fn over_two_spans() -> Heaps {
    use Act::{Free, Make};
    let mut grown = two_objects();
    grown.push(one(0, &[Make(2, 600_000)]));
    let chunks = [3, 4, 5, 6].map(|object| Make(object, 1 << 16));
    grown.push(one(0, &chunks));
    let freed = [3, 4, 5, 6].map(Free);
    workload(&grown, &[one(0, &freed), one(1, &chunks)])
}

/// Workloads of two processes that leave several records to a recovery that is crashed too.
#[must_use]
pub fn shared_recovered() -> Vec<Heaps> {
    use Act::Edit;
    let objects = two_objects();
    let sequences = [
        vec![one(0, &[Edit(1, 1)]), second(0, &[Edit(1, 1)])],
        vec![
            one(0, &[Edit(1, 1)]),
            second(0, &[Edit(0, 1)]),
            one(1, &[Edit(1, 1)]),
        ],
        vec![second(1, &[Edit(1, 1)]), one(0, &[Edit(1, 1)])],
    ];
    let shared = |steps: &Vec<Step>| Heaps {
        is_shared: true,
        ..workload(&objects, steps)
    };
    sequences.iter().map(shared).collect()
}

/// Workloads each of whose calls is killed at each of its stores: transactions on lane 0.
#[must_use]
pub fn killed() -> Vec<Heaps> {
    use Act::{Edit, Fails, Free, Make};
    let objects = two_objects();
    let sequences = [
        vec![one(0, &[Edit(0, 1)]), one(0, &[Edit(1, 1), Edit(0, 2)])],
        vec![one(0, &[Edit(0, 10)])],
        vec![one(0, &[Make(2, 64)]), one(0, &[Free(2)])],
        vec![one(0, &[Make(2, 16)])],
        vec![one(0, &[Make(2, 1000), Free(1)])],
        vec![one(0, &[Make(2, 120_000)]), one(0, &[Free(2)])],
        vec![one(0, &[Make(2, 120_000), Make(3, 190_000)])],
        vec![one(0, &[Fails(1)]), one(0, &[Make(2, 64), Fails(1)])],
        vec![one(0, &[Free(0), Free(1)]), one(0, &[Make(2, 1280)])],
        // The lane's last stores are not fenced.
        vec![one(1, &[Edit(1, 1)]), one(0, &[Edit(1, 1)])],
        vec![one(0, &[Edit(1, 1)]), one(0, &[Edit(0, 1)])],
    ];
    let mut all: Vec<Heaps> = sequences
        .iter()
        .map(|steps| workload(&objects, steps))
        .collect();
    // Records that need chunks beside the ring.
    let mut long = objects.clone();
    long.push(one(0, &[Make(2, 8192)]));
    let mut long = workload(&long, &[one(0, &[Edit(2, 60), Edit(0, 10)])]);
    long.lane_bytes = 1024;
    all.push(long);
    // There is no room, and then the heap grows.
    let mut full = objects.clone();
    full.push(one(0, &[Make(2, 600_000)]));
    all.push(workload(&full, &[one(0, &[Make(3, 400_000)])]));
    let wide = [one(0, &[Make(2, WIDE)]), one(0, &[Make(3, WIDE), Free(2)])];
    all.push(workload(&objects, &wide));
    let holes = [
        one(0, &[Make(2, 120_000)]),
        one(0, &[Free(2)]),
        one(0, &[Edit(1, 1)]),
        Step::Holes(false),
        one(0, &[Make(2, 120_000)]),
    ];
    all.push(workload(&objects, &holes));
    for heap in &mut all {
        heap.is_shared = true;
    }
    all
}

/// A thread's own last record of a lane is not the lane's last one.
fn kept_of_an_older_record() -> Heaps {
    let (mine, other) = (one(0, &[Act::Edit(0, 1)]), second(0, &[Act::Edit(1, 1)]));
    workload(&two_objects(), &[mine.clone(), other, mine.clone(), mine])
}

/// A few objects: slots 0 (large enough for ten edits) and 1.
fn two_objects() -> Vec<Step> {
    vec![one(0, &[Act::Make(0, 1280)]), one(0, &[Act::Make(1, 64)])]
}

/// One call of each kind, on a lane that has just done another.
fn single() -> Vec<Heaps> {
    let objects = two_objects();
    let mut calls = vec![
        vec![Act::Make(2, 64)],
        vec![Act::Make(2, 16)],
        vec![Act::Make(2, 1000)],
        vec![Act::Make(2, 9000)],
        vec![Act::Free(0)],
        vec![Act::Free(1)],
        vec![Act::Make(2, 64), Act::Free(1)],
        vec![Act::Fails(1), Act::Edit(1, 1)],
    ];
    for words in [1, 2, 10] {
        calls.push(vec![Act::Edit(0, words)]);
    }
    let mut all: Vec<Heaps> = calls
        .into_iter()
        .map(|acts| workload(&objects, &[Step::One(0, acts)]))
        .collect();
    // A ring of a few records.
    let mut long = workload(&objects, &[one(0, &[Act::Edit(0, 10), Act::Edit(1, 1)])]);
    long.lane_bytes = 1024;
    all.push(long);
    all
}

/// All workloads: those of one call, and what needs several.
#[must_use]
pub fn sets() -> Vec<Heaps> {
    let objects = two_objects();
    let mut all = single();
    let sequences = in_one_lane().into_iter().chain(in_two_lanes());
    all.extend(sequences.map(|steps| workload(&objects, &steps)));
    all.extend(longer());
    all.extend(wide());
    all
}

/// Bytes of objects of which four share two chunks: the second one lies in both, the third in the
/// chunk that has no bitmap.
const WIDE: u64 = 30_000;

/// Bytes of objects of which three share two chunks: the last one has no byte in the first.
const WIDER: u64 = 40_000;

/// Objects that share several chunks.
fn wide() -> Vec<Heaps> {
    use Act::{Edit, Fails, Free, Make};
    let none = two_objects();
    let mut three = none.clone();
    three.push(one(0, &[Make(2, WIDE), Make(3, WIDE), Make(4, WIDE)]));
    let mut full = none.clone();
    full.push(one(1, &[Make(2, WIDER), Make(3, WIDER), Make(4, WIDER)]));
    vec![
        workload(&none, &[one(0, &[Make(2, WIDE)]), one(0, &[Make(3, WIDE)])]),
        workload(&none, &[one(0, &[Make(2, WIDE), Fails(2)])]),
        workload(&three, &[Step::Around(vec![Make(5, WIDE)], vec![Free(3)])]),
        // One is edited in one lane, freed in another, and its place is used again.
        workload(
            &full,
            &[
                one(0, &[Edit(4, 2)]),
                one(1, &[Free(4)]),
                one(1, &[Make(4, WIDER), Make(5, WIDER), Make(6, WIDER)]),
                one(1, &[Edit(1, 1)]),
                one(1, &[Make(7, WIDER)]),
            ],
        ),
        // All are freed, and their chunks are another object's.
        workload(
            &three,
            &[
                one(0, &[Edit(3, 2)]),
                one(1, &[Free(2), Free(3), Free(4)]),
                one(1, &[Make(5, 850_000)]),
            ],
        ),
    ]
}

/// Closing, places that come back, a chunk that changes its class.
fn in_one_lane() -> Vec<Vec<Step>> {
    use Act::{Edit, Fails, Free, Make};
    vec![
        vec![
            one(0, &[Edit(1, 1)]),
            one(0, &[Edit(1, 1)]),
            one(0, &[Edit(1, 1)]),
        ],
        vec![
            one(0, &[Make(2, 64)]),
            one(0, &[Edit(2, 1)]),
            one(0, &[Free(2)]),
        ],
        vec![
            one(0, &[Free(1)]),
            one(0, &[Make(1, 64)]),
            one(0, &[Make(2, 64)]),
        ],
        vec![
            one(0, &[Edit(1, 1), Free(0)]),
            one(0, &[Free(1)]),
            one(0, &[Make(1, 64)]),
        ],
        vec![one(0, &[Free(1), Make(2, 64)]), one(0, &[Edit(2, 1)])],
        vec![one(0, &[Fails(1)]), one(0, &[Make(2, 64), Fails(1)])],
        vec![
            one(0, &[Make(2, 120_000)]),
            one(0, &[Edit(2, 2)]),
            one(0, &[Free(2)]),
        ],
    ]
}

/// Two lanes by turns on the same words, a heap that is left clean between, and one transaction
/// during another.
fn in_two_lanes() -> Vec<Vec<Step>> {
    use Act::{Edit, Free, Make};
    vec![
        vec![
            one(0, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
            one(0, &[Edit(1, 1)]),
        ],
        vec![
            one(0, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
            one(1, &[Edit(0, 1)]),
        ],
        vec![
            one(0, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
        ],
        vec![
            one(0, &[Make(2, 64)]),
            one(1, &[Edit(2, 1)]),
            one(1, &[Edit(2, 1)]),
        ],
        vec![
            one(0, &[Make(2, 64)]),
            one(1, &[Free(2)]),
            one(1, &[Make(3, 64)]),
        ],
        vec![
            one(1, &[Make(2, 64)]),
            one(0, &[Edit(2, 1)]),
            one(1, &[Edit(2, 1)]),
        ],
        // Left clean, and used again.
        vec![one(0, &[Edit(1, 1)]), Step::Reopen, one(1, &[Edit(1, 1)])],
        vec![one(0, &[Free(1)]), Step::Reopen, one(0, &[Make(2, 64)])],
        // One transaction during another.
        vec![Step::Around(vec![Make(2, 64)], vec![Free(1)])],
        vec![Step::Around(vec![Make(2, 64)], vec![Make(3, 64)])],
        vec![Step::Around(vec![Edit(0, 2)], vec![Edit(1, 1)])],
    ]
}

/// Returns workloads that leave several records to a recovery that is crashed too: each a few
/// images.
#[must_use]
pub fn recovered() -> Vec<Heaps> {
    use Act::{Edit, Free, Make};
    let objects = two_objects();
    let sequences = [
        vec![one(0, &[Edit(1, 1)])],
        vec![one(0, &[Edit(0, 2)])],
        vec![one(0, &[Edit(0, 10)])],
        vec![one(0, &[Free(1)])],
        vec![one(0, &[Make(2, 16)])],
        vec![one(0, &[Edit(1, 1)]), one(1, &[Edit(1, 1)])],
        vec![
            one(0, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
            one(0, &[Edit(1, 1)]),
        ],
        vec![
            one(0, &[Edit(1, 1)]),
            one(1, &[Edit(0, 1)]),
            one(1, &[Edit(1, 1)]),
        ],
        vec![one(0, &[Make(2, 1000)]), one(1, &[Edit(2, 1)])],
        vec![Step::Around(vec![Edit(0, 2)], vec![Edit(1, 1)])],
    ];
    let workloads = sequences.iter().map(|steps| workload(&objects, steps));
    workloads.collect()
}

/// Returns workloads that need many calls before them.
fn longer() -> Vec<Heaps> {
    use Act::{Edit, Free, Make};
    let objects = two_objects();
    // The ring wraps, also where the last record is in the way of a longer one.
    let mut large: Vec<Step> = objects.clone();
    large.push(one(0, &[Make(2, 4096)]));
    let edit = |nth: usize| one(0, &[Edit(2, [18, 18, 26][nth % 3])]);
    let mut ring = workload(&large, &(0..9).map(edit).collect::<Vec<Step>>());
    ring.lane_bytes = 1024;
    // A run is edited in one lane, freed in another, and its chunks are used again.
    let mut run: Vec<Step> = objects.clone();
    run.push(one(0, &[Make(2, 120_000)]));
    let run = workload(
        &run,
        &[
            one(0, &[Edit(2, 2)]),
            one(1, &[Free(2)]),
            one(1, &[Edit(1, 1)]),
            one(1, &[Edit(1, 1)]),
            one(1, &[Make(3, 900_000 / 2)]),
        ],
    );
    // The chunks of a run are used by small objects at once.
    let mut small: Vec<Step> = objects.clone();
    small.push(one(0, &[Make(2, 120_000)]));
    let small = workload(
        &small,
        &[
            one(0, &[Edit(2, 10)]),
            one(1, &[Free(2)]),
            one(1, &[Make(3, 16)]),
        ],
    );
    // The heap grows.
    let mut full: Vec<Step> = objects.clone();
    full.push(one(0, &[Make(2, 600_000)]));
    let grown = workload(&full, &[one(0, &[Make(3, 400_000)]), one(1, &[Edit(3, 1)])]);
    vec![ring, run, small, grown]
}
