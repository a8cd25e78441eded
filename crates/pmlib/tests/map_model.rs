//! Goal: over any history maps and trees hold what a tree of the standard library would hold, and
//! give back all room. Method: random calls on a heap, in transactions of which some fail, and in
//! parts of these, between openings after a crash that loses nothing (yat looks at power loss).
//! One number makes a history again: `PMLIB_MODEL_SEED`; `PMLIB_MODEL_OPS` says how long it is.
#![forbid(unsafe_code)]

#[macro_use]
mod keyed;

use keyed::{Keyed, Model, Random, clear, seen};
use pmlib::containers::{PMap, PTree};
use pmlib::{Error, Heap, Options, P, Tx, field};

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn act_in(
    tx: &mut Tx<'_>,
    kept: P<Keyed>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    on_keyed!(tx, kept, model, random);
    Ok(())
}

fn act_on(
    heap: &Heap,
    kept: P<Keyed>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    on_keyed!(heap, kept, model, random);
    Ok(())
}

/// Several calls, one of which may be a part that fails.
fn acts(
    tx: &mut Tx<'_>,
    kept: P<Keyed>,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Error> {
    for _ in 0..1 + random.below(5) {
        if random.below(6) == 0 {
            let mut others = model.clone();
            let part: Result<(), Error> = tx.nested(|tx| {
                act_in(tx, kept, &mut others, random)?;
                act_in(tx, kept, &mut others, random)?;
                Err(Error::Deadlock)
            });
            assert!(
                matches!(part, Err(Error::Deadlock | Error::Full { .. })),
                "{part:?}"
            );
        } else {
            act_in(tx, kept, model, random)?;
        }
    }
    Ok(())
}

#[test]
fn maps_hold_what_those_in_memory_do() {
    let seed = number("PMLIB_MODEL_SEED", std::process::id().into());
    let count = number("PMLIB_MODEL_OPS", 20_000);
    println!("PMLIB_MODEL_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let options = Options {
        lanes: 2,
        lane_bytes: 4096,
        seed: seed | 1,
        ..Options::default()
    };
    let mut heap = Heap::private(4 << 20, &options).unwrap();
    let kept = heap.root::<Keyed>("kept").unwrap();
    let narrow = field!(kept, Keyed, narrow);
    heap.tx(|tx| tx.write(narrow, &PTree::with_slots(4)))
        .unwrap();
    let mut model = Model::default();
    for _ in 0..count {
        let mut after = model.clone();
        let done = match random.below(10) {
            0..=5 => act_on(&heap, kept, &mut after, &mut random),
            6..=8 => heap.tx(|tx| acts(tx, kept, &mut after, &mut random)),
            _ => {
                let failed = heap.tx(|tx| {
                    acts(tx, kept, &mut after, &mut random)?;
                    Err(Error::Deadlock)
                });
                after = model.clone();
                match failed {
                    Err(Error::Deadlock) => Ok(()),
                    other => other,
                }
            }
        };
        match done {
            Ok(()) => model = after,
            Err(Error::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if random.below(60) == 0 {
            assert_eq!(seen(&heap, kept).unwrap(), model);
        }
        if random.below(100) == 0 {
            heap = Heap::attach(heap.into_memory()).unwrap();
        }
    }
    assert_eq!(seen(&heap, kept).unwrap(), model);
    let largest = model.numbers.len().max(model.narrow.len());
    println!("{count} rounds, {largest} entries at the end");
    // All room comes back: the root and its name are left.
    clear(&heap, kept);
    assert_eq!(heap.check().unwrap().objects, 2);
}

/// Goal: maps and trees of many entries, in several orders, one by one away again; every object is
/// given back on the way but the least.
#[test]
fn many_come_and_go() {
    let heap = Heap::private(32 << 20, &Options::default()).unwrap();
    let map = heap.root::<PMap<u64, u64>>("map").unwrap();
    let tree = heap.root::<PTree<u64, u64>>("tree").unwrap();
    let narrow = heap.tx(|tx| tx.new(PTree::<u64, u64>::with_slots(4)));
    let narrow = narrow.unwrap();
    let objects = heap.check().unwrap().objects;
    const COUNT: u64 = 5000;
    let orders: [fn(u64) -> u64; 3] = [|nth| nth, |nth| COUNT - 1 - nth, |nth| nth * 2741 % COUNT];
    for (nth_order, order) in orders.into_iter().enumerate() {
        for nth in 0..COUNT {
            let key = order(nth);
            assert_eq!(heap.at(map).insert(&key, nth).unwrap(), None);
            assert_eq!(heap.at(tree).insert(&key, nth).unwrap(), None);
            assert_eq!(heap.at(narrow).insert(&key, nth).unwrap(), None);
        }
        assert_eq!(heap.at(map).len().unwrap(), COUNT);
        let keys: Vec<u64> = heap.at(tree).iter().map(|each| each.unwrap().0).collect();
        assert_eq!(keys, (0..COUNT).collect::<Vec<_>>());
        let back = heap.at(narrow).iter().rev().map(|each| each.unwrap().0);
        assert!(back.eq((0..COUNT).rev()));
        let mut keys: Vec<u64> = heap.at(map).iter().map(|each| each.unwrap().0).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..COUNT).collect::<Vec<_>>());
        let away = orders[(nth_order + 1) % 3];
        for nth in 0..COUNT {
            let key = away(nth);
            assert!(heap.at(map).remove(&key).unwrap().is_some());
            assert!(heap.at(tree).remove(&key).unwrap().is_some());
            assert!(heap.at(narrow).remove(&key).unwrap().is_some());
        }
        assert!(heap.at(map).is_empty().unwrap() && heap.at(tree).is_empty().unwrap());
        assert!(heap.at(narrow).is_empty().unwrap());
        // A map keeps its first segment of buckets.
        assert_eq!(heap.check().unwrap().objects, objects + 1);
        heap.at(map).clear().unwrap();
        assert_eq!(heap.check().unwrap().objects, objects);
    }
}
