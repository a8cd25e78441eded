//! The parts that the campaigns of the tests share.

use yat::campaign::Outcome;

/// Says what was looked at; nothing must be wrong.
pub fn sound(outcome: &Outcome) {
    let counts = outcome.counts;
    println!(
        "{} workloads ({} left), {} points ({} in recoveries), {} images",
        counts.workloads, outcome.left, counts.points, counts.nested, counts.images
    );
    let texts: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
    assert!(counts.workloads > 0, "some were explored");
}
