//! Workloads on a tree.

use super::keyed::{Call, Keyed, Step};
use super::keyed_engine::Cut;
use super::keyed_sets::{LEN, keys, short_sequences, used};
use Call::{Batch, Compact, Delete, InSight, Put};
use pmkv::TreeShape;

/// Two leaves of eight slots.
const SMALL: TreeShape = TreeShape {
    groups: 1,
    leaves: 2,
    lines: 1,
    places_log2: 3,
};

/// Three leaves of two lines, each in a group by itself.
const WIDE: TreeShape = TreeShape {
    groups: 3,
    leaves: 1,
    lines: 2,
    ..SMALL
};

fn workload(shape: TreeShape, prepared: &[Call], steps: &[Call]) -> Keyed {
    Keyed {
        prepared: prepared.to_vec(),
        steps: steps.iter().map(|&call| Step::One(call)).collect(),
        cut: Cut::Tree(shape),
        is_shared: false,
    }
}

/// So many keys, with room for others between them.
fn apart(count: u64) -> Vec<Call> {
    (0..count).map(|key| Put(2 * key, 8)).collect()
}

/// So many keys, and two more, in two lines of a leaf; old versions of some were cleared there, not
/// flushed, and their places were used again.
fn stale(count: u64) -> Vec<Call> {
    let mut calls: Vec<Call> = (0..count).map(|key| Put(2 * key, LEN)).collect();
    let (last, other) = (2 * count - 2, 2 * count - 4);
    calls.extend([Put(last, LEN), Put(1, LEN), Put(other, LEN), Put(3, LEN)]);
    calls
}

/// Splits of leaves and of chunks.
fn splits() -> Vec<Keyed> {
    vec![
        // The upper half of a leaf, and the last key alone, as keys come in order.
        workload(SMALL, &apart(8), &[Put(5, 8), Delete(5), Delete(14)]),
        workload(SMALL, &keys(8), &[Put(8, LEN), Put(7, LEN)]),
        // An old key's next version has no room.
        workload(SMALL, &apart(8), &[Put(6, LEN), Delete(6)]),
        workload(SMALL, &apart(8), &[Put(11, 8), Put(13, 8), Put(15, 8)]),
        // A chunk, and then a leaf of one half; with larger directories.
        workload(SMALL, &keys(15), &[Put(15, 8), Delete(0)]),
        workload(
            SMALL,
            &apart(13),
            &[Put(1, 8), Put(3, 8), Put(5, 8), Put(7, 8)],
        ),
        workload(SMALL, &keys(22), &[Put(22, 8), Put(3, LEN)]),
        workload(SMALL, &keys(29), &[Put(29, 8)]),
        // Clears that may not be durable.
        workload(WIDE, &stale(14), &[Put(5, LEN), Put(7, LEN)]),
        workload(WIDE, &apart(16), &[Put(24, 8), Put(9, 8), Put(11, 8)]),
    ]
}

/// Batches: within a leaf, over two, over two chunks; with splits before them, of leaves that are
/// full and of some that are not.
fn batches() -> Vec<Keyed> {
    const MIXED: Call = Batch(&[(0, 8), (5, 20)], &[2]);
    const APART: Call = Batch(&[(1, 8), (24, 8), (26, 8)], &[14]);
    const MANY: Call = Batch(&[(5, 8), (7, 8), (9, 8), (11, 8), (13, 8)], &[]);
    let with_journal = |calls: &[Call]| {
        let mut all = vec![Batch(&[(0, 8)], &[])];
        all.extend_from_slice(calls);
        all
    };
    vec![
        workload(WIDE, &apart(3), &[MIXED, Put(0, 8)]),
        workload(SMALL, &with_journal(&apart(12)), &[MIXED, Delete(5)]),
        workload(SMALL, &with_journal(&apart(14)), &[APART, Put(3, 8)]),
        workload(WIDE, &with_journal(&stale(11)), &[MANY]),
        workload(WIDE, &with_journal(&stale(12)), &[MANY]),
        Keyed {
            prepared: with_journal(&apart(12)),
            steps: vec![
                Step::One(MIXED),
                Step::Second(Put(0, 20)),
                Step::Second(Batch(&[(16, 8)], &[0])),
                Step::One(Compact),
            ],
            cut: Cut::Tree(SMALL),
            is_shared: true,
        },
    ]
}

