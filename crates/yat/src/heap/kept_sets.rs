//! The workloads of containers and named roots.

use super::kept::{Call, Kept, Step};
use Call::{
    AddText, Append, AppendRing, ClearBytes, ClearLog, ClearSent, Pop, PopBytes, Push, PushBytes,
    Put, PutBytes, Root, Set, SetBytes, Take, TakeBytes, Text, Trim, Truncate,
};
use Step::{Alone, Dropped, Reopen, Tx};

fn workload(prepared: &[Step], steps: &[Step]) -> Kept {
    Kept {
        unused: 0xdb,
        prepared: prepared.to_vec(),
        steps: steps.to_vec(),
    }
}

fn all(prepared: &[Step], sequences: &[Vec<Step>]) -> Vec<Kept> {
    let each = sequences.iter();
    each.map(|steps| workload(prepared, steps)).collect()
}

/// Pushes into a segment, into a new one, into one that the table has; the way back.
fn vectors() -> Vec<Kept> {
    let mut sets = all(
        &[],
        &[
            vec![Alone(0, Push(1)), Alone(0, Push(1)), Alone(0, Pop)],
            vec![Alone(0, Push(1)), Alone(1, Push(1)), Alone(0, Push(1))],
            vec![Alone(0, Push(9)), Alone(0, Set(8)), Alone(0, Truncate(3))],
            vec![Alone(0, Push(9)), Alone(1, Truncate(0)), Alone(1, Push(2))],
            vec![Tx(0, vec![Push(2), Pop, Push(8)]), Tx(1, vec![Pop, Set(0)])],
            vec![Dropped(0, vec![Push(9)]), Alone(0, Push(1))],
            vec![Alone(0, Push(3)), Reopen, Alone(0, Push(6))],
        ],
    );
    sets.iter_mut().for_each(|set| set.unused = 0);
    // 504 words fill the segments that the head leads to.
    let full = [Alone(0, Push(503))];
    sets.extend(all(
        &full,
        &[
            vec![Alone(0, Push(2)), Alone(0, Truncate(504))],
            vec![Alone(0, Push(1)), Alone(1, Push(1)), Alone(1, Truncate(1))],
        ],
    ));
    sets
}

/// Texts that stand in the head, that get an object, that outgrow it, and back.
fn texts() -> Vec<Kept> {
    all(
        &[],
        &[
            vec![
                Alone(0, Text(5)),
                Alone(0, AddText(10)),
                Alone(0, AddText(1)),
            ],
            vec![
                Alone(0, Text(20)),
                Alone(0, AddText(5)),
                Alone(0, AddText(30)),
            ],
            vec![Alone(0, Text(40)), Alone(1, Text(30)), Alone(0, Text(3))],
            vec![Alone(0, Text(17)), Alone(1, Text(40)), Alone(1, AddText(9))],
            vec![
                Tx(0, vec![Text(20), AddText(20), Text(2)]),
                Alone(0, AddText(20)),
            ],
            vec![Dropped(0, vec![Text(20)]), Alone(0, Text(20))],
            vec![Alone(0, Text(16)), Reopen, Alone(1, AddText(1))],
        ],
    )
}

