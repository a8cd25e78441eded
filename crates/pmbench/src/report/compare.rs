//! Two runs: what became better and what worse, point by point.

use super::summary::{Cell, Figure, Summary, Times};
use super::table::figure as digits;
use crate::experiments::experiment::{Better, Point};

/// A cell that both runs have.
struct Change<'a> {
    experiment: &'a str,
    point: String,
    target: &'a str,
    before: Times,
    after: Times,
    /// More than 1 is better.
    times: f64,
    /// The runs' values don't overlap.
    clear: bool,
}

/// Prints it.
pub fn run(before: &Summary, after: &Summary, json: bool) -> anyhow::Result<()> {
    let mut changes = Vec::new();
    for old in &before.figures {
        let of = |new: &&Figure| new.experiment.name == old.experiment.name;
        if let Some(new) = after.figures.iter().find(of) {
            changes.extend(of_figure(old, new));
        }
    }
    anyhow::ensure!(!changes.is_empty(), "the two runs have no point in common");
    let same = before.asked.quick == after.asked.quick
        && before.machine.processor == after.machine.processor;
    if !same {
        eprintln!("the runs differ in machine or size (--quick): their figures do too");
    }
    for change in &changes {
        print(change, json);
    }
    Ok(())
}

fn of_figure<'a>(old: &'a Figure, new: &'a Figure) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    for point in &old.points {
        let Some(later) = new.points.iter().find(|one| one.labels == point.labels) else {
            continue;
        };
        for (at, series) in old.series.iter().enumerate() {
            let there = new.series.iter().position(|one| one.name == series.name);
            let cells = there.map(|there| (&point.cells[at], &later.cells[there]));
            let Some((before, after)) = cells.and_then(both) else {
                continue;
            };
            let times = match old.experiment.better {
                Better::Higher => after.median / before.median,
                Better::Lower => before.median / after.median,
            };
            changes.push(Change {
                experiment: &old.experiment.name,
                point: Point::text(&point.labels),
                target: &series.name,
                before,
                after,
                times,
                clear: before.most < after.least || after.most < before.least,
            });
        }
    }
    changes
}

fn both((before, after): (&Cell, &Cell)) -> Option<(Times, Times)> {
    before.spread().zip(after.spread())
}

fn print(change: &Change<'_>, json: bool) {
    let (before, after) = (change.before, change.after);
    if json {
        let row = serde_json::json!({
            "experiment": change.experiment, "point": change.point, "target": change.target,
            "before": [before.median, before.least, before.most], "after": [after.median, after.least, after.most],
            "times": change.times, "clear": change.clear,
        });
        println!("{row}");
        return;
    }
    let verdict = match (change.clear, change.times > 1.0) {
        (false, _) => "as before, within the spread",
        (true, true) => "better",
        (true, false) => "worse",
    };
    println!(
        "{:<10} {:<34} {:<12} {:>9} -> {:>9} {:>7.2}x  {verdict}",
        change.experiment,
        change.point,
        change.target,
        digits(before.median),
        digits(after.median),
        change.times,
    );
}
