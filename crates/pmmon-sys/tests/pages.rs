//! Goal: exactly the pages that were written through the mapping since the last look are told, and
//! whoever lacks the kernel's help learns why. Method: pages of this process's own, and a seccomp
//! filter that refuses userfaultfd as older kernels do.

use std::os::unix::fs::FileExt;

use pmmon_sys::{
    Kind, Mapping, Op, PAGE, TrackedPages, WrittenPages, has_soft_dirty, probe_pages, run,
};

const PAGES: u64 = 700;

fn mapping() -> (std::fs::File, Mapping) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let bytes = PAGES * PAGE;
    file.set_len(bytes).unwrap();
    let mapping = Mapping::new(&file, bytes as usize).unwrap();
    (file, mapping)
}

/// Writes a word of a page.
fn store(mapping: &Mapping, page: u64) {
    let place = u32::try_from(page * PAGE / 8).unwrap();
    run(mapping, Op::Write(Kind::Temporal), 8, &[place * 8]);
}

#[test]
fn written_pages_are_told() {
    if let Err(lacking) = probe_pages() {
        eprintln!("skipped: {lacking}");
        return;
    }
    let (file, mapping) = mapping();
    let start = mapping.address();
    let range = start..start + PAGES * PAGE;
    let pages = WrittenPages::open(std::process::id()).unwrap();
    assert!(!pages.are_tracked(&range).unwrap(), "nobody has asked");
    assert_eq!(pages.take(&range).unwrap(), [], "nothing is told unasked");
    let tracked = TrackedPages::of(&range).unwrap();
    assert!(pages.are_tracked(&range).unwrap());
    pages.take(&range).unwrap();
    assert!(
        pages.are_tracked(&range).unwrap(),
        "also where all are protected"
    );
    assert_eq!(pages.take(&range).unwrap(), []);
    let page = |from: u64, to: u64| start + from * PAGE..start + to * PAGE;
    for number in [3, 4, 699] {
        store(&mapping, number);
    }
    assert_eq!(pages.take(&range).unwrap(), [page(3, 5), page(699, 700)]);
    assert_eq!(pages.take(&range).unwrap(), []);
    file.write_all_at(b"by a call", 20 * PAGE).unwrap();
    assert_eq!(pages.take(&range).unwrap(), [], "calls go past the mapping");
    // More ranges than one request takes are told in several.
    let odd: Vec<u64> = (0..PAGES).filter(|number| number % 2 == 1).collect();
    odd.iter().for_each(|number| store(&mapping, *number));
    let expected: Vec<_> = odd.iter().map(|number| page(*number, number + 1)).collect();
    assert_eq!(pages.take(&range).unwrap(), expected);
    drop(tracked);
    assert!(!pages.are_tracked(&range).unwrap(), "it has ended");
}

/// Goal: the look changes nothing, and a kernel of which it is known agrees.
#[test]
fn soft_dirty_bits_are_looked_for() {
    let found = has_soft_dirty().unwrap();
    assert_eq!(has_soft_dirty().unwrap(), found);
    println!("soft-dirty bits: {found}");
}
