//! The workloads of maps and trees.

use super::maps::{Call, Mapped, On, Step};
use Call::{Clear, Insert, Remove, Update};
use On::{Bytes, BytesTree, Map, Names, Tree};
use Step::{Alone, Dropped, Reopen, Tx};

fn all(prepared: &[Step], sequences: &[Vec<Step>]) -> Vec<Mapped> {
    let each = sequences.iter().map(|steps| Mapped {
        prepared: prepared.to_vec(),
        steps: steps.clone(),
    });
    each.collect()
}

/// Keys that are put in, some in each transaction.
fn with(on: On, keys: impl IntoIterator<Item = u64>) -> Vec<Step> {
    let keys: Vec<u64> = keys.into_iter().collect();
    let parts = keys.chunks(32);
    parts
        .map(|part| Tx(0, part.iter().map(|&key| Insert(on, key)).collect()))
        .collect()
}

/// The same, of which some are taken away again.
fn without(
    on: On,
    keys: impl IntoIterator<Item = u64>,
    away: impl IntoIterator<Item = u64>,
) -> Vec<Step> {
    let away: Vec<u64> = away.into_iter().collect();
    let mut steps = with(on, keys);
    let parts = away.chunks(32);
    steps.extend(parts.map(|part| Tx(0, part.iter().map(|&key| Remove(on, key)).collect())));
    steps
}

/// A key that comes, changes and goes, with others and without.
fn simple(on: On) -> Vec<Mapped> {
    let put = |key| Insert(on, key);
    let mut sets = all(
        &[],
        &[
            vec![
                Alone(0, put(1)),
                Alone(0, put(1)),
                Alone(1, Update(on, 1)),
                Alone(0, Remove(on, 1)),
            ],
            vec![
                Alone(0, put(2)),
                Alone(1, put(1)),
                Alone(0, Remove(on, 2)),
                Alone(1, Remove(on, 3)),
            ],
            vec![
                Tx(0, vec![put(1), put(2), Remove(on, 1)]),
                Tx(1, vec![put(1), Update(on, 2)]),
            ],
            vec![Dropped(0, vec![put(1)]), Alone(0, put(1))],
            vec![Alone(0, put(1)), Reopen, Alone(1, put(2))],
        ],
    );
    sets.extend(all(
        &with(on, 1..=3),
        &[
            vec![Alone(0, Clear(on)), Alone(1, put(2))],
            vec![Tx(0, vec![Clear(on), put(4)]), Alone(0, Remove(on, 4))],
            vec![Dropped(0, vec![Clear(on), put(5)]), Alone(1, put(6))],
        ],
    ));
    sets
}

/// Buckets that come and go: in the first segment, in the next, in the tree's nodes.
fn maps() -> Vec<Mapped> {
    let put = |key| Insert(Map, key);
    let mut sets = [simple(Map), simple(Names)].concat();
    sets.extend(all(
        &with(Map, 1..=8),
        &[
            vec![
                Alone(0, put(9)),
                Alone(0, put(10)),
                Alone(1, put(11)),
                Alone(0, put(12)),
            ],
            vec![Tx(0, vec![put(9), put(10)]), Tx(1, vec![put(11), put(12)])],
            vec![
                Tx(0, vec![put(9), put(10), Remove(Map, 3), put(11)]),
                Alone(1, Clear(Map)),
            ],
            vec![Dropped(1, vec![put(9)]), Alone(0, put(9)), Reopen],
        ],
    ));
    sets.extend(all(
        &without(Map, 1..=16, 1..=8),
        &[
            vec![
                Alone(0, Remove(Map, 9)),
                Alone(1, Remove(Map, 10)),
                Alone(0, Remove(Map, 11)),
            ],
            vec![
                Tx(0, vec![Remove(Map, 9), Remove(Map, 10), put(17)]),
                Tx(1, vec![Remove(Map, 11), Remove(Map, 12)]),
            ],
        ],
    ));
    // 248 buckets are those near.
    sets.extend(all(
        &with(Map, 1..=248),
        &[vec![Alone(0, put(249)), Alone(1, put(250))]],
    ));
    sets.extend(all(
        &without(Map, 1..=250, 1..=125),
        &[vec![Alone(0, Remove(Map, 126)), Alone(1, put(1))]],
    ));
    sets
}

