//! `yat sites`.

use super::show::say;
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use yat::sites::{Verdict, recorded, source, verdicts, why_unseen};

#[derive(Debug, Args)]
pub struct Sites {
    /// Switch off the site of this number only
    #[arg(long, value_name = "NUMBER")]
    off: Option<usize>,
    /// Of the workloads of two calls take one in N
    #[arg(long, value_name = "N", default_value_t = 20)]
    one_in: usize,
    /// Write the table to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

pub fn run(sites: &Sites, as_json: bool) -> Result<bool, String> {
    let recorded = recorded(sites.one_in, true)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let verdicts = verdicts(&recorded, cores, |number, _| {
        sites.off.is_none_or(|off| off == number)
    });
    let missed = verdicts
        .iter()
        .filter(|verdict| verdict.missed.is_some())
        .count();
    let unexplained =
        |verdict: &&Verdict| verdict.missed.is_none() && why_unseen(&verdict.site).is_none();
    let unexplained = verdicts.iter().filter(unexplained).count();
    if as_json {
        let rows = verdicts.iter().map(|verdict| {
            json!({
                "site": verdict.site.place.to_string(),
                "what": format!("{:?}", verdict.site.what),
                "in_recovery": verdict.in_recovery,
                "missed_by": verdict.missed,
                "why_not": why_unseen(&verdict.site),
            })
        });
        say!("{}", json!({ "sites": rows.collect::<Vec<_>>() }));
    } else {
        say!("{}", table(&verdicts, sites.off));
        say!(
            "{} sites: {missed} missed, {} with a reason, {unexplained} without",
            verdicts.len(),
            verdicts.len() - missed - unexplained
        );
    }
    if let Some(path) = &sites.write {
        let text = format!("{HEAD}{}", table(&verdicts, None));
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(unexplained == 0)
}

const HEAD: &str = "# Flushes and fences

Each place in the engine that flushes a line or fences, and what goes wrong without it: the first workload in which yat
finds a crash state that may not be, and how many images that took there. Made by `yat sites --write docs/SITES.md`;
`yat sites --off NUMBER` takes one out alone.

";

fn table(verdicts: &[Verdict], number: Option<usize>) -> String {
    let mut text =
        String::from("| number | site | what | source | without it |\n|---|---|---|---|---|\n");
    for (at, verdict) in verdicts.iter().enumerate() {
        let place = verdict.site.place;
        let file = place.file().trim_start_matches("crates/pmfs/src/");
        let without = match (&verdict.missed, why_unseen(&verdict.site)) {
            (Some((workload, images)), _) => format!("{workload} ({images} images)"),
            (None, Some(why)) => format!("not missed: {why}"),
            (None, None) => "**not missed**".into(),
        };
        let _ = writeln!(
            text,
            "| {} | {file}:{}:{} | {:?}{} | `{}` | {without} |",
            number.unwrap_or(at),
            place.line(),
            place.column(),
            verdict.site.what,
            if verdict.in_recovery {
                ", recovery"
            } else {
                ""
            },
            source(&verdict.site).replace('|', "\\|"),
        );
    }
    text
}
