//! Workloads on a key-value engine.

use super::keyed::{Call, Keyed, Step};
use super::keyed_engine::Cut;
use Call::{Batch, Beside, Compact, Delete, DeleteAll, InSight};
use Call::{Purge, Put, PutNew, PutUntil, Read};
use pmkv::Shape;

/// Bytes of most values: records of a few lines, which tear at few places.
pub(super) const LEN: usize = 140;

/// One line and a stash line of eight slots.
const SMALL: Shape = Shape {
    groups: 1,
    lines: 1,
    stash: 1,
    places_log2: 3,
};

/// Two lines of buckets, and no stash.
const TWO: Shape = Shape {
    lines: 2,
    stash: 0,
    ..SMALL
};

fn workload(shape: Shape, prepared: &[Call], steps: &[Call]) -> Keyed {
    Keyed {
        prepared: prepared.to_vec(),
        steps: steps.iter().map(|&call| Step::One(call)).collect(),
        cut: Cut::Hash(shape),
        is_shared: false,
    }
}

/// So many keys, each with a value.
pub(super) fn keys(count: u64) -> Vec<Call> {
    (0..count).map(|key| Put(key, LEN)).collect()
}

/// Keys, one of which was put and taken away before, so that places were used.
pub(super) fn used(count: u64) -> Vec<Call> {
    let mut calls = vec![Put(30, LEN), Put(30, LEN), Delete(30)];
    calls.extend(keys(count));
    calls
}

/// Few steps of each kind, on an engine with few keys.
pub(super) fn short_sequences() -> [&'static [Call]; 13] {
    [
        &[Put(2, LEN)],
        &[Put(2, 8)],
        &[Put(2, 0)],
        &[Put(0, LEN)],
        &[PutNew(0, LEN), PutNew(2, LEN)],
        &[Delete(0)],
        &[Put(0, LEN), Put(0, LEN), Delete(0)],
        &[Delete(0), Put(0, LEN)],
        &[Put(0, LEN), Delete(1), Put(2, LEN)],
        &[Delete(0), Put(2, LEN), Put(0, LEN)],
        &[Put(2, LEN), Delete(2), Put(3, LEN), Delete(3)],
        &[Put(0, 20), Put(0, LEN), Put(0, 20)],
        &[DeleteAll],
    ]
}

/// These on each shape.
fn short() -> Vec<Keyed> {
    let sequences = short_sequences();
    let shapes = [SMALL, TWO];
    let all = shapes.into_iter().flat_map(|shape| {
        let one = move |steps: &&[Call]| workload(shape, &used(2), steps);
        sequences.iter().map(one).collect::<Vec<_>>()
    });
    all.collect()
}

/// Lines that are full, the stash, splits, directories that become larger, places that run out,
/// values that share no chunk.
fn long() -> Vec<Keyed> {
    let mut all = vec![
        // The next version goes into another line, and is taken away there.
        workload(SMALL, &keys(8), &[Put(0, LEN), Delete(0)]),
        workload(SMALL, &keys(8), &[Put(0, LEN), Put(0, LEN), Put(1, LEN)]),
        workload(SMALL, &keys(9), &[Put(8, LEN), Delete(0), Put(8, LEN)]),
        // The stash is used, and its keys are taken away.
        workload(SMALL, &keys(8), &[Put(8, LEN), Put(9, LEN), Delete(8)]),
        // A split, and one more with a larger directory.
        workload(SMALL, &keys(16), &[Put(16, LEN), Delete(0), Put(0, LEN)]),
        workload(SMALL, &keys(16), &[Put(3, LEN)]),
        workload(
            SMALL,
            &keys(24),
            &[Put(24, LEN), Put(25, LEN), Put(26, LEN)],
        ),
        // Places run out, and come back.
        workload(TWO, &keys(8), &[Put(8, LEN), Delete(0), Put(9, LEN)]),
        // Runs of their own, which are given back.
        workload(TWO, &[Put(1, 70_000)], &[Delete(1)]),
        workload(TWO, &[Put(0, 70_000)], &[Put(0, 8)]),
    ];
    all.push(workload(
        TWO,
        &used(3),
        &[
            Put(0, LEN),
            Put(0, LEN),
            Put(1, LEN),
            Delete(0),
            Put(4, LEN),
        ],
    ));
    all
}