/// Appends in a segment, in a new one, in transactions, between openings; drops.
fn logs() -> Vec<Kept> {
    let begun = [Alone(0, Append(8))];
    let mut sets = all(
        &[],
        &[
            vec![
                Alone(0, Append(8)),
                Alone(0, Append(16)),
                Alone(0, Append(0)),
            ],
            vec![Tx(0, vec![Append(8), Append(8)]), Alone(0, Append(8))],
            vec![
                Alone(0, Append(200)),
                Alone(1, ClearLog),
                Alone(1, Append(8)),
            ],
            vec![Dropped(0, vec![Append(8)]), Alone(0, Append(8))],
        ],
    );
    sets.extend(all(
        &begun,
        &[
            vec![
                Alone(0, Append(8)),
                Alone(1, Append(8)),
                Alone(0, Append(8)),
            ],
            vec![
                Alone(0, Append(8)),
                Tx(1, vec![Append(8), Push(1)]),
                Alone(0, Append(8)),
            ],
            vec![
                Tx(0, vec![Append(8), Push(1)]),
                Tx(1, vec![Append(8), Push(1)]),
            ],
            vec![Dropped(0, vec![Append(8), Push(1)]), Alone(1, Append(16))],
            vec![
                Alone(0, Append(24)),
                Reopen,
                Alone(0, Append(8)),
                Alone(0, Append(8)),
            ],
            vec![Tx(1, vec![Append(8)]), Reopen, Alone(1, Append(8))],
            vec![Alone(0, Append(8)), Alone(0, Trim(1)), Alone(0, Trim(1))],
            vec![Alone(1, Trim(1)), Alone(0, Append(8)), Alone(0, ClearLog)],
        ],
    ));
    // The next one needs a segment; segments come and go.
    let full = [Alone(0, Append(80)), Alone(0, Append(56))];
    sets.extend(all(
        &full,
        &[
            vec![Alone(0, Append(16)), Alone(0, Append(8)), Alone(0, Trim(2))],
            vec![Alone(0, Append(8)), Alone(1, Append(16)), Alone(0, Trim(3))],
            vec![
                Tx(0, vec![Append(8), Append(16), Append(8)]),
                Alone(1, Append(8)),
            ],
            vec![
                Tx(0, vec![Append(16), Trim(2)]),
                Alone(1, Append(8)),
                Alone(0, Trim(1)),
            ],
        ],
    ));
    sets.extend(rings());
    sets
}

fn rings() -> Vec<Kept> {
    let ring = [
        Alone(0, AppendRing(120)),
        Alone(0, AppendRing(120)),
        Alone(0, AppendRing(120)),
    ];
    all(
        &ring,
        &[
            vec![
                Alone(0, AppendRing(120)),
                Alone(0, AppendRing(8)),
                Alone(1, AppendRing(120)),
            ],
            vec![
                Tx(0, vec![AppendRing(120), AppendRing(120), Append(8)]),
                Alone(0, AppendRing(8)),
            ],
        ],
    )
}

fn queues() -> Vec<Kept> {
    let begun = [Alone(0, Put), Alone(0, Put)];
    let mut sets = all(
        &begun,
        &[
            vec![Alone(0, Put), Alone(0, Take), Alone(0, Take)],
            vec![
                Alone(0, Take),
                Alone(1, Put),
                Alone(1, Take),
                Alone(0, Take),
            ],
            vec![Tx(0, vec![Take, Push(1)]), Tx(1, vec![Put, Pop])],
            vec![Tx(0, vec![Put, Take, Take, Take]), Alone(0, Put)],
            vec![Dropped(0, vec![Take, Put]), Alone(0, Take)],
            vec![Alone(0, Take), Reopen, Alone(1, Take), Alone(1, Put)],
        ],
    );
    // Eight values fill a segment.
    let full = [0; 8].map(|_| Alone(0, Put));
    sets.extend(all(
        &full,
        &[
            vec![Alone(0, Put), Alone(1, Put)],
            vec![
                Tx(0, vec![Put, Take, Take, Take, Take, Take, Take, Take, Take]),
                Alone(0, Take),
            ],
        ],
    ));
    sets
}

fn roots() -> Vec<Kept> {
    all(
        &[],
        &[
            vec![Alone(0, Root(1)), Alone(1, Root(2)), Alone(0, Root(1))],
            vec![Dropped(0, vec![Root(1)]), Alone(0, Root(1))],
            vec![
                Tx(0, vec![Root(1), Root(2), Push(1)]),
                Reopen,
                Alone(1, Root(3)),
            ],
        ],
    )
}

/// All workloads of containers and named roots.
#[must_use]
pub fn containers() -> Vec<Kept> {
    [vectors(), texts(), logs(), queues(), bytes(), roots()].concat()
}

