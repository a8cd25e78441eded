//! `yat mutants`.

use super::show::say;
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use yat::mutants::{RULES, Verdict, hunt, source, standing, why_unseen};

#[derive(Debug, Args)]
pub struct Mutants {
    /// Hunt only those whose place or rule contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Take one in N of the mutants
    #[arg(long, value_name = "N", default_value_t = 1)]
    sample: usize,
    /// Take one in N of the workloads of two calls
    #[arg(long, value_name = "N", default_value_t = 20)]
    one_in: usize,
    /// Leave recoveries out, whose places take most of the time
    #[arg(long)]
    no_recoveries: bool,
    /// Threads; 0: one a core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Write the table to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Write the counts by rule into this file, between its marks
    #[arg(long, value_name = "FILE")]
    count_in: Option<PathBuf>,
}

pub fn run(mutants: &Mutants, as_json: bool) -> Result<bool, String> {
    let threads = match mutants.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let recoveries = !mutants.no_recoveries;
    let recorded = standing(mutants.one_in, recoveries, threads, |done, all| {
        if done % 50 == 0 {
            eprintln!("{done} of {all} workloads recorded");
        }
    })?;
    let chosen = |number: usize, mutant: &yat::mutants::Mutant| {
        let name = format!("{} {}", mutant.site.place, mutant.rule.words());
        let only = mutants.only.as_ref();
        number.is_multiple_of(mutants.sample.max(1)) && only.is_none_or(|only| name.contains(only))
    };
    let verdicts = hunt(&recorded, threads, chosen, |done, all| {
        if done % 50 == 0 {
            eprintln!("{done} of {all} mutants");
        }
    });
    let unexplained = |verdict: &&Verdict| fate(verdict) == Fate::Missed;
    let unexplained = verdicts.iter().filter(unexplained).count();
    if as_json {
        let rows = verdicts.iter().map(|verdict| {
            json!({
                "place": verdict.mutant.site.place.to_string(),
                "what": format!("{:?}", verdict.mutant.site.what),
                "rule": verdict.mutant.rule.words(),
                "in_recovery": verdict.in_recovery,
                "caught_by": verdict.caught,
                "why_not": why_unseen(&verdict.mutant),
            })
        });
        say!("{}", json!({ "mutants": rows.collect::<Vec<_>>() }));
    } else {
        say!("{}", table(&verdicts));
        say!("{}", counts(&verdicts));
        let of = |fate_of| verdicts.iter().filter(|one| fate(one) == fate_of).count();
        say!(
            "{} mutants: {} caught, {} with a reason, {unexplained} without",
            verdicts.len(),
            of(Fate::Caught),
            of(Fate::Excused),
        );
    }
    if let Some(path) = &mutants.write {
        let text = format!("{HEAD}{}", table(&verdicts));
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &mutants.count_in {
        replace(path, &counts(&verdicts))?;
    }
    Ok(unexplained == 0)
}

const HEAD: &str = "# Mutants

Each place in the engine that stores, flushes a line or fences, got wrong by each rule that changes anything there; and the first
workload in which yat finds a crash state that may not be, with how many images that took. Made by
`yat mutants --write FILE`; `yat mutants --only TEXT` hunts some alone.

";

const BEGIN: &str = "<!-- mutants: begin -->\n";
const END: &str = "<!-- mutants: end -->";

/// Puts `text` between a file's marks.
fn replace(path: &Path, text: &str) -> Result<(), String> {
    let words = |error| format!("{}: {error}", path.display());
    let old = std::fs::read_to_string(path).map_err(words)?;
    let parts = old.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("{}: no marks", path.display()))?;
    std::fs::write(path, format!("{before}{BEGIN}{text}{END}{after}")).map_err(words)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Caught,
    Excused,
    Missed,
}

fn fate(verdict: &Verdict) -> Fate {
    if verdict.caught.is_some() {
        Fate::Caught
    } else if why_unseen(&verdict.mutant).is_some() {
        Fate::Excused
    } else {
        Fate::Missed
    }
}

/// Returns how many there are by rule.
fn counts(verdicts: &[Verdict]) -> String {
    let mut text = String::from(
        "| rule | mutants | caught | with a reason | missed |\n|---|---|---|---|---|\n",
    );
    for rule in RULES {
        let of = verdicts.iter().filter(|one| one.mutant.rule == rule);
        let fates: Vec<Fate> = of.map(fate).collect();
        let count = |fate| fates.iter().filter(|&&one| one == fate).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            rule.words(),
            fates.len(),
            count(Fate::Caught),
            count(Fate::Excused),
            count(Fate::Missed),
        );
    }
    text
}

fn table(verdicts: &[Verdict]) -> String {
    let mut text =
        String::from("| place | what | rule | source | caught by |\n|---|---|---|---|---|\n");
    for verdict in verdicts {
        let site = verdict.mutant.site;
        let file = site.place.file().trim_start_matches("crates/");
        let caught = match (&verdict.caught, why_unseen(&verdict.mutant)) {
            (Some((workload, images)), _) => format!("{workload} ({images} images)"),
            (None, Some(why)) => format!("not caught: {why}"),
            (None, None) => "**not caught**".into(),
        };
        let _ = writeln!(
            text,
            "| {file}:{}:{} | {:?}{} | {} | `{}` | {caught} |",
            site.place.line(),
            site.place.column(),
            site.what,
            if verdict.in_recovery {
                ", recovery"
            } else {
                ""
            },
            verdict.mutant.rule.words(),
            source(&site).replace('|', "\\|"),
        );
    }
    text
}