/// Joins of leaves: of empty ones, of some with keys, of several, and what may go on there.
fn joins() -> Vec<Keyed> {
    vec![
        workload(WIDE, &halves(&[]), &[Compact]),
        workload(WIDE, &halves(&[10, 12, 16, 18]), &[Compact, Put(30, 8)]),
        workload(
            WIDE,
            &halves(&[0, 2, 16]),
            &[Compact, Put(17, LEN), Delete(24)],
        ),
        workload(SMALL, &halves(&[0, 30]), &[Compact]),
        Keyed {
            prepared: halves(&[0, 16, 30]),
            steps: vec![
                Step::Second(Compact),
                Step::One(Put(17, 8)),
                Step::Second(Put(30, 20)),
            ],
            cut: Cut::Tree(WIDE),
            is_shared: true,
        },
    ]
}

/// Leaves that are split, and of whose keys these are left.
fn halves(left: &[u64]) -> Vec<Call> {
    let mut calls = apart(17);
    let gone = (0..17).map(|key| 2 * key).filter(|key| !left.contains(key));
    calls.extend(gone.map(Delete));
    calls
}

/// Calls in sight of a snapshot, among them splits of a leaf and a chunk, and a join.
fn in_sight() -> Vec<Keyed> {
    vec![
        workload(SMALL, &apart(8), &[InSight(&Put(5, 8)), Delete(5)]),
        workload(SMALL, &keys(15), &[InSight(&Put(15, 8))]),
        workload(WIDE, &halves(&[0, 30]), &[InSight(&Compact)]),
    ]
}

/// Two processes by turns.
fn shared() -> Vec<Keyed> {
    let sequences: [(Vec<Call>, &[Step]); 4] = [
        (
            used(2),
            &[Step::One(Put(0, LEN)), Step::Second(Put(0, LEN))],
        ),
        (
            keys(8),
            &[
                Step::Second(Put(8, LEN)),
                Step::One(Put(9, LEN)),
                Step::Second(Delete(7)),
            ],
        ),
        (apart(8), &[Step::One(Put(5, 8)), Step::Second(Put(14, 8))]),
        (
            keys(15),
            &[Step::Second(Put(15, 8)), Step::One(Put(14, LEN))],
        ),
    ];
    let all = sequences.into_iter().map(|(prepared, steps)| Keyed {
        prepared,
        steps: steps.to_vec(),
        cut: Cut::Tree(SMALL),
        is_shared: true,
    });
    all.collect()
}

/// All workloads.
#[must_use]
pub fn treed() -> Vec<Keyed> {
    let mut all = splits();
    all.extend(batches());
    all.extend(joins());
    all.extend(in_sight());
    all.extend(shared());
    let short = short_sequences();
    all.extend(short.iter().map(|steps| workload(WIDE, &used(2), steps)));
    all
}

/// Those whose recovery is crashed too.
#[must_use]
pub fn treed_recovered() -> Vec<Keyed> {
    vec![
        workload(SMALL, &used(1), &[Put(0, 8)]),
        workload(SMALL, &apart(8), &[Put(5, 8)]),
        workload(SMALL, &keys(15), &[Put(15, 8)]),
    ]
}

/// One whose recovery is long: crashed twice, it takes many minutes.
#[must_use]
pub fn treed_recovered_slowly() -> Vec<Keyed> {
    vec![workload(WIDE, &halves(&[16, 30]), &[Compact])]
}

/// Those whose calls are killed.
#[must_use]
pub fn treed_killed() -> Vec<Keyed> {
    let mut all = vec![
        workload(WIDE, &used(2), &[Put(2, LEN), Put(0, LEN), Delete(0)]),
        workload(SMALL, &apart(8), &[Put(5, 8)]),
        workload(SMALL, &keys(15), &[Put(15, LEN)]),
        workload(WIDE, &halves(&[0, 16, 30]), &[Compact]),
        workload(SMALL, &apart(12), &[Batch(&[(0, 8), (24, 8)], &[2])]),
        workload(SMALL, &apart(8), &[InSight(&Put(5, 8))]),
    ];
    for one in &mut all {
        one.is_shared = true;
    }
    all
}
