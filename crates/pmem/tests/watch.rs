//! Goal: every page that was stored to is reported once, with no other page that matters, and pages
//! that are not watched are reported as unknown. Method: a file on tmpfs is mapped and stored to,
//! by this process and by the kernel. Skipped where the kernel lacks the feature (before 6.7).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use pmem::view::View;
use pmem::watch::{Stored, Watch};

const PAGE: usize = 4096;
const PAGES: usize = 3 * 512;

/// A mapped file, watched.
struct Watched {
    watch: Watch,
    view: View,
    file: tempfile::NamedTempFile,
}

impl Watched {
    fn new() -> Option<Watched> {
        let watch = match Watch::new() {
            Ok(watch) => watch,
            Err(error) => {
                println!("skipped: stores can't be watched here: {error}");
                return None;
            }
        };
        let file = tempfile::NamedTempFile::new_in(Path::new("/dev/shm")).unwrap();
        file.as_file().set_len((PAGES * PAGE) as u64).unwrap();
        let view = View::of_file(file.path(), PAGE).unwrap();
        let watched = Watched { watch, view, file };
        watched.begin();
        Some(watched)
    }

    fn at(&self, page: usize) -> usize {
        self.view.as_ptr().addr() + page * PAGE
    }

    fn begin(&self) {
        self.watch.begin(self.at(0), PAGES * PAGE).unwrap();
    }

    fn store(&self, page: usize, byte: u8) {
        let at = (page * PAGE + page % PAGE) as u64;
        self.view.write(at, &[byte]).unwrap();
    }

    fn take(&self) -> BTreeSet<usize> {
        let stored = self.watch.take(self.at(0), PAGES * PAGE).unwrap();
        let pages =
            |part: &Stored| (part.start - self.at(0)) / PAGE..(part.end - self.at(0)) / PAGE;
        stored.iter().flat_map(pages).collect()
    }
}

#[test]
fn what_was_stored_is_told_once() {
    let Some(watched) = Watched::new() else {
        return;
    };
    assert_eq!(watched.take(), BTreeSet::new());
    let mut seed = 1u64;
    for round in 0..200u8 {
        let mut stored = BTreeSet::new();
        for _ in 0..usize::from(round) % 40 * 8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let page = (seed >> 33) as usize % PAGES;
            watched.store(page, round);
            stored.insert(page);
        }
        assert_eq!(watched.take(), stored, "round {round}");
        assert_eq!(watched.take(), BTreeSet::new(), "round {round}, again");
    }
    // Pages with more parts than one question can answer, and then one whole range.
    let even: BTreeSet<usize> = (0..PAGES).step_by(2).collect();
    even.iter().for_each(|&page| watched.store(page, 1));
    assert_eq!(watched.take(), even);
    (0..PAGES).for_each(|page| watched.store(page, 2));
    assert_eq!(watched.take(), (0..PAGES).collect());
}

/// Goal: pages that are only read are not reported for ever; stores by the kernel count.
#[test]
fn reads_and_the_kernels_stores() {
    let Some(mut watched) = Watched::new() else {
        return;
    };
    let mut page = [0; PAGE];
    for at in 0..PAGES {
        watched.view.read((at * PAGE) as u64, &mut page).unwrap();
    }
    assert_eq!(watched.take(), BTreeSet::new(), "after loads");
    watched
        .file
        .as_file_mut()
        .write_all(b"written by a call")
        .unwrap();
    watched.file.as_file_mut().rewind().unwrap();
    assert_eq!(watched.take(), BTreeSet::new(), "not through the mapping");
    // read(2) into the mapping: the kernel stores there.
    // SAFETY: bytes of the view that nobody else uses.
    let to = unsafe { std::slice::from_raw_parts_mut(watched.view.as_ptr().add(7 * PAGE), 100) };
    File::open("/proc/self/status")
        .unwrap()
        .read_exact(to)
        .unwrap();
    assert_eq!(watched.take(), BTreeSet::from([7]));
}

#[test]
fn what_is_not_watched_is_unknown() {
    let Some(watched) = Watched::new() else {
        return;
    };
    watched.store(3, 1);
    // A new mapping of the same file over the old one: stores to it are not noted.
    let piece = pmem::view::Piece {
        at: 0,
        off: 0,
        len: (4 * PAGE) as u64,
    };
    watched.view.show(piece).unwrap();
    assert!(watched.watch.take(watched.at(0), PAGES * PAGE).is_err());
    watched.begin();
    assert_eq!(watched.take(), BTreeSet::new());
    watched.store(3, 2);
    assert_eq!(watched.take(), BTreeSet::from([3]));
    watched.watch.end(watched.at(8), 4 * PAGE).unwrap();
    assert!(watched.watch.take(watched.at(0), PAGES * PAGE).is_err());
    drop(watched.watch);
    let another = Watch::new().unwrap();
    assert!(another.take(watched.view.as_ptr().addr(), PAGE).is_err());
}
