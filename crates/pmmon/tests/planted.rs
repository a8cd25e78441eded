//! Goal: planted bugs turn tests red. Method: checks of the other files run once more, each with
//! the bug that it is there for.

use std::panic;

use pmmon::planted::{Bug, with};

#[path = "account.rs"]
mod account;
#[path = "calls.rs"]
mod calls;
#[path = "decode.rs"]
mod decode;
#[path = "media.rs"]
mod media;

fn turns_red(bug: Bug, check: fn()) {
    check();
    let found = panic::catch_unwind(|| with(bug, check)).is_err();
    assert!(found, "{bug:?} is not found");
}

#[test]
fn a_size_off_by_one() {
    turns_red(Bug::SizeOffByOne, decode::sizes_are_those_of_the_manual);
}

#[test]
fn a_wrong_weight() {
    turns_red(Bug::WrongWeight, account::every_draw_of_a_small_world);
}

#[test]
fn a_lost_sample_missed() {
    turns_red(Bug::LostMissed, account::lost_samples_are_made_up_for);
}

#[test]
fn a_wrong_thread() {
    turns_red(Bug::WrongThread, calls::bytes_come_to_their_threads);
}

#[test]
fn a_lost_last_write() {
    turns_red(Bug::LastLost, calls::bytes_come_to_their_threads);
}

#[test]
fn a_short_line_of_the_media() {
    turns_red(Bug::MediaLineShort, media::pairs_have_their_amplification);
}