/// Leaves and other nodes that are split, joined and filled up; levels that come and go.
fn trees() -> Vec<Mapped> {
    let put = |key| Insert(Tree, key);
    let tens = |count: u64| (1..=count).map(|key| key * 10);
    let mut sets = simple(Tree);
    sets.extend(all(
        &with(Tree, tens(4)),
        &[
            vec![Alone(0, put(15)), Alone(1, put(16))],
            vec![Alone(0, put(50)), Alone(1, put(60))],
            vec![
                Tx(0, vec![put(5), put(6), Remove(Tree, 10)]),
                Alone(1, put(7)),
            ],
            vec![Dropped(0, vec![put(5)]), Alone(1, put(6))],
        ],
    ));
    // One leaf more fills the root.
    sets.extend(all(
        &with(Tree, tens(20)),
        &[
            vec![Alone(0, put(210)), Alone(1, Remove(Tree, 210))],
            vec![Alone(0, put(15)), Alone(1, put(16)), Reopen],
            vec![Alone(0, put(205)), Alone(0, Clear(Tree))],
        ],
    ));
    sets.extend(all(
        &with(Tree, tens(5)),
        &[
            vec![Alone(0, Remove(Tree, 50)), Alone(1, Remove(Tree, 10))],
            vec![
                Tx(0, vec![Remove(Tree, 50), put(45)]),
                Alone(1, Remove(Tree, 20)),
            ],
        ],
    ));
    let mut sides = with(Tree, tens(21));
    sides.push(Alone(0, put(15)));
    sets.extend(all(&sides, &[vec![Alone(0, Remove(Tree, 210))]]));
    let halves = without(Tree, tens(6), [10, 20, 40, 50]);
    sets.extend(all(
        &halves,
        &[vec![Alone(0, Remove(Tree, 30)), Alone(1, Remove(Tree, 60))]],
    ));
    // A leaf of two of which both go, with one on its left that gives nothing up.
    let pair = without(Tree, [10, 20, 30, 40, 50, 35, 60], [35]);
    sets.extend(all(
        &pair,
        &[vec![
            Alone(0, Remove(Tree, 30)),
            Alone(0, Remove(Tree, 40)),
            Alone(1, Remove(Tree, 50)),
        ]],
    ));
    sets
}

/// Bytes of any length, of which keys and values have objects; a leaf that is split between them.
fn bytes() -> Vec<Mapped> {
    let put = |key| Insert(BytesTree, key);
    let mut sets = [simple(Bytes), simple(BytesTree)].concat();
    sets.extend(all(
        &with(BytesTree, [10, 20, 30, 40]),
        &[
            vec![Alone(0, put(14)), Alone(1, put(24))],
            vec![
                Alone(0, Remove(BytesTree, 10)),
                Alone(1, Remove(BytesTree, 20)),
            ],
        ],
    ));
    sets
}

/// All workloads of maps and trees.
#[must_use]
pub fn mapped() -> Vec<Mapped> {
    [maps(), trees(), bytes()].concat()
}

/// Returns workloads of which also the recovery is crashed: a bucket more, and a leaf more.
#[must_use]
pub fn mapped_recovered() -> Vec<Mapped> {
    let bucket = vec![Alone(0, Insert(Map, 9)), Alone(1, Insert(Map, 10))];
    let leaf = vec![Alone(0, Insert(Tree, 50)), Alone(1, Insert(Tree, 45))];
    let mut sets = all(&with(Map, 1..=8), &[bucket]);
    sets.extend(all(&with(Tree, [10, 20, 30, 40]), &[leaf]));
    sets
}
