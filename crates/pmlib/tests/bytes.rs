//! Goal: maps and trees of bytes do what their documentation says: bytes live as long as their
//! entry, are seen as of one moment, and no object of theirs is lost. Method: random calls beside
//! the standard library's tree, and a thread that reads while another one changes.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use pmlib::containers::{PBytes, PMap, PTree};
use pmlib::{Error, Heap, Options, P};

fn heap() -> Heap {
    let options = Options {
        seed: 7,
        ..Options::default()
    };
    Heap::private(8 << 20, &options).unwrap()
}

/// Numbers that look random.
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 33) % below
}

/// Keys of 0 to 39 bytes, none of which is a text.
fn key(number: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; number as usize % 40];
    bytes.extend((number as u32).to_le_bytes().map(|byte| byte | 0x80));
    bytes.truncate(number as usize % 40);
    bytes
}

fn value(state: &mut u64) -> Vec<u8> {
    let len = [0, 1, 15, 16, 200, 5000][next(state, 6) as usize];
    vec![next(state, 256) as u8; len]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The objects of a heap.
fn objects(heap: &Heap) -> u64 {
    heap.check().unwrap().objects
}

#[test]
fn random_calls_do_what_they_do_to_a_tree_of_the_library() {
    let heap = heap();
    let map = heap.root::<PMap<PBytes, PBytes>>("map").unwrap();
    let tree = heap.root::<PTree<PBytes, PBytes>>("tree").unwrap();
    heap.tx(|tx| tx.write(tree, &PTree::with_slots(4))).unwrap();
    let before = objects(&heap);
    let (mut model, mut state) = (Model::new(), 11);
    for _ in 0..3000 {
        let key = key(next(&mut state, 60));
        if next(&mut state, 3) > 0 {
            let value = value(&mut state);
            let was = model.insert(key.clone(), value.clone()).is_some();
            assert_eq!(heap.at(map).set_bytes(&key, &value).unwrap(), was);
            let set = heap.tx(|tx| tx.at(tree).set_bytes(&key, &value));
            assert_eq!(set.unwrap(), was);
        } else {
            let was = model.remove(&key).is_some();
            assert_eq!(heap.at(map).remove_bytes(&key).unwrap(), was);
            assert_eq!(heap.at(tree).remove_bytes(&key).unwrap(), was);
        }
        assert_eq!(
            heap.at(map).get_bytes(&key).unwrap().as_ref(),
            model.get(&key)
        );
        assert_eq!(
            heap.at(tree).get_bytes(&key).unwrap().as_ref(),
            model.get(&key)
        );
    }
    let read = |entry: Result<(Vec<u8>, PBytes), Error>| {
        let (key, value) = entry.unwrap();
        (key, heap.bytes_of(value).unwrap())
    };
    let in_map: Model = heap.at(map).iter().map(read).collect();
    let in_tree: Vec<_> = heap.at(tree).iter().map(read).collect();
    assert_eq!(in_map, model);
    assert_eq!(in_tree, model.clone().into_iter().collect::<Vec<_>>());
    let begin = [0xff; 3];
    let with: Vec<_> = heap.at(tree).prefix(&begin).map(read).collect();
    let all = model
        .clone()
        .into_iter()
        .filter(|(key, _)| key.starts_with(&begin));
    assert_eq!(with, all.collect::<Vec<_>>());
    heap.at(map).clear_bytes().unwrap();
    heap.at(tree).clear_bytes().unwrap();
    assert_eq!(objects(&heap), before, "no object is lost");
}

/// Values that are there come whole, and of one moment: all bytes of each are the same.
#[test]
fn a_reader_sees_no_bytes_of_two_moments() {
    let heap = heap();
    let tree = heap.root::<PTree<PBytes, PBytes>>("tree").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0..20_000u32 {
                let len = if nth % 2 == 0 { 700 } else { 900 };
                heap.at(tree)
                    .set_bytes(b"key", &vec![nth as u8; len])
                    .unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            if let Some(bytes) = heap.at(tree).get_bytes(b"key").unwrap() {
                let len = if bytes[0] % 2 == 0 { 700 } else { 900 };
                assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == bytes[0]));
            }
        }
    });
}

#[test]
fn a_transaction_that_fails_keeps_the_bytes() {
    let heap = heap();
    let map = heap.root::<PMap<PBytes, PBytes>>("map").unwrap();
    heap.at(map).set_bytes(b"one", &[1; 100]).unwrap();
    let before = objects(&heap);
    let failed = heap.tx(|tx| {
        tx.at(map).set_bytes(b"one", &[2; 300])?;
        tx.at(map).set_bytes(&[0xff; 50], &[3; 300])?;
        assert_eq!(tx.at(map).get_bytes(b"one")?, Some(vec![2; 300]));
        tx.at(map).clear_bytes()?;
        Err::<(), _>(Error::NoPart)
    });
    assert!(failed.is_err());
    assert_eq!(heap.at(map).get_bytes(b"one").unwrap(), Some(vec![1; 100]));
    assert_eq!(objects(&heap), before);
}

/// Goal: a value whose bytes were freed is damage, and no panic.
#[test]
fn bytes_that_are_gone_are_told() {
    let heap = heap();
    let kept: P<PBytes> = heap
        .tx(|tx| {
            let value = tx.new_bytes(&[5; 64])?;
            tx.new(value)
        })
        .unwrap();
    let value = heap.read(kept).unwrap();
    assert_eq!(heap.bytes_of(value).unwrap(), [5; 64]);
    assert_eq!((value.len(), value.is_empty()), (64, false));
    heap.tx(|tx| tx.free_bytes(value)).unwrap();
    assert!(matches!(heap.bytes_of(value), Err(Error::Damaged { .. })));
    let again = heap.tx(|tx| tx.free_bytes(value));
    assert!(matches!(again, Err(Error::Damaged { .. })), "{again:?}");
    assert!(PBytes::short(&[0; 16]).is_none());
    let short = PBytes::short(&[0xff; 15]).unwrap();
    assert_eq!(heap.bytes_of(short).unwrap(), [0xff; 15]);
}
