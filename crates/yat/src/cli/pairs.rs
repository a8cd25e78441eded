//! `yat pairs`.

use super::Mode;
use super::show::{self, Bar};
use clap::Args;
use yat::campaign::Campaign;
use yat::explore::Violation;
use yat::pairs::{Pair, everything};

#[derive(Debug, Args)]
pub struct Pairs {
    /// Data mode of the pool
    #[arg(long, value_enum, default_value_t = Mode::Both)]
    mode: Mode,
    /// Only the pairs with this in their name: "create d/a || create e/b"
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// The command that explores a violation's pair again.
fn command(violation: &Violation) -> String {
    let workload = violation.workload.as_str();
    let (mode, pair) = workload.split_once(": ").unwrap_or(("both", workload));
    let pair = pair.split(" by schedule").next().unwrap_or(pair);
    format!("yat pairs --mode {} --only '{pair}'", mode.to_lowercase())
}

pub fn run(arguments: &Pairs, json: bool) -> Result<bool, String> {
    let only = arguments.only.as_deref().unwrap_or_default();
    let modes = arguments.mode.modes().iter();
    let all: Vec<Pair> = modes
        .flat_map(|&mode| everything(mode))
        .filter(|pair| pair.name().contains(only))
        .collect();
    if all.is_empty() {
        return Err(format!("no pair has {only:?} in its name"));
    }
    let bar = Bar::new(json, all.len() as u64);
    let campaign = Campaign {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        until: None,
        watch: &|counts| bar.at(counts),
    };
    let outcome = campaign.each(&all, Pair::explore);
    bar.finish();
    show::outcome(&outcome, 0, json, &command);
    Ok(outcome.violations.is_empty() && outcome.failures.is_empty())
}
