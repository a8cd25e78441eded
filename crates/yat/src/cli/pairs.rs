//! `yat pairs`.

use super::Mode;
use super::show::{self, Bar};
use clap::Args;
use yat::campaign::Campaign;
use yat::pairs::{Pair, everything};

#[derive(Debug, Args)]
pub struct Pairs {
    /// Data mode of the pool
    #[arg(long, value_enum, default_value_t = Mode::Both)]
    mode: Mode,
}

pub fn run(arguments: &Pairs, json: bool) -> Result<bool, String> {
    let modes = arguments.mode.modes().iter();
    let all: Vec<Pair> = modes.flat_map(|&mode| everything(mode)).collect();
    let bar = Bar::new(json, all.len() as u64);
    let campaign = Campaign {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        until: None,
        watch: &|counts| bar.at(counts),
    };
    let outcome = campaign.each(&all, Pair::explore);
    bar.finish();
    show::outcome(&outcome, 0, json);
    Ok(outcome.violations.is_empty() && outcome.failures.is_empty())
}
