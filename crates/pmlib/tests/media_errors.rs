//! Goal: a page that its medium can't give is an error of the calls that need it. Method: a page of
//! an object is made one by `pmem`, in a heap in a file.

use pmlib::{Error, Heap, Options};

#[test]
fn a_bad_page_is_an_error_of_who_needs_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options::default();
    let heap = Heap::create(&dir.path().join("heap"), 4 << 20, &options).unwrap();
    let object = heap.tx(|tx| tx.alloc(100_000)).unwrap();
    let other = heap.tx(|tx| tx.alloc(64)).unwrap();
    let mem = heap.close().unwrap();
    if let Err(error) = mem.poison(object + 8192) {
        eprintln!("skipped: no UFFDIO_POISON here: {error}");
        return;
    }
    let heap = Heap::attach(mem).unwrap();
    let is_lost = |result: Result<(), Error>| matches!(result, Err(Error::Lost { .. }));
    let mut bytes = [0; 64];
    assert!(is_lost(heap.read_bytes(object, 8192, &mut bytes)));
    assert!(is_lost(
        heap.tx(|tx| tx.edit_bytes(object, 8000, 500).map(drop))
    ));
    // The others go on.
    heap.read_bytes(object, 0, &mut bytes).unwrap();
    heap.tx(|tx| {
        tx.edit_bytes(object, 4096, 8)?.fill(1);
        tx.edit_bytes(other, 0, 8)?.fill(1);
        Ok::<_, Error>(())
    })
    .unwrap();
    heap.read_bytes(other, 0, &mut bytes).unwrap();
    assert_eq!(bytes[..8], [1; 8]);
}
