//! Hunts for planted bugs. The selected bug is a process's, so each hunt is a process, and as many
//! go on at once as there are processors.

use std::process::{Command, Output};
use std::sync::Mutex;

/// The bug that a child hunts; empty: none.
const HUNT: &str = "YAT_HUNT";

/// Hunts each of these bugs, the first ones first, by the test `one_hunt` in a child, which is
/// ignored otherwise.
///
/// # Panics
/// A hunt failed.
pub fn hunt_each(bugs: Vec<&str>) {
    assert!(!bugs.is_empty(), "no bug has that name");
    let left = Mutex::new(bugs.into_iter());
    let next = || left.lock().expect("no hunt panics").next();
    let failed = Mutex::new(Vec::new());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(bug) = next() {
                    let ended = in_a_process(bug);
                    let said = said(&ended);
                    print!("{said}");
                    // A child that ran no test succeeds too, and says nothing.
                    if !ended.status.success() || said.is_empty() {
                        failed.lock().expect("no hunt panics").push(bug);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no hunt panics");
    assert!(
        failed.is_empty(),
        "not found, or, without a name, found: {failed:?}"
    );
}

/// The bug that this process is to hunt.
///
/// # Panics
/// It is no child of [`hunt_each`].
pub fn hunted() -> String {
    std::env::var(HUNT).expect("a bug's name, or none")
}

fn in_a_process(bug: &str) -> Output {
    let program = std::env::current_exe().expect("a test has a file");
    Command::new(program)
        .args(["--exact", "one_hunt", "--ignored", "--nocapture"])
        .env(HUNT, bug)
        .output()
        .expect("a child")
}

/// The words of a hunt, without the frame of a test; all of one that failed.
fn said(ended: &Output) -> String {
    let text = String::from_utf8_lossy(&ended.stdout);
    if !ended.status.success() {
        return format!("{text}{}", String::from_utf8_lossy(&ended.stderr));
    }
    let lines = text.lines().filter(|line| line.starts_with("hunted "));
    lines.flat_map(|line| [line, "\n"]).collect()
}
