//! Goal: maps and trees do what their documentation says, also for many threads and processes, with
//! keys that collide and on a damaged heap. Method: heaps in private memory and in files, through
//! the public face, in a crate without unsafe code.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pmem::{Pmem, counters};
use pmlib::containers::{Key, PMap, PStr, PTree};
use pmlib::{Error, Heap, Options, P, PmSafe, RawP, Result, Tx, View, field};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const BYTES: u64 = 1 << 20;

fn options() -> Options {
    Options {
        lanes: 4,
        lane_bytes: 4096,
        seed: 7,
        ..Options::default()
    }
}

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Kept {
    names: PMap<PStr, u64>,
    numbers: PMap<u64, [u64; 2]>,
    texts: PTree<PStr, u64>,
    narrow: PTree<u64, u64>,
}

fn name(nth: u64) -> String {
    match nth % 2 {
        0 => format!("{nth}"),
        _ => format!("one whose number is {nth}"),
    }
}

/// A heap with something in each container.
fn kept(heap: &Heap, count: u64) -> P<Kept> {
    let kept = heap.root::<Kept>("kept").unwrap();
    let narrow = field!(kept, Kept, narrow);
    heap.tx(|tx| tx.write(narrow, &PTree::with_slots(4)))
        .unwrap();
    for nth in 0..count {
        heap.tx(|tx| {
            let name = name(nth);
            tx.at(field!(kept, Kept, names)).insert(&name, nth)?;
            tx.at(field!(kept, Kept, numbers)).insert(&nth, [nth; 2])?;
            tx.at(field!(kept, Kept, texts)).insert(&name, nth)?;
            tx.at(narrow).insert(&nth, nth)
        })
        .unwrap();
    }
    kept
}

/// Goal: every change waits once for the medium, also one that splits or joins; a look never does.
#[test]
fn a_change_waits_once() {
    let heap = Heap::private(8 << 20, &options()).unwrap();
    let kept = kept(&heap, 0);
    let fences = |body: &mut dyn FnMut()| {
        let before = counters::snapshot();
        body();
        (counters::snapshot() - before).fences
    };
    let (numbers, narrow) = (field!(kept, Kept, numbers), field!(kept, Kept, narrow));
    let texts = field!(kept, Kept, texts);
    for nth in 0..1000u64 {
        let text = name(nth);
        let all = [
            fences(&mut || {
                heap.at(numbers).insert(&nth, [1; 2]).unwrap();
            }),
            fences(&mut || {
                heap.at(numbers).insert(&nth, [2; 2]).unwrap();
            }),
            fences(&mut || {
                heap.at(narrow).insert(&nth, nth).unwrap();
            }),
            fences(&mut || {
                heap.at(texts).insert(&text, nth).unwrap();
            }),
            fences(&mut || {
                heap.at(texts).update(&text, |value| *value += 1).unwrap();
            }),
        ];
        assert_eq!(all, [1; 5], "{nth}");
        let looks = fences(&mut || {
            assert_eq!(heap.at(numbers).get(&nth).unwrap(), Some([2; 2]));
            assert_eq!(heap.at(texts).get(&text).unwrap(), Some(nth + 1));
            assert!(heap.at(narrow).first().unwrap().is_some());
        });
        assert_eq!(looks, 0);
    }
    for nth in 0..1000u64 {
        let text = name(nth);
        let all = [
            fences(&mut || {
                heap.at(numbers).remove(&nth).unwrap();
            }),
            fences(&mut || {
                heap.at(narrow).remove(&nth).unwrap();
            }),
            fences(&mut || {
                heap.at(texts).remove(&text).unwrap();
            }),
        ];
        assert_eq!(all, [1; 3], "{nth}");
    }
}