/// Bytes that stand in their element and bytes that have an object; others' instead; gone.
fn bytes() -> Vec<Kept> {
    let begun = [Alone(0, PushBytes(30)), Alone(0, PutBytes(30))];
    all(
        &begun,
        &[
            vec![
                Alone(0, PushBytes(20)),
                Alone(1, SetBytes(0, 5)),
                Alone(0, PopBytes),
            ],
            vec![
                Alone(0, SetBytes(0, 30)),
                Alone(0, SetBytes(0, 16)),
                Alone(1, SetBytes(0, 40)),
            ],
            vec![
                Alone(0, PutBytes(4)),
                Alone(1, PutBytes(20)),
                Alone(0, TakeBytes),
                Alone(1, TakeBytes),
            ],
            vec![
                Tx(0, vec![TakeBytes, PushBytes(30)]),
                Tx(1, vec![PopBytes, PutBytes(30)]),
            ],
            vec![
                Dropped(0, vec![TakeBytes, PopBytes]),
                Alone(0, ClearBytes),
                Alone(1, ClearSent),
            ],
            vec![Alone(0, TakeBytes), Reopen, Alone(1, PutBytes(20))],
        ],
    )
}

/// Returns workloads of which also the recovery is crashed: it looks for the end of a log.
#[must_use]
pub fn reopened() -> Vec<Kept> {
    let begun = [Alone(0, Append(8))];
    all(
        &begun,
        &[
            vec![Alone(0, Append(8)), Alone(0, Append(8))],
            vec![Tx(0, vec![Append(8), Push(1)]), Alone(1, Append(8))],
            vec![Alone(0, Append(8)), Reopen, Alone(0, Append(8))],
            vec![Alone(0, Put), Alone(0, Take)],
        ],
    )
}

/// Workloads of containers each of whose calls is killed at each of its stores: on lane 0.
#[must_use]
pub fn containers_killed() -> Vec<Kept> {
    let begun = [Alone(0, Append(8)), Alone(0, Put), Alone(0, Put)];
    let mut sets = all(
        &begun,
        &[
            // Into a new segment, into one that is there; the way back.
            vec![Alone(0, Push(1)), Alone(0, Push(1)), Alone(0, Pop)],
            vec![Alone(0, Push(9)), Alone(0, Set(8)), Alone(0, Truncate(3))],
            // In the head, in an object, in another one, and back.
            vec![Alone(0, Text(5)), Alone(0, AddText(11)), Alone(0, Text(40))],
            vec![Alone(0, Text(20)), Alone(0, Text(3))],
            // Without a record of the lane, and in one.
            vec![Alone(0, Append(16)), Tx(0, vec![Append(8), Push(1)])],
            vec![Alone(0, Append(8)), Alone(0, Trim(1)), Alone(0, ClearLog)],
            vec![Alone(0, Put), Alone(0, Take), Alone(0, Take)],
            vec![Tx(0, vec![Put, Take, Push(1), Append(8), Text(20)])],
            vec![Alone(0, Root(1))],
            // Bytes with an object and without one.
            vec![Alone(0, PushBytes(20)), Alone(0, SetBytes(0, 40))],
            vec![Alone(0, PutBytes(3)), Alone(0, PutBytes(20))],
            vec![Tx(0, vec![PutBytes(20), TakeBytes]), Alone(0, PutBytes(20))],
            vec![Alone(0, PutBytes(20)), Alone(0, ClearSent)],
            vec![Alone(0, PushBytes(20)), Alone(0, ClearBytes)],
        ],
    );
    // The next record, or value, needs a segment; segments go.
    let full = [Alone(0, Append(80)), Alone(0, Append(56))];
    sets.extend(all(
        &full,
        &[
            vec![Alone(0, Append(16)), Alone(0, Append(8)), Alone(0, Trim(3))],
            vec![Tx(0, vec![Append(16), Trim(2)])],
        ],
    ));
    let queue = [0; 8].map(|_| Alone(0, Put));
    let takes = Tx(0, vec![Take; 8]);
    sets.extend(all(&queue, &[vec![Alone(0, Put), takes, Alone(0, Take)]]));
    let ring = [0; 3].map(|_| Alone(0, AppendRing(120)));
    sets.extend(all(&ring, &[vec![Alone(0, AppendRing(120))]]));
    // 504 words fill the segments that the head leads to.
    let vector = [Alone(0, Push(504))];
    sets.extend(all(
        &vector,
        &[vec![Alone(0, Push(1)), Alone(0, Truncate(1))]],
    ));
    sets
}