/// Record chunks that are given back, and taken for other records.
fn compacted() -> Vec<Keyed> {
    let before = [
        Put(0, LEN),
        Put(0, LEN),
        Put(1, 400),
        Put(1, 20),
        Put(2, 20),
    ];
    vec![
        workload(TWO, &before, &[Compact]),
        workload(
            TWO,
            &before,
            &[Delete(0), Compact, Put(3, 900), Put(0, LEN)],
        ),
        workload(TWO, &before, &[Put(0, 20), Delete(2), Compact, Put(3, LEN)]),
        Keyed {
            prepared: before.to_vec(),
            steps: vec![
                Step::One(Delete(0)),
                Step::Second(Compact),
                Step::One(Put(3, LEN)),
            ],
            cut: Cut::Hash(TWO),
            is_shared: true,
        },
    ]
}

/// Calls beside a session that has a value: its place is held, and is another record's later.
fn beside() -> Vec<Keyed> {
    vec![
        workload(TWO, &used(2), &[Beside(0, &Put(0, LEN)), Put(1, LEN)]),
        workload(
            TWO,
            &used(2),
            &[Beside(0, &Delete(0)), Beside(1, &Compact), Put(0, LEN)],
        ),
        workload(
            TWO,
            &[Put(0, 70_000)],
            &[Beside(0, &Put(0, 8)), Put(1, 70_000)],
        ),
    ]
}

/// Calls in sight of a snapshot: what it has stays, and is another record's later.
fn in_sight() -> Vec<Keyed> {
    vec![
        workload(TWO, &used(2), &[InSight(&Put(0, LEN)), Put(1, LEN)]),
        workload(TWO, &used(2), &[InSight(&Delete(0)), Put(0, LEN)]),
        workload(TWO, &small_keys(3), &[InSight(&Batch(&[(0, 8)], &[1]))]),
        workload(TWO, &[Put(0, 70_000)], &[InSight(&Put(0, 8))]),
        // A split of the chunk.
        workload(SMALL, &keys(16), &[InSight(&Put(16, LEN))]),
    ]
}

/// Those whose calls are killed with a snapshot open, or while it is taken.
#[must_use]
pub fn keyed_in_sight() -> Vec<Keyed> {
    let mut all = vec![
        workload(TWO, &used(2), &[InSight(&Put(0, LEN))]),
        workload(TWO, &small_keys(3), &[InSight(&Batch(&[(0, 8)], &[1]))]),
        // Two index chunks.
        workload(SMALL, &small_keys(17), &[InSight(&Delete(0))]),
    ];
    for one in &mut all {
        one.is_shared = true;
    }
    all
}

/// Those whose calls are killed with a session open.
#[must_use]
pub fn keyed_read() -> Vec<Keyed> {
    let mut all = vec![
        workload(TWO, &used(2), &[Read(0), Beside(0, &Put(0, LEN)), Read(1)]),
        workload(TWO, &[Put(0, 70_000)], &[Beside(0, &Put(0, 8)), Read(0)]),
    ];
    for one in &mut all {
        one.is_shared = true;
    }
    all
}

/// Keys that expire in a far future, and some that have expired long ago.
fn expiring() -> Vec<Keyed> {
    const LATE: u64 = 1 << 50;
    let before = [PutUntil(0, 20, LATE), PutUntil(1, 20, 1), Put(2, 20)];
    vec![
        workload(TWO, &used(2), &[PutUntil(2, 20, LATE)]),
        workload(
            TWO,
            &before,
            &[PutUntil(0, 20, LATE + 1), PutUntil(1, 20, LATE)],
        ),
        workload(TWO, &before, &[Purge, Put(1, 20)]),
        workload(TWO, &before, &[Delete(1), PutNew(1, 20), Put(0, 20)]),
    ]
}

/// Batches: the first one of an engine, later ones, over old versions, with deletes, with splits,
/// and calls behind them that a batch redone too late would undo.
fn batches() -> Vec<Keyed> {
    const NEW: Call = Batch(&[(2, 8), (3, 8)], &[]);
    const MIXED: Call = Batch(&[(0, 8), (4, 20)], &[1]);
    vec![
        workload(TWO, &used(2), &[NEW]),
        workload(TWO, &[NEW, Put(0, 20), Put(1, 20)], &[MIXED]),
        workload(
            TWO,
            &[NEW, Put(0, 20), Put(0, 8)],
            &[MIXED, Put(0, 8), Delete(4)],
        ),
        workload(SMALL, &[NEW, Put(0, 8), Put(0, 8)], &[Batch(&[], &[0, 2])]),
        workload(SMALL, &[MIXED, Put(0, 8)], &[MIXED, MIXED]),
        workload(
            SMALL,
            &small_keys(15),
            &[Batch(&[(15, 8), (16, 8), (3, 8)], &[])],
        ),
        Keyed {
            prepared: vec![MIXED, Put(1, 20)],
            steps: vec![
                Step::One(MIXED),
                Step::Second(Put(0, 20)),
                Step::Second(Batch(&[(4, 8)], &[0])),
                Step::One(Put(4, 8)),
            ],
            cut: Cut::Hash(TWO),
            is_shared: true,
        },
    ]
}

