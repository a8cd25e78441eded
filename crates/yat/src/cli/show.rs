//! The output of campaigns: a bar on stderr, a result on stdout.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::Instant;
use yat::campaign::Outcome;
use yat::explore::{Counts, Violation};

/// Prints a line. A reader that has stopped misses nothing, and the exit code still says how it
/// ended.
pub fn print_line(line: &dyn std::fmt::Display) {
    if let Err(error) = writeln!(std::io::stdout(), "{line}")
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("yat: stdout: {error}");
    }
}

/// Prints like `println!`, by [`print_line`].
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::show::print_line(&format_args!($($text)*))
    };
}
pub(super) use say;

/// A bar, on a terminal.
pub struct Bar {
    bar: ProgressBar,
    since: Instant,
}

impl Bar {
    pub fn new(json: bool, workloads: u64) -> Bar {
        let bar = if json || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(workloads)
        };
        let template = "{bar:30} {pos}/{len} workloads, {msg}, {eta} left";
        bar.set_style(ProgressStyle::with_template(template).expect("a template that parses"));
        Bar {
            bar,
            since: Instant::now(),
        }
    }

    pub fn at(&self, counts: &Counts) {
        let a_second = counts.images as f64 / self.since.elapsed().as_secs_f64();
        self.bar.set_position(counts.workloads);
        self.bar
            .set_message(format!("{} images, {a_second:.0} a second", counts.images));
    }

    /// Says something at once, above the bar: who waits for hours does not lose it.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The result of a campaign of the power model; `again` is the command that shows a violation once
/// more.
pub fn outcome(outcome: &Outcome, seed: u64, as_json: bool, again: &dyn Fn(&Violation) -> String) {
    let counts = &outcome.counts;
    let seconds = outcome.elapsed.as_secs_f64();
    let a_second = counts.images as f64 / seconds;
    if as_json {
        let violations = outcome.violations.iter().map(|violation| {
            json!({
                "workload": violation.workload,
                "shrunk_from": violation.shrunk_from,
                "crash": violation.crash.to_string(),
                "again": again(violation),
                "place": violation.place.map(ToString::to_string),
                "text": violation.text,
                "after_images": violation.after_images,
            })
        });
        let object = json!({
            "workloads": counts.workloads,
            "steps": counts.steps,
            "points": counts.points,
            "nested_points": counts.nested,
            "images_allowed": counts.allowed,
            "images": counts.images,
            "images_a_second": a_second,
            "sampled_points": counts.sampled,
            "states": counts.states,
            "seconds": seconds,
            "workloads_left": outcome.left,
            "seed": seed,
            "violations": violations.collect::<Vec<_>>(),
            "failures": outcome.failures,
        });
        say!("{object}");
        return;
    }
    for violation in &outcome.violations {
        say!("{violation}");
        say!("again: {}\n", again(violation));
    }
    for failure in &outcome.failures {
        say!("failed: {failure}");
    }
    say!(
        "{} workloads ({} left), {} calls crashed, {} points ({} in recoveries), {:.3e} images allowed, \
         {} images judged (at most {} a point, {} points sampled), {} states, {} violations, {seconds:.1} s, \
         {a_second:.0} images a second",
        counts.workloads,
        outcome.left,
        counts.steps,
        counts.points,
        counts.nested,
        counts.allowed,
        counts.images,
        counts.images_max,
        counts.sampled,
        counts.states,
        outcome.violations.len(),
    );
}

/// The result of a campaign of the kill model.
pub fn kills(outcome: &Outcome, as_json: bool) {
    let counts = &outcome.counts;
    let seconds = outcome.elapsed.as_secs_f64();
    if as_json {
        let object = json!({
            "workloads": counts.workloads,
            "kills": counts.images,
            "undone": counts.states,
            "seconds": seconds,
            "workloads_left": outcome.left,
            "failures": outcome.failures,
        });
        say!("{object}");
        return;
    }
    for failure in &outcome.failures {
        say!("violation: {failure}");
    }
    say!(
        "{} workloads ({} left), {} kills ({} undone), {} violations, {seconds:.1} s, {:.0} kills a second",
        counts.workloads,
        outcome.left,
        counts.images,
        counts.states,
        outcome.failures.len(),
        counts.images as f64 / seconds,
    );
}
