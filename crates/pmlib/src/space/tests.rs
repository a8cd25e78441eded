use super::*;
use crate::check::split_mix;
use crate::{Heap, Options};

#[test]
fn runs_are_cut_and_joined() {
    let mut space = Space::default();
    space.give(10, 6);
    space.give(30, 2);
    assert_eq!(space.take(1), Some(30), "from the shortest");
    assert_eq!(space.take(4), Some(10));
    assert_eq!(space.take(3), None);
    space.give(30, 1);
    space.give(10, 4);
    let runs: Vec<(u64, u64)> = space.free.into_iter().collect();
    assert_eq!(runs, [(10, 6), (30, 2)]);
}

/// Two chunks with one word: the one that is not shown is not taken for listed, and neither
/// takes the other's word away.
#[test]
fn shown_chunks_are_listed() {
    let (seen, mut space) = (Arc::new(Seen::new(4)), Space::default());
    space.list(1, 3);
    space.show_in(&seen);
    assert!(seen.has(1) && !seen.has(5) && !seen.has(0));
    space.list(5, 3);
    assert!(seen.has(5) && !seen.has(1));
    assert_eq!(space.next_listed(3), Some(1));
    assert!(seen.has(5));
    assert_eq!(space.next_listed(3), Some(5));
    assert!(!seen.has(5) && !seen.has(1));
    assert!(!Seen::default().has(0));
}

/// Goal: room that was freed in a chunk that is listed already is not lost. Method: objects are
/// freed and made in an order that no list foresees; after each transaction every chunk with
/// room is a lane's, listed, or waits.
#[test]
#[cfg_attr(miri, ignore = "Miri knows no mappings that are made by system calls")]
fn no_room_is_forgotten() {
    let heap = Heap::private(2 << 20, &Options::default()).unwrap();
    let core = heap.core();
    let class = class_of(1000).unwrap();
    let mut all = Vec::new();
    while let Ok(object) = heap.tx(|tx| tx.alloc(1000)) {
        all.push(object);
    }
    let mut state = 7;
    for _ in 0..2000 {
        let chance = split_mix(&mut state);
        if chance % 100 < 45 && !all.is_empty() {
            let object = all.swap_remove((chance >> 8) as usize % all.len());
            heap.tx(|tx| tx.free(object)).unwrap();
        } else if let Ok(object) = heap.tx(|tx| tx.alloc(1000)) {
            all.push(object);
        }
        let space = core.space();
        let rooms = space.waiting.iter().flatten();
        let waiting: Vec<Room> = rooms.map(|&(_, room)| room).collect();
        core.walk(|chunk, entry| {
            let is_free = core.mem.load(core.use_of(chunk)) == 0;
            if entry.kind == KIND_OBJECTS && is_free && core.has_room(chunk, class) {
                let is_listed = space.partial.0[class].contains(&chunk);
                assert!(is_listed || waiting.contains(&Room::In(chunk, class)));
                assert!(is_listed || !core.seen.has(chunk));
            }
        });
    }
}

#[test]
fn as_many_bits_are_valid_as_there_are_places() {
    for class in 0..CLASSES {
        let bits = (0..bitmap_words(class)).map(|word| valid_bits(class, word));
        let count: u64 = bits.map(|bits| u64::from(bits.count_ones())).sum();
        assert_eq!(count, places(class));
    }
    assert_eq!(
        valid_bits(0, bitmap_words(0) - 1),
        0,
        "there is such a word"
    );
}

#[test]
fn the_class_is_the_smallest_that_fits() {
    assert_eq!(class_of(1), Some(0));
    assert_eq!(class_of(16), Some(0));
    assert_eq!(class_of(129).map(|class| CLASS_BYTES[class]), Some(160));
    assert_eq!(class_of(8192), Some(31));
    assert_eq!(class_of(8193), Some(32));
    // Whole chunks fit better, or are all that there is.
    assert_eq!([60_000, 65_536, 110_000, 180_000].map(class_of), [None; 4]);
}
