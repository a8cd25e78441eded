//! Goal: over any history a heap holds what a map of its objects would hold. Method: random
//! transactions on two lanes, some of which fail or are left open, between openings of the heap,
//! clean ones and after a crash that loses nothing (power loss is `crates/yat`'s). One number makes
//! a history again: `PMLIB_MODEL_SEED`; `PMLIB_MODEL_OPS` says how long it is.

use pmlib::{Error, Heap, Options, Tx};
use std::collections::BTreeMap;

type Objects = BTreeMap<u64, Vec<u8>>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// One of the objects, if there is any.
fn any(objects: &Objects, random: &mut Random) -> Option<u64> {
    let nth = random.below(objects.len().max(1) as u64) as usize;
    objects.keys().nth(nth).copied()
}

/// One change in a transaction and in the reference. `Full` is an answer, of both nothing.
fn act(tx: &mut Tx<'_>, objects: &mut Objects, random: &mut Random) -> Result<(), Error> {
    match (random.below(8), any(objects, random)) {
        (0..=2, _) | (_, None) => {
            let sizes = [
                8, 16, 48, 64, 100, 500, 3000, 8192, 8193, 20_000, 30_000, 50_000, 70_000, 120_000,
                140_000,
            ];
            let size = sizes[random.below(sizes.len() as u64) as usize];
            match tx.alloc(size) {
                Ok(object) => {
                    let bytes = vec![0; tx.size_of(object)? as usize];
                    assert_eq!(objects.insert(object, bytes), None, "given out twice");
                }
                Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        (3..=4, Some(object)) => {
            tx.free(object)?;
            objects.remove(&object);
        }
        (_, Some(object)) => {
            let bytes = objects.get_mut(&object).expect("one of them");
            let size = bytes.len() as u64;
            let start = random.below(size);
            let len = 1 + random.below((size - start).min(300));
            let value = random.below(256) as u8;
            tx.edit_bytes(object, start, len)?.fill(value);
            bytes[start as usize..(start + len) as usize].fill(value);
        }
    }
    Ok(())
}

/// Several changes, one of which may be a part that fails.
fn acts(tx: &mut Tx<'_>, objects: &mut Objects, random: &mut Random) -> Result<(), Error> {
    for _ in 0..1 + random.below(4) {
        if random.below(8) == 0 {
            let mut others = objects.clone();
            let part: Result<(), Error> = tx.nested(|tx| {
                act(tx, &mut others, random)?;
                act(tx, &mut others, random)?;
                Err(Error::Deadlock)
            });
            assert!(matches!(part, Err(Error::Deadlock)));
        } else {
            act(tx, objects, random)?;
        }
    }
    Ok(())
}

fn compare(heap: &Heap, objects: &Objects) {
    let census = heap.check().unwrap();
    assert_eq!(census.objects, objects.len() as u64);
    let bytes: u64 = objects.values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(census.object_bytes, bytes);
    let all = census.own_bytes + census.free_bytes + census.object_bytes + census.spare_bytes;
    assert_eq!(all, heap.size());
    for (&object, expected) in objects {
        let mut found = vec![0; expected.len()];
        heap.read_bytes(object, 0, &mut found).unwrap();
        assert!(found == *expected, "the object at {object:#x}");
    }
}

#[test]
fn a_heap_is_a_map_of_its_objects() {
    let seed = number("PMLIB_MODEL_SEED", std::process::id().into());
    let count = number("PMLIB_MODEL_OPS", 4000);
    println!("PMLIB_MODEL_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let options = Options {
        lanes: 2,
        lane_bytes: 4096,
        seed: seed | 1,
        ..Options::default()
    };
    let mut heap = Heap::private(2 << 20, &options).unwrap();
    let mut objects = Objects::new();
    for _ in 0..count {
        let mut after = objects.clone();
        let mut tx = heap.begin_on(random.below(2) as usize);
        acts(&mut tx, &mut after, &mut random).unwrap();
        match random.below(20) {
            0 => drop(tx),
            1 => {
                // A process that dies in the middle of it.
                std::mem::forget(tx);
                heap = Heap::attach(heap.into_memory()).unwrap();
                compare(&heap, &objects);
            }
            _ => match heap.commit(tx) {
                Ok(()) => objects = after,
                // The record of the call is long, and there is no room for it.
                Err(Error::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            },
        }
        match random.below(200) {
            0..2 => {
                heap = Heap::attach(heap.into_memory()).unwrap();
                compare(&heap, &objects);
            }
            2 => compare(&heap, &objects),
            _ => {}
        }
    }
    compare(&heap, &objects);
    // All of it comes back.
    for object in std::mem::take(&mut objects).into_keys() {
        heap.tx(|tx| tx.free(object)).unwrap();
    }
    heap.tx(|tx| tx.alloc(1 << 20)).unwrap();
}
