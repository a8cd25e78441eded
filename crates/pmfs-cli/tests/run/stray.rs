//! Goal: a store of a program's that goes astray never reaches the pool: a thousand of
//! them, after every kind of call, change nothing. Method: the program makes its calls
//! on a plain directory, and on a pool that is closed in each way; with none, the same
//! store at a file's own bytes arrives, which shows that they are made where they would
//! do harm. The tree at the end has to be the same everywhere, and the pool sound.

use crate::program::Run;

fn strays(protect: &str) {
    let Some(run) = Run::new() else { return };
    let program = run.build("stray.c", &[]);
    let pool = run.pool();
    let pool = pool.to_str().expect("UTF-8");
    let plain = run.plain(&program, &[protect, pool]);
    assert_eq!(plain.code, Some(0), "on a plain directory: {}", plain.text);
    let said = run.closed(protect, &program, &[protect, pool]);
    assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
    let own = |line: &&str| line.starts_with("strays") || line.starts_with("pmfs: ");
    let tree: Vec<&str> = said.text.lines().filter(|line| !own(line)).collect();
    assert_eq!(tree, plain.text.lines().collect::<Vec<_>>());
    let told = said
        .text
        .lines()
        .find(|line| line.contains("a stray store to offset"));
    let wanted = if protect == "none" {
        "arrived"
    } else {
        "refused"
    };
    assert_eq!(told.is_some(), protect != "none", "{}", said.text);
    let at_bytes = format!("strays at the file's own bytes: {wanted}");
    assert!(said.text.contains(&at_bytes), "{}", said.text);
    run.check();
    let count = said.text.lines().find(|line| line.starts_with("strays: "));
    println!("{protect}: {}", count.expect("the program counts"));
}

#[test]
fn strays_into_an_open_pool_arrive() {
    strays("none");
}

#[test]
fn strays_are_refused_by_page_permissions() {
    strays("pages");
}

/// By page permissions a thread's store in a window may fault, because another one has
/// left its own: on an alternate stack too, in the middle of a storm; and a child that
/// shares memory may be killed in one.
fn by_pages(source: &str, argument: &str) {
    let Some(run) = Run::new() else { return };
    let program = run.build(source, &[]);
    let plain = run.plain(&program, &[argument]);
    assert_eq!(plain.code, Some(0), "on a plain directory: {}", plain.text);
    assert_eq!(run.closed("pages", &program, &[argument]), plain);
    run.check();
}

#[test]
fn windows_that_threads_close_over_each_other() {
    by_pages("signals.c", "crowd");
}

#[test]
fn windows_that_a_child_is_killed_in() {
    by_pages("children.c", "vfork");
}

mod keys {
    #[test]
    fn strays_are_refused() {
        if let Err(error) = pmem::protection::keys() {
            println!("skipped: {error}");
            return;
        }
        super::strays("keys");
    }
}