/// Goal: a change stores few lines, whatever the size of what it changes.
#[test]
fn a_change_is_small() {
    let heap = Heap::private(32 << 20, &options()).unwrap();
    let kept = kept(&heap, 0);
    let (numbers, narrow) = (field!(kept, Kept, numbers), field!(kept, Kept, narrow));
    let tree = heap.root::<PTree<u64, u64>>("tree").unwrap();
    let lines = |body: &mut dyn FnMut()| {
        let before = counters::snapshot();
        body();
        let used = counters::snapshot() - before;
        used.lines_flushed + used.nt_bytes / 64
    };
    let (mut most, mut sums) = ([0; 3], [0; 3]);
    const COUNT: u64 = 20_000;
    for nth in 0..COUNT {
        let key = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let all = [
            lines(&mut || {
                heap.at(numbers).insert(&key, [1; 2]).unwrap();
            }),
            lines(&mut || {
                heap.at(narrow).insert(&key, nth).unwrap();
            }),
            lines(&mut || {
                heap.at(tree).insert(&key, nth).unwrap();
            }),
        ];
        for (at, count) in all.into_iter().enumerate() {
            most[at] = count.max(most[at]);
            sums[at] += count;
        }
    }
    println!("most lines {most:?}, together {sums:?}");
    // A node of 4 KiB that is made is the most; one has 512 buckets.
    assert!(sums.iter().all(|&sum| sum < COUNT * 30), "{sums:?}");
    assert!(most.iter().all(|&most| most < 250), "{most:?}");
}

/// Keys that all have one hash.
#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(transparent)]
struct Same(u64);

impl Key for Same {
    type Name = Same;
    type Read = Same;

    fn name(read: &Same) -> &Same {
        read
    }

    fn copy(name: &Same) -> Same {
        *name
    }

    fn bytes(_name: &Same) -> &[u8] {
        &[]
    }

    fn order(a: &Same, b: &Same) -> Ordering {
        a.0.cmp(&b.0)
    }

    fn make(_tx: &mut Tx<'_>, name: &Same) -> Result<Same> {
        Ok(*name)
    }

    fn between(_tx: &mut Tx<'_>, _left: &Same, right: &Same) -> Result<Same> {
        Ok(*right)
    }

    fn owned(&self, _at: RawP) -> Result<Option<RawP>> {
        Ok(None)
    }

    fn read(&self, _view: &View<'_>, _at: RawP) -> Result<Same> {
        Ok(*self)
    }

    fn compare(&self, _view: &View<'_>, _at: RawP, name: &Same) -> Result<Ordering> {
        Ok(self.0.cmp(&name.0))
    }

    fn compare_bytes(&self, _view: &View<'_>, _at: RawP, name: &Same) -> Result<Ordering> {
        Ok(self.as_bytes().cmp(name.as_bytes()))
    }
}

/// Goal: keys that collide are told apart, and end; all of one hash is the worst that there is.
#[test]
fn keys_of_one_hash_are_told_apart() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let map = heap.root::<PMap<Same, u64>>("map").unwrap();
    const COUNT: u64 = 600;
    for nth in 0..COUNT {
        let key = Same(nth * 271 % COUNT);
        assert_eq!(heap.at(map).insert(&key, nth).unwrap(), None);
    }
    let keys: Vec<u64> = heap.at(map).iter().map(|each| each.unwrap().0.0).collect();
    assert_eq!(keys.len() as u64, COUNT);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len() as u64, COUNT);
    for nth in 0..COUNT {
        let key = Same(nth * 271 % COUNT);
        assert_eq!(heap.at(map).get(&key).unwrap(), Some(nth));
    }
    assert_eq!(heap.at(map).get(&Same(COUNT)).unwrap(), None);
    for nth in 0..COUNT {
        assert!(heap.at(map).remove(&Same(nth)).unwrap().is_some());
    }
    assert!(heap.at(map).is_empty().unwrap());
    heap.at(map).clear().unwrap();
    assert_eq!(heap.check().unwrap().objects, 2);
}

/// Goal: an iterator keeps what it says while others change what it goes through: each key that is
/// there throughout comes once, and none twice.
#[test]
fn iterators_go_on_under_change() {
    let heap = Heap::private(8 << 20, &options()).unwrap();
    let kept = kept(&heap, 0);
    let (numbers, narrow) = (field!(kept, Kept, numbers), field!(kept, Kept, narrow));
    // Multiples of ten stay; others come and go, by many at a time.
    for nth in 0..200u64 {
        heap.at(numbers).insert(&(nth * 10), [nth; 2]).unwrap();
        heap.at(narrow).insert(&(nth * 10), nth).unwrap();
    }
    let others = |round: u64| (0..2000).filter(move |key| key % 10 == 1 + round % 9);
    let change = |round: u64| {
        for key in others(round) {
            if round < 9 {
                heap.at(numbers).insert(&key, [0; 2]).unwrap();
                heap.at(narrow).insert(&key, 0).unwrap();
            } else {
                heap.at(numbers).remove(&key).unwrap();
                heap.at(narrow).remove(&key).unwrap();
            }
        }
    };
    let test = |keys: &[u64]| {
        let all: BTreeSet<u64> = keys.iter().copied().collect();
        assert_eq!(all.len(), keys.len(), "a key came twice");
        assert!(
            (0..200).all(|nth| all.contains(&(nth * 10))),
            "one is missing"
        );
    };
    let mut walk = heap.at(numbers).iter().map(|each| each.unwrap().0);
    let mut keys: Vec<u64> = Vec::new();
    for round in 0..18 {
        keys.extend(walk.by_ref().take(9));
        change(round);
    }
    keys.extend(walk);
    test(&keys);
    for from_back in [false, true] {
        let mut walk = heap.at(narrow).iter().map(|each| each.unwrap().0);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for round in 0..18 {
            front.extend(walk.by_ref().take(9));
            if from_back {
                back.extend(walk.by_ref().rev().take(9));
            }
            change(round);
        }
        front.extend(walk);
        assert!(front.is_sorted() && back.iter().rev().is_sorted());
        front.extend(back);
        test(&front);
    }
}

