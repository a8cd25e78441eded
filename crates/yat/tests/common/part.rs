//! The part of a list of planted bugs that a day hunts.

use yat::campaign::{number, seed_of_the_day};

/// One bug in `one_in` (`YAT_BUGS_ONE_IN`), other ones each day (`YAT_SEED`); `YAT_BUG` has all
/// with this in their name.
pub fn of_the_day(names: impl Iterator<Item = &'static str>, one_in: u64) -> Vec<&'static str> {
    if let Ok(part) = std::env::var("YAT_BUG") {
        return names.filter(|name| name.contains(&part)).collect();
    }
    let one_in = number("YAT_BUGS_ONE_IN", one_in);
    println!("YAT_SEED={}", seed_of_the_day());
    let numbered = (seed_of_the_day()..).zip(names);
    let part = numbered.filter(|(nth, _)| nth.is_multiple_of(one_in));
    part.map(|(_, name)| name).collect()
}
