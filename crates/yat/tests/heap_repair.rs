//! Goal: a crash in the middle of a repair is mended by the next one, and changes nothing that the
//! program sees; what a repair has mended stays so. Method: every crash image of heaps that are
//! damaged in each part and repaired.

use yat::explore::{Options, explore};
use yat::heap::{Repairs, cut, mended};
use yat::program::Program;

fn all(workloads: &[Repairs]) -> u64 {
    let mut images = 0;
    for workload in workloads {
        let counts = explore(workload, Options::default())
            .unwrap()
            .unwrap_or_else(|violation| panic!("{violation}"));
        println!("{} images: {}", counts.images, workload.name());
        assert_eq!(counts.sampled, 0);
        images += counts.images;
    }
    println!("{} workloads, {images} images", workloads.len());
    images
}

#[test]
fn every_image_of_a_repair_is_mended() {
    assert!(all(&mended()) > 1000);
}

/// A heap that becomes shorter is not repaired: no crash in that may damage it.
#[test]
fn every_image_of_a_shorter_heap_is_sound() {
    assert!(all(&cut()) > 100);
}
