//! Goal: one transaction changes chunks of two spans of a heap that has grown. Method: objects of a
//! chunk each, over the end of the first span, whose last group of the table is not full, are made
//! in one transaction, freed in one, and made again; all is found by a look at the whole heap.

use pmlib::{Heap, Options};

const BYTES: u64 = 64 << 10;
/// Chunks at first, not a multiple of a group's 15; and objects, more than these.
const FIRST: u64 = 256;
const OBJECTS: u64 = 300;

#[test]
fn a_transaction_spans_two_spans() {
    let options = Options {
        max: 64 << 20,
        ..Options::default()
    };
    let heap = Heap::private(FIRST * BYTES, &options).expect("a heap");
    for round in 0..3 {
        let made = heap.tx(|tx| {
            let objects = (0..OBJECTS).map(|_| tx.alloc(BYTES));
            objects.collect::<pmlib::Result<Vec<u64>>>()
        });
        let made = made.expect("room");
        assert!(made.iter().any(|offset| offset / BYTES >= FIRST));
        let objects = || heap.check().expect("whole").objects;
        assert_eq!(objects(), OBJECTS, "round {round}");
        let freed = heap.tx(|tx| made.iter().try_for_each(|&offset| tx.free(offset)));
        freed.expect("they are there");
        assert_eq!(objects(), 0, "round {round}");
    }
}
