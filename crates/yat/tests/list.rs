//! Goal: yat serves programs that are no file systems: it finds what is wrong with one, and nothing
//! where nothing is. Method: the example's list, as it should be and with its planted bug; crashes
//! of what uses it are looked at too.

#[path = "../examples/list.rs"]
#[allow(dead_code, reason = "its main is the example's")]
mod list;

use yat::explore::{Explorer, Options, explore, record};

#[test]
fn the_list_is_sound() {
    let counts = explore(&list::workload(false), Options::default())
        .unwrap()
        .unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(counts.steps, 8);
    // Each append has two fences and a return, each removal that finds something one and a return.
    assert_eq!(counts.points, 4 * 3 + 3 * 2 + 1);
    assert!(counts.images > counts.points, "lines are lost and kept");
}

#[test]
fn a_node_published_too_early_is_found() {
    let program = list::workload(true);
    let violation = explore(&program, Options::default()).unwrap().unwrap_err();
    println!("{violation}");
    let place = violation.place.expect("at a fence, not at a return");
    assert!(place.file().ends_with("examples/list.rs"), "{place}");
    assert_eq!(violation.step, "Append(1)");
    let lost = |&(_, _, there): &_| there == Some(false);
    assert!(violation.stores.iter().any(lost), "what is lost is named");
    // The report alone gives the same again.
    let recording = record(&program).unwrap();
    let crash = violation.crash.to_string().parse().unwrap();
    let again = Explorer::new(&program, &recording, Options::default())
        .replay(&crash)
        .unwrap_err();
    assert_eq!(again.text, violation.text);
}