/// So many keys with short values, after a batch of one of them.
fn small_keys(count: u64) -> Vec<Call> {
    let mut calls = vec![Batch(&[(0, 8)], &[])];
    calls.extend((1..count).map(|key| Put(key, 8)));
    calls
}

/// Two processes by turns.
fn shared() -> Vec<Keyed> {
    let sequences: [&[Step]; 5] = [
        &[Step::One(Put(0, LEN)), Step::Second(Put(0, LEN))],
        &[Step::Second(Delete(0)), Step::One(Put(0, LEN))],
        &[
            Step::One(Put(2, LEN)),
            Step::Second(Delete(2)),
            Step::One(Put(3, LEN)),
        ],
        &[
            Step::Second(Put(2, LEN)),
            Step::One(Put(2, LEN)),
            Step::Second(Delete(1)),
        ],
        &[Step::Second(Put(2, 20)), Step::One(Put(3, 20))],
    ];
    let one = |steps: &&[Step]| Keyed {
        prepared: used(2),
        steps: steps.to_vec(),
        cut: Cut::Hash(TWO),
        is_shared: true,
    };
    let mut all: Vec<Keyed> = sequences.iter().map(one).collect();
    all.push(Keyed {
        prepared: keys(16),
        steps: vec![Step::Second(Put(16, LEN)), Step::One(Put(17, LEN))],
        cut: Cut::Hash(SMALL),
        is_shared: true,
    });
    all
}

/// All workloads.
#[must_use]
pub fn keyed() -> Vec<Keyed> {
    let mut all = short();
    all.extend(long());
    all.extend(batches());
    all.extend(expiring());
    all.extend(compacted());
    all.extend(beside());
    all.extend(in_sight());
    all.extend(shared());
    all
}

/// Those whose recovery is crashed too.
#[must_use]
pub fn keyed_recovered() -> Vec<Keyed> {
    vec![
        workload(TWO, &used(2), &[Put(2, LEN)]),
        workload(TWO, &used(2), &[Put(0, LEN)]),
        workload(TWO, &used(2), &[Delete(0)]),
        workload(TWO, &used(2), &[Put(0, LEN), Delete(0)]),
        workload(SMALL, &keys(8), &[Put(0, LEN)]),
    ]
}

/// Those whose recovery is long: crashed twice, each takes many minutes.
#[must_use]
pub fn keyed_recovered_slowly() -> Vec<Keyed> {
    let batch = Batch(&[(0, 8), (2, 8)], &[1]);
    vec![
        workload(SMALL, &keys(16), &[Put(16, LEN)]),
        workload(TWO, &small_keys(2), &[batch]),
    ]
}

/// Those whose calls are killed.
#[must_use]
pub fn keyed_killed() -> Vec<Keyed> {
    let mut all = vec![
        workload(TWO, &used(2), &[Put(2, LEN), Put(0, LEN), Delete(0)]),
        workload(TWO, &used(2), &[Delete(1), Put(1, 20)]),
        workload(SMALL, &keys(8), &[Put(0, LEN), Put(9, LEN)]),
        workload(SMALL, &keys(16), &[Put(16, LEN)]),
        workload(TWO, &keys(1), &[Put(1, 70_000), Put(1, 8)]),
        workload(TWO, &small_keys(3), &[Batch(&[(0, 8), (4, 8)], &[1])]),
        workload(TWO, &[Put(0, LEN), Put(0, 20), Put(1, 20)], &[Compact]),
        // Two index chunks.
        workload(
            SMALL,
            &small_keys(17),
            &[Batch(&[(0, 8), (1, 8), (17, 8), (18, 8)], &[2])],
        ),
    ];
    for one in &mut all {
        one.is_shared = true;
    }
    all
}
