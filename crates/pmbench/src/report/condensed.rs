//! A run in three small files, to be kept in a tree: `rows.csv` (a table for each experiment,
//! with the value of each round), `machine.json`, and `report.md` (where PMFS loses, and
//! why).
//!
//! The commands that ran and the copies of experiments stay behind: the commit that the report
//! names has them.

use super::summary::{Cell, Figure, Series, Summary, Times};
use super::table::times as times_text;
use crate::experiments::experiment::{Better, Point};
use crate::experiments::results::write_json;
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

/// The target that is PMFS through its mount.
const MOUNT: &str = "pmfs-mount";
/// The file systems that the table of ratios has: their names, and how the table calls them.
const PEERS: [(&str, &str); 3] = [
    ("tmpfs", "tmpfs"),
    ("ext4-loop", "ext4"),
    ("xfs-loop", "XFS"),
];
/// Digits of a value that count.
const DIGITS: usize = 5;

/// Writes the three files into a directory, which is made if need be.
pub fn write(summary: &Summary, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
    for (name, text) in [("rows.csv", rows(summary)), ("report.md", report(summary))] {
        let path = dir.join(name);
        let written = std::fs::write(&path, text);
        written.with_context(|| format!("{} can't be written", path.display()))?;
    }
    write_json(&dir.join("machine.json"), &summary.machine)
}

/// A table for each experiment, with empty lines between: its targets, then a line for each point.
fn rows(summary: &Summary) -> String {
    let tables = summary.figures.iter().map(table);
    tables.collect::<Vec<_>>().join("\n")
}

fn table(figure: &Figure) -> String {
    let experiment = &figure.experiment;
    let better = match experiment.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    };
    let head = format!(
        "{} in {}: {better} is better",
        experiment.name, experiment.unit
    );
    let targets = figure.series.iter().map(|series| series.name.clone());
    let mut text = line(std::iter::once(head).chain(targets));
    for point in &figure.points {
        let cells = point.cells.iter().map(|cell| match cell {
            Cell::Values(values) => in_order(values),
            Cell::Nothing(why) => why.lines().next().unwrap_or("").to_owned(),
        });
        text += &line(std::iter::once(Point::text(&point.labels)).chain(cells));
    }
    text
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.map(|text| field(&text)).collect();
    fields.join(",") + "\n"
}

/// The rounds' values, the first round first.
fn in_order(values: &[(usize, f64)]) -> String {
    let mut values = values.to_vec();
    values.sort_by_key(|(round, _)| *round);
    let texts = values.iter().map(|(_, value)| digits(*value));
    texts.collect::<Vec<_>>().join(";")
}

