//! `yat kill`.

use super::selection::Selection;
use super::show::{self, Bar};
use clap::Args;
use yat::campaign::Campaign;
use yat::kill::kill_everywhere;

#[derive(Debug, Args)]
pub struct Kill {
    #[command(flatten)]
    selection: Selection,
}

pub fn run(kill: &Kill, json: bool) -> Result<bool, String> {
    let selection = &kill.selection;
    let workloads = selection.workloads()?;
    let bar = Bar::new(json, workloads.len() as u64);
    let campaign = Campaign {
        threads: selection.threads(),
        until: selection.until(),
        watch: &|counts| bar.at(counts),
    };
    let memory = std::path::Path::new("/dev/shm");
    let outcome = campaign.each(&workloads, |(program, from)| {
        let dir = tempfile::tempdir_in(memory).map_err(|error| error.to_string())?;
        let kills = kill_everywhere(program, *from, dir.path())?;
        Ok(Ok(kills.into()))
    });
    bar.finish();
    show::kills(&outcome, json);
    Ok(outcome.failures.is_empty())
}
