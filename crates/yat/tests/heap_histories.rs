//! Goal: three processes that use one heap at once see it as if their calls came one after the
//! other, over kills and power loss. Method: calls on containers and words by a schedule of chance,
//! with crashes at any step; a search for an order that explains all answers. One number makes a
//! round again: `YAT_HISTORY_SEED`, with `YAT_HISTORIES=1`; that says how many rounds there are.

use yat::campaign::number;
use yat::heap::histories::{Histories, is_made_again, round};

#[test]
fn some_order_explains_what_all_saw() {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let first = number("YAT_HISTORY_SEED", now.as_nanos() as u64 >> 10);
    let rounds = number("YAT_HISTORIES", 200);
    println!("YAT_HISTORY_SEED={first}");
    let mut total = Histories::default();
    for nth in 0..rounds {
        total += round(first.wrapping_add(nth)).unwrap_or_else(|text| panic!("{text}"));
    }
    let [kills, kills_of_all, power] = total.crashes;
    println!(
        "{} histories, {} calls, {} cut off, {kills} kills, {kills_of_all} kills of all, {power} \
         losses of power, {} steps, {} states of the search",
        total.rounds, total.calls, total.cut_off, total.steps, total.states
    );
    assert!(rounds < 100 || (kills > 0 && kills_of_all > 0 && power > 0 && total.cut_off > 0));
}

#[test]
fn a_seed_makes_a_history_again() {
    for seed in 1..5 {
        assert!(
            is_made_again(seed).unwrap_or_else(|text| panic!("{text}")),
            "{seed}"
        );
    }
}