/// Goal: many threads use maps and trees at once; readers without locks see whole entries.
#[test]
fn threads_share_maps() {
    const EACH: u64 = 300;
    let heap = Heap::private(16 << 20, &options()).unwrap();
    let kept = kept(&heap, 20);
    let (numbers, narrow) = (field!(kept, Kept, numbers), field!(kept, Kept, narrow));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (heap, is_over) = (&heap, &is_over);
        let reader = scope.spawn(move || {
            while !is_over.load(Relaxed) {
                for nth in 0..20 {
                    assert_eq!(heap.at(numbers).get(&nth).unwrap(), Some([nth; 2]));
                    assert_eq!(heap.at(narrow).get(&nth).unwrap(), Some(nth));
                }
                let seen = heap.at(numbers).iter().map(|each| each.unwrap());
                let seen: Vec<(u64, [u64; 2])> = seen.collect();
                assert!(seen.iter().all(|(key, value)| *value == [*key; 2]));
                let keys = heap.at(narrow).iter().map(|each| each.unwrap().0);
                assert!(keys.is_sorted());
            }
        });
        let writers: Vec<_> = (1..4u64)
            .map(|writer| {
                scope.spawn(move || {
                    for nth in 0..EACH {
                        let key = writer * 10_000 + nth * 7 % EACH;
                        heap.tx(|tx| {
                            tx.at(numbers).insert(&key, [key; 2])?;
                            tx.at(narrow).insert(&key, key)
                        })
                        .unwrap();
                        if nth % 3 == 0 {
                            heap.at(numbers).remove(&key).unwrap();
                            heap.at(narrow).remove(&key).unwrap();
                        }
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        is_over.store(true, Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(heap.at(numbers).len().unwrap(), 20 + 3 * EACH * 2 / 3);
    assert_eq!(heap.at(narrow).iter().count() as u64, 20 + 3 * EACH * 2 / 3);
}

#[test]
fn heads_of_zeros_are_empty() {
    let heap = Heap::private(BYTES, &options()).unwrap();
    let kept = heap.tx(|tx| tx.new(Kept::new_zeroed())).unwrap();
    let (names, texts) = (field!(kept, Kept, names), field!(kept, Kept, texts));
    assert!(heap.at(names).is_empty().unwrap() && heap.at(texts).is_empty().unwrap());
    assert_eq!(heap.at(names).get("a").unwrap(), None);
    assert_eq!(heap.at(names).remove("a").unwrap(), None);
    assert_eq!(heap.at(texts).remove("a").unwrap(), None);
    assert_eq!(heap.at(texts).update("a", |_| ()).unwrap(), None);
    assert_eq!(
        (
            heap.at(texts).first().unwrap(),
            heap.at(names).iter().count()
        ),
        (None, 0)
    );
    assert_eq!(heap.at(texts).iter().rev().count(), 0);
    heap.at(names).clear().unwrap();
    heap.at(texts).clear().unwrap();
    assert_eq!(
        heap.at(texts)
            .range((Bound::Included("b"), Bound::Excluded("a")))
            .count(),
        0
    );
    assert_eq!(heap.at(names).insert("", 1).unwrap(), None);
    assert_eq!(heap.at(texts).insert("", 1).unwrap(), None);
    assert_eq!(heap.at(names).insert("", 2).unwrap(), Some(1));
    assert_eq!(heap.at(texts).prefix("").count(), 1);
}

/// Goal: a map goes on without more buckets where there is no room for them.
#[test]
fn a_full_heap_refuses_and_keeps() {
    let heap = Heap::private(BYTES, &options()).unwrap();
    let map = heap.root::<PMap<u64, [u64; 60]>>("map").unwrap();
    let tree = heap.root::<PTree<u64, [u64; 60]>>("tree").unwrap();
    for key in 0u64.. {
        match heap.at(map).insert(&key, [key; 60]) {
            Ok(_) => {}
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let full = heap.at(tree).insert(&1, [1; 60]);
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    let len = heap.at(map).len().unwrap();
    assert!(len > 1000);
    assert_eq!(heap.at(map).iter().count() as u64, len);
    for key in 0..100 {
        assert_eq!(heap.at(map).remove(&key).unwrap(), Some([key; 60]));
    }
    // Objects that share a word of a bitmap are freed by one entry, so the record has room.
    heap.at(map).clear().unwrap();
    assert_eq!(heap.at(map).iter().count(), 0);
    assert!(heap.at(tree).insert(&1, [1; 60]).unwrap().is_none());
    heap.at(tree).clear().unwrap();
    assert_eq!(heap.check().unwrap().objects, 4);
}

/// Goal: a call that fails in its middle is not half there, also if its transaction does not mind.
/// Method: a split that gets one of the two nodes that it needs.
#[test]
fn a_call_that_fails_spoils_its_transaction() {
    let heap = Heap::private(BYTES, &options()).unwrap();
    let tree = heap
        .tx(|tx| tx.new(PTree::<u64, u64>::with_slots(4)))
        .unwrap();
    for key in [10, 20, 30, 40] {
        heap.at(tree).insert(&key, key).unwrap();
    }
    // Objects of a node's size.
    let mut filling = Vec::new();
    let full = loop {
        match heap.tx(|tx| tx.alloc(104)) {
            Ok(offset) => filling.push(offset),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    let last = filling.pop().unwrap();
    heap.tx(|tx| tx.free(last)).unwrap();
    let objects = heap.check().unwrap().objects;
    let before: Vec<(u64, u64)> = heap.at(tree).iter().map(|each| each.unwrap()).collect();
    let spoiled = heap.tx(|tx| {
        let full = tx.at(tree).insert(&25, 25);
        assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
        Ok::<_, Error>(())
    });
    assert!(matches!(spoiled, Err(Error::Spoiled)), "{spoiled:?}");
    // A part of its own may fail.
    heap.tx(|tx| {
        let full = tx.nested(|tx| tx.at(tree).insert(&25, 25));
        assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
        tx.at(tree).update(&10, |value| *value = 11).map(drop)
    })
    .unwrap();
    let mut expected = before;
    expected[0].1 = 11;
    let after: Vec<(u64, u64)> = heap.at(tree).iter().map(|each| each.unwrap()).collect();
    assert_eq!(after, expected);
    assert_eq!(heap.check().unwrap().objects, objects);
    heap.tx(|tx| tx.alloc(104)).unwrap();
}

fn memory(bytes: &[u8]) -> Pmem {
    let mem = Pmem::private(BYTES);
    mem.write_nt(0, bytes).unwrap();
    mem
}

/// Goes to the end, or to an error.
fn all<T>(entries: &mut dyn Iterator<Item = Result<T>>) -> Result<()> {
    for entry in entries {
        entry?;
    }
    Ok(())
}

/// Everything that can be asked of the containers, and then done to them.
fn used(heap: &Heap, kept: P<Kept>) -> Vec<Result<()>> {
    let (names, numbers) = (field!(kept, Kept, names), field!(kept, Kept, numbers));
    let (texts, narrow) = (field!(kept, Kept, texts), field!(kept, Kept, narrow));
    let (a, b) = (name(5), name(31));
    let mut done = vec![
        all(&mut heap.at(names).iter()),
        all(&mut heap.at(numbers).iter()),
        all(&mut heap.at(texts).iter()),
        all(&mut heap.at(narrow).iter()),
        all(&mut heap.at(texts).iter().rev()),
        all(&mut heap.at(narrow).iter().rev()),
        all(&mut heap.at(texts).prefix("one")),
        all(&mut heap.at(narrow).range(3..17)),
        heap.at(texts).first().map(drop),
        heap.at(narrow).last().map(drop),
        heap.at(names).len().map(drop),
    ];
    for key in [4, 5, 16, 99] {
        done.push(heap.at(names).get(&name(key)).map(drop));
        done.push(heap.at(numbers).get(&key).map(drop));
        done.push(heap.at(texts).get(&name(key)).map(drop));
        done.push(heap.at(narrow).get(&key).map(drop));
    }
    for key in 30..34 {
        done.push(heap.at(names).insert(&name(key), 1).map(drop));
        done.push(heap.at(numbers).insert(&key, [1; 2]).map(drop));
        done.push(heap.at(texts).insert(&name(key), 1).map(drop));
        done.push(heap.at(narrow).insert(&key, 1).map(drop));
    }
    for key in [&a, &b] {
        done.push(heap.at(names).remove(key).map(drop));
        done.push(heap.at(texts).remove(key).map(drop));
    }
    for key in 3..20 {
        done.push(heap.at(numbers).remove(&key).map(drop));
        done.push(heap.at(narrow).remove(&key).map(drop));
    }
    done.push(heap.at(names).clear());
    done.push(heap.at(numbers).clear());
    done.push(heap.at(texts).clear());
    done.push(heap.at(narrow).clear());
    done
}

/// The bytes of the containers and of all objects that words in them lead to.
fn objects_of(heap: &Heap, kept: P<Kept>) -> Vec<std::ops::Range<u64>> {
    let mut found = BTreeSet::from([RawP::from(kept).0]);
    let mut left: Vec<u64> = found.iter().copied().collect();
    let mut ranges = Vec::new();
    while let Some(offset) = left.pop() {
        let size = heap.size_of(offset).unwrap();
        ranges.push(offset..offset + size);
        let mut words = vec![0u64; size as usize / 8];
        heap.read_bytes(offset, 0, words.as_mut_bytes()).unwrap();
        for word in words {
            if heap.size_of(word).is_ok() && found.insert(word) {
                left.push(word);
            }
        }
    }
    ranges
}

fn bytes_of(heap: Heap) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    heap.into_memory().copy_out(0, &mut bytes).unwrap();
    bytes
}

/// Tests the answers on a heap that somebody has changed; how many were refused.
fn answered(bad: &[u8], kept: P<Kept>, what: &str) -> usize {
    let heap = Heap::attach(memory(bad)).unwrap();
    let mut refused = 0;
    for answer in used(&heap, kept) {
        match answer {
            Ok(()) => {}
            Err(Error::Damaged { offset, .. }) if offset < BYTES => refused += 1,
            // The damage led to the struct itself, and it was freed as a part.
            Err(Error::NoObject { offset }) if offset == RawP::from(kept).0 => {}
            Err(Error::Full { .. } | Error::Size { .. }) => {}
            Err(error) => panic!("{what}: {error}"),
        }
    }
    refused
}

/// Goal: damaged maps and trees end with answers. Method: each byte of the objects is changed in a
/// few ways, each in a heap of its own, whose containers are read and changed.
#[test]
fn every_damaged_byte_ends_with_an_answer() {
    let made = Heap::private(BYTES, &options()).unwrap();
    let kept = kept(&made, 12);
    let objects = objects_of(&made, kept);
    let good = bytes_of(made);
    let heap = Heap::attach(memory(&good)).unwrap();
    assert!(used(&heap, kept).iter().all(|answer| answer.is_ok()));
    let (mut refused, mut places) = (0, 0);
    for at in objects.into_iter().flatten() {
        for change in [1 << (at % 8), 0xff] {
            let mut bad = good.clone();
            bad[at as usize] ^= change;
            refused += answered(&bad, kept, &format!("byte {at:#x}"));
            places += 1;
        }
    }
    println!("{refused} refused, {places} places");
    assert!(refused > places / 2);
}

/// Goal: words that somebody forged end with answers: circles, parts that belong to others, numbers
/// at their ends. Method: each word of the objects becomes the offset of each of a few of them, and
/// numbers.
#[test]
fn every_forged_word_ends_with_an_answer() {
    let made = Heap::private(BYTES, &options()).unwrap();
    let kept = kept(&made, 9);
    let objects = objects_of(&made, kept);
    let good = bytes_of(made);
    let mut values = vec![0, u64::MAX, 1 << 40, 30, BYTES / 8];
    values.extend(objects.iter().map(|object| object.start).step_by(9));
    let mut refused = 0;
    for object in &objects {
        for at in object.clone().step_by(8) {
            // An object that names itself is the shortest circle.
            for &value in values.iter().chain([&object.start]) {
                let mut bad = good.clone();
                bad[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
                refused += answered(&bad, kept, &format!("word {at:#x} is {value:#x}"));
            }
        }
    }
    println!("{refused} refused");
    assert!(refused > 1000);
}

/// The work of a process that this program is run as, and the heap.
const ROLE: &str = "PMLIB_MAPS_ROLE";
/// Keys of each process.
const KEYS: u64 = 400;

fn process(path: &Path, nth: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_another_process", "--nocapture"])
        .env(ROLE, format!("{nth} {}", path.display()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// No test: the processes that the test below runs.
#[test]
fn as_another_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (nth, path) = role.split_once(' ').unwrap();
    let nth: u64 = nth.parse().unwrap();
    let heap = Heap::open(Path::new(path), &Options::default()).unwrap();
    let kept = heap.root::<Kept>("kept").unwrap();
    // The first one goes on until it is killed.
    let rounds = if nth == 0 { u64::MAX } else { KEYS };
    for round in 0..rounds {
        let key = 1000 * (nth + 1) + round % KEYS * 7 % KEYS;
        heap.tx(|tx| {
            tx.at(field!(kept, Kept, numbers)).insert(&key, [key; 2])?;
            tx.at(field!(kept, Kept, names)).insert(&name(key), key)?;
            tx.at(field!(kept, Kept, texts)).insert(&name(key), key)?;
            tx.at(field!(kept, Kept, narrow)).insert(&key, key)?;
            tx.at(field!(kept, Kept, numbers))
                .update(&0, |value| value[0] += 1)
        })
        .unwrap();
        if round % 2 == 0 {
            heap.tx(|tx| {
                tx.at(field!(kept, Kept, numbers)).remove(&key)?;
                tx.at(field!(kept, Kept, names)).remove(&name(key))?;
                tx.at(field!(kept, Kept, texts)).remove(&name(key))?;
                tx.at(field!(kept, Kept, narrow)).remove(&key)
            })
            .unwrap();
        }
    }
}

/// Goal: processes change one map and one tree at once, and one that is killed harms nobody: all
/// four containers hold the same keys, and nothing is lost.
#[test]
fn processes_share_maps() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 16 << 20, &options()).unwrap();
    let kept = kept(&heap, 1);
    let mut children: Vec<Child> = (0..3).map(|nth| process(&path, nth)).collect();
    let numbers = field!(kept, Kept, numbers);
    // Killed somewhere in its work.
    while heap.at(numbers).get(&0).unwrap().unwrap()[0] < 100 {
        std::thread::yield_now();
    }
    children[0].kill().unwrap();
    assert!(!children[0].wait().unwrap().success());
    for child in &mut children[1..] {
        assert!(child.wait().unwrap().success());
    }
    let keys = |read: Vec<u64>| read.into_iter().collect::<BTreeSet<u64>>();
    let found = heap.at(numbers).iter().map(|each| each.unwrap());
    let found: Vec<(u64, [u64; 2])> = found.collect();
    assert!(
        found
            .iter()
            .all(|(key, value)| *key == 0 || *value == [*key; 2])
    );
    let expected = keys(found.iter().map(|(key, _)| *key).collect());
    assert_eq!(expected.len() as u64, heap.at(numbers).len().unwrap());
    let of_names = heap.at(field!(kept, Kept, names)).iter();
    assert_eq!(
        keys(of_names.map(|each| each.unwrap().1).collect()),
        expected
    );
    let of_texts = heap.at(field!(kept, Kept, texts)).iter();
    assert_eq!(
        keys(of_texts.map(|each| each.unwrap().1).collect()),
        expected
    );
    let of_narrow = heap.at(field!(kept, Kept, narrow)).iter();
    assert_eq!(
        keys(of_narrow.map(|each| each.unwrap().1).collect()),
        expected
    );
    let whole = expected.iter().filter(|&&key| key >= 2000).count() as u64;
    assert_eq!(whole, KEYS, "half of two processes' keys");
    heap.at(numbers).clear().unwrap();
    heap.at(field!(kept, Kept, names)).clear().unwrap();
    heap.at(field!(kept, Kept, texts)).clear().unwrap();
    heap.at(field!(kept, Kept, narrow)).clear().unwrap();
    assert_eq!(heap.check().unwrap().objects, 2);
}
