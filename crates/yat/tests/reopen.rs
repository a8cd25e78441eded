//! Goal: a pool that was left clean is believed on the next boot, and only then; what its free
//! lists say is right. Method: the power-loss model over two visits to a pool, the runtime area
//! among what may be lost. The free lists are a page of words that recovery reads all, so their
//! images are sampled.

use pmfs::DataMode;
use yat::explore::explore;
use yat::files::reopen::Reopen;

#[test]
fn a_pool_left_and_opened_again() {
    for mode in [DataMode::Atomic, DataMode::Ordered] {
        for options in Reopen::OPTIONS {
            let explored = explore(&Reopen::new(mode), options).expect("steps that can be done");
            let counts = explored.unwrap_or_else(|violation| panic!("{violation}"));
            println!(
                "{mode:?}: {} points, {} images, {} points sampled",
                counts.points, counts.images, counts.sampled
            );
            assert!(counts.points > 30 && counts.states > 6, "{counts:?}");
        }
    }
}
