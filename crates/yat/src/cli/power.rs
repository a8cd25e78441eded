//! `yat power`.

use super::selection::Selection;
use super::show::{self, Bar};
use clap::Args;
use yat::campaign::Campaign;
use yat::explore::Options;
use yat::shrink::explore;

#[derive(Debug, Args)]
pub struct Power {
    #[command(flatten)]
    selection: Selection,
    /// Crash recoveries too, that many deep
    #[arg(long, default_value_t = 0)]
    depth: usize,
}

pub fn run(power: &Power, json: bool) -> Result<bool, String> {
    let selection = &power.selection;
    let workloads: Vec<_> = selection
        .workloads()?
        .into_iter()
        .map(|(program, from)| {
            let options = Options {
                from,
                depth: power.depth,
                seed: selection.seed,
                ..Options::default()
            };
            (program, options)
        })
        .collect();
    let bar = Bar::new(json, workloads.len() as u64);
    let campaign = Campaign {
        threads: selection.threads(),
        until: selection.until(),
        watch: &|counts| bar.at(counts),
    };
    let outcome = campaign.each(&workloads, |(program, options)| explore(program, *options));
    bar.finish();
    show::outcome(&outcome, selection.seed, json, &super::replay::command);
    Ok(outcome.violations.is_empty() && outcome.failures.is_empty())
}