/// A value with the digits that count, and no zeros behind them.
fn digits(value: f64) -> String {
    let whole = value.abs().max(1e-6).log10().floor() as i32 + 1;
    let after = (DIGITS as i32 - whole).max(0) as usize;
    let text = format!("{value:.after$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A field of a line, in quotes where it needs them.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn report(summary: &Summary) -> String {
    let machine = &summary.machine;
    let mut page = format!(
        "# A run of {}\n\n{} run of commit {}, on {} processors of {}{}, {:.0} GiB, Linux {}, {}. \
         DRAM stands in for persistent memory. `pmbench report --condensed` wrote this page.\n\n\
         {}.\n\n## Ratios\n\n\
         A ratio above 1 says that PMFS, its calls served in the program, is better: the median of an \
         experiment's points, and the range from the worst point to the best. *Loses* counts points at \
         which the other is better, *mount loses* those at which it is better than PMFS through its mount.\n\n",
        machine.date,
        if summary.asked.quick {
            "A small"
        } else {
            "A full"
        },
        summary.asked.commit.as_deref().unwrap_or("unknown"),
        machine.processors,
        machine.processor,
        machine
            .virtual_machine
            .as_deref()
            .map_or(String::new(), |kind| format!(
                ", a virtual machine ({kind})"
            )),
        machine.memory_mib as f64 / 1024.0,
        machine.kernel,
        machine.system,
        summary.noise.text(),
    );
    ratios(&mut page, summary);
    page.push_str("\n## Where PMFS loses, and why\n");
    let mut told = Vec::new();
    for figure in &summary.figures {
        losses(&mut page, figure, &mut told);
    }
    page
}

/// Writes a line for each experiment that has one of the peers.
fn ratios(page: &mut String, summary: &Summary) {
    page.push_str("| experiment | what |");
    for (_, name) in PEERS {
        let _ = write!(page, " against {name} | loses | mount loses |");
    }
    page.push_str("\n|---|---|");
    page.push_str(&"---|---|---|".repeat(PEERS.len()));
    page.push('\n');
    for figure in &summary.figures {
        let at = |peer: &str| figure.series.iter().position(|one| one.name == peer);
        let peers = PEERS.map(|(peer, _)| at(peer));
        if figure.ours().is_empty() || peers.iter().all(Option::is_none) {
            continue;
        }
        let experiment = &figure.experiment;
        let _ = write!(page, "| `{}` | {} |", experiment.name, experiment.title);
        for peer in peers {
            let cells = peer.map_or([String::new(), String::new(), String::new()], |peer| {
                against(figure, peer)
            });
            let _ = write!(page, " {} |", cells.join(" | "));
        }
        page.push('\n');
    }
}

/// The ratio, how often PMFS loses, and how often its mount does.
fn against(figure: &Figure, peer: usize) -> [String; 3] {
    let ours = figure.ours();
    let medians = |ours: usize| {
        let all = figure.all_times(ours, peer);
        let mut medians: Vec<f64> = all.iter().map(|(_, times)| times.median).collect();
        medians.sort_by(f64::total_cmp);
        medians
    };
    let lost = |medians: &[f64], unmeasured: usize| {
        let lost = medians.iter().filter(|times| **times < 1.0).count();
        match (medians.len(), unmeasured) {
            (0, _) => String::new(),
            (all, 0) => format!("{lost} of {all}"),
            (all, failed) => format!("{lost} of {all}, {failed} failed"),
        }
    };
    let first = ours[0];
    let of_program = medians(first);
    let mount = ours.iter().find(|at| figure.series[**at].name == MOUNT);
    let of_mount = mount.map_or(String::new(), |at| {
        lost(&medians(*at), figure.unmeasured(*at))
    });
    let (Some(least), Some(most)) = (of_program.first(), of_program.last()) else {
        return [String::new(), String::new(), of_mount];
    };
    let ratio = format!(
        "{} ({} to {})",
        // The worse of two in the middle counts.
        times_text(of_program[(of_program.len() - 1) / 2]),
        times_text(*least),
        times_text(*most)
    );
    [ratio, lost(&of_program, figure.unmeasured(first)), of_mount]
}

/// The points at which the first of ours loses, and the reasons of all that fall short; those told
/// before are left out.
fn losses<'a>(page: &mut String, figure: &'a Figure, told: &mut Vec<&'a str>) {
    let ours = figure.ours();
    let Some(first) = ours.first() else {
        return;
    };
    let lost = figure.losses(*first);
    let short = ours.iter().filter(|at| figure.falls_short(**at));
    let why: Vec<&Series> = short
        .map(|at| &figure.series[*at])
        .filter(|one| !one.why.is_empty() && !told.contains(&one.why.as_str()))
        .collect();
    told.extend(why.iter().map(|one| one.why.as_str()));
    if lost.is_empty() && why.is_empty() {
        return;
    }
    let experiment = &figure.experiment;
    let _ = writeln!(page, "\n### {}: {}\n", experiment.name, experiment.title);
    for loss in &lost {
        let Times {
            median,
            least,
            most,
        } = loss.times;
        let [median, least, most] = [median, least, most].map(times_text);
        let point = Point::text(loss.labels);
        let peer = &loss.peer.name;
        let _ = writeln!(page, "- {point}: {median} of {peer} ({least} to {most})");
    }
    for series in why {
        for (at, paragraph) in series.why.split("\n\n").enumerate() {
            let words = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
            let name = match at {
                0 => format!("Why {}: ", series.name),
                _ => String::new(),
            };
            let _ = writeln!(page, "\n{name}{words}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_the_digits_that_count() {
        for (value, text) in [
            (1_234_567.8, "1234568"),
            (598.286_208, "598.29"),
            (0.012_345_678, "0.012346"),
            (100.0, "100"),
            (0.0, "0"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
