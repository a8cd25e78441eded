//! `yat bugs`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Bugs {
    /// Hunt only bugs with this in their name, and leave the clean run out
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Write the table to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[cfg(not(feature = "planted-bugs"))]
pub fn run(_bugs: &Bugs, _json: bool) -> Result<bool, String> {
    let how = "cargo run --release -p yat --features planted-bugs -- bugs";
    Err(format!("no planted bugs are in this build: {how}"))
}

#[cfg(feature = "planted-bugs")]
pub use hunt::run;

#[cfg(feature = "planted-bugs")]
mod hunt {
    use super::super::show::say;
    use super::Bugs;
    use pmfs::planted::{BUGS, Bug};
    use serde_json::{Value, json};
    use std::fmt::Write as _;
    use std::path::Path;
    use std::time::Instant;
    use yat::planted::{Hunt, Hunter};

    /// One bug and what became of the hunt for it.
    struct Row {
        bug: Bug,
        hunt: Hunt,
        seconds: f64,
    }

    pub fn run(bugs: &Bugs, as_json: bool) -> Result<bool, String> {
        let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let hunter = Hunter {
            dir: dir.path(),
            one_in: 1,
        };
        let only = bugs.only.as_deref().unwrap_or_default();
        let chosen: Vec<Bug> = BUGS
            .iter()
            .filter(|bug| bug.name.contains(only))
            .copied()
            .collect();
        if chosen.is_empty() {
            return Err(format!("no planted bug has {only:?} in its name"));
        }
        let since = Instant::now();
        let mut rows = Vec::new();
        for bug in chosen {
            let since = Instant::now();
            let hunt = hunter.hunt(&bug);
            let row = Row {
                bug,
                hunt,
                seconds: since.elapsed().as_secs_f64(),
            };
            if !as_json {
                say!("{}", line(&row));
            }
            rows.push(row);
        }
        let clean = bugs.only.is_none().then(|| hunter.clean());
        let found = rows.iter().filter(|row| row.hunt.finding.is_some()).count();
        let false_alarm = clean.as_ref().and_then(|clean| clean.finding.as_ref());
        if as_json {
            say!("{}", object(&rows, clean.as_ref()));
        } else {
            if let Some(clean) = &clean {
                say!("no bug: {}", totals(clean));
            }
            if let Some(finding) = false_alarm {
                say!("no bug, but {}: {}", finding.workload, finding.text);
            }
            say!(
                "{found} of {} planted bugs found, {} false alarms, {:.0} s",
                rows.len(),
                u8::from(false_alarm.is_some()),
                since.elapsed().as_secs_f64()
            );
        }
        if let Some(path) = &bugs.write {
            write(path, &rows, clean.as_ref())?;
        }
        Ok(found == rows.len() && false_alarm.is_none())
    }

    fn line(row: &Row) -> String {
        let (name, seconds) = (row.bug.name, row.seconds);
        let states = row.hunt.states();
        match &row.hunt.finding {
            Some(finding) => format!(
                "{name}: {}, {}: after {states} {} ({seconds:.1} s)",
                finding.search,
                finding.workload,
                unit(&row.hunt)
            ),
            None => format!(
                "{name}: NOT FOUND in {} ({seconds:.1} s)",
                totals(&row.hunt)
            ),
        }
    }

    /// Returns what a hunt's states are, if one search sufficed.
    fn unit(hunt: &Hunt) -> &'static str {
        let mut units = hunt.seen.iter().filter(|(_, states)| *states > 0);
        match (units.next(), units.next(), &hunt.finding) {
            (Some((search, _)), None, Some(finding)) if *search == finding.search => search.unit(),
            (None, _, Some(finding)) => finding.search.unit(),
            _ => "states",
        }
    }

    fn totals(hunt: &Hunt) -> String {
        let seen = hunt.seen.iter();
        let texts: Vec<String> = seen
            .map(|(search, states)| format!("{search} {states} {}", search.unit()))
            .collect();
        texts.join("; ")
    }

    fn seen(hunt: &Hunt) -> Vec<Value> {
        let seen = hunt.seen.iter();
        seen.map(|(search, states)| {
            json!({ "search": search.to_string(), "unit": search.unit(), "states": states })
        })
        .collect()
    }

    fn object(rows: &[Row], clean: Option<&Hunt>) -> Value {
        let bugs: Vec<Value> = rows
            .iter()
            .map(|row| {
                let finding = row.hunt.finding.as_ref();
                json!({
                    "bug": row.bug.name,
                    "twin": row.bug.twin,
                    "what": row.bug.what,
                    "needs": format!("{:?}", row.bug.needs),
                    "search": finding.map(|finding| finding.search.to_string()),
                    "workload": finding.map(|finding| &finding.workload),
                    "text": finding.map(|finding| &finding.text),
                    "states": row.hunt.states(),
                    "seen": seen(&row.hunt),
                    "seconds": row.seconds,
                })
            })
            .collect();
        let clean = clean.map(|clean| {
            json!({ "seen": seen(clean), "false_alarm": clean.finding.as_ref().map(|it| &it.text) })
        });
        json!({ "bugs": bugs, "clean": clean })
    }

    const HEAD: &str = "# Planted bugs

Each bug that can be planted in the engine (`crates/pm-store/src/planted/list.rs`), and what yat found it with: the first
search and workload that saw something wrong, and the number of states (crash images, kills, stops) judged until then,
by all searches that came before. Made by
`cargo run --release -p yat --features planted-bugs -- bugs --write FILE`.

| bug | twin | what it does | found by | workload | states |
|---|---|---|---|---|---|
";

    fn write(path: &Path, rows: &[Row], clean: Option<&Hunt>) -> Result<(), String> {
        let mut text = String::from(HEAD);
        for row in rows {
            let bug = &row.bug;
            let (search, workload) = match &row.hunt.finding {
                Some(finding) => (finding.search.to_string(), finding.workload.as_str()),
                None => ("**not found**".into(), ""),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {search} | {} | {} {} |",
                bug.name,
                bug.twin,
                bug.what,
                workload.replace('|', "\\|"),
                row.hunt.states(),
                unit(&row.hunt)
            );
        }
        let found = rows.iter().filter(|row| row.hunt.finding.is_some()).count();
        let _ = writeln!(text, "\n{found} of {} found.", rows.len());
        if let Some(clean) = clean {
            let alarm = match &clean.finding {
                None => "nothing was found".into(),
                Some(finding) => format!("**A false alarm: {}**", finding.workload),
            };
            let _ = writeln!(
                text,
                "\nAll searches with no bug there: {alarm}: {}.",
                totals(clean)
            );
        }
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
